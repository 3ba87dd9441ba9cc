"""The JDBC sink's rules: its section, addresses, names, which values fit which columns, and its statements."""

from __future__ import annotations

import re
import sqlite3
from datetime import UTC, datetime

import hypothesis
import pytest
from hypothesis import strategies as st
from pydantic import ValidationError

from sluice.connectors.capabilities import SinkCapabilities
from sluice.connectors.connections import ConnectionSettings
from sluice.databases.connection import address_of
from sluice.databases.dialect import DatabaseColumn, parts_of_type
from sluice.databases.fits import literal
from sluice.databases.kinds import KINDS
from sluice.errors import ActionRequiredError
from sluice.identifiers import sql_quoted
from sluice.pipeline import Jdbc, Kafka, Pipeline, Sink, Source
from sluice.protocol.confine import start_digest
from sluice.protocol.messages import FurtherTable, PlannedRange, StartCommit, decode, encode
from sluice.protocol.quarantine import quarantine_path
from sluice.records.plan import RecordPlan
from sluice.records.settings import Changes, Converter, Errors
from sluice.sinks.jdbc import statements
from sluice.sinks.jdbc.columns import created, key_columns, matched, row_columns, sent
from sluice.sinks.jdbc.options.names import DELETED, LOG, OFFSET, is_staging_of, schema_and_name, staging_table
from sluice.sinks.jdbc.quarantine import quarantine_writer
from sluice.sinks.jdbc.statements import Target

POSTGRES, SQLITE, MARIADB = (KINDS[name].dialect for name in ("postgresql", "sqlite", "mariadb"))
KEYED = {"insert_mode": "upsert", "pk_mode": "record_value", "pk_fields": "id"}
INSTANT = "20261123180000000"


def jdbc(**section):
    return Jdbc(**{"connection": "warehouse", "table": "flights", "schema_": "id BIGINT", **section})


def pipeline(section, **settings):
    kafka = Kafka(topics=("t",), key=Converter(schema_="id BIGINT"))
    return Pipeline(name="p", source=Source(kafka=kafka), sink=Sink(jdbc=section), **settings)


# The section


@pytest.mark.parametrize(
    ("section", "says"),
    [
        ({"insert_mode": "upsert"}, "needs pk_mode record_key or record_value"),
        ({"insert_mode": "upsert", "pk_mode": "kafka"}, "needs pk_mode record_key or record_value"),
        ({"pk_mode": "record_value"}, "needs `pk_fields`"),
        ({"pk_fields": "id"}, "`pk_fields` need a pk_mode"),
        ({"pk_mode": "kafka", "pk_fields": ("a", "b")}, "three `pk_fields`"),
        ({"record_key": "id"}, "in `pk_fields`"),
        ({"delete_enabled": True}, "delete_enabled needs insert_mode upsert"),
        ({**KEYED, "insert_mode": "update", "delete_enabled": True}, "delete_enabled needs insert_mode upsert"),
        ({"ordering_field": "id"}, "`ordering_field` is for insert_mode upsert"),
        ({"partition_fields": "id"}, "folders of files"),
        ({"db_timezone": "Berlin"}, "no IANA name"),
        ({"table": "a.b.c"}, "more names than a schema's and a table's"),
        ({"table": 'a"b'}, "isn't closed"),
        ({"table": "a..b"}, "a name between dots is empty"),
        ({"table": "a" * 64}, "longer than the 63 bytes"),
        ({"table": "public." + "ü" * 32}, "longer than the 63 bytes"),
        ({"table": " a"}, "begins or ends with a blank"),
        ({"table": "a\nb"}, "a control character"),
    ],
)
def test_a_section_that_contradicts_itself_is_refused(section, says):
    with pytest.raises(ValueError, match=says):
        jdbc(**section)


def test_what_it_can_do_is_what_its_settings_say():
    assert not jdbc().capabilities.upsert
    assert jdbc(**KEYED).capabilities.upsert
    assert not jdbc(**KEYED).capabilities.delete
    everything = jdbc(**KEYED, delete_enabled=True).capabilities
    can = {"upsert": True, "delete": True, "mirrors": True}
    assert everything == SinkCapabilities(atomic_with_checkpoint=True, quarantine=True, **can)
    assert not jdbc(**{**KEYED, "insert_mode": "update"}).capabilities.mirrors


