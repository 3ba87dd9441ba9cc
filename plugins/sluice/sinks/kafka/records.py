"""Rows as records of topics: encoded key and value, headers, time, and where they go."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from sluice.connectors.data import PLACE
from sluice.jvm.sql import literal
from sluice.protocol.messages import TableSpec
from sluice.records.transforms import quoted
from sluice.rows.changes import CHANGE, DELETES
from sluice.rows.records import RECORD_TIME, fails_with, parse_ddl
from sluice.sinks.kafka.encoders import encoded, unfit
from sluice.sinks.kafka.names import EACH, STAGED
from sluice.sinks.kafka.shape import shape_of

HEADERS: Final = "array<struct<key:string,value:binary>>"
_UNFIT: Final = "_unfit"
_OVERHEAD: Final = 128  # bytes of a batch of one record beside key, value and headers, as generous as Kafka's clients


def written_records(spark: SparkSession, writer: TableSpec, rows: DataFrame, kept: Collection[str] = ()) -> DataFrame:
    """The columns `STAGED` of each row, as the interval's START-COMMIT says.

    Running it fails with the place of a record that has no form in the topic.

    Args:
        spark: the session.
        writer: how records are written.
        rows: columns of the table, and what `SinkWriter.write` gets beside them.
        kept: columns of the rows to keep beside those.
    """
    options = writer.options
    kinds = parse_ddl(spark, writer.schema_ddl)
    shape = shape_of(options, kinds.names)
    key: Column = F.lit(None).cast("binary")
    if shape.key:
        key = _encoded(spark, writer, "key", shape.key, kinds)
        nothing = F.lit(True)
        for name in shape.key:
            nothing &= F.col(quoted(name)).isNull()
        if len(shape.key) == 1:
            key = F.when(~nothing, key)
    value = _encoded(spark, writer, "value", shape.value, kinds)
    if CHANGE in rows.columns:
        value = F.when(~F.col(CHANGE).isin(*DELETES), value)
    headers = [F.lit(name).alias("key") for name in shape.headers]
    own = [
        F.struct(name, F.col(quoted(column)).cast("string").cast("binary").alias("value"))
        for name, column in zip(headers, shape.headers.values(), strict=True)
    ]
    carried = F.col(quoted(shape.headers_from)) if shape.headers_from else None
    given: Column = F.array(*own) if own else F.lit(None).cast(HEADERS)
    if carried is not None:
        given = F.concat(F.coalesce(carried, F.array().cast(HEADERS)), given) if own else carried
    topic = options["topic"]
    made = {
        "topic": F.expr(f"replace({literal(topic)}, {literal(EACH)}, _kafka_topic)") if EACH in topic else F.lit(topic),
        "key": key,
        "value": value,
        "headers": given.cast(HEADERS),
        "partition": F.col("_kafka_partition") if options["partitioner"] == "same" else F.lit(None).cast("int"),
        "timestamp": _time(options, shape.timestamp),
    }
    parts = [(options["key_encoder"], shape.key), (options["value_encoder"], shape.value)]
    unfits = [one for encoder, names in parts if (one := unfit(encoder, names, kinds)) is not None]
    problem = [F.coalesce(*unfits).alias(_UNFIT)] if unfits else []
    beside = dict.fromkeys((*PLACE, *kept))
    frame = rows.select(*(made[name].alias(name) for name in STAGED), *problem, *map(quoted, beside))
    limit = int(options["max_bytes"])
    wrong = [f"WHEN {_UNFIT} IS NOT NULL THEN {fails_with(_UNFIT)}"] if unfits else []
    wrong += [f"WHEN {_SIZE} > {limit} THEN {fails_with(literal(_too_large(limit)))}"] if limit else []
    first = f"CASE {' '.join(wrong)} ELSE topic END AS topic" if wrong else "topic"
    return frame.selectExpr(first, *STAGED[1:], *map(quoted, kept))


def needs_record_time(options: Mapping[str, str]) -> bool:
    """Whether the rows are to have the record's own time beside them."""
    return bool(options["timestamp"] == "record")


def _encoded(spark: SparkSession, writer: TableSpec, part: str, names: tuple[str, ...], kinds: StructType) -> Column:
    pinned = json.loads(writer.options.get(f"{part}_schema", "{}"))
    return encoded(spark, writer.options[f"{part}_encoder"], names, kinds, pinned)


def _time(options: Mapping[str, str], column: str) -> Column:
    if column:
        return F.unix_millis(F.col(quoted(column)).cast("timestamp"))
    return F.unix_millis(F.col(RECORD_TIME)) if needs_record_time(options) else F.lit(None).cast("bigint")


_SIZE: Final = (
    f"{_OVERHEAD} + coalesce(octet_length(`key`), 0) + coalesce(octet_length(`value`), 0) + coalesce("
    "aggregate(`headers`, 0, (sum, one) -> sum + octet_length(one.key) + coalesce(octet_length(one.value), 0) + 10), 0)"
)


def _too_large(limit: int) -> str:
    return f"its key, value and headers are more than the {limit} bytes that the topic takes (max.message.bytes)"
