"""How schemas of records and a table's columns come together: nothing that a record holds may fall away."""

from __future__ import annotations

import pytest

from sluice.records.columns import incoming
from sluice.records.pinning import (
    fields_of_table,
    part_of_table,
    pinned_by_cluster,
    pinned_format,
    rows_of,
    still_known,
    twice,
)
from sluice.records.plan import ClusterSchemas, Format, RecordPlan, WriterSchema
from sluice.records.settings import Converter, Transform
from sluice.records.structs import field, names, struct

AVRO = Converter(converter="avro", registry="registry")


def of(**types: str):
    return struct([field(name, kind) for name, kind in types.items()])


def types(kind) -> dict[str, str]:
    return {f["name"]: f["type"] for f in kind["fields"]}


def test_removed_and_added_fields_of_all_versions_are_kept():
    newest = WriterSchema(id=3, struct=of(a="long", c="string"))
    older = WriterSchema(id=2, struct=of(a="integer", b="string"))
    found = pinned_format(AVRO, [newest, older], None)
    assert types(found.struct) == {"a": "long", "c": "string", "b": "string"}
    assert [s.incompatible for s in found.schemas] == [None, None]


def test_the_newest_schema_decides_for_a_new_table_and_the_table_for_an_old_one():
    newest = WriterSchema(id=2, struct=of(a="string"))
    older = WriterSchema(id=1, struct=of(a="integer"))
    found = pinned_format(AVRO, [newest, older], None)
    assert types(found.struct) == {"a": "string"}
    assert [s.incompatible for s in found.schemas] == [None, "a is STRING here and INT there"]
    found = pinned_format(AVRO, [newest, older], of(a="integer"))
    assert types(found.struct) == {"a": "integer"}
    assert [s.incompatible is None for s in found.schemas] == [False, True]


def of_registry(name: str, *schemas: WriterSchema, **more: str) -> ClusterSchemas:
    return ClusterSchemas(clusters=(name,), connection=name, registry=more.get("at", f"http://{name}"), schemas=schemas)


def test_the_schemas_of_several_registries_have_one_type_and_keep_their_ids_apart():
    east = of_registry("east", WriterSchema(id=2, struct=of(a="long")), WriterSchema(id=1, struct=of(a="integer")))
    west = of_registry("west", WriterSchema(id=2, struct=of(a="string")), WriterSchema(id=1, struct=of(b="string")))
    found = pinned_by_cluster(AVRO, [east, west, of_registry("north")], None)
    assert types(found.struct) == {"a": "long", "b": "string"}
    assert (found.schemas, found.registry, found.registered) == ((), None, True)
    assert [[(s.id, s.incompatible) for s in one.schemas] for one in found.by_cluster] == [
        [(2, None), (1, None)], [(2, "a is BIGINT here and STRING there"), (1, None)], [],
    ]  # fmt: skip


def test_what_an_interval_pinned_is_known_of_the_same_registry_alone():
    """Environments of one cloud may share an address: there the connection's log-in says which registry it is."""
    one, other = WriterSchema(id=1, struct=of(a="long")), WriterSchema(id=1, struct=of(b="long"))
    last = pinned_by_cluster(
        AVRO, [of_registry("east", one, at="http://r"), of_registry("west", other, at="http://r")], None
    )
    assert still_known(last, AVRO, "east", "http://r") == (one,)
    assert still_known(last, AVRO, "west", "http://r") == (other,)
    assert still_known(last, AVRO, "west", "http://moved") == still_known(last, AVRO, "north", "http://r") == ()
    single = pinned_format(AVRO, [one], None, "http://r")
    assert still_known(single, AVRO, "registry", "http://r") == (one,)
    assert still_known(single, AVRO, "west", "http://r") == still_known(None, AVRO, "registry", "http://r") == ()
    another = AVRO.model_copy(update={"converter": "json_schema"})
    assert still_known(last, another, "east", "http://r") == still_known(single, another, "registry", "http://r") == ()


@pytest.mark.parametrize(("one", "other", "wide"), [("integer", "long", "long"), ("float", "double", "double")])
def test_one_value_widens_like_a_field(one, other, wide):
    schemas = [WriterSchema(id=2, struct=one), WriterSchema(id=1, struct=other)]
    assert pinned_format(AVRO, schemas, None).struct == wide


def test_a_primitive_and_a_struct_have_nothing_in_common():
    schemas = [WriterSchema(id=2, struct="long"), WriterSchema(id=1, struct=of(a="long"))]
    found = pinned_format(AVRO, schemas, None)
    assert found.struct == "long"
    assert found.schemas[1].incompatible == "value is BIGINT here and STRUCT<a: BIGINT> there"


def test_columns_of_a_table_keep_their_order_and_new_ones_follow():
    plan = RecordPlan(value=Format(struct=of(c="string", b="long", a="integer")))
    rows = rows_of(of(a="integer", b="integer"), None, plan)
    assert types(rows.columns) == {"a": "integer", "b": "long", "c": "string"}
    assert names(rows.columns) == ["a", "b", "c"]
    assert not rows.conflicts
    assert not rows.left_out


def test_a_column_that_the_pipeline_file_leaves_out_is_told():
    rows = rows_of(of(a="integer", b="integer"), of(a="integer"), RecordPlan())
    assert rows.left_out == ("b",)


def test_not_null_is_asked_of_records_though_the_table_is_nullable():
    given = struct([field("a", "integer", nullable=False)])
    assert rows_of(of(a="integer"), given, RecordPlan()).columns["fields"][0]["nullable"] is False


def test_a_record_of_value_key_and_place():
    plan = RecordPlan(
        value=Format(struct=of(id="long", v="string")),
        key=Format(struct=of(id="long", region="string")),
        columns={"at": "timestamp"},
    )
    assert twice(plan) == []
    assert types(incoming(plan)) == {"id": "long", "v": "string", "region": "string", "at": "timestamp"}
    named = plan.model_copy(update={"key": Format(struct="string", as_="k")})
    assert types(incoming(named))["k"] == "string"


def test_a_value_without_a_schema_has_the_columns_that_come_from_nowhere_else():
    plan = RecordPlan(key=Format(struct="string", as_="k"), columns={"at": "timestamp"})
    steps = (Transform.model_validate({"set": {"day": "date(at)"}}),)
    columns = of(id="long", at="timestamp", k="string", day="date")
    assert types(fields_of_table(columns, plan, steps)) == {"id": "long"}


def test_columns_that_come_from_elsewhere_are_no_fields_of_the_value():
    schema = WriterSchema(id=1, struct=of(a="long"))
    assert part_of_table(of(a="integer", at="timestamp"), AVRO, [schema]) == of(a="integer")
    assert part_of_table(of(at="timestamp"), AVRO, [schema]) is None
    named = Converter.model_validate({"converter": "string", "as": "text"})
    assert part_of_table(of(at="timestamp", text="string"), named, [WriterSchema(struct="string")]) == "string"


def test_a_column_of_two_parts_is_told():
    plan = RecordPlan(value=Format(struct=of(id="long", V="string")), columns={"v": "offset", "at": "timestamp"})
    assert twice(plan) == ["v"]
    assert twice(plan.model_copy(update={"key": Format(struct="string", as_="id")})) == ["v", "id"]
