"""From Kafka's records to a table's rows: converters, changes, transforms and bad records.

The checks are expressions in the write's own projection, so that each record is read and decoded only once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as _field
from functools import reduce
from itertools import pairwise
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, StructType

from sluice.connectors.data import MADE, REFUSED
from sluice.errors import ActionRequiredError, IntervalError
from sluice.identifiers import quoted
from sluice.jvm.catalyst import Unseen
from sluice.jvm.sql import columns, literal
from sluice.protocol.messages import PlannedRange, TableSpec
from sluice.records.fits import RESERVED, unassignable
from sluice.records.folders import no_folder
from sluice.records.pinning import misfit
from sluice.records.plan import Format, RecordPlan
from sluice.records.structs import struct
from sluice.rows.bad_records import KEY_STAGE, BadSpan, aggregates, spans, stage_of, too_large
from sluice.rows.changes import (
    CHANGE,
    DELETE,
    DELETES,
    KEY,
    MOVE,
    NO_KEY,
    NO_VALUE,
    ROWS,
    SOFT_DELETE,
    ChangeCounts,
    ChangeStep,
)
from sluice.rows.conform import conform, same_type, type_of
from sluice.rows.converters import Converted, ConverterContext, converter_of
from sluice.rows.json_text import as_json
from sluice.rows.observed import observed
from sluice.rows.reading import TOPIC
from sluice.rows.times import outside
from sluice.rows.transforms import Transforms

KAFKA_COLUMNS: Final = ("_kafka_topic", "_kafka_partition", "_kafka_offset")
"""The place of a row's record; carried beside the table's columns up to the write, but not written."""
RECORD_TIME: Final = "_kafka_timestamp"
"""The record's own time, null if it has none; carried like its position for a writer that needs it."""
RECORD: Final = "_kafka_record"
"""The whole record, for bad ones: a struct of key, value, timestamp, timestampType, headers and stage."""
PROBLEM: Final = "_sluice_problem"
_HIDDEN: Final = (*KAFKA_COLUMNS, RECORD_TIME, RECORD, PROBLEM, CHANGE, NO_KEY)
_MARK: Final = "SLUICE-BAD-RECORD"
_REPORT: Final = re.compile(rf"{_MARK} topic=(\S+) partition=(\d+) offset=(\d+) reason=([^\n]*)")
_DECODED, _CHANGES, _PART, _SHAPED = "sluice_decoded", "sluice_changes", "sluice_part", "sluice_shaped"
_LOOKED_AT: Final = "sluice_looked_at"
_PLACES: Final = "_places"


@dataclass(frozen=True)
class Counted:
    """Counts of the records that didn't become rows: bad ones that were left out, and filtered ones.

    `spans` are the offsets between which the bad ones are. Of the others, `deleted` delete a row, and `moved` are
    updates that also remove their row from another table partition, which Hudi counts as a separate delete.
    """

    bad: int = 0
    filtered: int = 0
    spans: tuple[BadSpan, ...] = ()
    deleted: int = 0
    moved: int = 0
    changes: ChangeCounts = _field(default_factory=ChangeCounts)