@pytest.mark.parametrize(
    ("section", "settings", "says"),
    [
        (KEYED, {"changes": Changes(format="tombstones")}, "insert_mode upsert with delete_enabled true"),
        ({**KEYED, "delete_enabled": True}, {"changes": Changes(format="debezium", truncate="apply")}, "truncate"),
        ({**KEYED, "delete_enabled": True, "ordering_field": "id"}, {"changes": Changes(format="tombstones")}, "leave"),
        ({}, {"table_services": {}}, "has no archiving"),
    ],
)
def test_what_it_cannot_do_is_refused_when_the_file_is_loaded(section, settings, says):
    with pytest.raises(ValueError, match=says):
        pipeline(jdbc(**section), **settings)


def test_the_table_s_id_has_no_address_in_it_and_its_connection_is_asked_for():
    made = pipeline(jdbc(table="public.flights"))
    assert made.table_id == "jdbc://warehouse/public.flights"
    assert made.own_connections == ("warehouse",)


# Several tables


LINES = {"table": "lines", "topics": ("l",), "schema_": "id BIGINT NOT NULL", "pk_fields": ("id",)}


def together(*tables, topics=("t", "l"), **section):
    """A pipeline that loads further tables beside its first one."""
    kafka = Kafka(topics=topics, key=Converter(schema_="id BIGINT"))
    sink = jdbc(**{**KEYED, **section}, tables=tables)
    return Pipeline(name="p", source=Source(kafka=kafka), sink=Sink(jdbc=sink))


@pytest.mark.parametrize(
    ("tables", "says"),
    [
        ([{**LINES, "table": "flights"}], "tables.0.table: flights is named twice"),
        ([LINES, {**LINES, "topics": ("m",)}], "tables.1.table: lines is named twice"),
        ([LINES, {**LINES, "table": "other"}], "tables.1.topics: another table takes l"),
        ([{**LINES, "table": "lake.lines"}], "tables.0.table: lake.lines is not in the schema of flights"),
        ([{**LINES, "table": "flights_quarantine"}], "where bad records are set aside"),
        ([{**LINES, "topics": ()}], "at least 1 item"),
        ([{**LINES, "topics": ("nobody",)}], "tables.0.topics: the source doesn't read nobody"),
        ([{**LINES, "topics": ("t", "l")}], "sink.jdbc.table is left with none"),
        ([{**LINES, "pk_fields": ()}], "tables.0: pk_mode record_value needs `pk_fields`"),
        ([{k: v for k, v in LINES.items() if k != "schema_"}], "tables.0: give the table's columns"),
        ([{**LINES, "connection": "another"}], "Extra inputs"),
    ],
)
def test_tables_that_cannot_be_one_transaction_are_refused_when_the_file_is_loaded(tables, says):
    with pytest.raises(ValueError, match=says):
        together(*tables)


def test_streams_name_no_topics_that_tables_could_take():
    clusters = {"streams": ("s",), "metadata": {"service": "file", "path": "/etc/streams.yaml"}}
    with pytest.raises(ValueError, match="`streams` name no topics"):
        Pipeline(name="p", source=Source(kafka=Kafka(**clusters)), sink=Sink(jdbc=jdbc(**KEYED, tables=[LINES])))


def test_a_further_table_takes_the_section_s_settings_and_its_own_columns():
    made = together(LINES, {**LINES, "table": "m", "topics": "m", "insert_mode": "insert"}, topics=("t", "l", "m"))
    (_, lines), (topics, last) = made.further_tables
    assert (topics, last.sink.options.insert_mode, lines.sink.options.insert_mode) == (("m",), "insert", "upsert")
    assert (lines.table_id, lines.writer().record_key) == ("jdbc://warehouse/lines", ("id",))
    assert last.writer().options["first_table"] == "flights"
    assert {"first_table", "number"}.isdisjoint(made.writer().options)
    assert made.sink.capabilities == SinkCapabilities(atomic_with_checkpoint=True, upsert=True, quarantine=True)
    assert made.sink.options.not_comparable == ""
    assert together({**LINES, "insert_mode": "update"}).sink.options.not_comparable


