"""The pipelines of a campaign: what is sent to each, what disturbs it alone, and what has to be there in the end."""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from sluice.connectors.connections import VARIABLE
from sluice.coordinator import Started

from ..guarantees.harness import Flow
from ..guarantees.harness.files import FileFlow
from ..guarantees.harness.streams import Streams
from ..guarantees.harness.topics import environment, topics_of
from ..guarantees.test_deletes import TOMBSTONES, deleted, written
from .workers import GROUP, Keeper

COMMON: dict[str, Any] = {"control__commit_timeout": "5 seconds", "write__ranges": 2}
KINDS: dict[str, dict[str, Any]] = {
    "append": {},
    "upsert": {"sink__hudi__operation": "upsert", "sink__hudi__record_key": "id"},
    "changes": TOMBSTONES,
}
WEST = "the other cluster's broker"
DATABASE = "the database"
DURABLE = {"enable.idempotence": True, "delivery.timeout.ms": 60_000}
TOPIC = "orders"  # of both clusters
_EAST, _WEST = ({"topics": TOPIC, "connection": name} for name in ("east", "west"))
_BOTH = {"east": _EAST, "west": _WEST}
_MAPPINGS = {
    "on both clusters": _BOTH,
    "on east alone": {"east": _EAST},
    "on west alone": {"west": _WEST},
    "on both, under other names": {"far": _WEST, "near": _EAST},
    "on both, with each other's names": {"east": _WEST, "west": _EAST},
}


class ViolationError(AssertionError):
    """The table isn't what its topic says."""


def know(flow: Flow, known: dict[str, str]) -> None:
    """Let a pipeline's processes know some connections, and the steps that run in this one those of all pipelines."""
    flow.secret_environment.update(known)
    ours = [*json.loads(os.environ.get(VARIABLE, "[]")), *json.loads(known[VARIABLE])]
    os.environ[VARIABLE] = json.dumps(list({one["id"]: one for one in ours}.values()))


def compare(kind: str, seen: Counter[Any], expected: Counter[Any]) -> None:
    """Compare what a reader sees with what has to be there.

    Raises:
        ViolationError: they differ.
    """
    more, fewer = seen - expected, expected - seen
    if more or fewer:
        raise ViolationError(
            f"{kind}: {more.total()} rows too many {list(more)[:5]}, {fewer.total()} missing {list(fewer)[:5]}"
        )


