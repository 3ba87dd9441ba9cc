"""From change events to rows and deletes: Debezium's envelopes, and tombstones, as expressions beside the decoding.

From here to the write, the column `CHANGE` says what a record does to its row. A delete is a row of which only the keys
and the position matter; Hudi hides it from readers (`sluice.sinks.hudi.writer`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sluice.errors import ActionRequiredError
from sluice.identifiers import quoted
from sluice.jvm.catalyst import Unseen
from sluice.protocol.messages import StartCommit, TableSpec
from sluice.protocol.placement import Misplaced
from sluice.records.changes import (
    DELETED,
    ERA_BITS,
    KEEPABLE,
    MESSAGE,
    POSITION,
    POSITION_TYPE,
    ROW_OPERATIONS,
    TRUNCATE,
    Envelope,
    envelope_of,
    position_sql,
    unavailable_sql,
)
from sluice.records.plan import RecordPlan
from sluice.records.structs import names

CHANGE: Final = "_sluice_change"
"""A record's change: one of the following."""
WRITE: Final = "write"
SOFT_DELETE: Final = "soft delete"
DELETE: Final = "delete"
MOVE: Final = "move"
"""Its row leaves the table partition it was in; a `WRITE` of the same record puts it into another one."""
EMPTY: Final = "truncate"
NOTHING: Final = "nothing"
DELETES: Final = (DELETE, MOVE)
ROWS: Final = (WRITE, SOFT_DELETE, DELETE, MOVE)
"""The changes that become rows of the write."""
KEY: Final = "_sluice_key"
"""The decoded key as a struct, where a key is decoded."""
NO_VALUE: Final = "_sluice_no_value"
"""Whether the record is a tombstone."""
NO_KEY: Final = "_sluice_no_key"
"""Whether the record has no key."""
_ROW: Final = "_sluice_row"
_JUST_BEFORE: Final = f"cast(0.000000000000001 as {POSITION_TYPE})"  # the smallest step of a position


@dataclass(frozen=True)
class ChangeCounts:
    """Counts of a range's changes that aren't simple row changes.

    Attributes:
        truncates: events for a truncate of the source's table.
        first_truncate: topic, partition and offset of the first.
        emptied_at: the position of the last.
        keyless: by topic, the first row change whose record has no key; the number counts all topics.
    """

    truncates: int = 0
    first_truncate: tuple[str, int, int] | None = None
    emptied_at: Decimal | None = None
    keyless: Mapping[str, Misplaced] = field(default_factory=dict)


def require_truncates_apply(start: StartCommit, seen: ChangeCounts) -> None:
    """Check that the pipeline applies truncates.

    Raises:
        ActionRequiredError: it does not.
    """
    if start.records.changes is not None and start.records.changes.truncate == "apply":
        return
    topic, partition, offset = seen.first_truncate or (None, None, None)
    raise ActionRequiredError(
        "The source's table was emptied by a truncate, and the pipeline doesn't say what then.",
        next_step="nothing of this interval was committed; set changes.truncate to ignore, which keeps the rows that "
        "were there, or to apply, which deletes them, if the sink can do that (docs/sinks.md).",
        topic=topic,
        partition=partition,
        offset=offset,
        table=start.table,
        instant=start.transaction,
    )


