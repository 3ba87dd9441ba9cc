"""Where bad records stand, counted in the one pass over the records; and how they are named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from sluice.protocol.messages import PlannedRange

KEY_STAGE: Final = "key: "
"""What the problem of a key begins with."""


@dataclass(frozen=True)
class BadSpan:
    """A planned range that has bad records, and the offsets of the first and the last of them."""

    planned: PlannedRange
    first: int
    last: int

    def narrowed(self) -> PlannedRange:
        """The range from the first bad record to the last."""
        return self.planned.model_copy(update={"start": self.first, "end": self.last + 1})

    def only_first(self) -> PlannedRange:
        """The range of the first bad record alone."""
        return self.planned.model_copy(update={"start": self.first, "end": self.first + 1})


def aggregates(problem: Column, planned: Sequence[PlannedRange]) -> list[Column]:
    """The first and last offset with a problem, of each planned range; of rows with `_kafka_*` columns."""
    columns = [F.count(problem).alias("bad")]  # an observed metric must have one
    for i, r in enumerate(planned):
        here = problem.isNotNull() & (F.col("_kafka_partition") == r.partition) & (F.col("_kafka_topic") == r.topic)
        here &= (F.col("_kafka_offset") >= r.start) & (F.col("_kafka_offset") < r.end)
        offset = F.when(here, F.col("_kafka_offset"))
        columns += [F.min(offset).alias(f"first_{i}"), F.max(offset).alias(f"last_{i}")]
    return columns


def spans(planned: Sequence[PlannedRange], counted: Sequence[Mapping[str, Any]]) -> tuple[BadSpan, ...]:
    """The ranges that have bad records, of what `aggregates` came to in each part of the chain."""
    found = []
    for i, r in enumerate(planned):
        places = [(c[f"first_{i}"], c[f"last_{i}"]) for c in counted if c[f"first_{i}"] is not None]
        if places:
            found.append(BadSpan(r, min(first for first, _ in places), max(last for _, last in places)))
    return tuple(found)


def stage_of(problem: Column) -> Column:
    """Where a record's way to a row ended: `key` or `value`, for what didn't decode; null for what came later."""
    return F.when(problem.startswith(KEY_STAGE), "key").when(problem.isNotNull(), "value").alias("stage")


def too_large(limit: int) -> Column:
    """The problem of a record whose key or value has more bytes than that."""
    problem: Column | None = None
    for part in ("value", "key"):
        words = F.concat(
            F.lit(KEY_STAGE if part == "key" else ""),
            F.lit(f"the {part} has "),
            F.length(part).cast("string"),
            F.lit(f" bytes, and errors.max_record_bytes is {limit}"),
        )
        over = F.length(part) > limit
        problem = F.when(over, words) if problem is None else problem.when(over, words)
    assert problem is not None
    return problem
