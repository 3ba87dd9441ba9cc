"""What does decoding cost, beside the same in plain Spark? And Avro beside JSON of the same rows?

    python -m bench.decode                             # 500,000 rows, nine rounds
    python -m bench.decode --rows 20000 --rounds 2     # does it work at all?

Rows are encoded once, by Spark's own encoders, and the bytes cached, so that only decoding is timed: into Spark's sink
that keeps nothing. Sides take turns in each round. `sluice` is the record chain of a write job: it finds the schema by
the id in front of the bytes, checks every record, and brings it to the table's columns. `plain` is `from_avro`,
`from_protobuf` or `from_json` of the same bytes, which checks nothing and skips the first bytes unread. Wall seconds
and the JVM's CPU seconds; ratios are medians of the rounds' ratios.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro, to_avro
from pyspark.sql.types import StructType

from sluice import runtime
from sluice.participant.launch.settings import spark_conf
from sluice.protocol.messages import TableSpec
from sluice.records.plan import Format, RecordPlan, WriterSchema
from sluice.records.structs import merge
from sluice.rows.files import on_every_machine
from sluice.rows.records import RecordChain
from sluice.schemas.registry.proto_files import registered_files
from sluice.schemas.registry.protobuf import message_prefixes, read_message, top_level_name

ROW = """
    id AS id,
    concat('N', id % 5000) AS tailnum,
    element_at(array('AA', 'DL', 'UA', 'WN', 'B6'), cast(id % 5 + 1 AS int)) AS carrier,
    cast(id % 7000 AS int) AS flight,
    element_at(array('JFK', 'LGA', 'EWR'), cast(id % 3 + 1 AS int)) AS origin,
    element_at(array('ATL', 'ORD', 'LAX', 'BOS'), cast(id % 4 + 1 AS int)) AS dest,
    cast((id * 7919) % 5000 AS double) / 10 AS distance,
    if(id % 9 = 0, null, cast((id * 31) % 300 - 60 AS double)) AS dep_delay,
    id % 2 = 0 AS cancelled,
    timestamp_micros(1767225600000000 + id * 1000003) AS at,
    concat('row ', id, ' ', repeat('x', cast(id % 20 AS int))) AS note
"""
PROTO = """
syntax = "proto3";
package bench;
import "google/protobuf/timestamp.proto";
message Flight {
  int64 id = 1; string tailnum = 2; string carrier = 3; int32 flight = 4; string origin = 5; string dest = 6;
  double distance = 7; optional double dep_delay = 8; bool cancelled = 9; google.protobuf.Timestamp at = 10;
  string note = 11;
}
"""
ID = 7
Side = Callable[[], DataFrame]


def session() -> SparkSession:
    os.environ.setdefault("JAVA_HOME", str(runtime.java_home()))
    builder = SparkSession.builder.master("local[1]").config("spark.driver.memory", "4g")
    for name, value in spark_conf("local[1]", {}).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def head(number: int) -> bytes:
    return b"\x00" + number.to_bytes(4, "big")


def framed(prefix: bytes, data: Column) -> Column:
    return F.concat(F.lit(bytearray(prefix)), data)


def records(rows: DataFrame, value: Column) -> DataFrame:
    """Kafka's columns with these values, cached."""
    made = rows.select(
        F.lit(None).cast("binary").alias("key"), value.alias("value"), F.lit("flights").alias("topic"),
        F.lit(0).alias("partition"), F.col("id").alias("offset"), F.col("at").alias("timestamp"),
        F.lit(0).alias("timestampType"),
    )  # fmt: skip
    made = made.cache()
    made.count()
    return made


