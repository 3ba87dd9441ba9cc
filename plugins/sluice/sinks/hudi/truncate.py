"""Truncates: the source's table was emptied at a position; all earlier rows are deleted in one transaction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from sluice.connectors.data import VoidChanges
from sluice.identifiers import quoted
from sluice.records.changes import DELETED, POSITION, POSITION_TYPE
from sluice.rows.changes import CHANGE, DELETE, MOVE
from sluice.rows.observed import observed

_VOID, _TRUNCATED = "sluice_void", "sluice_truncated"


def after(frame: DataFrame, emptied_at: str) -> DataFrame:
    """The rows after a truncate; earlier ones are counted (`void`) and dropped."""
    before = F.col(POSITION) < _position(emptied_at)
    change = F.when(before, F.col(CHANGE))
    counted = frame.observe(
        _VOID,
        F.count(F.when(change != MOVE, 1)).alias("records"),
        F.count(F.when(change == DELETE, 1)).alias("deleted"),
        F.count(F.when(change == MOVE, 1)).alias("moved"),
    )
    return counted.where(~before)


def void(dataset: Any) -> VoidChanges:
    """The changes that `after` dropped, as counted by the run that wrote the dataset."""
    counts = observed(dataset, _VOID)
    return VoidChanges(int(counts["records"]), int(counts["deleted"]), int(counts["moved"]))


def emptied(
    table: DataFrame, columns: StructType, emptied_at: str, meta: Mapping[str, Column], *, soft: bool
) -> DataFrame:
    """The table's rows from before a truncate as changes at its position: deletes, or rows marked as deleted.

    Args:
        table: the table as readers see it.
        columns: the columns to write; the table may lack the newest.
        emptied_at: the truncate's position.
        meta: Hudi's columns of each row.
        soft: whether rows stay, marked as deleted.
    """
    there = F.col(POSITION) < _position(emptied_at)
    if soft and DELETED in table.columns:
        there &= ~F.coalesce(F.col(DELETED), F.lit(False))
    made = {f.name: F.col(quoted(f.name)) if f.name in table.columns else F.lit(None) for f in columns.fields}
    made[POSITION] = _position(emptied_at)
    if soft:
        made[DELETED] = F.lit(True)
    typed = [made[f.name].cast(f.dataType).alias(f.name) for f in columns.fields]
    rows = table.where(there).select(*(column.alias(name) for name, column in meta.items()), *typed)
    return rows.observe(_TRUNCATED, F.count(F.lit(1)).alias("rows"))


def rows_truncated(dataset: Any) -> int:
    """How many rows `emptied` found, as counted by the run that wrote the dataset."""
    return int(observed(dataset, _TRUNCATED)["rows"])


def _position(text: str) -> Column:
    return F.lit(text).cast(POSITION_TYPE)
