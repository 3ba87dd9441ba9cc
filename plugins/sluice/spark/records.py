"""From Kafka's records to a table's rows: converters, changes, transforms, and the bad records on the way.

The checks are expressions inside the write's own projection, so that a record is decoded once, and nothing read twice.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from sluice.errors import ActionRequiredError, IntervalError
from sluice.protocol.messages import PlannedRange, TableWriter
from sluice.records.plan import Format, RecordPlan
from sluice.spark.bad_records import KEY_STAGE, BadSpan, aggregates, spans, stage_of, too_large
from sluice.spark.conform import conform, type_of
from sluice.spark.converters import Converted, Given, converter_of
from sluice.spark.read import observed

KAFKA_COLUMNS: Final = ("_kafka_topic", "_kafka_partition", "_kafka_offset")
"""Where a row's record stands; beside the table's columns all the way to the write, and not written."""
RECORD: Final = "_kafka_record"
"""The whole record, where bad ones are looked for: a struct of key, value, timestamp, timestampType, headers, stage."""
PROBLEM: Final = "_sluice_problem"
_MARK: Final = "SLUICE-BAD-RECORD"
_REPORT: Final = re.compile(rf"{_MARK} topic=(\S+) partition=(\d+) offset=(\d+) reason=([^\n]*)")
_DECODED, _SHAPED = "sluice_decoded", "sluice_shaped"
_PLACES: Final = "_places"


@dataclass(frozen=True)
class Counted:
    """What became of the records that are no rows: bad ones that were left out, and those that a filter took.

    `spans` say between which offsets the bad ones stand.
    """

    bad: int = 0
    filtered: int = 0
    spans: tuple[BadSpan, ...] = ()


class RecordChain:
    """The way of one interval's records to rows."""

    def __init__(
        self, spark: SparkSession, plan: RecordPlan, writer: TableWriter, planned: Sequence[PlannedRange] = ()
    ) -> None:
        self._spark = spark
        self._plan = plan
        self._writer = writer
        self._table = parse_ddl(spark, writer.schema_ddl)
        self._tolerant = plan.errors.tolerance == "all"
        self._planned = planned

    def rows(self, records: DataFrame) -> DataFrame:
        """The table's columns of every good record, with `KAFKA_COLUMNS` beside them.

        Without tolerance the first bad record ends the job; `bad_record` finds it in the error. With it, bad records
        are left out and counted (`counts`).

        Args:
            records: Kafka's columns, as Spark's source has them.
        """
        decoded = self._decoded(records, keep=False)
        if self._in_two_parts:
            decoded = self._good(decoded, _DECODED)
        shaped = self._shaped(decoded)
        if self._tolerant:
            shaped = self._good(shaped, _SHAPED)
        elif self._in_two_parts:
            shaped = shaped.observe(_SHAPED, *_counts())
        return shaped.select(*self._columns(guarded=not self._tolerant), *KAFKA_COLUMNS)

    def counts(self, dataset: Any) -> Counted:
        """What the run that wrote `dataset` (a Java Dataset made of `rows`) has left out.

        Raises:
            IntervalError: the transforms made more rows than there were records.
        """
        shaped = observed(dataset, _SHAPED) if self._tolerant or self._in_two_parts else {"rows": 0, "bad": 0}
        bad = self._bad_spans(dataset)
        if not self._in_two_parts:
            return Counted(bad=int(shaped["bad"]), spans=bad)
        decoded = observed(dataset, _DECODED)
        filtered = int(decoded["rows"]) - int(decoded["bad"]) - int(shaped["rows"])
        if filtered < 0:
            raise IntervalError(
                "The transforms make more rows than there are records, so that nobody could tell which are doubled.",
                next_step="make at most one row of a record; an array can stay one column.",
                rows=shaped["rows"],
                records=decoded["rows"],
            )
        return Counted(int(decoded["bad"]) + int(shaped["bad"]), filtered, bad)

    def _bad_spans(self, dataset: Any) -> tuple[BadSpan, ...]:
        if not self._tolerant:
            return ()
        parts = [_SHAPED, *([_DECODED] if self._in_two_parts else [])]
        return spans(self._planned, [observed(dataset, f"{part}{_PLACES}") for part in parts])

    def bad(self, records: DataFrame) -> DataFrame:
        """The bad records: `KAFKA_COLUMNS`, `RECORD`, and `PROBLEM`, which says in words what is wrong."""
        wanted = [*KAFKA_COLUMNS, RECORD, PROBLEM]
        decoded = self._decoded(records, keep=True)
        if not self._in_two_parts:
            return self._shaped(decoded).where(F.col(PROBLEM).isNotNull()).select(*wanted)
        shaped = self._shaped(decoded.where(F.col(PROBLEM).isNull()))
        return reduce(DataFrame.union, [d.where(F.col(PROBLEM).isNotNull()).select(*wanted) for d in (decoded, shaped)])

    @property
    def _in_two_parts(self) -> bool:
        """Whether bad records have to go before the rows are shaped: no step may see, or leave out, one of those."""
        return bool(self._plan.transforms)

    def _good(self, frame: DataFrame, name: str) -> DataFrame:
        """The good ones, the others counted.

        Without tolerance the first bad one ends the job here. The counting also keeps Spark from moving the condition
        down into the decoding, which would then be done twice.
        """
        counted = frame.observe(name, *_counts())
        if self._tolerant:
            counted = counted.observe(f"{name}{_PLACES}", *aggregates(F.col(PROBLEM), self._planned))
            return counted.where(F.col(PROBLEM).isNull())
        return counted.where(F.when(F.col(PROBLEM).isNull(), True).otherwise(_failure().cast("boolean")))

    # Decoding ----------------------------------------------------------------------------------------------------

    def _decoded(self, records: DataFrame, *, keep: bool) -> DataFrame:
        """The record's columns, `KAFKA_COLUMNS` and `PROBLEM`; and `RECORD` if it is to be kept."""
        value = self._convert(records, "value", self._plan.value)
        parts, problems = [value], [F.when(F.col("value").isNull(), _TOMBSTONE), value.problem]
        key = None
        if self._plan.key is not None:
            key = self._convert(value.records, "key", self._plan.key)
            parts.append(key)
            problems.append(F.when(F.col("key").isNotNull(), F.concat(F.lit(KEY_STAGE), key.problem)))
        columns = self._fields(value, self._plan.value)
        if key is not None and self._plan.key is not None:
            columns |= {n: c for n, c in self._fields(key, self._plan.key).items() if n not in columns}
        columns |= {name: F.col(_PARTS.get(part, part)) for name, part in self._plan.columns.items()}
        problems[:0] = self._too_large()
        kept = [F.struct(*_KEPT, stage_of(F.coalesce(*problems))).alias(RECORD)] if keep else []
        place = [F.col(name).alias(f"_kafka_{name}") for name in ("topic", "partition", "offset")]
        made = [column.alias(name) for name, column in columns.items()]
        return parts[-1].records.select(*made, *place, *kept, F.coalesce(*problems).alias(PROBLEM))

    def _convert(self, records: DataFrame, name: str, pinned: Format) -> Converted:
        given = Given(
            name=name,
            spark=self._spark,
            type=self._table if pinned.struct is None else type_of(pinned.struct),
            schemas=pinned.schemas,
            defaults=pinned.defaults,
            options=pinned.options,
            message=pinned.message,
            registered=pinned.registered,
        )
        large = [F.coalesce(problem.isNotNull(), F.lit(False)) for problem in self._too_large()]
        data = F.when(~large[0], F.col(name)) if large else F.col(name)
        return converter_of(pinned).convert(records, data, given)

    def _too_large(self) -> list[Column]:
        limit = self._plan.errors.max_record_bytes
        return [] if limit is None else [too_large(limit)]

    def _fields(self, converted: Converted, pinned: Format) -> dict[str, Column]:
        if pinned.as_ is not None:
            return {pinned.as_: converted.value}
        kind = self._table if pinned.struct is None else type_of(pinned.struct)
        assert isinstance(kind, StructType)
        return {f.name: converted.value.getField(f.name) for f in kind.fields}

    # Shaping -----------------------------------------------------------------------------------------------------

    def _shaped(self, decoded: DataFrame) -> DataFrame:
        """The table's columns, of its types, and what is wrong with them."""
        frame = decoded
        found = {name.lower(): name for name in frame.columns}
        columns = []
        for field in self._table.fields:
            name = found.get(field.name.lower())
            if name is None:
                columns.append(F.lit(None).cast(field.dataType).alias(field.name))
            else:
                columns.append(
                    conform(F.col(f"`{name}`"), frame.schema[name].dataType, field.dataType).alias(field.name)
                )
        hidden = [name for name in (*KAFKA_COLUMNS, RECORD) if name in frame.columns]
        shaped = frame.select(*columns, *hidden, F.col(PROBLEM))
        return shaped.withColumn(PROBLEM, F.coalesce(F.col(PROBLEM), *self._missing()))

    def _missing(self) -> list[Column]:
        """Why a row can't stand in the table: a column that must not be null is."""
        writer = self._writer
        keyed = (*writer.record_key, *writer.partition_fields, *writer.ordering_fields)
        not_null = dict.fromkeys([*keyed, *(f.name for f in self._table if not f.nullable)])
        return [F.when(F.col(f"`{n}`").isNull(), f"the field {n} is missing or null") for n in not_null]

    def _columns(self, *, guarded: bool) -> list[Column]:
        """The table's columns; a bad record ends the job where the first of them is computed, if they are guarded."""
        first, *others = self._table.fields
        column = F.col(f"`{first.name}`")
        if guarded:
            column = F.when(F.col(PROBLEM).isNotNull(), _failure().cast(first.dataType)).otherwise(column)
        return [column.alias(first.name), *(F.col(f"`{f.name}`") for f in others)]


_PARTS: Final = {"timestamp_type": "timestampType"}
_KEPT: Final = ("key", "value", "timestamp", "timestampType", "headers")
_TOMBSTONE: Final = "the value is null (a tombstone)"


def _counts() -> list[Column]:
    return [F.count(F.lit(1)).alias("rows"), F.count(F.col(PROBLEM)).alias("bad")]


def _failure() -> Column:
    place = [F.lit(f"{_MARK} topic="), F.col("_kafka_topic"), F.lit(" partition="), F.col("_kafka_partition")]
    place += [F.lit(" offset="), F.col("_kafka_offset"), F.lit(" reason="), F.col(PROBLEM)]
    return F.raise_error(F.concat(*place))


def parse_ddl(spark: SparkSession, ddl: str) -> StructType:
    """A StructType of Spark's DDL, by Spark's own parser."""
    jvm: Any = spark._jvm
    return StructType.fromJson(json.loads(jvm.org.apache.spark.sql.types.StructType.fromDDL(ddl).json()))


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
