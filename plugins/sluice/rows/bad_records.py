"""Counts bad records and their places in the single pass over the records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from sluice.protocol.messages import PlannedRange

KEY_STAGE: Final = "key: "
"""The beginning of a key's problem text."""
_FEW: Final = 16  # up to so many ranges, exact offsets are observed
_PLACES: Final = 8  # per range, if there are more ranges


@dataclass(frozen=True)
class BadSpan:
    """A planned range with bad records, and the offsets of the first and the last of them.

    If many ranges are read, these are rounded outwards: the first bad record is among the `exact` offsets from `first`
    on.
    """

    planned: PlannedRange
    first: int
    last: int
    exact: int = 1

    def narrowed(self) -> PlannedRange:
        """The range from the first bad record to the last."""
        return self.planned.model_copy(update={"start": self.first, "end": self.last + 1})

    def only_first(self) -> PlannedRange:
        """The range of only the first bad record, or of the few offsets among which it is."""
        return self.planned.model_copy(update={"start": self.first, "end": min(self.first + self.exact, self.last + 1)})


def aggregates(problem: Column, planned: Sequence[PlannedRange]) -> list[Column]:
    """Aggregates over rows with `_kafka_*` columns: where the planned ranges have problems.

    The first and last offset of each range; or, since a record costs what all of these cost, of many ranges the places
    in which bad records are, each a few offsets wide.
    """
    columns = [F.count(problem).alias("bad")]  # an observed metric must have one
    if len(planned) > _FEW:
        place = F.struct("_kafka_topic", "_kafka_partition", F.shiftright("_kafka_offset", _shift(planned)).alias("at"))
        return [*columns, F.collect_set(F.when(problem.isNotNull(), place)).alias("places")]
    for i, r in enumerate(planned):
        here = (
            problem.isNotNull() & (F.col("_kafka_partition") == r.partition) & (F.col("_kafka_topic") == r.named_topic)
        )
        here &= (F.col("_kafka_offset") >= r.start) & (F.col("_kafka_offset") < r.end)
        offset = F.when(here, F.col("_kafka_offset"))
        columns += [F.min(offset).alias(f"first_{i}"), F.max(offset).alias(f"last_{i}")]
    return columns


def spans(planned: Sequence[PlannedRange], counted: Sequence[Mapping[str, Any]]) -> tuple[BadSpan, ...]:
    """The ranges with bad records, from the results of `aggregates` in each part of the chain."""
    if len(planned) > _FEW:
        return _spans_of_places(planned, counted)
    found = []
    for i, r in enumerate(planned):
        places = [(c[f"first_{i}"], c[f"last_{i}"]) for c in counted if c[f"first_{i}"] is not None]
        if places:
            found.append(BadSpan(r, min(first for first, _ in places), max(last for _, last in places)))
    return tuple(found)


def _spans_of_places(planned: Sequence[PlannedRange], counted: Sequence[Mapping[str, Any]]) -> tuple[BadSpan, ...]:
    shift = _shift(planned)
    size = 1 << shift
    at: dict[tuple[str, int], set[int]] = {}
    for places in (c["places"] for c in counted):
        for i in range(places.size()):
            topic, partition, number = (places.apply(i).get(field) for field in range(3))
            at.setdefault((topic, partition), set()).add(int(number) << shift)
    found = []
    for r in planned:
        known = at.get((r.named_topic, r.partition), ())
        here = [start for start in known if start < r.end and start + size > r.start]
        if here:
            first, last = max(min(here), r.start), min(max(here) + size, r.end) - 1
            found.append(BadSpan(r, first, last, exact=min(here) + size - first))
    return tuple(found)


def _shift(planned: Sequence[PlannedRange]) -> int:
    """How many low bits of an offset to drop, so that the longest range has at most `_PLACES` + 1 places."""
    return (max(r.end - r.start for r in planned) // _PLACES).bit_length()


def stage_of(problem: Column) -> Column:
    """The stage that failed: `key` or `value` if these didn't decode; null for a later one."""
    return F.when(problem.startswith(KEY_STAGE), "key").when(problem.isNotNull(), "value").alias("stage")


def too_large(limit: int) -> Column:
    """The problem of a record whose key or value exceeds a number of bytes."""
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