def test_an_interval_is_taken_apart_by_topic():
    made = together(LINES)
    ranges = tuple(PlannedRange(cluster="c", topic=topic, partition=0, start=0, end=1) for topic in ("t", "l"))
    further = FurtherTable(topics=("l",), writer=made.further_tables[0][1].writer(), records=RecordPlan())
    envelope = {"table": made.table_id, "transaction": "20260101000000000", "epoch": 1, "dag_id": "d", "run_id": "r"}
    start = StartCommit(
        **envelope,
        sender="coordinator",
        time=datetime(2026, 1, 1, tzinfo=UTC),
        read_position=0,
        ranges=((ranges[1],), ranges),
        writer=made.writer(),
        tables=(further,),
    )
    again = decode(encode(start))
    assert again == start
    first, second = again.of_each_table()
    assert (first.writer, first.ranges) == (made.writer(), ((), (ranges[0],)))
    assert (second.writer, second.ranges) == (further.writer, ((ranges[1],), (ranges[1],)))
    alone = start.model_copy(update={"tables": ()})
    assert alone.of_each_table() == (alone,)
    assert start_digest(alone) != start_digest(start)
    sent = encode(alone).replace(b',"tables":[]', b"")  # as earlier releases have sent it
    assert (decode(sent), start_digest(decode(sent))) == (alone, start_digest(alone))


# Addresses


@pytest.mark.parametrize(
    ("connection", "url"),
    [
        (("postgres", "db", 5433, "lake"), "jdbc:postgresql://db:5433/lake"),
        (("postgres", "db", None, "lake"), "jdbc:postgresql://db:5432/lake"),
        (("jdbc", "jdbc:postgresql://db/lake?ssl=true", None, None), "jdbc:postgresql://db/lake?ssl=true"),
        (("sqlite", "/var/lake.db", None, None), "jdbc:sqlite:/var/lake.db"),
        (("mysql", "db", None, "lake"), "jdbc:mariadb://db:3306/lake"),
        (("mariadb", "db", 3307, "lake"), "jdbc:mariadb://db:3307/lake"),
    ],
)
def test_an_address_is_made_of_an_airflow_connection(connection, url):
    kind, host, port, schema = connection
    found = address_of(ConnectionSettings("c", kind, host, port, schema, "me", "hidden-word"))
    assert found.url == url
    assert found.properties["user"] == "me"
    assert "hidden-word" not in repr(found)
    assert found.hidden("login with hidden-word failed") == "login with *** failed"


def test_what_libpq_and_the_driver_both_know_is_passed_on():
    extra = {"sslmode": "verify-full", "cursor": "dict", "properties": {"socketTimeout": 30}}
    found = address_of(ConnectionSettings("c", "postgres", "db", extra=extra))
    assert (found.properties["sslmode"], found.properties["socketTimeout"]) == ("verify-full", "30")
    assert "cursor" not in found.properties


@pytest.mark.parametrize(
    ("kind", "host", "says"),
    [
        ("jdbc", "jdbc:", "names no kind of database"),
        ("postgres", None, "no address"),
        ("sqlite", "relative.db", "absolute path"),
        ("http", "https://db", "no address"),
        ("jdbc", "jdbc:sqlite::memory:", "absolute path"),
    ],
)
def test_an_address_that_names_no_database_is_refused(kind, host, says):
    with pytest.raises(ActionRequiredError, match=says):
        address_of(ConnectionSettings("c", kind, host))


# Names


def test_a_table_has_one_spelling_and_its_quarantine_is_beside_it():
    spelled = {'"flights"': "flights", 'public."a.b"': 'public."a.b"', '"a""b".c': '"a""b".c', "x-y.Z z": "x-y.Z z",
               '"public".orders"-"eu': "public.orders-eu"}  # fmt: skip
    for given, name in spelled.items():
        section = jdbc(table=given)
        assert section.table == name
        assert section.table_id == f"jdbc://warehouse/{name}"
        (schema, table), aside = schema_and_name(name), quarantine_path(section.table_id, Errors())
        assert schema_and_name(aside.removeprefix("jdbc://warehouse/")) == (schema, f"{table}_quarantine")
        assert quarantine_writer(section.writer("t", None, maintained=False), Errors()).path == aside
    with pytest.raises(ValidationError, match="is where bad records are set aside"):
        jdbc(table='public."a.b"', tables=[{"table": 'public."a.b_quarantine"', "topics": "t"}])