def chain(spark: SparkSession, struct: Any, value: Format) -> RecordChain:
    columns = StructType.fromJson(struct)
    ddl = str(spark._jvm.org.apache.spark.sql.types.DataType.fromJson(json.dumps(struct)).toDDL())  # type: ignore[union-attr]
    writer = TableSpec(
        path="file:///none", name="flights", table_type="COPY_ON_WRITE", operation="append", record_key=(),
        partition_fields=(), ordering_fields=(), schema_ddl=ddl, schema_avro="", options={},
    )  # fmt: skip
    assert len(columns) > 0
    return RecordChain(spark, RecordPlan(value=value), writer)


def plain(frame: DataFrame, decoded: Column) -> DataFrame:
    return frame.select(decoded.alias("v"), "topic", "partition", "offset").select(
        "v.*", "topic", "partition", "offset"
    )


def payload(skip: int) -> Column:
    return F.substring(F.col("value"), skip + 1, 2**31 - 1)


def sides(spark: SparkSession, count: int) -> dict[str, tuple[Side, Side]]:
    """By format: Sluice's and plain Spark's decode of the same bytes."""
    rows = spark.sql(f"SELECT {ROW} FROM range({count})")
    struct = json.loads(rows.schema.json())
    whole = F.struct(*rows.columns)
    return {
        "avro": _avro(spark, rows, whole, struct),
        "avro, three schemas": _avro_evolved(spark, rows, whole, struct),
        "protobuf": _protobuf(spark, rows, whole),
        "json": _json(spark, rows, whole, struct),
    }


def _avro_text(spark: SparkSession, struct: Any) -> str:
    jvm: Any = spark._jvm
    kind = jvm.org.apache.spark.sql.types.DataType.fromJson(json.dumps(struct))
    return str(jvm.org.apache.spark.sql.avro.SchemaConverters.toAvroType(kind, False, "Flight", "bench").toString())


def _avro(spark: SparkSession, rows: DataFrame, whole: Column, struct: Any) -> tuple[Side, Side]:
    text = _avro_text(spark, struct)
    frame = records(rows, framed(head(ID), to_avro(whole, text)))
    schemas = (WriterSchema(id=ID, text=text, struct=struct),)
    ours = chain(spark, struct, Format(converter="avro", struct=struct, schemas=schemas, registry="r"))
    return lambda: ours.rows(frame), lambda: plain(frame, from_avro(payload(5), text, {"mode": "PERMISSIVE"}))


def _avro_evolved(spark: SparkSession, rows: DataFrame, whole: Column, struct: Any) -> tuple[Side, Side]:
    """A third of the records each with the schema, without two of its fields, and with one of them as an INT.

    What plain Spark can do with them: for each id a `from_avro` that reads the newest schema.
    """
    older = {**struct, "fields": [f for f in struct["fields"] if f["name"] not in ("note", "dep_delay")]}
    narrow = {**struct, "fields": [{**f, "type": "integer"} if f["name"] == "id" else f for f in struct["fields"]]}
    versions = {ID: struct, ID + 1: older, ID + 2: narrow}
    texts = {number: _avro_text(spark, kind) for number, kind in versions.items()}
    made = {
        ID: whole,
        ID + 1: F.struct(*[f["name"] for f in older["fields"]]),
        ID + 2: F.struct(*[F.col(f["name"]).cast("int").alias("id") if f["name"] == "id" else F.col(f["name"])
                           for f in narrow["fields"]]),
    }  # fmt: skip
    encoded = {number: framed(head(number), to_avro(made[number], texts[number])) for number in versions}
    turn = F.col("id") % 3
    value = F.when(turn == 0, encoded[ID]).when(turn == 1, encoded[ID + 1]).otherwise(encoded[ID + 2])
    mixed = records(rows, value)
    union = merge(merge(struct, older).struct, narrow).struct
    schemas = tuple(WriterSchema(id=n, text=texts[n], struct=kind) for n, kind in versions.items())
    ours = chain(spark, union, Format(converter="avro", struct=union, schemas=schemas, registry="r"))
    reader = json.loads(texts[ID])
    for field in reader["fields"]:
        if field["name"] in ("note", "dep_delay"):
            field |= {"type": ["null", *(t for t in field["type"] if t != "null")], "default": None}
    options = {"mode": "PERMISSIVE", "avroSchema": json.dumps(reader)}
    theirs: Any = F
    for number, text in texts.items():
        named = F.substring(F.col("value"), 1, 5) == F.lit(bytearray(head(number)))
        theirs = theirs.when(named, from_avro(payload(5), text, options))
    return lambda: ours.rows(mixed), lambda: plain(mixed, theirs)


