"""Records that one client has read, as a DataFrame with the columns of Spark's Kafka source."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from sluice.connectors.data import Delivered, Gathered
from sluice.jvm.arrow import frame_of
from sluice.protocol.messages import PlannedRange
from sluice.sources.kafka.gathering import Record, Stretch

_COLUMNS: dict[str, tuple[DataType, pa.DataType]] = {
    "key": (BinaryType(), pa.binary()),
    "value": (BinaryType(), pa.binary()),
    "topic": (StringType(), pa.string()),
    "partition": (IntegerType(), pa.int32()),
    "offset": (LongType(), pa.int64()),
    "timestamp": (TimestampType(), pa.timestamp("us", tz="UTC")),
    "timestampType": (IntegerType(), pa.int32()),
    "headers": (
        ArrayType(StructType().add("key", StringType()).add("value", BinaryType())),
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    ),
}


def gathered(
    spark: SparkSession, whole: Sequence[Stretch], unfit: Iterable[PlannedRange], per_task: int, *, headers: bool
) -> Gathered:
    """The records of ranges that were read in full, each in one Spark partition.

    Args:
        spark: the session.
        whole: these ranges.
        unfit: the ranges that have to be read in another way.
        per_task: the records from which on a Spark partition takes no further range.
        headers: with the records' headers.
    """
    if not whole:
        return Gathered(None, 0, (), tuple(unfit))
    tasks: list[list[Stretch]] = [[]]
    held = 0
    delivered = []
    for stretch in whole:
        if held >= per_task:
            tasks.append([])
            held = 0
        tasks[-1].append(stretch)
        held += len(stretch.records)
        delivered.append(_delivered(stretch, len(tasks) - 1))
    batches = [_batch(stretches, headers=headers) for stretches in tasks]
    schema = StructType()
    for name in batches[0].schema.names:
        schema.add(name, _COLUMNS[name][0])
    return Gathered(frame_of(spark, batches, schema), len(tasks), tuple(delivered), tuple(unfit))


def _delivered(stretch: Stretch, task: int) -> Delivered:
    records = stretch.records
    if not records:
        return Delivered(stretch.planned)
    return Delivered(
        stretch.planned,
        records=len(records),
        bytes=sum(len(r.value or b"") for r in records),
        last=records[-1].offset,
        newest=max(r.time for r in records),
        task=task,
    )


def _batch(stretches: Sequence[Stretch], *, headers: bool) -> pa.RecordBatch:
    places = [s.planned for s in stretches for _ in s.records]
    records: list[Record] = list(chain.from_iterable(s.records for s in stretches))
    values: dict[str, list[Any]] = {
        "key": [r.key for r in records],
        "value": [r.value for r in records],
        "topic": [place.topic for place in places],
        "partition": [place.partition for place in places],
        "offset": [r.offset for r in records],
        "timestamp": [r.time * 1000 for r in records],
        "timestampType": [r.time_type for r in records],
    }
    if headers:
        values["headers"] = [r.headers and [{"key": k, "value": v} for k, v in r.headers] for r in records]
    return pa.RecordBatch.from_pydict({name: pa.array(column, _COLUMNS[name][1]) for name, column in values.items()})
