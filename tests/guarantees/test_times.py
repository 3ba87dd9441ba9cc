"""A value is what its record says, on whatever day and in whatever zone a job runs: texts and numbers as times."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta, timezone
from io import BytesIO
from typing import Any

import fastavro
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as F

from sluice.records import times
from sluice.records.plan import Errors, Format, RecordPlan, WriterSchema
from sluice.records.settings import Transform
from sluice.records.structs import struct
from sluice.rows.records import KAFKA_COLUMNS, RecordChain, parse_ddl
from sluice.sinks.files.options import Files
from sluice.sinks.files.options.partitioning import Partitioning

# PySpark leaves it to the garbage collector to close the socket that rows came by.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

TYPES = ("TIMESTAMP", "TIMESTAMP_NTZ", "DATE")
NOON = datetime(2025, 7, 1, 12, tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TEXTS = {
    # whole minutes, as Java writes them
    "2025-07-01T12:00Z": NOON,
    "2025-07-01T14:00+02:00": NOON,
    "2025-07-01T12:00": NOON,
    "2025-07-01 06:30-05:30": NOON,
    "2025-07-01T12Z": NOON,
    "2025-07-01T12": NOON,
    # seconds
    "2025-07-01T12:00:00": NOON,
    "2025-07-01T14:00:00+0200": NOON,
    "2025-07-01T14:00:00+02": NOON,
    "2025-07-01T14:00:00 Europe/Berlin": NOON,
    "2025-07-01t12:00:00z": NOON,
    "2025-07-01T12:00:00.5Z": NOON + timedelta(milliseconds=500),
    "2025-07-01T12:00:00,5Z": NOON + timedelta(milliseconds=500),
    "2025-07-01T12:00:00.123456789Z": NOON + timedelta(microseconds=123456),
    "2025-07-01": datetime(2025, 7, 1, tzinfo=UTC),
    "2025-07": datetime(2025, 7, 1, tzinfo=UTC),
    "0001-01-01T00:00Z": datetime(1, 1, 1, tzinfo=UTC),
    "1582-10-10T00:00:00Z": datetime(1582, 10, 10, tzinfo=UTC),
    "9999-12-31T23:59:59.999999Z": datetime(9999, 12, 31, 23, 59, 59, 999999, UTC),
    # no day, or no time at all
    "10:15:00": None,
    "10:15": None,
    "10:15:00Z": None,
    "10:15:00+02:00": None,
    "T07:00": None,
    "T07:00:00.5Z": None,
    "7305": None,
    "2025": None,
    "19787": None,
    "1719792000000": None,
    "now": None,
    "today": None,
    "2025-07-01Tnoon": None,
    "2023-02-30": None,
    "2025-07-01T25:00Z": None,
    "2025-W27-2": None,
    "+12345-01-01": None,
    "0000-12-31": None,
    "10000-01-01T00:00:00Z": None,
}
ZONED = ("Z", "z", "Berlin", "+02:00", "+0200", "+02", "-05:30")


def wanted(text: str, kind: str) -> Any:
    """What a text is as a type, by Python."""
    moment = TEXTS[text]
    if kind == "TIMESTAMP" or moment is None:
        return moment
    if kind == "DATE":
        return date.fromisoformat(f"{text}-01"[:10])
    return None if text.endswith(ZONED) else moment.replace(tzinfo=None)


class Chain:
    """Brings records to rows as a write job does."""

    def __init__(self, spark: Any) -> None:
        self.spark = spark

    def frame(self, values: Sequence[bytes]) -> Any:
        rows = [(i, bytearray(value)) for i, value in enumerate(values)]
        named = "'t' AS topic, 0 AS partition, offset, timestamp_seconds(0) AS timestamp, 0 AS timestampType"
        made = self.spark.createDataFrame(rows, "offset bigint, value binary").coalesce(1)
        return made.selectExpr(*named.split(", "), "cast(NULL AS BINARY) AS key", "value")

    def rows(self, values: Sequence[bytes], ddl: str, *, columns: str | None = None, **plan: Any) -> list[Any]:
        """Of each value its row, with times in UTC as texts, or the words of what is wrong."""
        form = Format(**{"converter": "json", **plan.pop("value", {})})
        if columns is not None:
            form = form.model_copy(update={"struct": json.loads(parse_ddl(self.spark, columns).json())})
        plans = RecordPlan(value=form, errors=Errors(tolerance="all"), **plan)
        spec = Files(path="/lake/t", schema_=ddl).writer("t", None, maintained=False, schema_ddl=ddl)
        chain = RecordChain(self.spark, plans, spec)
        frame = chain.rows(self.frame(values))
        offset = KAFKA_COLUMNS[2]
        texts = [F.col(f"`{f.name}`").cast("string").alias(f.name) for f in parse_ddl(self.spark, ddl).fields]
        found: dict[int, Any] = {r[offset]: tuple(r)[1:] for r in frame.select(offset, *texts).collect()}
        for row in chain.bad(self.frame(values).withColumn("headers", F.expr("cast(NULL AS ARRAY<STRING>)"))).collect():
            assert row[offset] not in found
            found[row[offset]] = row["_sluice_problem"]
        return [found[i] for i in range(len(values))]


def said(value: Any) -> str | None:
    """A time as Spark writes it where the session is in UTC."""
    if isinstance(value, datetime):
        whole = f"{value.year:04}-{value:%m-%d %H:%M:%S}"
        return f"{whole}.{value.microsecond:06}".rstrip("0") if value.microsecond else whole
    return None if value is None else value.isoformat()


@pytest.fixture(scope="module")
def chain(spark):
    return Chain(spark)


def as_json(text: str, kind: str) -> tuple[bytes, dict[str, Any]]:
    return json.dumps({"v": text}).encode(), {}


def as_csv(text: str, kind: str) -> tuple[bytes, dict[str, Any]]:
    return json.dumps(text).encode(), {"value": {"converter": "csv"}}


def as_envelope(text: str, kind: str) -> tuple[bytes, dict[str, Any]]:
    fields = [{"field": "v", "type": "string", "name": "io.debezium.time.ZonedTimestamp"}]
    record = {"schema": {"type": "struct", "fields": fields}, "payload": {"v": text}}
    return json.dumps(record).encode(), {"value": {"options": {"schemas.enable": "true"}}}


def as_json_schema(text: str, kind: str) -> tuple[bytes, dict[str, Any]]:
    spark_type = {"TIMESTAMP": "timestamp", "TIMESTAMP_NTZ": "timestamp_ntz", "DATE": "date"}[kind]
    column = {"name": "v", "type": spark_type, "nullable": True, "metadata": {}}
    schema = WriterSchema(id=None, text="{}", struct=struct([column]))
    form = {"converter": "json_schema", "schemas": (schema,), "struct": struct([column])}
    return json.dumps({"v": text}).encode(), {"value": form}


def as_cast(text: str, kind: str) -> tuple[bytes, dict[str, Any]]:
    return json.dumps({"v": text}).encode(), {"transforms": (Transform(cast={"v": kind}),), "columns": "v STRING"}


WAYS = {f.__name__: f for f in (as_json, as_csv, as_envelope, as_json_schema, as_cast)}


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("way", WAYS)
def test_a_text_is_the_same_time_by_every_way_into_a_column(chain, way, kind):
    made = [WAYS[way](text, kind) for text in TEXTS]
    found = chain.rows([value for value, _ in made], f"v {kind}", **made[0][1])
    rows = {text: row[0] if isinstance(row, tuple) else None for text, row in zip(TEXTS, found, strict=True)}
    assert {t: v for t, v in rows.items() if v != said(wanted(t, kind))} == {}
    assert all(isinstance(row, str) or row[0] is not None for row in found)  # no null in place of a text


def test_a_text_leads_to_the_folder_of_the_same_time(spark):
    daily = Partitioning("daily", (), "'year'=YYYY", 1, "UTC", "record_field", "v")
    frame = spark.createDataFrame([(text,) for text in TEXTS], "v STRING")
    column = daily.columns({"v": "string"}, "t")
    refused = daily.misplaced({"v": "string"})
    for row in frame.selectExpr("v", *(f"{sql} AS at" for sql in column.values()), f"{refused} AS why").collect():
        moment = TEXTS[row["v"]]
        assert (row["why"] is None) == (moment is not None), row["v"]
        year = (
            None if moment is None else (datetime(moment.year, 1, 1, tzinfo=UTC) - EPOCH) // timedelta(milliseconds=1)
        )
        assert row["at"] == year


def test_columns_and_sql_make_the_same_of_a_text(spark):
    from sluice.rows.times import of_text

    frame = spark.createDataFrame([(text,) for text in TEXTS], "v STRING")
    for kind in parse_ddl(spark, "a TIMESTAMP, b TIMESTAMP_NTZ, c DATE"):
        of_sql = F.expr(times.of_text("v", kind.dataType.typeName()))
        assert frame.where(~of_text(F.col("v"), kind.dataType).eqNullSafe(of_sql)).count() == 0


def enveloped(name: str | None, kind: str, value: Any) -> bytes:
    fields = [{"field": "v", "type": kind, **({"name": name} if name else {})}]
    return json.dumps({"schema": {"type": "struct", "fields": fields}, "payload": {"v": value}}).encode()


CONNECT, DEBEZIUM = "org.apache.kafka.connect.data.", "io.debezium.time."
DATES = {
    (f"{CONNECT}Date", 7305): date(1990, 1, 1),
    (f"{DEBEZIUM}Date", 7305): date(1990, 1, 1),
    (f"{DEBEZIUM}Date", 19787): date(2024, 3, 5),
    (f"{DEBEZIUM}Date", -719162): date(1, 1, 1),
    (f"{CONNECT}Date", 2932896): date(9999, 12, 31),
    (f"{CONNECT}Date", 2932897): None,
    (f"{CONNECT}Date", 4000000): None,
    (f"{CONNECT}Date", "yesterday"): None,
    (f"{CONNECT}Date", -719163): None,
    (f"{CONNECT}Date", 2**31 - 1): None,
    (f"{CONNECT}Date", 1.5): None,
    (None, 7305): None,
    (None, 19787): None,
    (f"{DEBEZIUM}Timestamp", 7305): None,
}
MOMENTS = {
    (f"{CONNECT}Timestamp", 5000): EPOCH + timedelta(seconds=5),
    (f"{DEBEZIUM}Timestamp", -1): EPOCH - timedelta(milliseconds=1),
    (f"{DEBEZIUM}MicroTimestamp", 5000): EPOCH + timedelta(milliseconds=5),
    (f"{DEBEZIUM}MicroTimestamp", -62135596800000000): datetime(1, 1, 1, tzinfo=UTC),
    (f"{DEBEZIUM}NanoTimestamp", 5999): EPOCH + timedelta(microseconds=5),
    (f"{DEBEZIUM}NanoTimestamp", -1): EPOCH - timedelta(microseconds=1),
    (f"{DEBEZIUM}NanoTimestamp", 1735689600123456789): datetime(2025, 1, 1, 0, 0, 0, 123456, UTC),
    (f"{DEBEZIUM}NanoTimestamp", -(2**63)): datetime(1677, 9, 21, 0, 12, 43, 145224, UTC),
    (f"{DEBEZIUM}NanoTimestamp", 2**63 - 1): datetime(2262, 4, 11, 23, 47, 16, 854775, UTC),
    (f"{CONNECT}Timestamp", 253402300799999): datetime(9999, 12, 31, 23, 59, 59, 999000, UTC),
    (f"{CONNECT}Timestamp", 253402300800000): None,
    (f"{CONNECT}Timestamp", 2**63 - 1): None,
    (f"{CONNECT}Timestamp", -(2**63)): None,
    (f"{DEBEZIUM}MicroTimestamp", 2**63 - 1): None,
    (f"{DEBEZIUM}Time", 5000): None,
    (None, 5000): None,
    (None, 1719792000): None,
}


@pytest.mark.parametrize(("kind", "cases"), [("DATE", DATES), ("TIMESTAMP", MOMENTS)])
def test_a_number_in_connects_envelope_counts_what_its_schema_says(chain, kind, cases):
    values = [enveloped(name, "int64", number) for name, number in cases]
    found = chain.rows(values, f"v {kind}", value={"options": {"schemas.enable": "true"}})
    assert dict(zip(cases, found, strict=True)) == {
        case: (said(moment),) if moment is not None else found[i] for i, (case, moment) in enumerate(cases.items())
    }
    assert all(isinstance(found[i], str) for i, moment in enumerate(cases.values()) if moment is None)
    nulls = [enveloped(name, "int64", None) for name, _ in cases]
    assert chain.rows(nulls, f"v {kind}", value={"options": {"schemas.enable": "true"}}) == [(None,)] * len(nulls)


few = settings(
    max_examples=3, phases=[Phase.generate], suppress_health_check=list(HealthCheck), derandomize=True, database=None
)
zones = st.integers(-14 * 60, 14 * 60).map(lambda m: timezone(timedelta(minutes=m)))
moments = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999)).map(
    lambda t: t.replace(tzinfo=UTC)
)
days = st.dates(date(1, 1, 1), date(9999, 12, 31))
AVRO = {
    "type": "record", "name": "t",
    "fields": [
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "us", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "ms", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
    ],
}  # fmt: skip


@few
@given(rows=st.lists(st.tuples(days, moments, moments), min_size=60, max_size=60))
def test_avro_of_any_year_is_read_as_it_was_written(chain, rows):
    """By fastavro, an implementation of Avro's in Python."""
    values = []
    for day, micro, milli in rows:
        out = BytesIO()
        fastavro.schemaless_writer(out, AVRO, {"day": day, "us": micro, "ms": milli})
        values.append(out.getvalue())
    columns = json.loads(parse_ddl(chain.spark, "day DATE NOT NULL, us TIMESTAMP NOT NULL, ms TIMESTAMP").json())
    schema = WriterSchema(id=None, text=json.dumps(AVRO), struct=columns)
    form = {"converter": "avro", "schemas": (schema,), "struct": columns}
    found = chain.rows(values, "day DATE, us TIMESTAMP, ms TIMESTAMP", value=form)
    assert found == [
        (said(day), said(micro), said(milli.replace(microsecond=milli.microsecond // 1000 * 1000)))
        for day, micro, milli in rows
    ]


def test_avro_beyond_the_year_9999_is_a_bad_record(chain):
    columns = json.loads(parse_ddl(chain.spark, "day DATE NOT NULL, us TIMESTAMP NOT NULL, ms TIMESTAMP").json())
    plain = json.loads(json.dumps(AVRO).replace('"logicalType"', '"was"'))
    out = BytesIO()
    fastavro.schemaless_writer(out, plain, {"day": 4_000_000, "us": 0, "ms": 0})
    schema = WriterSchema(id=None, text=json.dumps(AVRO), struct=columns)
    form = {"converter": "avro", "schemas": (schema,), "struct": columns}
    (found,) = chain.rows([out.getvalue()], "day DATE, us TIMESTAMP, ms TIMESTAMP", value=form)
    assert "not between the years 1 and 9999" in found


LINES = {
    b'2,"say ""hi""",end': ("2", 'say "hi"', "end"),
    b'2,"a""b",': ("2", 'a"b', None),
    b'2,"",x': ("2", None, "x"),
    b'"2","a, b",x': ("2", "a, b", "x"),
    b"2,a,x\n3": None,
    b"2,a,x\r\n3": None,
    b"2,a\nb,x": None,
    b'2,"a\nb",x\ny': None,
    b'2,"a\nb ""c""\n",x': ("2", 'a\nb "c"\n', "x"),
    b'2,"two\nlines",x': ("2", "two\nlines", "x"),
    b"2,back\\slash,x": ("2", "back\\slash", "x"),
    b'2,"say ""\0""",x': ("2", 'say "\0"', "x"),
    "2,a\uffffb,x".encode(): None,
    b"123456,after,x": ("123456", "after", "x"),
    "2,\uffff".encode(): None,
    b"1234567,after that,x": ("1234567", "after that", "x"),
    b"2,a,x\n": ("2", "a", "x"),
    b"2,a,x\r\n": ("2", "a", "x"),
    b"2,a,x\r": ("2", "a", "x"),
    b'2,a,"x\r"\r\n': ("2", "a", "x\r"),
    b"2,a,x\n3,b,y": None,
    b"2,a,x\r\n3,b,y\r\n": None,
    b"2,a,x\r3,b,y": None,
    b"2,a,x\n\n": None,
    b"2,a\n3,b,x": None,
    b"\n2,a,x": None,
    b'2,a,"x': None,
    b"2,a": None,
    b"2,a,x,more": None,
    b"2,a,x,": None,
    b"": None,
    b"\n": None,
    b"two,a,x": None,
}


def test_a_line_of_csv_is_read_by_rfc_4180_and_nothing_of_it_is_left_out(chain):
    found = chain.rows(list(LINES), "id INT, v STRING, w STRING", value={"converter": "csv"})
    assert {line: row if isinstance(row, tuple) else None for line, row in zip(LINES, found, strict=True)} == LINES
    tabs = {"converter": "csv", "options": {"sep": r"\t", "escape": "\\"}}
    lines = [b'2\t"say \\"hi\\"\n\\"again\\""\tx', b"2\ta\tx\n3\tb\ty"]
    row, bad = chain.rows(lines, "id INT, v STRING, w STRING", value=tabs)
    assert row == ("2", 'say "hi"\n"again"', "x")
    assert "is not a line of 3 values" in bad


def test_a_number_of_csv_beyond_its_column_s_type_is_not_infinite(chain):
    lines = [b"1e39,0", b"0,1e400", b"-1e39,", b"3.5e38,-1e309", b"3.4e38,1e308", b"Inf,-Inf", b"-Infinity,NaN"]
    found = chain.rows(lines, "v FLOAT, w DOUBLE", value={"converter": "csv"})
    assert [one for one in found[:4] if "beyond the range" not in one] == []
    assert found[4:] == [("3.4E38", "1.0E308"), ("Infinity", "-Infinity"), ("-Infinity", "NaN")]
    own = {"converter": "csv", "options": {"positiveInf": "oo", "negativeInf": "-oo"}}
    assert chain.rows([b"oo,-oo"], "v FLOAT, w DOUBLE", value=own) == [("Infinity", "-Infinity")]


def test_a_record_of_which_no_field_is_known_is_a_bad_one(chain):
    strange = [b'{"ID": 1, "Name": "x"}', b'{"other": null}', b'{"a": {"id": 1}}']
    known = [b'{"id": null}', b"{}", b'{"ID": 1, "name": "x"}', b'{"id": 1}']
    found = chain.rows([*strange, *known], "id BIGINT, name STRING")
    assert found[3:] == [(None, None), (None, None), (None, "x"), ("1", None)]
    assert found[0].startswith("the value has none of the fields id, name, but ID, Name")
    assert all("has none of the fields" in one for one in found[:3])
    enveloped = [b'{"schema": null, "payload": %s}' % one for one in (*strange, *known)]
    again = chain.rows(enveloped, "id BIGINT, name STRING", value={"options": {"schemas.enable": "true"}})
    assert again == found
