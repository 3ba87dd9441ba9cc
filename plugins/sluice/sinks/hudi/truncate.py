"""Truncates: the source's table was emptied at a position, and every row from before it goes in one transaction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from sluice.errors import ActionRequiredError
from sluice.protocol.messages import StartCommit
from sluice.records.changes import DELETED, POSITION, POSITION_TYPE
from sluice.rows.changes import CHANGE, DELETE, MOVE, Seen
from sluice.rows.observed import observed

_VOID, _TRUNCATED = "sluice_void", "sluice_truncated"


@dataclass(frozen=True)
class Void:
    """Changes from before a truncate, which change nothing any more.

    Attributes:
        records: all of them.
        deleted: those among them that would delete a row.
        moved: the further deletes of those that would move a row.
    """

    records: int = 0
    deleted: int = 0
    moved: int = 0


def require_truncates_apply(start: StartCommit, seen: Seen) -> None:
    """Check that the pipeline wants truncates to be applied.

    Raises:
        ActionRequiredError: it does not.
    """
    if start.records.changes is not None and start.records.changes.truncate == "apply":
        return
    topic, partition, offset = seen.first_truncate or (None, None, None)
    raise ActionRequiredError(
        "The source's table was emptied by a truncate, and the pipeline doesn't say what then.",
        next_step="nothing of this interval was committed; set changes.truncate to apply, which deletes the rows that "
        "were there, or to ignore, which keeps them.",
        topic=topic,
        partition=partition,
        offset=offset,
        table=start.table,
        instant=start.transaction,
    )


def after(frame: DataFrame, emptied_at: str) -> DataFrame:
    """The rows from after a truncate; the others are counted (`void`)."""
    before = F.col(POSITION) < _position(emptied_at)
    change = F.when(before, F.col(CHANGE))
    counted = frame.observe(
        _VOID,
        F.count(F.when(change != MOVE, 1)).alias("records"),
        F.count(F.when(change == DELETE, 1)).alias("deleted"),
        F.count(F.when(change == MOVE, 1)).alias("moved"),
    )
    return counted.where(~before)


def void(dataset: Any) -> Void:
    """What `after` has left out, by the run that wrote the dataset."""
    counts = observed(dataset, _VOID)
    return Void(int(counts["records"]), int(counts["deleted"]), int(counts["moved"]))


def emptied(
    table: DataFrame, columns: StructType, emptied_at: str, meta: Mapping[str, Column], *, soft: bool
) -> DataFrame:
    """The table's rows from before a truncate as changes at its position: deletes, or rows marked as deleted.

    Args:
        table: the table as readers see it.
        columns: the columns to write; the table may not have the newest yet.
        emptied_at: the truncate's position.
        meta: Hudi's columns of each row.
        soft: rows stay, marked.
    """
    there = F.col(POSITION) < _position(emptied_at)
    if soft and DELETED in table.columns:
        there &= ~F.coalesce(F.col(DELETED), F.lit(False))
    made = {f.name: F.col(f"`{f.name}`") if f.name in table.columns else F.lit(None) for f in columns.fields}
    made[POSITION] = _position(emptied_at)
    if soft:
        made[DELETED] = F.lit(True)
    typed = [made[f.name].cast(f.dataType).alias(f.name) for f in columns.fields]
    rows = table.where(there).select(*(column.alias(name) for name, column in meta.items()), *typed)
    return rows.observe(_TRUNCATED, F.count(F.lit(1)).alias("rows"))


def rows_truncated(dataset: Any) -> int:
    """How many rows `emptied` has found, by the run that wrote the dataset."""
    return int(observed(dataset, _TRUNCATED)["rows"])


def _position(text: str) -> Column:
    return F.lit(text).cast(POSITION_TYPE)