def test_a_staging_table_s_name_is_the_interval_s_and_fits_a_database():
    name = staging_table("public.flights", INSTANT, "02b6675b-5f40-4adc-98cd-4049dc7f1332", 12)
    assert len(name) <= 63
    assert is_staging_of(name, "public.flights", INSTANT)
    assert not is_staging_of(name, "public.others", INSTANT)
    assert not is_staging_of(name, "public.flights", "20261123180000001")
    assert not is_staging_of(f'{name}"; DROP TABLE flights; --', "public.flights", INSTANT)
    assert sql_quoted('a"b') == '"a""b"'


# Columns


@pytest.mark.parametrize(
    ("declared", "parts"),
    [
        ("bigint", ("bigint", [])),
        ("NUMERIC(10, 2)", ("numeric", [10, 2])),
        ("character varying(5)", ("character varying", [5])),
        ("timestamp(3) without time zone", ("timestamp without time zone", [3])),
        ("", ("", [])),
    ],
)
def test_a_declared_type_is_read(declared, parts):
    assert parts_of_type(declared) == parts


ARRAY_OF_LONG = {"type": "array", "elementType": "long", "containsNull": True}
ARRAY_OF_BYTES = {"type": "array", "elementType": "binary", "containsNull": True}
HELD = [
    (POSTGRES, "long", "bigint"), (POSTGRES, "long", "integer"), (POSTGRES, "integer", "numeric(4,0)"),
    (POSTGRES, "string", "text"), (POSTGRES, "string", "character varying(3)"), (POSTGRES, "string", "uuid"),
    (POSTGRES, "string", "jsonb"), (POSTGRES, "string", "mood"), (POSTGRES, "decimal(38,10)", "numeric"),
    (POSTGRES, "timestamp", "timestamp with time zone"), (POSTGRES, "timestamp", "timestamp without time zone"),
    (POSTGRES, "timestamp_ntz", "timestamp(3) without time zone"), (POSTGRES, "date", "date"),
    (POSTGRES, ARRAY_OF_LONG, "integer[]"), (POSTGRES, ARRAY_OF_LONG, "numeric(4,0)[]"),
    (POSTGRES, ARRAY_OF_LONG, "jsonb"), (POSTGRES, "string", "numeric"), (POSTGRES, "string", "numeric(4,2)"),
    (POSTGRES, "binary", "bytea"), (POSTGRES, "boolean", "boolean"), (POSTGRES, "float", "double precision"),
    (SQLITE, "long", "INTEGER"), (SQLITE, "decimal(38,10)", "TEXT"), (SQLITE, "decimal(15,2)", "DECIMAL(15,2)"),
    (SQLITE, "timestamp", "DATETIME"), (SQLITE, "binary", "BLOB"), (SQLITE, "boolean", "BOOLEAN"),
    (MARIADB, "boolean", "tinyint(1)"), (MARIADB, "long", "int(10) unsigned zerofill"), (MARIADB, "string", "uuid"),
    (MARIADB, "string", "enum('a','b')"), (MARIADB, "string", "mediumtext"), (MARIADB, "timestamp", "timestamp(6)"),
    (MARIADB, "decimal(38,10)", "decimal(65,10)"), (MARIADB, "long", "varchar(20)"), (MARIADB, "float", "float"),
    (MARIADB, "string", "decimal(65,30)"),
]  # fmt: skip
REFUSED = [
    (POSTGRES, ARRAY_OF_LONG, "boolean[]"), (POSTGRES, ARRAY_OF_LONG, "bigint"), (POSTGRES, ARRAY_OF_BYTES, "bytea[]"),
    (POSTGRES, "string", "bigint"), (POSTGRES, "string", "timestamp with time zone"), (POSTGRES, "string", "text[]"),
    (POSTGRES, "long", "double precision"), (POSTGRES, "double", "numeric"), (POSTGRES, "double", "real"),
    (POSTGRES, "timestamp_ntz", "timestamp with time zone"), (POSTGRES, "timestamp", "date"),
    (POSTGRES, "binary", "text"), (POSTGRES, "boolean", "integer"), (POSTGRES, "date", "interval"),
    (SQLITE, "string", "NUMERIC"), (SQLITE, "decimal(16,2)", "DECIMAL"), (SQLITE, "long", "REAL"),
    (SQLITE, "binary", "TEXT"), (SQLITE, "double", "INTEGER"), (SQLITE, "timestamp", "INTEGER"),
    (MARIADB, "string", "set('a','b')"), (MARIADB, "string", "bit(8)"), (MARIADB, "string", "datetime(6)"),
    (MARIADB, "timestamp_ntz", "timestamp(6)"), (MARIADB, "double", "float"), (MARIADB, "long", "double"),
    (MARIADB, "binary", "binary(4)"), (MARIADB, "binary", "longtext"), (MARIADB, "boolean", "bit(1)"),
    (MARIADB, "timestamp", "year(4)"), (MARIADB, "date", "time"), (MARIADB, "double", "decimal(10,2)"),
    (POSTGRES, "string", "numeric(2,5)"), (POSTGRES, "string", "interval"), (POSTGRES, "string", "time(3)"),
]  # fmt: skip


