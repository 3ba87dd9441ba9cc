"""A run's request: read on, read a window, read an interval again, or move offsets by hand."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from sluice.protocol.offsets import TopicPartition
from sluice.protocol.policy import IntervalKind


def _as_list(value: Any) -> Any:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


class Request(BaseModel):
    """What one run is to do. By default it reads on from the committed offsets, as a scheduled run does.

    Attributes:
        kind: the transaction's purpose; see `IntervalKind`.
        from_time: records with an earlier time are not read (`backfill`, `range`).
        to_time: records with this or a later time are not read (`continue`, `backfill`, `range`).
        offsets: `[start, end)` by topic and partition, to be read (`range`) or passed over (`correction`).
        partitions: partitions as `topic[number]`, or whole topics, to which a `range` by times is limited; all of the
            pipeline's if empty.
        instant: the interval that a `replay` reads again.
        reason: why, in the requester's words. A correction needs one.
        dry_run: only report what would be read and replaced.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: IntervalKind = "continue"
    from_time: datetime | None = None
    to_time: datetime | None = None
    offsets: dict[str, dict[int, tuple[int, int]]] = Field(default_factory=dict)
    partitions: Annotated[tuple[str, ...], BeforeValidator(_as_list)] = ()
    instant: str | None = None
    reason: str | None = None
    dry_run: bool = False

    @model_validator(mode="after")
    def _complete(self) -> Request:
        if self.from_time and self.to_time and self.from_time >= self.to_time:
            raise ValueError("the window's start must lie before its end")
        if any(not 0 <= start <= end for topic in self.offsets.values() for start, end in topic.values()):
            raise ValueError("offsets are [start, end) pairs with 0 <= start <= end")
        if self.kind == "range" and bool(self.offsets) == bool(self.from_time or self.to_time):
            raise ValueError("a range is given either by offsets or by times")
        if self.kind == "replay" and not self.instant:
            raise ValueError("a replay needs the instant of the interval that is to be read again")
        if self.kind == "correction" and not (self.offsets and (self.reason or "").strip()):
            raise ValueError("a correction needs the offsets that are to be passed over, and a reason")
        return self

    def wants(self, tp: TopicPartition) -> bool:
        """Whether a window by times includes this partition; its topic may be named as `cluster/topic`."""
        topics = (tp.topic, f"{tp.cluster}/{tp.topic}")
        names = {*topics, *(f"{topic}[{tp.partition}]" for topic in topics)}
        return not self.partitions or not names.isdisjoint(self.partitions)
