"""A table of a database in memory, as a source: numbers are given at once, and rows are there once committed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from random import Random
from typing import Any

from sluice.protocol.offsets import Checkpoint, TopicPartition
from sluice.protocol.state import ClusterState, PartitionBounds

from .kafka import CLUSTER, TOPIC, Record
from .parts import SimSource
from .world import World


class Shop:
    """Clients that write to the table, in transactions; a partition is a split, with numbers of its own.

    Attributes:
        is_calm: whether each transaction is committed as soon as its rows are inserted.
    """

    def __init__(self, world: World, draw: Random, most: int) -> None:
        self.is_calm = False
        self.most = most  # rows of an interval
        self._world, self._draw = world, draw
        self._commits_late = draw.choice((0.1, 0.4, 0.8))
        self._open: list[list[tuple[int, int, int]]] = []

    def insert(self, rows: Sequence[tuple[int, int]]) -> None:
        """Insert rows, each a partition and a key; they are committed now or later."""
        logs, made = self._world.logs, []
        for partition, key in rows:
            made.append((partition, logs[partition].end, key))
            logs[partition].end += 1
        self._open.append(made)
        if self.is_calm or self._draw.random() >= self._commits_late:
            self.end(commits=True, last=True)

    def end(self, *, commits: bool, last: bool = False) -> None:
        """End one of the open transactions, if there is any."""
        if not self._open:
            return
        world = self._world
        made = self._open.pop(-1 if last else self._draw.randrange(len(self._open)))
        world.clock += timedelta(milliseconds=5)
        world.tell(f"a transaction is {'committed' if commits else 'rolled back'}: {made}")
        for partition, offset, key in made if commits else ():
            log_id, number = world.cluster_of(partition).log_id, len(world.produced)
            record = Record(log_id, partition, offset, key, number, world.clock, world.clock)
            world.logs[partition].records[offset] = record
            world.produced[record.where] = record

    def calm(self) -> None:
        """All that are open are committed, and none stays open from now on."""
        self.is_calm = True
        while self._open:
            self.end(commits=True)

    def horizon(self, partition: int) -> int | None:
        """The next number of a partition, where nobody has taken one who is still at work; else it isn't known."""
        held = any(one[0] == partition for made in self._open for one in made)
        return None if held else self._world.logs[partition].end


class SimRows(SimSource):
    """The table, as `sluice.sources.jdbc.source` plans it by its numbers."""

    def cluster_ids(self) -> dict[str, str | None]:
        return {self.name: None}

    def state(
        self,
        topics: Sequence[str],
        window_end: datetime | None,
        window_start: datetime | None = None,
        *,
        max_future: timedelta | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> ClusterState:
        world, known = self._world, checkpoint or Checkpoint()
        shop = world.shop
        assert shop is not None

        def look() -> ClusterState:
            found, waits = [], False
            for number in self._cluster.numbers:
                tp, rows = TopicPartition(self.name, TOPIC, number), world.logs[number].records
                begin, horizon = known.next_offset(tp) or 0, shop.horizon(number)
                settled = max(begin, horizon or 0)
                window = sorted(at for at in rows if begin <= at < settled)
                has_more = len(window) > shop.most
                waits = waits or has_more or horizon is None
                end = window[shop.most] if has_more else settled if window else begin
                last = settled if has_more else end
                found.append(PartitionBounds(tp, 0, last, end, world.clock, settled))
            ids = {(self.name, TOPIC): self._cluster.log_id}
            return ClusterState(found, self.cluster_ids(), ids, waits=waits)

        state: ClusterState = self._call("asks the database for numbers", look)
        return state

    def truncated_since(self, read: Mapping[TopicPartition, tuple[int, int]]) -> dict[TopicPartition, int]:
        return {}


def section_of(most: int, partitions: int) -> dict[str, Any]:
    """The pipeline's source."""
    splits = {"splits": partitions} if partitions > 1 else {}
    return {"connection": CLUSTER, "tables": TOPIC, "mode": "incrementing", "max_records": most, **splits}