@pytest.mark.parametrize(("dialect", "kind", "declared"), HELD)
def test_a_column_holds_a_type(dialect, kind, declared):
    assert not isinstance(dialect.fit("`c`", kind, DatabaseColumn("c", declared), "UTC"), str)


@pytest.mark.parametrize(("dialect", "kind", "declared"), REFUSED)
def test_a_column_that_could_lose_something_is_refused_by_name(dialect, kind, declared):
    says = dialect.fit("`c`", kind, DatabaseColumn("c", declared), "UTC")
    assert isinstance(says, str)
    assert declared in says


@pytest.mark.parametrize(
    ("declared", "held", "refused"),
    [
        (
            "numeric",
            ["0", "-1.50", "+.5", "5.", "NaN", "Infinity", "-Infinity", "9" * 500 + ".1"],
            ["", ".", "-", "1e5", "0x10", "1_000", " 1", "1\n", "nan", "--1", "one", "1.2.3"],
        ),
        ("numeric(4,2)", ["99.99", "-0012.3400", "0", "NaN"], ["100", "0.001", "Infinity", "1234"]),
        ("numeric(3,0)", ["999", "1.", "1.000"], ["1000", "1.5"]),
        ("decimal(65,30)", ["9" * 35 + "." + "9" * 30], ["NaN", "9" * 36, "0." + "1" * 31]),
    ],
)
def test_a_text_in_a_column_of_decimals_is_digits_that_are_not_rounded(declared, held, refused):
    dialect = MARIADB if declared.startswith("decimal") else POSTGRES
    fit = dialect.fit("`c`", "string", DatabaseColumn("c", declared), "UTC")
    pattern = bytes.fromhex(re.search(r"decode\(X'(\w+)'", fit.problem)[1]).decode()
    java = re.compile(pattern.replace(r"\z", r"\Z"))  # the end, as Java writes it
    assert all(java.match(text) for text in held)
    assert not any(java.match(text) for text in refused)


@pytest.mark.parametrize("dialect", [POSTGRES, SQLITE, MARIADB])
def test_a_column_that_the_sink_creates_holds_what_it_was_created_for(dialect):
    kinds = ["boolean", "byte", "short", "integer", "long", "float", "double", "decimal(38,18)", "string", "binary",
             "date", "timestamp", "timestamp_ntz", "decimal(30,15)",
             {"type": "array", "elementType": "long", "containsNull": True}]  # fmt: skip
    for kind in kinds:
        declared = dialect.made(kind) if dialect is SQLITE else dialect.made(kind).lower()
        # As information_schema has them.
        declared = (
            {"boolean": "tinyint(1)", "integer": "int(11)", "json": "longtext"}.get(declared, declared)
            if (dialect is MARIADB)
            else declared
        )
        assert not isinstance(dialect.fit("`c`", kind, DatabaseColumn("c", declared), "UTC"), str), kind
    assert dialect.made("interval") is None


def test_a_key_of_mariadb_s_has_room_in_its_index():
    assert MARIADB.made("string", in_key=1) == "VARCHAR(255)"
    assert MARIADB.made("string", in_key=4) == "VARCHAR(192)"
    assert MARIADB.made("binary", in_key=1) == "VARBINARY(255)"
    assert MARIADB.made({"type": "struct", "fields": []}, in_key=1) is None


