"""What is read of a database that only its driver knows: types, times, clocks, and each database's own words."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from sluice.connectors.connections import ConnectionSettings, given
from sluice.databases.connection import address_of, engine_of
from sluice.databases.engine import Column, micros
from sluice.databases.jdbc.engine import WAYS, AnyEngine
from sluice.databases.jdbc.types import name_of
from sluice.errors import ActionRequiredError
from sluice.sources.jdbc.reader import JdbcReader

NOON = micros(datetime(2026, 7, 1, 12, tzinfo=UTC))


def test_a_url_of_any_driver_is_an_address():
    host = "jdbc:oracle:thin:@db:1521/x"
    given = ConnectionSettings(
        "shop", "jdbc", host=host, login="me", extra={"driver_class": "a.B", "driver_path": "/x"}
    )
    address = address_of(given)
    assert (address.dialect.name, address.dialect.driver, address.url) == ("oracle", "a.B", host)
    assert dict(address.properties) == {"user": "me"}
    assert engine_of(address).name == "oracle"
    with pytest.raises(ActionRequiredError, match="names no kind of database"):
        address_of(ConnectionSettings("shop", "jdbc", host="jdbc:"))
    with pytest.raises(ActionRequiredError, match="no address of a database"):
        address_of(ConnectionSettings("shop", "jdbc", host="db"))
    known = ConnectionSettings("shop", "jdbc", host="jdbc:postgresql://db/x")
    assert address_of(known).dialect.name == "PostgreSQL"


def test_no_secret_of_a_url_shows_in_what_its_driver_says():
    url = "jdbc:sqlserver://db;user=me;password=hunter2hunter2;encrypt=true"
    address = address_of(ConnectionSettings("shop", "jdbc", host=url))
    for said in (f"can't connect to {url}", "bad property password=hunter2hunter2;encrypt=true"):
        assert "hunter2" not in address.hidden(said)


def test_a_driver_that_spark_lacks_is_named_with_the_place_for_its_jar():
    known = ConnectionSettings("shop", "jdbc", host="jdbc:x://db", extra={"driver_class": "a.B"})
    reader = JdbcReader(None, None, {"connection": "shop"})
    with given([known]):
        error = reader.classified(RuntimeError("Caused by: java.lang.ClassNotFoundException: a.B\n\tat x"), None, ())
        assert reader.classified(RuntimeError("java.lang.ClassNotFoundException: other.C"), None, ()) is None
    assert isinstance(error, ActionRequiredError)
    assert "of the class a.B" in str(error)


# By `java.sql.Types`: the number, the database's name, precision, scale, signed; and Spark's type.
TYPES = [
    ((4, "INTEGER", 10, 0, True), "INT"),
    ((4, "INT UNSIGNED", 10, 0, False), "BIGINT"),
    ((-6, "tinyint", 3, 0, False), "INT"),
    ((-5, "BIGINT UNSIGNED", 20, 0, False), "DECIMAL(20,0)"),
    ((2, "NUMBER", 0, -127, True), "STRING"),
    ((2, "NUMBER", 38, 0, True), "DECIMAL(38,0)"),
    ((3, "DECFLOAT", 10, 0, True), "STRING"),
    ((3, "DECIMAL", 50, 2, True), "STRING"),
    ((-7, "BIT", 1, 0, True), "BOOLEAN"),
    ((-2, "UUID", 16, 0, False), "STRING"),
    ((2004, "BLOB", 0, 0, False), "BINARY"),
    ((2005, "CLOB", 0, 0, False), "STRING"),
    ((91, "DATE", 10, 0, False), "DATE"),
    ((93, "TIMESTAMP", 26, 6, False), "TIMESTAMP"),
    ((-155, "datetimeoffset", 34, 7, False), "TIMESTAMP"),
    ((2013, "TIME WITH TIME ZONE", 20, 0, False), "STRING"),
    ((101, "BINARY_DOUBLE", 0, 0, True), "DOUBLE"),
]


@pytest.mark.parametrize(("described", "ddl"), TYPES)
def test_a_column_has_one_of_sparks_types(described, ddl):
    *rest, signed = described
    assert AnyEngine("h2").reading(Column("c", name_of(*rest, signed=signed)), "none", "UTC").ddl == ddl


@pytest.mark.parametrize("described", [(1111, "JSON", 0, 0), (2003, "ARRAY", 0, 0), (-7, "BIT", 8, 0)])
def test_a_type_that_spark_cannot_read_is_refused_rather_than_cut(described):
    with pytest.raises(ActionRequiredError, match="CAST"):
        AnyEngine("h2").reading(Column("c", name_of(*described, signed=False)), "none", "UTC")


@pytest.mark.parametrize(
    ("text", "zone", "expected"),
    [
        ("2026-07-01 12:00:00", "UTC", NOON),
        ("2026-07-01 14:00:00.0", "Europe/Berlin", NOON),
        ("2026-07-01 14:00:00.1234567 +02:00", "UTC", NOON + 123_456),
        ("2026-07-01T17:30:00.5+0530", "UTC", NOON + 500_000),
        ("2026-07-01 11:00:00-01", "UTC", NOON),
        ("2026-7-1 12:0:0.000001Z", "Europe/Berlin", NOON + 1),
    ],
)
def test_a_times_text_is_a_position(text, zone, expected):
    assert AnyEngine("h2").position_of(text, "local", zone) == expected


def test_what_is_no_time_is_refused():
    with pytest.raises(ActionRequiredError, match="JDBC's form"):
        AnyEngine("h2").position_of("01-JUL-26", "local", "UTC")


@pytest.mark.parametrize(
    ("kind", "local", "instant"),
    [
        ("h2", "{ts '2026-07-01 14:00:00'}", "TIMESTAMP WITH TIME ZONE '2026-07-01 12:00:00+00:00'"),
        ("oracle", "{ts '2026-07-01 14:00:00'}", "TIMESTAMP '2026-07-01 12:00:00 +00:00'"),
        (
            "sqlserver",
            "CAST('2026-07-01 14:00:00' AS DATETIME2)",
            "CAST('2026-07-01 12:00:00+00:00' AS DATETIMEOFFSET)",
        ),
    ],
)
def test_a_bound_is_of_its_columns_own_type(kind, local, instant):
    engine = AnyEngine(kind)
    assert engine.literal(NOON, "local", "Europe/Berlin") == local
    assert engine.literal(NOON, "instant", "Europe/Berlin") == instant
    assert engine.literal(NOON + 1, "local", "UTC").count("12:00:00.000001") == 1
    assert engine.position_of(local.split("'")[1], "local", "Europe/Berlin") == NOON


def ask_of(text):
    return lambda sql, *values: [(text,)]


@pytest.mark.parametrize("kind", ["h2", *WAYS])
def test_a_clock_is_the_databases_and_is_refused_where_its_zone_is_another(kind):
    ahead, zone = timedelta(seconds=30), "UTC" if AnyEngine(kind)._ways.zone else "Asia/Kolkata"
    now = datetime.now(UTC) + ahead
    offset = timedelta(hours=5.5) if zone != "UTC" else timedelta(0)
    text = f"{now + offset:%Y-%m-%d %H:%M:%S.%f}"
    found = AnyEngine(kind).clock(ask_of(text), "Asia/Kolkata")
    assert found == micros(now)
    with pytest.raises(ActionRequiredError, match="db_timezone"):
        AnyEngine(kind).clock(ask_of(f"{now + timedelta(hours=1):%Y-%m-%d %H:%M:%S}"), "UTC")


def test_a_name_is_between_its_databases_own_marks():
    assert Column("a`b", "integer", quote="`").sql == "`a``b`"
    assert Column('a"b', "integer").sql == '"a""b"'
    assert Column("a", "integer", quote="").sql == "a"


def test_the_first_row_after_others_is_asked_for_in_the_databases_words():
    assert AnyEngine("mysql").first("SELECT 1", 3) == "SELECT 1 LIMIT 1 OFFSET 3"
    assert AnyEngine("db2").first("SELECT 1", 3) == "SELECT 1 OFFSET 3 ROWS FETCH NEXT 1 ROWS ONLY"
    assert AnyEngine("db2").first("SELECT 1") == "SELECT 1"
