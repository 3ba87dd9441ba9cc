"""What a section of `source.jdbc` may say, and how columns of databases are read; without a database."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from pydantic import ValidationError

from sluice.databases.engine import Column, at, has_one_offset, local_text, micros, numeric, risen
from sluice.databases.mariadb.engine import MariaDb
from sluice.databases.postgresql.engine import PostgreSql
from sluice.databases.sqlite.engine import Sqlite
from sluice.errors import PipelineFileError
from sluice.pipeline import load_pipeline
from sluice.sources.jdbc.noted import NOTED, of_option
from sluice.sources.jdbc.options import JdbcTables

TIMED = {"connection": "shop", "tables": "orders", "mode": "timestamp", "timestamp_column": "changed"}
MIRROR = "connection: w, table: orders, insert_mode: upsert, pk_mode: record_value, pk_fields: id"
BULK = {"mode": "bulk", "timestamp_column": ()}
FILE = """
name: orders
source:
  jdbc: {{connection: shop, tables: orders, mode: timestamp, timestamp_column: changed{more}}}
sink:
  hudi: {{path: /lake/orders{sink}}}
{rest}
"""


@pytest.mark.parametrize(
    ("section", "says"),
    [
        ({"tables": None}, "name the `tables`, give a `table_include` for their names, or a `query`"),
        ({"query": "SELECT 1"}, "name the `tables`, give a `table_include` for their names, or a `query`"),
        ({"timestamp_column": ()}, "`timestamp_column` and a mode with timestamp go together"),
        ({"mode": "incrementing"}, "`timestamp_column` and a mode with timestamp go together"),
        ({"incrementing_column": "id"}, "`incrementing_column` is for a mode with incrementing"),
        ({"tables": None, "query": "SELECT 1"}, "consistency exact needs tables"),
        ({"tables": None, "query": "SELECT ';'; DROP TABLE t", "consistency": "delay"}, "without a semicolon"),
        ({"mode": "bulk", "timestamp_column": (), "consistency": "delay"}, "is for a mode with timestamp"),
        ({"consistency": "overlap"}, "consistency overlap and `overlap`, how far back, go together"),
        ({"overlap": "1 hour"}, "consistency overlap and `overlap`, how far back, go together"),
        ({"table_exclude": "x"}, "`table_exclude` goes with `table_include`"),
        ({"db_timezone": "Mars"}, "no IANA name"),
        ({"split_column": "id"}, "`split_column` goes with `splits`"),
        ({"mode": "bulk", "timestamp_column": (), "splits": 2}, "mode bulk has none"),
        ({"deletes": True}, "`deletes` are seen by mode bulk alone"),
        (BULK | {"deletes": True, "tables": ["a", "b"]}, "`deletes` need one snapshot of all rows"),
        (BULK | {"deletes": True, "tables": None, "table_include": "a.*"}, "`deletes` need one snapshot of all rows"),
        ({"starting_ids": {"orders": 1}}, "`starting_ids` are for mode timestamp+incrementing"),
        ({"mode": "timestamp+incrementing", "starting_ids": {"orders": 1}}, "without exactly one position"),
        ({"topics": "orders"}, "`topics` is for records of Kafka's"),
        ({"max_bytes": "1 GiB"}, "`max_bytes` is for records of Kafka's"),
    ],
)
def test_what_does_not_fit_together_is_refused(section, says):
    with pytest.raises(ValidationError) as caught:
        JdbcTables.model_validate({k: v for k, v in (TIMED | section).items() if v is not None})
    assert says in str(caught.value)


@pytest.mark.parametrize("more", [{}, {"consistency": "delay"}, {"incrementing_column": "id"}])
def test_a_query_by_a_growing_number_is_refused_and_each_way_out_is_one(more):
    query = {"connection": "shop", "query": "SELECT * FROM orders"}
    with pytest.raises(ValidationError) as caught:
        JdbcTables.model_validate(query | {"mode": "incrementing"} | more)
    assert "Load the tables by mode incrementing; or the query by mode bulk, or by mode timestamp" in str(caught.value)
    timed = {"mode": "timestamp", "timestamp_column": "changed"}
    for way_out in (
        {"connection": "shop", "tables": "orders", "mode": "incrementing"},
        query | {"mode": "bulk"},
        query | timed | {"consistency": "delay"},
        query | timed | {"consistency": "overlap", "overlap": "1 minute"},
    ):
        JdbcTables.model_validate(way_out)


def test_a_query_may_have_a_semicolon_in_a_text():
    JdbcTables.model_validate(TIMED | {"tables": (), "query": "SELECT ';' AS x", "consistency": "delay"})


@pytest.mark.parametrize(
    ("more", "sink", "rest", "says"),
    [
        ("", "", "", "name one in control.connection"),
        (", consistency: overlap, overlap: 1 hour", "", "control: {connection: k}", "would have them twice"),
        ("", "", "control: {connection: k}\nerrors: {max_record_bytes: 1 MiB}", "are rows"),
        ("", "", "control: {connection: k}\nchanges: {format: debezium}", "`changes`"),
        (", columns: {raw: value}", "", "control: {connection: k}", "those of source.jdbc are rows"),
    ],
)
def test_a_pipeline_that_the_source_can_t_serve_is_refused_when_its_file_is_read(
    tmp_path: Path, more, sink, rest, says
):
    file = tmp_path / "orders.yaml"
    file.write_text(FILE.format(more=more, sink=sink, rest=rest))
    with pytest.raises(PipelineFileError) as caught:
        load_pipeline(file)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("sink", "rest", "says"),
    [
        ("hudi: {path: /lake/orders, operation: upsert, record_key: id}", "", "are more than sink.hudi can do"),
        ("kafka: {connection: k, topic: t, staging: /s}", "", "are more than sink.kafka can do"),
        ("files: {path: /lake/orders}", "", "are more than sink.files can do"),
        ("jdbc: {connection: w, table: orders}", "", "need sink.jdbc.insert_mode upsert"),
        (
            f"jdbc: {{{MIRROR}}}",
            "errors: {tolerance: all}",
            "would take the rows of bad records for rows that are gone",
        ),
        (f"jdbc: {{{MIRROR}}}", "", None),
    ],
)
def test_rows_that_a_snapshot_has_not_are_deleted_where_the_commit_can(tmp_path: Path, sink, rest, says):
    file = tmp_path / "orders.yaml"
    source = "jdbc: {connection: shop, tables: orders, mode: bulk, deletes: true}"
    file.write_text(f"name: o\nsource:\n  {source}\nsink:\n  {sink}\ncontrol: {{connection: k}}\n{rest}\n")
    if says is None:
        assert load_pipeline(file).writer().mirrors
        return
    with pytest.raises(PipelineFileError) as caught:
        load_pipeline(file)
    assert says in str(caught.value)


def test_a_table_needs_no_schema_written_down(tmp_path: Path):
    file = tmp_path / "orders.yaml"
    file.write_text(FILE.format(more="", sink="", rest="control: {connection: k}"))
    found = load_pipeline(file)
    assert (found.kafka_connection, found.own_connections) == ("k", ("shop",))
    assert found.source.capabilities.windows_by_time


@pytest.mark.parametrize(
    ("precision", "scale", "none", "precision_only", "best_fit", "eager"),
    [
        (9, 0, "DECIMAL(9,0)", "INT", "INT", "INT"),
        (18, 0, "DECIMAL(18,0)", "BIGINT", "BIGINT", "BIGINT"),
        (19, 0, "DECIMAL(19,0)", "DECIMAL(19,0)", "DECIMAL(19,0)", "DECIMAL(19,0)"),
        (10, 2, "DECIMAL(10,2)", "DECIMAL(10,2)", "DOUBLE", "DOUBLE"),
        (30, 2, "DECIMAL(30,2)", "DECIMAL(30,2)", "DECIMAL(30,2)", "DOUBLE"),
        (40, 2, None, None, None, "DOUBLE"),
        (None, None, None, None, None, "DOUBLE"),
    ],
)
def test_numbers_are_mapped_as_connect_maps_them(precision, scale, none, precision_only, best_fit, eager):
    modes = ("none", "precision_only", "best_fit", "best_fit_eager_double")
    assert [numeric(precision, scale, m) for m in modes] == [none, precision_only, best_fit, eager]


def test_times_and_their_bounds():
    time = datetime(2026, 3, 29, 0, 30, 0, 123456, UTC)
    assert at(micros(time)) == time
    assert local_text(micros(time), "Europe/Berlin") == "2026-03-29 01:30:00.123456"
    assert [has_one_offset(zone) for zone in ("UTC", "Asia/Kolkata", "Europe/Berlin")] == [True, True, False]
    value = micros(time)
    assert PostgreSql().literal(value, "instant", "UTC") == "TIMESTAMPTZ '2026-03-29 00:30:00.123456+00'"
    assert PostgreSql().literal(value, "local", "Asia/Kolkata") == "TIMESTAMP '2026-03-29 06:00:00.123456'"
    assert MariaDb().literal(value, "instant", "UTC") == "TIMESTAMP '2026-03-29 00:30:00.123456'"
    assert Sqlite().literal(value, "text", "UTC") == "'2026-03-29 00:30:00'"
    assert [engine.literal(7, "number", "UTC") for engine in (PostgreSql(), MariaDb(), Sqlite())] == ["7"] * 3


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca"])
def test_bounds_of_windows_divide_times_as_their_texts_do_where_clocks_are_set_back(zone):
    """Windows of ten minutes over a year's nights read each text once, and rows of both hours of one text."""
    step, begin = timedelta(minutes=10), datetime(2026, 1, 1, tzinfo=UTC)
    times = [begin + n * step for n in range(366 * 144)]
    turns = [
        a
        for a, b in pairwise(times)
        if a.astimezone(ZoneInfo(zone)).replace(tzinfo=None) >= b.astimezone(ZoneInfo(zone)).replace(tzinfo=None)
    ]
    assert turns
    for turn in turns:
        rows = [micros(turn) + n * 7 * 60_000_000 + 1 for n in range(-60, 60)]
        ends = [risen(micros(turn + n * step), zone) for n in range(-40, 40)]
        assert ends == sorted(ends)
        texts = [(local_text(a, zone), local_text(b, zone)) for a, b in pairwise(ends) if a < b]
        read = [row for a, b in texts for row in rows if a <= local_text(row, zone) < b]
        assert sorted(read) == [row for row in rows if ends[0] <= row < ends[-1]]