def test_a_merge_in_mariadb_has_no_statement_that_commits():
    """DDL would; of temporary tables it doesn't."""
    target = Target(MARIADB, "lake", "t", ("id", "v"), ("id",))
    made = [statements.latest(target, ["s"]), statements.ordered(target, ["s"]), statements.latest_of(target, 1, 2)]
    made += [statements.drop_temporary(target, target.latest), statements.delete(target), statements.insert_new(target)]
    assert statements.update(target) is not None
    for statement in [*made, str(statements.update(target))]:
        assert re.match(r"(CREATE OR REPLACE|DROP) TEMPORARY TABLE|DELETE|UPDATE|INSERT", statement)
        assert "ON DUPLICATE KEY" not in statement
    assert not MARIADB.analyze


@pytest.mark.parametrize(("code", "kind"), [(1205, "passing"), (1062, "data"), (1045, "login"), (1142, "refused")])
def test_errors_of_mariadb_s_are_classed_by_their_numbers(code, kind):
    assert MARIADB.kind_of(code) == kind
    assert MARIADB.kind_of(1) is None


def fields(**kinds):
    return [{"name": name, "type": kind, "nullable": True} for name, kind in kinds.items()]


def test_columns_are_found_by_name_whatever_its_case_and_missing_ones_are_told():
    writer = jdbc(**KEYED).writer("t", None, maintained=False)
    rows = row_columns(writer, fields(id="long", Name="string", extra="date"))
    table = [DatabaseColumn("ID", "bigint", nullable=False), DatabaseColumn("name", "text")]
    found = matched(POSTGRES, rows, table, "UTC")
    assert {name: column.name for name, column in found.found.items()} == {"id": "ID", "Name": "name"}
    assert [row.name for row in found.missing] == ["extra"]
    assert found.problems == ()


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ([DatabaseColumn("id", "bigint"), DatabaseColumn("x", "text", nullable=False)], "`x` must not be null"),
        ([DatabaseColumn("Id", "bigint"), DatabaseColumn("ID", "bigint")], "may be any of Id, ID"),
        ([DatabaseColumn("id", "bigint", generated=True)], "filled by the database alone"),
        ([DatabaseColumn("id", "text[]")], "doesn't hold BIGINT"),
    ],
)
def test_a_table_that_cannot_take_the_rows_is_told_why(table, says):
    rows = row_columns(jdbc().writer("t", None, maintained=False), fields(id="long"))
    assert any(says in problem for problem in matched(POSTGRES, rows, table, "UTC").problems)


def test_a_column_that_the_database_fills_may_be_left_out():
    rows = row_columns(jdbc().writer("t", None, maintained=False), fields(id="long"))
    table = [DatabaseColumn("id", "bigint"), DatabaseColumn("serial", "integer", nullable=False, filled=True)]
    assert matched(POSTGRES, rows, table, "UTC").problems == ()


def test_the_place_of_a_record_is_the_key_with_pk_mode_kafka():
    writer = jdbc(pk_mode="kafka").writer("t", None, maintained=False)
    rows = row_columns(writer, fields(id="long"))
    assert key_columns(writer) == ("__connect_topic", "__connect_partition", "__connect_offset")
    columns, problems = created(SQLITE, rows)
    assert [(n, t, nullable) for n, t, nullable in columns[1:]] == [
        ("__connect_topic", "TEXT", False), ("__connect_partition", "INTEGER", False),
        ("__connect_offset", "INTEGER", False),
    ]  # fmt: skip
    assert problems == []
    assert writer.record_key == ()


def test_a_tombstone_s_position_is_no_column_and_an_event_s_is():
    section = jdbc(**KEYED, delete_enabled=True)
    of_tombstones = section.writer("t", Changes(format="tombstones"), maintained=False)
    position = fields(id="long", _source_position="decimal(30,15)")
    assert [row.name for row in row_columns(of_tombstones, position)] == ["id"]
    of_events = section.writer("t", Changes(format="debezium"), maintained=False)
    assert of_events.ordering_fields == ("_source_position",)
    assert [row.name for row in row_columns(of_events, position)] == ["id", "_source_position"]


