"""From change events to rows and deletes: Debezium's envelopes, and tombstones, as expressions beside the decoding.

What a record does to its row stands in the column `CHANGE` from here to the write. A delete is a row of which the keys
and the position matter; Hudi keeps it from being seen (`sluice.spark.write`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from sluice.protocol.messages import TableWriter
from sluice.records.changes import DELETED, POSITION, POSITION_TYPE, ROW_OPERATIONS, Envelope, envelope_of, position_sql
from sluice.records.changes import MESSAGE as MESSAGE_EVENT
from sluice.records.changes import TRUNCATE as TRUNCATE_EVENT
from sluice.records.plan import RecordPlan

CHANGE: Final = "_sluice_change"
"""What a row does: one of the following."""
WRITE: Final = "write"
SOFT_DELETE: Final = "soft delete"
DELETE: Final = "delete"
MOVE: Final = "move"
"""The row leaves the table partition in which it was: beside the row of the same record that stands in another one."""
NOTHING: Final = "nothing"
TRUNCATE: Final = "truncate"
DELETES: Final = (DELETE, MOVE)
KEY: Final = "_sluice_key"
"""The decoded key as a struct, where a key is decoded."""
NO_VALUE: Final = "_sluice_no_value"
"""Whether the record is a tombstone."""
_ROWS: Final = "_sluice_rows"
_JUST_BEFORE: Final = "0.000000000000001"  # the smallest step of a position


class ChangeStep:
    """Turns decoded change events into rows."""

    def __init__(self, plan: RecordPlan, writer: TableWriter, key: Sequence[str], problem: str) -> None:
        assert plan.changes is not None
        self._plan = plan
        self._changes = plan.changes
        self._writer = writer
        self._key = tuple(key)
        self._problem = problem

    def apply(self, decoded: DataFrame) -> DataFrame:
        """The row's columns, `_source_position`, and `CHANGE`; other columns stay as they are.

        Args:
            decoded: the value's fields, `NO_VALUE`, and `KEY` if keys are decoded.
        """
        if self._changes.format == "tombstones":
            return self._tombstones(decoded)
        return self._debezium(decoded)

    # Tombstones --------------------------------------------------------------------------------------------------

    def _tombstones(self, decoded: DataFrame) -> DataFrame:
        """A record without a value deletes the row of its key; the offset orders the changes of a key."""
        fields = [f.name for f in decoded.schema.fields if f.name not in (KEY, NO_VALUE)]
        columns: dict[str, Column] = {}
        for name in self._key:
            if name in fields:
                from_key = F.col(f"{KEY}.`{name}`").cast(decoded.schema[name].dataType)
                columns[name] = F.when(F.col(NO_VALUE), from_key).otherwise(F.col(f"`{name}`"))
            else:
                columns[name] = F.col(f"{KEY}.`{name}`")
        change = F.when(F.col(NO_VALUE), self._deleting()).otherwise(WRITE)
        made = {**{name: F.col(f"`{name}`") for name in fields}, **columns}
        made |= {POSITION: F.col("_kafka_offset"), CHANGE: change}
        if self._changes.delete == "soft":
            made[DELETED] = F.col(NO_VALUE)
        return decoded.select(*(column.alias(name) for name, column in made.items()))

    def _deleting(self) -> str:
        return SOFT_DELETE if self._changes.delete == "soft" else DELETE

    # Debezium ----------------------------------------------------------------------------------------------------

    def _debezium(self, decoded: DataFrame) -> DataFrame:
        value = self._value_struct(decoded)
        envelope = envelope_of(value)
        top = {f["name"] for f in value["fields"]}
        inner = _fields_at(value, envelope.path)
        operation = F.expr(envelope.field("op"))
        row_fields = [str(f["name"]) for f in envelope.row["fields"]]
        after = self._image(envelope, "after", inner, row_fields)
        before = self._image(envelope, "before", inner, row_fields)
        position = F.expr(position_sql(envelope))
        change = (
            F.when(F.col(NO_VALUE) | (operation == MESSAGE_EVENT), NOTHING)
            .when(operation == TRUNCATE_EVENT, NOTHING if self._changes.truncate == "ignore" else TRUNCATE)
            .when(operation == "d", self._deleting())
            .otherwise(WRITE)
        )
        helpers = decoded.withColumn(CHANGE, change).withColumn(POSITION, position)
        problem = self._problem_of(helpers, envelope, operation, inner)
        kept = [F.col(f"`{n}`") for n in decoded.columns if n not in (*top, *row_fields, KEY, NO_VALUE, self._problem)]
        row = self._row(after, before, operation)
        added = [F.col(POSITION)]
        if self._changes.delete == "soft":
            added.append((F.col(CHANGE) == SOFT_DELETE).alias(DELETED))
        if not self._can_move():
            made = [column.alias(name) for name, column in row.items()]
            return helpers.select(*made, *kept, *added, F.col(CHANGE), problem.alias(self._problem))
        return self._with_moves(helpers, row, before, [*kept], problem, operation)

    def _value_struct(self, decoded: DataFrame) -> Mapping[str, object]:
        fields = [f for f in decoded.schema.fields if f.name in ("before", "after", "source", "op", "schema", "payload")]
        found: Mapping[str, object] = StructType(fields).jsonValue()
        return found

    def _image(
        self, envelope: Envelope, name: str, inner: Sequence[str], row_fields: Sequence[str]
    ) -> dict[str, Column]:
        """A row image's fields; null where the envelope has no such image."""
        if name not in inner:
            return {field: F.lit(None) for field in row_fields}
        return {field: F.expr(envelope.field(name, field)) for field in row_fields}

    def _row(self, after: Mapping[str, Column], before: Mapping[str, Column], operation: Column) -> dict[str, Column]:
        """The row after the change; of a delete the one before it, as far as the event has it, with the key's fields."""
        row = {n: F.when(operation == "d", before[n]).otherwise(after[n]) for n in after}
        for name in self._key:
            from_key = F.col(f"{KEY}.`{name}`")
            row[name] = F.coalesce(row[name], from_key) if name in row else from_key
        return row

    def _problem_of(self, helpers: DataFrame, envelope: Envelope, operation: Column, inner: Sequence[str]) -> Column:
        known = (*ROW_OPERATIONS, TRUNCATE_EVENT, MESSAGE_EVENT)
        real = ~F.col(NO_VALUE)
        reason = (
            F.when(real & operation.isNull(), "the value is no Debezium event: it has no op")
            .when(real & ~operation.isin(*known), F.concat(F.lit("op is "), operation, F.lit(", which is unknown")))
            .when(
                F.col(CHANGE).isin(WRITE, SOFT_DELETE, DELETE, TRUNCATE) & F.col(POSITION).isNull(),
                "source has no position: neither lsn, nor file and pos, or one that is out of range",
            )
        )
        if "after" in inner:
            lacks = operation.isin("c", "u", "r") & F.expr(envelope.field("after")).isNull()
            reason = reason.when(lacks, "the event has no after")
        if self._can_move():
            lacks = operation == "u"
            missing = F.lit(True)
            if "before" in inner:
                missing = F.expr(envelope.field("before")).isNull()
                for name in self._moving_fields(envelope):
                    missing |= F.expr(envelope.field("before", name)).isNull()
            reason = reason.when(
                lacks & missing,
                "before doesn't say in which table partition the row was; the database has to log whole rows: "
                "REPLICA IDENTITY FULL (PostgreSQL), binlog_row_image=FULL (MySQL)",
            )
        return F.coalesce(F.col(self._problem), reason)

    # Rows that move between table partitions ---------------------------------------------------------------------

    def _can_move(self) -> bool:
        """Whether an update may change a partition field: not where all of them are part of the record key."""
        return not set(self._writer.partition_fields) <= set(self._writer.record_key)

    def _moving_fields(self, envelope: Envelope) -> list[str]:
        """The partition fields that stand in the event itself."""
        names = {str(f["name"]) for f in envelope.row["fields"]}
        return [name for name in self._writer.partition_fields if name in names]

    def _with_moves(
        self,
        helpers: DataFrame,
        row: Mapping[str, Column],
        before: Mapping[str, Column],
        kept: Sequence[Column],
        problem: Column,
        operation: Column,
    ) -> DataFrame:
        """Beside an update's row, the delete of its old image where that was in another table partition.

        The delete's position is a step before the row's, so that the row wins where both are in one partition after
        all: what a transform makes of the two images isn't known here.
        """
        fields = list(self._writer.partition_fields)
        moved = operation == "u"
        if not self._plan.transforms and all(name in before for name in fields):
            differs = F.lit(False)
            for name in fields:
                differs |= ~before[name].eqNullSafe(row[name])
            moved &= differs
        key_fields = {n: F.coalesce(before[n], row[n]) if n in self._writer.record_key else before[n] for n in before}
        soft = self._changes.delete == "soft"

        def image(values: Mapping[str, Column], change: Column, position: Column, deleted: Column) -> Column:
            parts = [values.get(name, row[name]).cast(helpers_types[name]).alias(name) for name in row]
            parts += [position.cast(POSITION_TYPE).alias(POSITION), change.alias(CHANGE)]
            if soft:
                parts.append(deleted.alias(DELETED))
            return F.struct(*parts)

        typed = helpers.select(*(column.alias(name) for name, column in row.items()))
        helpers_types = {f.name: f.dataType for f in typed.schema.fields}
        now = image(row, F.col(CHANGE), F.col(POSITION), F.col(CHANGE) == SOFT_DELETE)
        old = image(key_fields, F.lit(MOVE), F.col(POSITION) - F.expr(f"cast({_JUST_BEFORE} as {POSITION_TYPE})"), F.lit(False))
        rows = F.explode(F.when(moved & problem.isNull(), F.array(now, old)).otherwise(F.array(now)))
        exploded = helpers.select(*kept, problem.alias(self._problem), rows.alias(_ROWS))
        others = [F.col(f"`{n}`") for n in exploded.columns if n not in (_ROWS, self._problem)]
        names = [*row, POSITION, *([DELETED] if soft else []), CHANGE]
        return exploded.select(
            *(F.col(f"{_ROWS}.`{name}`").alias(name) for name in names), *others, F.col(self._problem)
        )


def _fields_at(struct: Mapping[str, object], path: Sequence[str]) -> list[str]:
    found: Mapping[str, object] = struct
    for name in path:
        found = next(f["type"] for f in found["fields"] if f["name"] == name)  # type: ignore[attr-defined]
    return [str(f["name"]) for f in found["fields"]]  # type: ignore[attr-defined]