def _protobuf(spark: SparkSession, rows: DataFrame, whole: Column) -> tuple[Side, Side]:
    message = read_message(registered_files(PROTO, []), None)
    path = on_every_machine(spark, message.descriptors, "desc")
    functions = spark._jvm.org.apache.spark.sql.protobuf.functions  # type: ignore[union-attr]
    name = top_level_name(message.name)
    prefix = head(ID) + message_prefixes(message.indexes)[0]
    frame = records(rows, framed(prefix, Column(functions.to_protobuf(whole._jc, name, path))))
    pinned = WriterSchema(
        id=ID, text=b64encode(message.descriptors).decode(), struct=message.logical, message=message.name,
        indexes=message.indexes,
    )  # fmt: skip
    value = Format(converter="protobuf", struct=message.logical, schemas=(pinned,), registry="r")
    ours = chain(spark, message.logical, value)

    def theirs() -> DataFrame:
        return plain(frame, Column(functions.from_protobuf(payload(6)._jc, name, path, {"mode": "PERMISSIVE"})))

    return lambda: ours.rows(frame), theirs


def _json(spark: SparkSession, rows: DataFrame, whole: Column, struct: Any) -> tuple[Side, Side]:
    frame = records(rows, F.to_json(whole).cast("binary"))
    ours = chain(spark, struct, Format(converter="json", struct=struct))
    kind = StructType.fromJson(struct)
    return lambda: ours.rows(frame), lambda: plain(frame, F.from_json(F.col("value").cast("string"), kind))


def measured(spark: SparkSession, side: Side) -> tuple[float, float]:
    """Wall and CPU seconds of one decode."""
    jvm = psutil.Process(spark._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]
    frame = side()
    cpu, began = sum(jvm.cpu_times()[:2]), time.monotonic()
    frame.write.format("noop").mode("overwrite").save()
    return time.monotonic() - began, sum(jvm.cpu_times()[:2]) - cpu


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--out", type=Path, default=Path(tempfile.gettempdir()) / "decode.json")
    arguments = parser.parse_args()
    spark = session()
    spark.sparkContext.setLogLevel("ERROR")
    both = sides(spark, arguments.rows)
    runs = {
        f"{name}: {who}": side
        for name, pair in both.items()
        for who, side in zip(("sluice", "plain"), pair, strict=True)
    }
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
    for number in range(arguments.rounds + 2):
        for name, side in runs.items():
            seconds = measured(spark, side)
            if number >= 2:  # the first two are for the JIT
                found[name].append(seconds)
    arguments.out.write_text(json.dumps(found))
    print(f"{'':32}{'wall s':>9}{'CPU s':>9}")
    for name, times in found.items():
        print(f"{name:32}{statistics.median(t[0] for t in times):9.2f}{statistics.median(t[1] for t in times):9.2f}")
    pairs = [(f"{name}: sluice", f"{name}: plain") for name in both] + [("avro: sluice", "json: sluice")]
    print(f"\n{'ratio':48}{'wall':>9}{'CPU':>9}")
    for one, other in pairs:
        wall, cpu = (
            statistics.median(a[i] / b[i] for a, b in zip(found[one], found[other], strict=True)) for i in (0, 1)
        )
        print(f"{f'{one} / {other}':48}{wall:9.2f}{cpu:9.2f}")


if __name__ == "__main__":
    main()