def test_what_does_not_fit_is_told_with_its_column():
    (row,) = row_columns(jdbc().writer("t", None, maintained=False), fields(name="string"))
    fit = sent(POSTGRES, row, DatabaseColumn("name", "character varying(3)"), "UTC")
    assert "char_length(`name`) > 3" in fit.problem
    assert literal("the value of name does not fit character varying(3): ") in fit.problem


# Statements, as SQLite carries them out


@pytest.fixture
def connection():
    with sqlite3.connect(":memory:") as opened:
        yield opened
    opened.close()


def merged(connection, before, versions, *, ordering=(), mode="upsert"):
    """The rows after versions (key, order, value, offset, whether it deletes) were merged."""
    target = Target(SQLITE, "", "t", ("id", "o", "v"), ("id",), ordering)
    connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, o INTEGER, v TEXT UNIQUE)")
    connection.executemany("INSERT INTO t VALUES (?, ?, ?)", before)
    for number, part in enumerate((versions[::2], versions[1::2])):
        connection.execute(statements.staging(target, f"s{number}"))
        connection.executemany(
            f"INSERT INTO s{number} (id, o, v, {OFFSET}, {DELETED}, {LOG}) VALUES (?, ?, ?, ?, ?, 't[0]')", part
        )
    connection.execute(statements.latest(target, ["s0", "s1"]))
    assert connection.execute(statements.scattered(target)).fetchall() == []
    connection.execute(statements.delete(target))
    connection.execute(statements.update(target))
    if mode == "upsert":
        connection.execute(statements.insert_new(target))
    return sorted(connection.execute("SELECT id, o, v FROM t").fetchall())


def test_an_insert_a_delete_and_an_insert_of_a_key_leave_its_last_row(connection):
    versions = [(1, 0, "a", 0, 0), (1, 0, None, 1, 1), (1, 0, "b", 2, 0), (2, 0, "c", 3, 0), (2, 0, None, 4, 1)]
    assert merged(connection, [(2, 0, "old"), (3, 0, "stays")], versions) == [(1, 0, "b"), (3, 0, "stays")]


def test_older_versions_and_deletes_leave_a_newer_row_alone(connection):
    before = [(1, 5, "new"), (2, 5, "newer"), (3, None, "unknown"), (4, 5, "same")]
    versions = [(1, 4, "x", 0, 0), (2, 4, None, 1, 1), (3, 1, "y", 2, 0), (4, 5, "later", 3, 0)]
    found = merged(connection, before, versions, ordering=("o",))
    assert found == [(1, 5, "new"), (2, 5, "newer"), (3, 1, "y"), (4, 5, "later")]


def test_an_update_adds_no_row(connection):
    versions = [(1, 0, "a", 0, 0), (2, 0, "b", 1, 0)]
    assert merged(connection, [(1, 0, "old")], versions, mode="update") == [(1, 0, "a")]


def test_two_rows_that_swap_a_unique_value_are_refused(connection):
    with pytest.raises(sqlite3.IntegrityError):
        merged(connection, [(1, 0, "a"), (2, 0, "b")], [(1, 0, "b", 0, 0), (2, 0, "a", 1, 0)])


def test_a_key_whose_versions_are_in_two_partitions_is_found(connection):
    target = Target(SQLITE, "", "t", ("id",), ("id",))
    connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY)")
    connection.execute(statements.staging(target, "s"))
    rows = [(1, "t[0]", 0), (1, "t[1]", 0), (2, "t[0]", 1)]
    connection.executemany(f"INSERT INTO s (id, {LOG}, {OFFSET}, {DELETED}) VALUES (?, ?, ?, 0)", rows)
    connection.execute(statements.latest(target, ["s"]))
    assert connection.execute(statements.scattered(target)).fetchall() == [("t[0]", "t[1]", "t[0]", 0)]
    assert statements.update(target) is None


def test_rows_that_a_task_has_staged_twice_are_taken_once(connection):
    target = Target(SQLITE, "", "t", ("v",))
    connection.execute("CREATE TABLE t (v TEXT)")
    connection.execute(statements.staging(target, "s"))
    rows = [("a", 0), ("b", 1), ("b", 2)] * 2
    connection.executemany(f"INSERT INTO s (v, {LOG}, {OFFSET}, {DELETED}) VALUES (?, 't[0]', ?, 0)", rows)
    assert connection.execute(statements.append_once(target, "s")).rowcount == 3
    assert sorted(connection.execute("SELECT v FROM t")) == [("a",), ("b",), ("b",)]