@pytest.mark.parametrize(
    ("engine", "kind", "ddl", "grain"),
    [
        (PostgreSql(), "timestamp(3) with time zone", "TIMESTAMP", 1000),
        (PostgreSql(), "timestamp without time zone", "TIMESTAMP", 1),
        (PostgreSql(), "numeric(12,0)", "DECIMAL(12,0)", None),
        (PostgreSql(), "uuid", "STRING", None),
        (MariaDb(), "datetime", "TIMESTAMP", 1_000_000),
        (MariaDb(), "timestamp(6)", "TIMESTAMP", 1),
        (MariaDb(), "bigint(20) unsigned", "DECIMAL(20,0)", None),
        (MariaDb(), "int(10) unsigned", "BIGINT", None),
        (MariaDb(), "varbinary(10)", "BINARY", None),
        (Sqlite(), "TIMESTAMP", "STRING", 1_000_000),
        (Sqlite(), "INTEGER", "BIGINT", None),
    ],
)
def test_columns_become_the_types_that_hold_them(engine, kind, ddl, grain):
    column = Column('a "b"', kind)
    assert engine.reading(column, "none", "UTC").ddl == ddl
    if grain is not None:
        assert engine.grain(column) == grain


@pytest.mark.parametrize("text", ["[" * 5000, '"\\ud800"', "x"])
def test_notes_of_an_earlier_start_are_read_as_json_of_others(text):
    with pytest.raises(ValueError, match=r"."):
        of_option({NOTED: text})