class ChangeStep:
    """Turns decoded change events into rows.

    Args:
        plan: how records are read; it has `changes`.
        writer: the table.
        problem: the column for a record's fault.
        required: columns that a row must have: an update without them is bad, and moves nothing.
        unseen: of a frame with the row's fields, the fields that reach the table unchanged, and the fields that don't
            reach it and that no step uses.
    """

    def __init__(
        self,
        plan: RecordPlan,
        writer: TableSpec,
        problem: str,
        required: Collection[str],
        unseen: Callable[[DataFrame], Unseen],
    ) -> None:
        assert plan.changes is not None
        self._plan = plan
        self._soft = plan.changes.delete == "soft"
        self._truncate = plan.changes.truncate
        self._debezium = plan.changes.format == "debezium"
        self._placeholder = plan.changes.unavailable_value
        self._writer = writer
        self._problem = problem
        self._required = required
        self._unseen = unseen
        self._key = names(plan.key.struct) if plan.key is not None and plan.key.as_ is None else []
        if plan.key is not None and plan.key.as_ is not None:
            self._key = [plan.key.as_]

    def apply(self, decoded: DataFrame) -> DataFrame:
        """The row's columns, `_source_position`, and `CHANGE`; columns that are not the value's stay as they are.

        Args:
            decoded: the value's fields, `NO_VALUE`, and `KEY` if keys are decoded.
        """
        return self._events(decoded) if self._debezium else self._tombstones(decoded)

    def aggregates(self) -> list[Column]:
        """Aggregates to observe over the changed records."""
        change = F.when(F.col(self._problem).isNull(), F.col(CHANGE))
        emptied = change == EMPTY
        keyless = F.col(NO_KEY) & change.isin(WRITE, SOFT_DELETE, DELETE)
        place = F.struct("_kafka_offset", "_kafka_partition", "_kafka_topic")
        return [
            F.count(F.when(emptied, 1)).alias("truncates"),
            F.min(F.when(emptied, place)).alias("first_truncate"),
            F.max(F.when(emptied, F.col(POSITION))).alias("emptied_at"),
            F.count(F.when(keyless, 1)).alias("keyless"),
            F.min(F.when(keyless, place)).alias("first_keyless"),
        ]

    def seen(self, counts: Mapping[str, Any]) -> ChangeCounts:
        """The observed counts."""
        keyless = {}
        if counts["keyless"]:
            topic, partition, offset = _place(counts["first_keyless"])
            keyless[topic] = Misplaced(records=int(counts["keyless"]), partition=partition, offset=offset)
        if not counts["truncates"]:
            return ChangeCounts(keyless=keyless)
        return ChangeCounts(int(counts["truncates"]), _place(counts["first_truncate"]), counts["emptied_at"], keyless)

    def _deleting(self) -> str:
        return SOFT_DELETE if self._soft else DELETE

    # Tombstones --------------------------------------------------------------------------------------------------

    def _tombstones(self, decoded: DataFrame) -> DataFrame:
        """A record without a value deletes the row of its key; the offset orders the changes of a key."""
        made = {name: F.col(quoted(name)) for name in decoded.columns if name not in (KEY, NO_VALUE)}
        for name in self._key:
            from_key = F.col(f"{KEY}.{quoted(name)}")
            if name in made:
                from_key = F.coalesce(made[name], from_key.cast(decoded.schema[name].dataType))
            made[name] = from_key
        made[CHANGE] = F.when(F.col(NO_VALUE), self._deleting()).otherwise(WRITE)
        made[POSITION] = F.col("_kafka_offset")
        for topic, era in self._plan.eras.items():
            in_era = made[POSITION] + F.lit(era << ERA_BITS)
            made[POSITION] = F.when(F.col("_kafka_topic") == topic, in_era).otherwise(made[POSITION])
        if self._soft:
            made[DELETED] = F.col(NO_VALUE)
        return decoded.select(*(column.alias(name) for name, column in made.items()))

    # Debezium ----------------------------------------------------------------------------------------------------

    def _events(self, decoded: DataFrame) -> DataFrame:
        value = self._plan.value
        envelope = envelope_of(value.struct)
        of_value = names(value.struct)
        if value.as_ is not None:
            envelope, of_value = replace(envelope, path=(value.as_, *envelope.path)), [value.as_]
        operation = F.expr(envelope.field("op"))
        change = (
            F.when(F.col(NO_VALUE) | (operation == MESSAGE), NOTHING)
            .when(operation == TRUNCATE, NOTHING if self._truncate == "ignore" else EMPTY)
            .when(operation == "d", self._deleting())
            .otherwise(WRITE)
        )
        after, before = self._image(envelope, "after"), self._image(envelope, "before")
        unlogged = self._unlogged(envelope, operation)
        for name, lacks in unlogged.items():
            after[name] = F.coalesce(F.when(lacks, before[name]), after[name])
        row = {n: F.when(operation == "d", before[n]).otherwise(after[n]) for n in after}
        for name in self._key:
            from_key = F.col(f"{KEY}.{quoted(name)}")
            row[name] = F.coalesce(row[name], from_key) if name in row else from_key
        gone = {*of_value, *row, KEY, NO_VALUE, CHANGE, POSITION}
        kept = [F.col(quoted(name)) for name in decoded.columns if name not in gone]
        unseen = Unseen()
        if unlogged:
            unseen = self._unseen(decoded.select(*(column.alias(name) for name, column in row.items()), *kept))
        decoded = decoded.withColumn(CHANGE, change).withColumn(POSITION, F.expr(position_sql(envelope)))
        decoded = decoded.withColumn(self._problem, self._problem_of(envelope, operation, unlogged, unseen))
        if self._can_move():
            return self._with_moves(decoded, row, before, kept, operation)
        made = [*(column.alias(name) for name, column in row.items()), F.col(POSITION), F.col(CHANGE)]
        if self._soft:
            made.append((F.col(CHANGE) == SOFT_DELETE).alias(DELETED))
        return decoded.select(*made, *kept)

    def _image(self, envelope: Envelope, name: str) -> dict[str, Column]:
        """A row image's fields; null if the envelope has no such image."""
        there = name in envelope.images
        return {n: F.expr(envelope.field(name, n)) if there else F.lit(None) for n in names(envelope.row)}

    def _unlogged(self, envelope: Envelope, operation: Column) -> dict[str, Column]:
        """For each field that may hold the connector's placeholder: whether an update has the placeholder there."""
        kinds = {f["name"]: f["type"] for f in envelope.row["fields"]}
        found = {}
        for name, kind in kinds.items() if "after" in envelope.images else ():
            there = unavailable_sql(envelope.field("after", name), kind, self._placeholder)
            if there is not None:
                found[name] = F.coalesce((operation == "u") & F.expr(there), F.lit(False))
        return found

    def _lost(self, envelope: Envelope, unlogged: Mapping[str, Column], unseen: Unseen) -> Column:
        """Names of an event's fields whose values are unavailable: neither in the event, nor kept by the sink."""
        kinds = {f["name"]: f["type"] for f in envelope.row["fields"]}
        lost = []
        for name, lacks in unlogged.items():
            if name not in unseen.dropped and not self._keeps(name, kinds[name], unseen.kept):
                nowhere = F.lit(True)
                if "before" in envelope.images:
                    before = envelope.field("before", name)
                    there = unavailable_sql(before, kinds[name], self._placeholder)
                    nowhere = F.expr(before).isNull() | F.coalesce(F.expr(str(there)), F.lit(False))
                lost.append(F.when(lacks & nowhere, name))
        return F.concat_ws(", ", *lost) if lost else F.lit("")

    def _keeps(self, name: str, kind: Any, as_they_are: Collection[str]) -> bool:
        """Whether the sink gets the placeholder unchanged, and keeps the row's old value."""
        keyed = {n.lower() for n in (*self._writer.record_key, *self._writer.partition_fields)}
        keeps = self._writer.keeps_unavailable is not False and kind in KEEPABLE and name.lower() not in keyed
        return keeps and name in as_they_are and not self._can_move()

    def _problem_of(
        self, envelope: Envelope, operation: Column, unlogged: Mapping[str, Column], unseen: Unseen
    ) -> Column:
        known = (*ROW_OPERATIONS, TRUNCATE, MESSAGE)
        real = ~F.col(NO_VALUE)
        reason = (
            F.when(real & operation.isNull(), "the value is no Debezium event: it has no op")
            .when(real & ~operation.isin(*known), F.concat(F.lit("op is "), operation, F.lit(", which is unknown")))
            .when(
                (F.col(CHANGE) != NOTHING) & F.col(POSITION).isNull(),
                "source has no position: neither lsn, nor file and pos, or one that is out of range",
            )
        )
        if "after" in envelope.images:
            lacks = operation.isin("c", "u", "r") & F.expr(envelope.field("after")).isNull()
            reason = reason.when(lacks, "the event has no after")
        if self._can_move():
            reason = reason.when(
                (operation == "u") & self._old_partition_is_missing(envelope),
                "before does not say in which table partition the row was; the database must log whole rows: "
                "REPLICA IDENTITY FULL in PostgreSQL, binlog_row_image=FULL in MySQL",
            )
        lost = self._lost(envelope, unlogged, unseen)
        words = F.concat(
            F.lit("the database did not log the value of "),
            lost,
            F.lit(", and the row's old one can't be kept; with REPLICA IDENTITY FULL PostgreSQL logs it"),
        )
        reason = reason.when(lost != "", words)
        return F.coalesce(F.col(self._problem), reason)

    # Rows that move between table partitions ---------------------------------------------------------------------

    def _can_move(self) -> bool:
        """Whether an update may change a partition field: not if all of them are part of the record key."""
        return not set(self._writer.partition_fields) <= set(self._writer.record_key)

    def _old_partition_is_missing(self, envelope: Envelope) -> Column:
        if "before" not in envelope.images:
            return F.lit(True)
        missing = F.expr(envelope.field("before")).isNull()
        for name in set(self._writer.partition_fields) & set(names(envelope.row)):
            missing |= F.expr(envelope.field("before", name)).isNull()
        return missing

    def _with_moves(
        self,
        decoded: DataFrame,
        row: Mapping[str, Column],
        before: Mapping[str, Column],
        kept: Sequence[Column],
        operation: Column,
    ) -> DataFrame:
        """Add to an update's row the delete of its old image, if that was in another table partition.

        The effect of transforms on the two images isn't known here, so with transforms each update has both. The
        delete's position is one step before the row's, so that the row wins if both are in one partition after all.
        """
        moved = (operation == "u") & F.col(self._problem).isNull()
        for name in set(self._required) & set(row):
            moved &= row[name].isNotNull()
        if not self._plan.transforms and set(self._writer.partition_fields) <= set(before):
            differs = [~before[name].eqNullSafe(row[name]) for name in self._writer.partition_fields]
            moved &= F.greatest(*differs) if len(differs) > 1 else differs[0]
        old = {n: F.coalesce(before[n], row[n]) if n in self._writer.record_key else before.get(n, row[n]) for n in row}
        types = {f.name: f.dataType for f in decoded.select(*(c.alias(n) for n, c in row.items())).schema.fields}

        def image(values: Mapping[str, Column], change: Column, position: Column) -> Column:
            parts = [values[name].cast(types[name]).alias(name) for name in row]
            parts += [position.cast(POSITION_TYPE).alias(POSITION), change.alias(CHANGE)]
            parts += [(change == SOFT_DELETE).alias(DELETED)] if self._soft else []
            return F.struct(*parts)

        now = image(row, F.col(CHANGE), F.col(POSITION))
        both = F.array(now, image(old, F.lit(MOVE), F.col(POSITION) - F.expr(_JUST_BEFORE)))
        exploded = decoded.select(*kept, F.explode(F.when(moved, both).otherwise(F.array(now))).alias(_ROW))
        made = [*row, POSITION, CHANGE, *([DELETED] if self._soft else [])]
        return exploded.select(*(F.col(f"{_ROW}.{quoted(name)}").alias(name) for name in made), *kept)


def _place(found: Any) -> tuple[str, int, int]:
    """Topic, partition and offset of an observed place."""
    topic, partition, offset = (found.getAs(f"_kafka_{name}") for name in ("topic", "partition", "offset"))
    return str(topic), int(partition), int(offset)
