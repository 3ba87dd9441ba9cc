"""What many pipelines cost: START of one of them, and the page that follows them all.

    python -m bench.pipelines                               # 1 and 300 pipelines, as many transactions as a page keeps
    python -m bench.pipelines --pipelines 1 10 --transactions 20

One pipeline's intervals are real but for the Spark job, as `bench.flat` has them. The others' control topics hold
copies of its messages, under their own tables and instants. Of each number of pipelines: the seconds of a START and the
messages that are decoded in an interval, which are those of its table; and of one API server process whose
followers have read all topics, the transactions and the values of single partitions that they keep, the growth of its
memory, and its clients.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml
from confluent_kafka import Producer

from bench.broker import embedded_broker
from bench.flat import TinyParticipant
from bench.width import NARROW_LOGS, create_topics
from sluice.control import topic as control_topic
from sluice.control.reader import ControlReader
from sluice.coordinator import Coordinator, Outcome, Run
from sluice.jvm.gateway import HudiJvm, lean_jvm
from sluice.kafka.config import KafkaSettings
from sluice.pipeline import load_pipeline
from sluice.protocol.messages import ControlMessage
from sluice.protocol.settlement import REMEMBERED_INTERVALS
from sluice.protocol.wire import encode

PARTITIONS = 10
STARTS = 5
WARM = REMEMBERED_INTERVALS  # after which a START reads back as far as it ever does
_MIB = 1024 * 1024


@dataclass
class Sample:
    """What a number of pipelines came to."""

    pipelines: int
    start: float
    decoded: int
    messages: int = 0
    read: float = 0.0
    transactions: int = 0
    partitions: int = 0
    mib: int = 0
    clients: int = 0


class One:
    """The pipeline whose START is measured."""

    def __init__(self, folder: Path, settings: KafkaSettings, jvm: HudiJvm) -> None:
        self.settings = settings
        name = f"one-{uuid.uuid4().hex[:6]}"
        self.topic, self.control = f"events-{name}", f"control-{name}"
        create_topics(settings, {self.topic: PARTITIONS})
        create_topics(settings, {self.control: 1})
        file = folder / f"{name}.yaml"
        hudi = {"path": str(folder / name), "schema": "id STRING, v STRING, p STRING", "partition_fields": "p"}
        file.write_text(
            yaml.safe_dump(
                {
                    "name": name,
                    "source": {"kafka": {"topics": self.topic}},
                    "sink": {"hudi": hudi},
                    "control": {"topic": self.control},
                }
            )
        )
        pipeline = load_pipeline(file)

        @contextmanager
        def same_jvm() -> Iterator[HudiJvm]:
            yield jvm

        self._coordinator = Coordinator(pipeline, settings, jvm=same_jvm)
        self._participant = TinyParticipant(pipeline, settings)
        self._runs = 0

    def interval(self) -> float:
        """One interval; the seconds of its START."""
        producer = Producer(self.settings.client())
        for i in range(10 * PARTITIONS):
            producer.produce(self.topic, b"{}", partition=i % PARTITIONS)
        if producer.flush(60):
            raise RuntimeError("the broker did not take the records")
        self._runs += 1
        begun = time.perf_counter()
        started = self._coordinator.start(Run("many", f"run-{self._runs}"))
        took = time.perf_counter() - begun
        if isinstance(started, Outcome):
            raise TypeError(started.summary)
        self._participant.write(started)
        self._coordinator.commit(started.control_offset)
        return took

    def messages(self) -> list[ControlMessage]:
        """Those of its first interval."""
        reader = ControlReader(self.settings, self.control)
        bounds = reader.bounds()
        found = [message for batch in reader.read(bounds.first, bounds.end) for _, message in batch]
        return [m for m in found if m.transaction == found[0].transaction]


def measure(one: One, others: dict[str, str], transactions: int) -> Sample:
    """START beside so many control topics, and the page that follows them. `others`: their tables by topic."""
    pattern = one.messages()
    written = sum(_fill(one.settings, topic, table, pattern, transactions) for topic, table in others.items())
    taken = [_counted(one.interval) for _ in range(STARTS)]
    sample = Sample(
        len(others) + 1, statistics.median(t for t, _ in taken), round(statistics.median(n for _, n in taken))
    )
    sample.messages = written
    _follow(sample, one, others)
    return sample


def _counted(interval: Any) -> tuple[float, int]:
    """What an interval's START took, and how many messages the whole interval's coordinator decoded."""
    decoded, real = 0, control_topic.decode

    def counting(value: bytes) -> Any:
        nonlocal decoded
        decoded += 1
        return real(value)

    control_topic.decode = counting
    try:
        return interval(), decoded
    finally:
        control_topic.decode = real


def _fill(settings: KafkaSettings, topic: str, table: str, pattern: list[ControlMessage], transactions: int) -> int:
    """Write a topic full of copies, as many as it lacks; returns how many there are."""
    bounds = ControlReader(settings, topic).bounds()
    producer = Producer(settings.client(linger_ms=20, queue_buffering_max_messages=500_000))
    number = bounds.end // len(pattern)
    while number < transactions:
        own = {"table": table, "transaction": f"{20260101000000000 + number}", "run_id": f"run-{number}"}
        for message in pattern:
            position = {"read_position": number * len(pattern)} if message.type == "START-COMMIT" else {}
            copy = message.model_copy(update={**own, **position})
            producer.produce(topic, encode(copy, _MIB).last([]), table.encode(), partition=0)
        number += 1
    if producer.flush(120):
        raise RuntimeError("the broker did not take the messages")
    return number * len(pattern)


def _follow(sample: Sample, one: One, others: dict[str, str]) -> None:
    """What the page's followers come to, which share what they may keep."""
    os.environ.setdefault("AIRFLOW_HOME", tempfile.mkdtemp(prefix="sluice-pipelines-airflow-"))
    from sluice.control.reader import _admins
    from sluice.page.follower import ControlFollower, MemoryBudget

    gc.collect()
    before, budget = _resident_mib(), MemoryBudget()
    followers = [ControlFollower(lambda: one.settings, topic, budget) for topic in (one.control, *others)]
    begun = time.perf_counter()
    for _ in range(2):  # once more, since the first ones kept what there was room for then
        for follower in followers:
            follower._read_on()
    sample.read = time.perf_counter() - begun
    for follower in followers:
        with follower.tables() as tables:
            for history in tables.values():
                sample.transactions += len(history.transactions)
                sample.partitions += sum(t.partitions_kept() for t in history.transactions.values())
    gc.collect()
    sample.mib = _resident_mib() - before
    sample.clients = len(_admins._known)


