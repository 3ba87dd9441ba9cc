"""Decodes records to the table's columns; the first bad one ends the job with its topic, partition, offset and reason.

The check is an expression inside the write's own projection, so a record is decoded once and nothing is read twice.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import reduce
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructType

from sluice.errors import ActionRequiredError

_CORRUPT: Final = "_sluice_corrupt"
_MARK: Final = "SLUICE-BAD-RECORD"
_REPORT: Final = re.compile(rf"{_MARK} topic=(\S+) partition=(\d+) offset=(\d+) reason=([^\n]*)")


def decode_json(frame: DataFrame, schema: StructType, required: Sequence[str]) -> DataFrame:
    """The table's columns of JSON records, with Kafka's `topic`, `partition` and `offset` as `_kafka_*` beside them.

    Args:
        frame: Kafka's columns.
        schema: the table's columns. A column that is NOT NULL must be in every record.
        required: columns that must not be null in any record: record key, partition and ordering fields.
    """
    text = F.col("value").cast("string")
    nullable = StructType([*(f for f in _nullable(schema)), *StructType().add(_CORRUPT, StringType())])
    parsed = F.from_json(text, nullable, {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT})
    kafka = [F.col(name).alias(f"_kafka_{name}") for name in ("topic", "partition", "offset")]
    trimmed = F.trim(text)
    shape = F.when(F.col("value").isNull(), "the value is null (a tombstone)").when(
        ~(trimmed.startswith("{") & trimmed.endswith("}")), "the value is not one JSON object"
    )
    decoded = frame.select(parsed.alias("_v"), shape.alias("_shape"), *kafka)
    reason = F.when(F.col("_shape").isNotNull(), F.col("_shape")).when(
        F.col("_v").isNull() | F.col(f"_v.{_CORRUPT}").isNotNull(),
        "the value is not JSON, or a field is not of its column's type",
    )
    not_null = dict.fromkeys([*required, *(f.name for f in schema if not f.nullable)])
    for name in not_null:
        reason = reason.when(F.col(f"_v.`{name}`").isNull(), f"the field {name} is missing or null")
    place = [F.lit(f"{_MARK} topic="), F.col("_kafka_topic"), F.lit(" partition="), F.col("_kafka_partition")]
    place += [F.lit(" offset="), F.col("_kafka_offset"), F.lit(" reason="), reason]
    first, *others = schema.fields
    guarded = F.when(reason.isNotNull(), F.raise_error(F.concat(*place)).cast(first.dataType)).otherwise(
        F.col(f"_v.`{first.name}`")
    )
    columns = [guarded.alias(first.name), *(F.col(f"_v.`{f.name}`").alias(f.name) for f in others)]
    return decoded.select(*columns, "_kafka_topic", "_kafka_partition", "_kafka_offset")


def parse_ddl(spark: SparkSession, ddl: str) -> StructType:
    """A StructType of Spark's DDL, by Spark's own parser."""
    jvm: Any = spark._jvm
    return StructType.fromJson(json.loads(jvm.org.apache.spark.sql.types.StructType.fromDDL(ddl).json()))


def _nullable(schema: StructType) -> StructType:
    return reduce(lambda s, f: s.add(f.name, f.dataType, True), schema.fields, StructType())


def bad_record(message: str, table: str, instant: str) -> ActionRequiredError | None:
    """The error of a bad record if that is what ended a Spark job."""
    found = _REPORT.search(message)
    if found is None:
        return None
    topic, partition, offset, reason = found.groups()
    return ActionRequiredError(
        f"A record can't be loaded: {reason.strip()}.",
        next_step="nothing of this interval was committed; correct the producer or the pipeline's schema, "
        "or pass over the record as docs/operate.md says.",
        topic=topic,
        partition=int(partition),
        offset=int(offset),
        table=table,
        instant=instant,
    )