class RecordChain:
    """Turns one interval's records into rows.

    Args:
        spark: the session.
        plan: how a record becomes a row.
        writer: the writer, whose columns the rows have.
        planned: the ranges to read, for the positions of bad records.
        of_streams: whether the records are of streams, whose topics have other names in rows.
        record_time: whether rows have `RECORD_TIME` beside them.
        check: the sink's check of rows (`sluice.connectors.data.check_of`); None if it accepts all.
    """

    def __init__(
        self,
        spark: SparkSession,
        plan: RecordPlan,
        writer: TableSpec,
        planned: Sequence[PlannedRange] = (),
        *,
        of_streams: bool = False,
        record_time: bool = False,
        check: Callable[[DataFrame], DataFrame] | None = None,
    ) -> None:
        self._spark = spark
        self._plan = plan
        self._writer = writer
        self._table = parse_ddl(spark, writer.schema_ddl)
        self._tolerant = plan.errors.tolerance == "all"
        keyed = (*writer.record_key, *writer.partition_fields, *writer.ordering_fields)
        self._not_null = dict.fromkeys([*keyed, *(f.name for f in self._table if not f.nullable)])
        # The whole key, which a record may lack; a present key must have all fields.
        whole = plan.key.as_ if plan.key is not None and writer.keyless else None
        self._may_lack = {f.name for f in self._table if f.nullable and f.name == whole}
        added = plan.changes.columns if plan.changes is not None else ()
        self._transforms = Transforms(plan.transforms, (*_HIDDEN, *added), PROBLEM)
        self._changes = None
        if plan.changes is not None:
            self._changes = ChangeStep(plan, writer, PROBLEM, self._not_null, self._unseen)
        self._planned = planned
        self._of_streams = of_streams
        self._time = (RECORD_TIME,) if record_time else ()
        self._check = check

    def rows(self, records: DataFrame) -> DataFrame:
        """The table's columns of every good record, with `KAFKA_COLUMNS` beside them.

        Without tolerance the first bad record ends the job; `bad_record` finds it in the error. With it, bad records
        are left out and counted (`counts`).

        Args:
            records: Kafka's columns, as Spark's source has them.
        """
        frame = self._decoded(records, keep=False)
        if self._changes is not None:
            frame = self._changes.apply(frame).observe(_CHANGES, *self._changes.aggregates())
        if self._in_two_parts:
            frame = self._good(frame, _DECODED)
        if self._changes is not None:
            frame = frame.where(F.col(CHANGE).isin(*ROWS))
        for part in range(len(self._transforms.parts)):
            if part:
                frame = self._good(self._real_moves(frame), f"{_PART}_{part}")
            frame = self._transforms.shape(frame, part)
        shaped = self._real_moves(self._shaped(frame))
        apart = self._tolerant or self._check is not None  # a step that computes further columns may leave these unread
        if apart:
            shaped = self._good(shaped, _SHAPED)
        elif self._in_two_parts:
            shaped = shaped.observe(_SHAPED, *self._counts())
        beside = [*KAFKA_COLUMNS, *self._time, *([CHANGE] if self._changes is not None else [])]
        beside += [name for name in shaped.columns if name.startswith(MADE)]
        return shaped.selectExpr(*self._columns(guarded=not apart), *beside)

    def _unseen(self, frame: DataFrame) -> Unseen:
        """The columns that no step uses; those missing in the table are dropped."""
        found = self._transforms.unseen(frame)
        of_table = {name.lower() for name in self._table.names}
        kept = frozenset(name for name in found.kept if name.lower() in of_table)
        return Unseen(kept, found.dropped | (found.kept - kept))

    def counts(self, dataset: Any) -> Counted:
        """Counts of the records left out by the run that wrote `dataset` (a Java Dataset made of `rows`).

        Raises:
            IntervalError: the transforms made more rows than there were records.
        """
        shaped = observed(dataset, _SHAPED) if self._tolerant or self._in_two_parts else {"rows": 0, "bad": 0}
        bad_spans = self._bad_spans(dataset)
        if not self._in_two_parts:
            return Counted(bad=int(shaped["bad"]), spans=bad_spans)
        decoded = observed(dataset, _DECODED)
        bad = int(decoded["bad"])
        bad += sum(int(observed(dataset, f"{_PART}_{part}")["bad"]) for part in range(1, len(self._transforms.parts)))
        filtered = int(decoded["rows"]) - bad - int(shaped["rows"])
        if filtered < 0:
            raise IntervalError(
                "The transforms make more rows than there are records, so that doubled rows couldn't be recognized.",
                next_step="make at most one row of a record; an array can stay one column.",
                rows=shaped["rows"],
                records=decoded["rows"],
            )
        changed = {"deleted": 0, "moved": 0} if self._changes is None else shaped
        return Counted(
            bad + int(shaped["bad"]),
            filtered,
            bad_spans,
            int(changed["deleted"]),
            int(changed["moved"]),
            self._changes.seen(observed(dataset, _CHANGES)) if self._changes is not None else ChangeCounts(),
        )

    def _bad_spans(self, dataset: Any) -> tuple[BadSpan, ...]:
        if not self._tolerant:
            return ()
        parts = [_SHAPED, *([_DECODED] if self._in_two_parts else [])]
        parts += [f"{_PART}_{part}" for part in range(1, len(self._transforms.parts))]
        return spans(self._planned, [observed(dataset, f"{part}{_PLACES}") for part in parts])

    def bad(self, records: DataFrame) -> DataFrame:
        """The bad records: `KAFKA_COLUMNS`, `RECORD`, and `PROBLEM`, the fault in words."""
        wanted = [*KAFKA_COLUMNS, RECORD, PROBLEM]
        # Counted only to keep Spark from moving the condition down into the decoding, which would then be done twice.
        decoded = self._decoded(records, keep=True).observe(_LOOKED_AT, F.count(F.lit(1)).alias("records"))
        if self._changes is not None:
            decoded = self._changes.apply(decoded)
        if not self._in_two_parts:
            return self._shaped(decoded).where(F.col(PROBLEM).isNotNull()).select(*wanted)
        stages = [decoded]
        for part in range(len(self._transforms.parts)):
            good = stages[-1].where(F.col(PROBLEM).isNull())
            if self._changes is not None:  # the additional delete of a moved row is not a separate record
                good = good.where(F.col(CHANGE).isin(*ROWS) & (F.col(CHANGE) != MOVE))
            stages.append(self._transforms.shape(good, part))
        stages[-1] = self._shaped(stages[-1])
        return reduce(DataFrame.union, [s.where(F.col(PROBLEM).isNotNull()).select(*wanted) for s in stages])

    @property
    def _in_two_parts(self) -> bool:
        """Whether bad records must be removed before rows are shaped: no step may see or filter one of them."""
        return bool(self._plan.transforms) or self._changes is not None

    def _real_moves(self, frame: DataFrame) -> DataFrame:
        """Without moves from where no row can be: an old image that would be bad never became a row."""
        if self._changes is None:
            return frame
        return frame.where((F.col(CHANGE) != MOVE) | F.col(PROBLEM).isNull())

    def _good(self, frame: DataFrame, name: str) -> DataFrame:
        """The good ones, the others counted.

        Without tolerance the first bad one ends the job here. The counting also keeps Spark from moving the condition
        down into the decoding, which would then be done twice.
        """
        counted = frame.observe(name, *self._counts())
        if self._tolerant:
            counted = counted.observe(f"{name}{_PLACES}", *aggregates(F.col(PROBLEM), self._planned))
            return counted.where(F.col(PROBLEM).isNull())
        return counted.where(f"CASE WHEN {PROBLEM} IS NULL THEN true ELSE cast({_FAILURE} AS BOOLEAN) END")

    # Decoding ----------------------------------------------------------------------------------------------------

    def _decoded(self, records: DataFrame, *, keep: bool) -> DataFrame:
        """The record's columns, `KAFKA_COLUMNS` and `PROBLEM`; and `RECORD` if it is to be kept."""
        value = self._convert(records, "value", self._plan.value)
        parts, problems = [value], [F.when(F.col("value").isNull(), _TOMBSTONE), value.problem]
        if self._changes is not None:
            problems = [F.when(F.col("value").isNotNull(), value.problem)]
        key = None
        if self._plan.key is not None:
            key = self._convert(value.records, "key", self._plan.key)
            parts.append(key)
            problems.append(F.when(F.col("key").isNotNull(), F.concat(F.lit(KEY_STAGE), key.problem)))
        named = self._fields(value, self._plan.value, "value")
        change: list[Column] = []
        if self._changes is not None:
            change += columns([f"value IS NULL AS {NO_VALUE}", f"key IS NULL AS {NO_KEY}"])
            if key is not None and self._plan.key is not None:
                of_key = self._fields(key, self._plan.key, "key").items()
                change.append(F.struct(*(column.alias(name) for name, column in of_key)).alias(KEY))
        elif key is not None and self._plan.key is not None:
            named |= {n: c for n, c in self._fields(key, self._plan.key, "key").items() if n not in named}
        columns_of = {**_PARTS, "topic": TOPIC} if self._of_streams else _PARTS
        named |= {name: F.col(columns_of.get(part, part)) for name, part in self._plan.columns.items()}
        problems[:0] = self._too_large()
        kept = [F.struct(*self._kept(records), stage_of(F.coalesce(*problems))).alias(RECORD)] if keep else []
        place = columns(f"{name} AS _kafka_{name}" for name in ("topic", "partition", "offset"))
        if self._time:  # without one Kafka's clients say -1
            place += columns([f"CASE WHEN timestampType >= 0 THEN timestamp END AS {RECORD_TIME}"])
        made = [column.alias(name) for name, column in named.items()]
        return parts[-1].records.select(*made, *change, *place, *kept, F.coalesce(*problems).alias(PROBLEM))

    @staticmethod
    def _kept(records: DataFrame) -> list[Column]:
        """The record as it was read; a row's value as JSON, since the quarantine keeps bytes."""
        if isinstance(records.schema["value"].dataType, BinaryType):
            return [F.col(name) for name in _KEPT]
        value = as_json(F.col("value")).cast("binary").alias("value")
        return [value if name == "value" else F.col(name) for name in _KEPT]

    def _convert(self, records: DataFrame, name: str, pinned: Format) -> Converted:
        given = ConverterContext(
            name=name,
            spark=self._spark,
            type=self._table if pinned.struct is None else type_of(pinned.struct),
            schemas=pinned.schemas,
            options=pinned.options,
            message=pinned.message,
            registered=pinned.registered,
            by_cluster=pinned.by_cluster,
        )
        large = [F.coalesce(problem.isNotNull(), F.lit(False)) for problem in self._too_large()]
        data = F.when(~large[0], F.col(name)) if large else F.col(name)
        made = converter_of(pinned).convert(records, data, given)
        late = outside(made.value, given.type)
        return made if late is None else replace(made, problem=F.coalesce(made.problem, late))

    def _too_large(self) -> list[Column]:
        limit = self._plan.errors.max_record_bytes
        return [] if limit is None else [too_large(limit)]

    def _fields(self, converted: Converted, pinned: Format, name: str) -> dict[str, Column]:
        if pinned.as_ is not None:
            return {pinned.as_: F.when(F.col(name).isNotNull(), converted.value)}
        kind = self._table if pinned.struct is None else type_of(pinned.struct)
        assert isinstance(kind, StructType)
        return {f.name: converted.value.getField(f.name) for f in kind.fields}

    # Shaping -----------------------------------------------------------------------------------------------------

    def _shaped(self, decoded: DataFrame) -> DataFrame:
        """The table's columns, of its types, and their faults."""
        frame = decoded
        self._require_fit(frame)
        found = {name.lower(): name for name in frame.columns}
        made: list[Column | str] = []
        for field in self._table.fields:
            name = found.get(field.name.lower())
            if name is None:
                made.append(F.lit(None).cast(field.dataType).alias(field.name))
            elif same_type(frame.schema[name].dataType, field.dataType):
                made.append(f"{quoted(name)} AS {quoted(field.name)}")
            else:
                value = conform(F.col(quoted(name)), frame.schema[name].dataType, field.dataType)
                made.append(value.alias(field.name))
        hidden = [name for name in (*KAFKA_COLUMNS, RECORD_TIME, RECORD, CHANGE) if name in frame.columns]
        shaped = frame.select(*columns([*made, *map(quoted, hidden), PROBLEM]))
        own = (name for name in shaped.columns if name != PROBLEM)
        problem = ", ".join([PROBLEM, *self._missing(), *self._misleading()])
        shaped = shaped.selectExpr(*map(quoted, own), f"coalesce({problem}) AS {PROBLEM}")
        if self._check is None:
            return shaped
        checked = self._check(shaped)
        own = (name for name in checked.columns if name not in (PROBLEM, REFUSED))
        return checked.selectExpr(*map(quoted, own), f"coalesce({PROBLEM}, {REFUSED}) AS {PROBLEM}")

    def _require_fit(self, frame: DataFrame) -> None:
        """Check that the steps' columns have the types that the table has.

        Raises:
            ActionRequiredError: a value would have to be converted, and could become null.
        """
        has = struct(f for f in frame.schema.jsonValue()["fields"] if not f["name"].startswith(RESERVED))
        conflicts = unassignable(self._table.jsonValue(), has)
        if conflicts:
            raise misfit(conflicts, self._writer.path)

    def _missing(self) -> list[str]:
        """Why a row can't be in the table, as SQL: a column is null that must not be."""
        writer = self._writer
        keyed = (*writer.record_key, *writer.partition_fields, *writer.ordering_fields)
        # For a delete, the database may have logged only the keys.
        lacking = {n: f"{quoted(n)} IS NULL" for n in self._not_null}
        if self._changes is not None:
            a_row = f"{CHANGE} NOT IN ({', '.join(map(literal, (*DELETES, SOFT_DELETE)))})"
            lacking = {n: null if n in keyed else f"{null} AND {a_row}" for n, null in lacking.items()}
            lacking |= {n: f"{quoted(n)} IS NULL AND NOT {a_row}" for n in self._may_lack & lacking.keys()}
        return [_words_where(null, f"the field {n} is missing or null") for n, null in lacking.items()]

    def _misleading(self) -> list[str]:
        """Why a row's key would be ambiguous, or its folder outside of the table; as SQL."""
        texts = {f.name for f in self._table.fields if f.dataType.typeName() == "string"}
        found = []
        for name, following in pairwise(self._writer.record_key):
            if name in texts:
                words = f"the field {name} holds ',{following}:', with which the row's key may be another row's as well"
                found.append(_words_where(f"contains({quoted(name)}, {literal(f',{following}:')})", words))
        for name in self._writer.partition_fields:
            if name in texts or self._writer.operation == "upsert":  # an append's other types are Hudi's to write
                words = f"the value of {name} can't be a table partition's folder"
                found.append(_words_where(no_folder(name, self._writer.options), words))
        return found

    def _counts(self) -> list[Column]:
        bad = f"count({PROBLEM}) AS bad"
        if self._changes is None:
            return columns(["count(1) AS rows", bad])
        return columns(
            [
                f"count_if({CHANGE} != '{MOVE}') AS rows",
                bad,
                f"count_if({PROBLEM} IS NULL AND {CHANGE} = '{DELETE}') AS deleted",
                f"count_if({PROBLEM} IS NULL AND {CHANGE} = '{MOVE}') AS moved",
            ]
        )

    def _columns(self, *, guarded: bool) -> list[str]:
        """The table's columns as SQL; if they are guarded, a bad record ends the job where the first is computed."""
        first, *others = (f.name for f in self._table.fields)
        column = quoted(first)
        if guarded:  # of the two it has the first one's type, since the failure has none
            column = f"CASE WHEN {PROBLEM} IS NOT NULL THEN {_FAILURE} ELSE {column} END AS {column}"
        return [column, *map(quoted, others)]


_PARTS: Final = {"timestamp_type": "timestampType"}
_KEPT: Final = ("key", "value", "timestamp", "timestampType", "headers")
_TOMBSTONE: Final = "the value is null (a tombstone)"


def fails_with(problem: str) -> str:
    """Spark SQL that ends the job at a row with `KAFKA_COLUMNS`, and by which `bad_record` finds the record.

    Args:
        problem: the row's fault, as Spark SQL of a text.
    """
    place = "' partition=', _kafka_partition, ' offset=', _kafka_offset"
    return f"raise_error(concat('{_MARK} topic=', _kafka_topic, {place}, ' reason=', {problem}))"


_FAILURE: Final = fails_with(PROBLEM)


def _words_where(condition: str, words: str) -> str:
    return f"CASE WHEN {condition} THEN {literal(words)} END"


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