def _resident_mib() -> int:
    status = Path("/proc/self/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:"))) // 1024


def _line(s: Sample) -> str:
    return (
        f"{s.pipelines:4} pipelines: start {s.start:.2f} s, {s.decoded} messages decoded in an interval; page: "
        f"{s.messages:,} messages of the others read in {s.read:.1f} s, {s.transactions:,} transactions and "
        f"{s.partitions:,} values kept in {s.mib} MiB, {s.clients} client"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pipelines", type=int, nargs="+", default=[1, 300], help="ascending")
    parser.add_argument("--transactions", type=int, default=200, help="of each of the others")
    parser.add_argument("--bootstrap", help="a broker that runs already")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sluice-pipelines-") as scratch, lean_jvm() as jvm:
        with _broker(arguments.bootstrap, Path(scratch)) as bootstrap:
            one = One(Path(scratch), KafkaSettings("kafka_default", {"bootstrap.servers": bootstrap}), jvm)
            for _ in range(WARM):
                one.interval()
            mark, others, samples = uuid.uuid4().hex[:6], {}, []
            for number in arguments.pipelines:
                more = {f"control-{mark}-{i:04}": f"file:///lake/t{i:04}" for i in range(len(others), number - 1)}
                create_topics(one.settings, dict.fromkeys(more, 1))
                others |= more
                samples.append(measure(one, others, arguments.transactions))
                print(_line(samples[-1]), flush=True)
        if arguments.out:
            arguments.out.write_text(json.dumps([asdict(s) for s in samples], indent=2))


@contextmanager
def _broker(bootstrap: str | None, scratch: Path) -> Iterator[str]:
    if bootstrap is not None:
        yield bootstrap
        return
    with embedded_broker(scratch, NARROW_LOGS) as address:
        yield address


if __name__ == "__main__":
    main()
