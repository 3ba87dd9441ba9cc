"""Debezium's envelope, and positions: any two changes of a database are ordered as its log has them."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.records.changes import (
    DELETED,
    POSITION,
    POSITION_TYPE,
    NotAnEnvelopeError,
    columns_with_changes,
    envelope_around,
    envelope_of,
    position_of,
    position_sql,
    unavailable_sql,
)

ROW = {
    "type": "struct",
    "fields": [{"name": "id", "type": "long", "nullable": False, "metadata": {}}],
}
files = st.integers(1, 10**12)
places = st.integers(4, 2**32 - 1)
rows = st.integers(0, 49_999)
mysql_positions = st.tuples(files, places, rows)


def mysql(file: int, place: int, row: int = 0, **more: Any) -> Decimal:
    found = position_of({"file": f"mysql-bin.{file:06}", "pos": place, "row": row, **more})
    assert found is not None
    return found


def postgresql(lsn: int, **more: Any) -> Decimal:
    found = position_of({"lsn": lsn, "snapshot": "false", **more})
    assert found is not None
    return found


@given(mysql_positions, mysql_positions)
def test_mysql_orders_by_file_then_place_then_row(one, other):
    assert (mysql(*one) < mysql(*other)) == (one < other)
    assert (mysql(*one) == mysql(*other)) == (one == other)


@pytest.mark.parametrize(("before", "after"), [(9, 10), (99, 100), (999_999, 1_000_000), (1_999_999, 2_000_000)])
def test_a_binlog_that_rolls_over_goes_on(before, after):
    assert mysql(before, 2**32 - 1, 8_000) < mysql(after, 4)


@given(files, places, st.integers(1, 49_999))
def test_below_a_change_there_is_room_for_what_it_undoes(file, place, row):
    assert mysql(file, place, row - 1) < mysql(file, place, row) - Decimal("1e-15") < mysql(file, place, row)


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1))
def test_postgresql_orders_by_lsn(one, other):
    assert (postgresql(one) < postgresql(other)) == (one < other)


@given(st.integers(0, 2**63 - 1), st.sampled_from(["true", "first", "last", "incremental"]))
def test_a_row_of_a_snapshot_comes_before_the_change_at_its_position(lsn, snapshot):
    assert postgresql(lsn, snapshot=snapshot) < postgresql(lsn)
    assert lsn == 0 or postgresql(lsn - 1) < postgresql(lsn, snapshot=snapshot)


@given(st.one_of(mysql_positions.map(lambda p: mysql(*p)), st.integers(0, 2**63 - 1).map(postgresql)))
def test_hudi_can_write_every_position_into_a_delete_block(position):
    _, digits, exponent = position.as_tuple()
    assert -15 <= int(exponent) <= 0
    assert len(digits) + int(exponent) <= 15
    assert POSITION_TYPE == "decimal(30,15)"


def test_a_position_reads_like_the_logs_own():
    assert str(mysql(9, 154, 2)) == "9.000000015400005"
    assert str(postgresql(0x16_B374_D848)) == f"{0x16}.{0xB374D848:010}00001"


def test_snapshots_without_a_position_come_first_and_changes_without_one_have_none():
    assert position_of({"snapshot": "true", "lsn": None}) == 0
    assert position_of({"snapshot": True, "file": None}) == 0
    assert position_of({"snapshot": "false", "lsn": None}) is None
    assert position_of({"scn": "17"}) is None


@pytest.mark.parametrize(
    "source",
    [
        {"file": "mysql-bin.000001", "pos": 10**10},
        {"file": "mysql-bin.000001", "pos": 4, "row": 50_000},
        {"file": "mysql-bin.000001", "pos": -1},
        {"file": "mysql-bin", "pos": 4},
        {"file": f"mysql-bin.{10**15}", "pos": 4},
    ],
)
def test_a_position_that_would_be_cut_off_is_none(source):
    assert position_of(source) is None


def test_an_envelope_is_found_plain_and_in_connects_wrapper():
    plain = envelope_around(ROW)
    found = envelope_of(plain)
    assert found.path == ()
    assert [f["name"] for f in found.row["fields"]] == ["id"]
    assert {"lsn", "file", "pos", "row", "snapshot"} <= found.source
    schema = {"name": "schema", "type": "string", "nullable": True, "metadata": {}}
    payload = {"name": "payload", "type": plain, "nullable": True, "metadata": {}}
    wrapped = envelope_of({"type": "struct", "fields": [schema, payload]})
    assert wrapped.path == ("payload",)
    assert wrapped.field("source", "lsn") == "`payload`.`source`.`lsn`"


def test_a_plain_row_is_no_envelope():
    with pytest.raises(NotAnEnvelopeError, match="this record has id"):
        envelope_of(ROW)


def test_the_sql_takes_only_fields_that_are_there():
    """Avro's envelope of one database doesn't have the other's fields."""
    source = {"type": "struct", "fields": [{"name": "lsn", "type": "long"}, {"name": "snapshot", "type": "string"}]}
    fields = [("after", ROW), ("source", source), ("op", "string")]
    struct = {"type": "struct", "fields": [{"name": n, "type": t} for n, t in fields]}
    text = position_sql(envelope_of(struct))
    assert "`source`.`lsn`" in text
    assert "`file`" not in text


@pytest.mark.parametrize("soft", [False, True])
def test_a_table_gets_its_further_columns_once(soft):
    added = columns_with_changes(ROW, "debezium", soft=soft)
    names = [f["name"] for f in added["fields"]]
    assert names == ["id", POSITION, *([DELETED] if soft else [])]
    assert columns_with_changes(added, "debezium", soft=soft) == added
    assert columns_with_changes(ROW, "tombstones", soft=False)["fields"][-1]["type"] == "long"


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        ("string", "c = cast(unhex('6e6f') as string)"),
        ("binary", "c = unhex('6e6f')"),
        ({"type": "array", "elementType": "integer"}, "c = cast(array(110, 111) as array<int>)"),
        ({"type": "array", "elementType": "long"}, "c = cast(array(110, 111) as array<bigint>)"),
        ({"type": "array", "elementType": "double"}, None),
        ({"type": "map", "keyType": "string", "valueType": "long"}, None),
        ("long", None),
    ],
)
def test_the_placeholder_has_the_columns_type(kind, found):
    assert unavailable_sql("c", kind, "no") == found


def test_the_placeholder_of_uuids_is_the_one_that_java_makes_of_its_bytes():
    made = unavailable_sql("c", {"type": "array", "elementType": "string"}, "__debezium_unavailable_value")
    assert made is not None
    assert "array('b68a35a7-17ad-35b3-af2a-ae46edb4545a')" in made