def test_hundreds_of_staging_tables_are_one_statement(connection):
    target = Target(SQLITE, "", "t", ("id",), ("id",))
    connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY)")
    names = [f"s{i}" for i in range(620)]
    for name in names:
        connection.execute(statements.staging(target, name))
        connection.execute(f"INSERT INTO {name} VALUES ({name[1:]}, 't[0]', 1, 0)")
    connection.execute(statements.latest(target, names))
    connection.execute(statements.insert_new(target))
    assert connection.execute("SELECT count(*) FROM t").fetchone() == (620,)


# What a database says of rows that it refuses


@pytest.mark.parametrize(
    ("dialect", "said", "code", "state", "shown"),
    [
        (
            POSTGRES,
            'ERROR: duplicate key value violates unique constraint "t_v_key"\n  Detail: Key (v)=(a\nb) already exists.',
            0, "23505", 'ERROR: duplicate key value violates unique constraint "t_v_key"',
        ),
        (POSTGRES, 'ERROR: invalid input syntax for type uuid: "x"', 0, "22P02",
         "a text isn't of its column's type (SQLSTATE 22P02)"),
        (POSTGRES, "FEHLER: ungültig: »x«", 0, "22P06", "a value does not fit (SQLSTATE 22P06)"),
        (MARIADB, "(conn=7) Duplicate entry 'a' for key 'v'", 1062, "23000", "Duplicate entry … for key 'v'"),
        (MARIADB, "(conn=7) Column 'v' cannot be null", 1048, "23000", "Column 'v' cannot be null"),
        (MARIADB, "Data too long for column 'v' at row 1", 1406, "22001", "Data too long for column 'v' at row 1"),
        (MARIADB, "Incorrect integer value: 'a' for column `d`.`t`.`v` at row 1", 1366, "22007",
         "Incorrect integer value: … for column `d`.`t`.`v` at row 1"),
        (MARIADB, "Incorrect integer value: 'a' for column 'v' at row 1", 1366, "",
         "Incorrect integer value: … for column 'v' at row 1"),
        (MARIADB, "Duplicate entry 'Column 'v' cannot be null", 1062, "", "error 1062, SQLSTATE unknown"),
        (MARIADB, "CONSTRAINT `c` failed for `d`.`t`", 4025, "23000", "CONSTRAINT `c` failed for `d`.`t`"),
        (SQLITE, "UNIQUE constraint failed:\n t.v", 19, "", "UNIQUE constraint failed: t.v"),
    ],
)  # fmt: skip
def test_what_a_database_says_of_rows_that_it_refuses_is_shown_without_values(dialect, said, code, state, shown):
    assert dialect.refused(said, code, state) == shown


WORDS = ["\n", "'", '"', "' for key 'v'", "Column 'v' cannot be null", ") already exists.", " at row 1", "(conn=1) "]


@hypothesis.given(value=st.lists(st.text(max_size=9) | st.sampled_from(WORDS), max_size=6).map("".join))
def test_no_value_gets_past_by_the_database_s_words(value):
    value = f"{value}SECRET{value}"
    for dialect, state, said in (
        (POSTGRES, "23505", f"duplicate key\n  Detail: Key (v)=({value}) already exists."),
        (POSTGRES, "23514", f"violates check\n  Detail: Failing row contains ({value})."),
        (POSTGRES, "22P02", f'invalid input syntax for type uuid: "{value}"'),
        (MARIADB, "", f"(conn=1) Duplicate entry '{value}' for key 'v'"),
        (MARIADB, "", f"Incorrect integer value: '{value}' for column 'v' at row 1"),
        (MARIADB, "", f"Truncated incorrect DOUBLE value: '{value}'"),
        (MARIADB, "", f"Duplicate entry '{value}"),  # cut at its 512th byte
        (MARIADB, "", f"Illegal value {value}"),
    ):
        assert "SECRET" not in dialect.refused(said, 1, state)
