"""What START has to do for a stream over very many clusters: from the mapping's file to the message that is sent.

    python -m bench.clusters                          # 200 clusters with 10 topics each
    python -m bench.clusters --clusters 10 --topics 5 --round-trip 0.05

The clusters are simulated: each answers what is asked of it after the time of a round trip, one for each kind of
question that Kafka's client sends (ids, topics, three lists of offsets). All else is START's own code. Prints a line of
JSON: seconds of each part, and bytes of START-COMMIT as it is stored.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml

from sluice.coordinator.parts import Parts
from sluice.coordinator.streams import Streams
from sluice.kafka.config import KafkaSettings
from sluice.pipeline import load_pipeline
from sluice.protocol.messages import StartCommit
from sluice.protocol.offsets import Checkpoint, TopicPartition
from sluice.protocol.plan import Grouping, Limits, plan_interval
from sluice.protocol.redriven import Places
from sluice.protocol.state import ClusterState, PartitionBounds
from sluice.protocol.streams import bounded
from sluice.protocol.wire import encode

PARTITIONS = 3
NOW = datetime(2026, 1, 1, tzinfo=UTC)
_MESSAGE_LIMIT = 1_000_000


class SimulatedCluster:
    """A cluster that answers after the time that its questions take."""

    def __init__(self, name: str, round_trip: float) -> None:
        self.name = name
        self._round_trip = round_trip

    def cluster_ids(self) -> dict[str, str | None]:
        time.sleep(self._round_trip)
        return {self.name: f"id-of-{self.name}"}

    def topics_like(self, pattern: str, but_not: Collection[str | None] = ()) -> tuple[str, ...]:
        raise NotImplementedError

    def state(
        self,
        topics: Sequence[str],
        window_end: datetime | None,  # noqa: ARG002
        window_start: datetime | None = None,  # noqa: ARG002
        *,
        max_future: timedelta | None = None,  # noqa: ARG002
        checkpoint: Checkpoint | None = None,  # noqa: ARG002
    ) -> ClusterState:
        time.sleep(5 * self._round_trip)
        partitions = [TopicPartition(self.name, topic, number) for topic in topics for number in range(PARTITIONS)]
        return ClusterState(
            [PartitionBounds(tp, 0, 1000, 1000, NOW, 1000) for tp in partitions],
            self.cluster_ids(),
            {(self.name, topic): f"id-of-{topic}" for topic in topics},
            leader_epochs=dict.fromkeys(partitions, 0),
        )

    def topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        raise NotImplementedError

    def truncated_since(self, read: Mapping[TopicPartition, tuple[int, int]]) -> dict[TopicPartition, int]:
        raise NotImplementedError

    def sent_again(self, topic: str, table: str) -> Places:
        raise NotImplementedError

    def copy_to_group(self, group: str, next_offsets: Mapping[TopicPartition, int]) -> None:
        raise NotImplementedError


def measure(clusters: int, topics: int, round_trip: float, folder: Path) -> dict[str, Any]:
    """The seconds of each part of START's planning, and what it comes to."""
    names = [f"cluster{number:03}" for number in range(clusters)]
    there = {name: {"topics": [f"orders.{number}" for number in range(topics)]} for name in names}
    mapping = folder / "streams.yaml"
    mapping.write_text(yaml.safe_dump({"streams": {"orders": {"clusters": there}}}))
    file = folder / "wide.yaml"
    kafka = {"streams": "orders", "metadata": {"service": "file", "path": str(mapping)}}
    hudi = {"path": str(folder / "wide"), "schema": "id STRING"}
    file.write_text(yaml.safe_dump({"name": "wide", "source": {"kafka": kafka}, "sink": {"hudi": hudi}}))
    pipeline = load_pipeline(file)
    settings = KafkaSettings("kafka_default", {"bootstrap.servers": "nowhere:1"})
    made: Any = None  # of the parts only the clusters are asked
    parts = Parts(
        made,
        made,
        made,
        settings,
        lambda name, _address: SimulatedCluster(name, round_trip),
        lambda _name, _address: settings,
    )
    options = pipeline.source.options.streams_settings
    assert options is not None
    seconds: dict[str, float] = {}

    def timed(part: str, work: Callable[[], Any]) -> Any:
        begun = time.perf_counter()
        found = work()
        seconds[part] = round(time.perf_counter() - begun, 3)
        return found

    followed, sources = timed("mapping, and the clusters' ids", lambda: Streams(pipeline, options, parts).follow(None))
    state = timed("offsets", lambda: sources.state(None, checkpoint=Checkpoint()))
    followed, state = timed("ends", lambda: bounded(followed, state, Checkpoint()))
    plan = timed(
        "plan",
        lambda: plan_interval(
            Checkpoint(),
            state,
            starting={},
            limits=Limits(10**9),
            grouping=Grouping(8),
            on_offset_loss="fail",
            table="t",
        ),
    )

    def message() -> int:
        known = followed.known.named(state.cluster_ids, Checkpoint())
        start = StartCommit(
            table="t", transaction="20260101000000000", epoch=1, dag_id="d", run_id="r", sender="coordinator", time=NOW,
            read_position=0, ranges=StartCommit.ranges_of(plan, {}, state.leader_epochs), streams=known,
            cluster_ids=dict(state.cluster_ids), writer=pipeline.writer("id STRING", "{}"),
        )  # fmt: skip
        encoded = encode(start, _MESSAGE_LIMIT)
        return sum(map(len, encoded.earlier)) + len(encoded.last([0] * len(encoded.earlier)))

    size = timed("message", message)
    total = round(sum(seconds.values()), 3)
    shape = {"clusters": clusters, "topics": clusters * topics, "partitions": clusters * topics * PARTITIONS}
    return {**shape, "round_trip": round_trip, "seconds": total, **seconds, "start_commit_bytes": size}


def main() -> None:
    """Print what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clusters", type=int, default=200)
    parser.add_argument("--topics", type=int, default=10, help="of each cluster")
    parser.add_argument("--round-trip", type=float, default=0.02, help="seconds")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as folder:
        print(json.dumps(measure(given.clusters, given.topics, given.round_trip, Path(folder))))


if __name__ == "__main__":
    main()