class Pipeline:
    """One pipeline, what was sent to it, and what its table has to hold.

    Attributes:
        needs: servers that no other pipeline has to do with, and which die in some of its rounds: `WEST`, `DATABASE`.
    """

    needs: frozenset[str] = frozenset()

    def __init__(self, kind: str, flow: Flow) -> None:
        self.kind = kind
        self.flow = flow
        self._next = 0
        self._last: dict[int, str | None] = {}  # of each key, in the order in which its partition has them

    def produce(self, rng: random.Random) -> int:
        """Send some records: new ones, and, where rows have keys, later versions and deletes."""
        known = range(max(0, self._next - 200), self._next)
        new = range(self._next, self._next + rng.randint(1, 150))
        self._next = new.stop
        version = f"v{time.monotonic_ns()}-"
        if self.kind == "append":
            self.flow.produce(len(new), ids=new, **DURABLE)
            return len(new)
        ids = [*new, *rng.sample(known, min(len(known), 40))]
        if self.kind == "upsert":
            self.flow.produce(len(ids), ids=ids, values=version, **DURABLE)
            return len(ids)
        gone = set(rng.sample(ids, len(ids) // 5))
        records = [deleted(i) if i in gone else written(i, f"{version}{i}") for i in ids]
        self.flow.produce_keyed(records, partitioner="murmur2", **DURABLE)
        self._last.update({i: None if i in gone else f"{version}{i}" for i in ids})
        return len(ids)

    def disturb(self, rng: random.Random) -> str:
        """Something about the pipeline changes between two runs; what it is, empty for nothing."""
        return ""

    def settle(self) -> None:
        """What a person has to see to before the table can be compared."""

    def calm(self) -> None:
        """What has to end with a round."""

    def written_by_a_worker(self, started: Started, number: int) -> bool | None:
        """Whether a worker that stays has written a range; None where a job of its own has to."""
        return None

    def close(self) -> None:
        """End what it has started."""

    def check(self) -> int:
        """Compare the table with all that was sent; the number of its rows.

        Raises:
            ViolationError: they differ, or something is left on the timeline.
        """
        try:
            self.flow.check() if self.kind != "changes" else self._check_changes()
        except AssertionError as error:
            raise ViolationError(f"{self.kind}: {error}") from error
        pending = self.flow.jvm.pending(str(self.flow.path))
        if pending:
            raise ViolationError(f"{self.kind}: instants are pending: {pending}")
        return len({sent.id for sent in self.flow.sent}) or sum(v is not None for v in self._last.values())

    def _check_changes(self) -> None:
        expected = Counter((i, v) for i, v in self._last.items() if v is not None)
        for metadata in (True, False):
            seen = Counter(self.flow.read("id", "v", metadata=metadata))
            more, fewer = seen - expected, expected - seen
            assert seen == expected, (
                f"a reader {'by the metadata table' if metadata else 'that lists files'} sees {more.total()} rows too "
                f"many {list(more)[:5]} and misses {fewer.total()} {list(fewer)[:5]}"
            )


class FilesPipeline(Pipeline):
    """A pipeline that writes files, whose reader lists folders."""

    flow: FileFlow

    def __init__(self, flow: FileFlow) -> None:
        super().__init__("append", flow)

    def check(self) -> int:
        """See `Pipeline`."""
        try:
            self.flow.check()
        except AssertionError as error:
            raise ViolationError(f"files: {error}") from error
        if self.flow.left():
            raise ViolationError(f"files: intervals are left under way: {self.flow.left()}")
        return len(self.flow.sent)


class StreamsPipeline(Pipeline):
    """A pipeline that reads a stream of two clusters, of which one is unmapped, renamed and mapped again."""

    needs = frozenset({WEST})

    def __init__(self, flow: Flow, east: str, west: str) -> None:
        super().__init__("streams", flow)
        self._streams = Streams(flow, east=east, west=west)
        self._streams.create("east", TOPIC)
        self._streams.create("west", TOPIC)
        self._streams.map(**_BOTH)
        self._streams.read(source__kafka__on_unreachable="skip")

    def produce(self, rng: random.Random) -> int:
        """Send some records to both clusters, whatever is mapped."""
        counts = {broker: rng.randint(1, 80) for broker in ("east", "west")}
        for broker, count in counts.items():
            ids = range(self._next, self._next + count)
            self._next = ids.stop
            self._streams.send(broker, TOPIC, count, ids=ids, **DURABLE)
        return sum(counts.values())

    def disturb(self, rng: random.Random) -> str:
        """The metadata service says something else, or the same."""
        name, said = rng.choice(list(_MAPPINGS.items()))
        self._streams.map(**said)
        return f"the stream is {name}"

    def settle(self) -> None:
        """All is mapped again."""
        self._streams.map(**_BOTH)

    def check(self) -> int:
        """See `Pipeline`."""
        try:
            self._streams.check(("east", TOPIC), ("west", TOPIC))
        except AssertionError as error:
            raise ViolationError(f"streams: {error}") from error
        return self._streams.rows_of(("east", TOPIC), ("west", TOPIC)).total()


class KafkaPipeline(Pipeline):
    """A pipeline that writes a topic of another cluster, whose broker dies, too: each record once, and in its order."""

    needs = frozenset({WEST})

    def __init__(self, flow: Flow, target: str) -> None:
        super().__init__("append", flow)
        self._topics = topics_of(flow, target, 2, {"partitioner": "same"})
        know(flow, environment(target))

    def check(self) -> int:
        """See `Pipeline`."""
        found = self._topics.found()
        compare("kafka", Counter(one.row for one in found), Counter((s.id, s.value) for s in self.flow.sent))
        for partition in range(2):
            sent = sorted((s for s in self.flow.sent if s.partition == partition), key=lambda s: s.offset)
            if [one.row for one in found if one.partition == partition] != [(s.id, s.value) for s in sent]:
                raise ViolationError(f"kafka: partition {partition} has its records in another order than the source")
        if self._topics.staged():
            raise ViolationError(f"kafka: left where participants write: {self._topics.staged()}")
        return len(found)


class WorkersPipeline(Pipeline):
    """A pipeline whose ranges are written by workers that stay, or by jobs of their own where none does it in time."""

    def __init__(self, flow: Flow, tell: Callable[[str], None]) -> None:
        super().__init__("append", flow)
        flow.set(write__workers=GROUP, write__claim_within="5 seconds")
        self.keeper = Keeper(flow, tell)

    def disturb(self, rng: random.Random) -> str:
        """One of its workers suffers, and those that have ended are replaced."""
        self.keeper.keep()
        self.keeper.suffer(rng)
        return ""

    def calm(self) -> None:
        """The round is over."""
        self.keeper.calm()

    def settle(self) -> None:
        """Its workers end: a range that one wrote beside a job would be swept up by the interval after that alone."""
        self.keeper.end()

    def written_by_a_worker(self, started: Started, number: int) -> bool | None:
        """See `Pipeline`."""
        return self.keeper.is_written(started, number)

    def close(self) -> None:
        """End its workers."""
        self.keeper.kill()
