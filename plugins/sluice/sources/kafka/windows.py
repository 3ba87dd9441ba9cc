"""Where windows by record times begin and end in each partition, whatever dates the records have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from sluice.protocol.offsets import TopicPartition
from sluice.protocol.state import Remark
from sluice.protocol.window import LAST_TIME, find_all, first_past, record_time
from sluice.sources.kafka.probe import RecordHead, RecordProbe

_A_LITTLE = 60_000  # ms that a clock may be ahead without a remark


class _Cluster(Protocol):
    def at(self, partitions: Sequence[TopicPartition], time: datetime) -> dict[TopicPartition, tuple[int, int]]:
        """Each partition's first record with that time or a later one: its offset, -1 for none, and its time in ms."""

    def probe(self) -> RecordProbe:
        """Reads single records."""


class Windows:
    """The bounds of windows.

    Args:
        cluster: the cluster.
        partitions: the partitions.
        log_end: their logs' ends.
        now: the present time.
        limit: records dated later don't bound windows; None means that all do.
    """

    def __init__(
        self,
        cluster: _Cluster,
        partitions: Sequence[TopicPartition],
        log_end: Mapping[TopicPartition, int],
        now: datetime,
        limit: datetime | None,
    ) -> None:
        self._remarks: dict[TopicPartition, Remark] = {}
        self._cluster = cluster
        self._partitions = partitions
        self._log_end = log_end
        self._now = int(now.timestamp() * 1000)
        self._limit = int(limit.timestamp() * 1000) if limit is not None else None

    @property
    def remarks(self) -> list[Remark]:
        """Remarks on records that are dated in the future."""
        return list(self._remarks.values())

    def bound(self, time: datetime | None) -> dict[TopicPartition, int]:
        """The offset of each partition's first record with that time or a later one; -1 where there is none."""
        if time is None or not self._partitions:
            return {}
        found = self._cluster.at(self._partitions, time)
        ahead = {tp: at for tp, at in found.items() if 0 <= at[0] < self._log_end[tp] and at[1] > self._now}
        limit = self._limit if self._limit is not None and time.timestamp() * 1000 <= self._limit else None
        far = {tp: at for tp, at in ahead.items() if limit is not None and at[1] > limit}
        for tp, (offset, dated) in ahead.items():
            if dated > self._now + _A_LITTLE:
                how = "it is read by its offset" if tp in far else "what comes after it waits until then"
                what = f"its record {offset} is dated {_in_words(dated)}, in the future: {how}"
                self._remarks[tp] = Remark(tp, what, offset)
        return {tp: offset for tp, (offset, _) in found.items()} | self._behind(far, time)

    def _behind(self, far: Mapping[TopicPartition, tuple[int, int]], time: datetime) -> dict[TopicPartition, int]:
        if not far:
            return {}
        bound, limit = int(time.timestamp() * 1000), self._limit or 0
        with self._cluster.probe() as probe:

            def ask(offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, bool]:
                first = probe.first(offsets, lambda _tp, seen: seen.time <= limit)
                return {tp: _is_past(seen, bound) for tp, seen in first.items()}

            return find_all({tp: first_past(at[0], self._log_end[tp]) for tp, at in far.items()}, ask)


def _is_past(seen: RecordHead | None, bound: int) -> bool:
    return seen is not None and seen.time >= bound


def _in_words(milliseconds: int) -> str:
    return f"{record_time(milliseconds):%Y-%m-%d %H:%M} UTC" if milliseconds <= LAST_TIME else "after the year 9999"
