"""What an interval costs over the width of its pipeline: partitions that it plans, of which few have records.

    python -m bench.width                              # 10, 100, 1,000 and 10,000 partitions over 50 topics
    python -m bench.width --partitions 100 --active 5  # does it work at all?

Broker, control topic, coordinator and table are real; records are written without Spark, as `bench.flat` does. Of each
width: the seconds of START and COMMIT as they run in a JVM that is up, the bytes of each message as it is in the
control topic, the bytes of the commit's metadata, and the seconds in which the page folds the messages and answers.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import yaml
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench.broker import embedded_broker
from bench.flat import TinyParticipant
from sluice.control.reader import ControlReader, log_ends
from sluice.coordinator import Coordinator, Outcome, Run
from sluice.jvm.gateway import HudiJvm, lean_jvm
from sluice.kafka.config import KafkaSettings
from sluice.pipeline import load_pipeline
from sluice.protocol.history import TableHistory, fold

TOPICS = 50
INTERVALS = 3
# A broker maps an index of 10 MB for each partition unless its settings say otherwise.
NARROW_LOGS = {"log.index.size.max.bytes": "4096", "log.cleaner.enable": "false", "num.partitions": "1"}


@dataclass
class Sample:
    """What one width came to; seconds are medians. `_cpu`: processor time of this process, without JVM and broker."""

    partitions: int
    topics: int
    active: int
    start: float = 0.0
    commit: float = 0.0
    start_cpu: float = 0.0
    commit_cpu: float = 0.0
    messages: dict[str, int] = field(default_factory=dict)
    parts: int = 0
    metadata: int = 0
    fold: float = 0.0
    page: float = 0.0
    page_bytes: int = 0
    lag: float = 0.0


def measure(folder: Path, bootstrap: str, jvm: HudiJvm, partitions: int, active: int) -> Sample:
    """Some intervals of a pipeline of that width."""
    settings = KafkaSettings("kafka_default", {"bootstrap.servers": bootstrap})
    topics = _topics(settings, partitions)
    name = f"width-{partitions}-{uuid.uuid4().hex[:6]}"
    hudi = {"path": str(folder / name), "schema": "id STRING, v STRING, p STRING", "partition_fields": "p"}
    file = folder / f"{name}.yaml"
    file.write_text(
        yaml.safe_dump(
            {
                "name": name,
                "source": {"kafka": {"topics": list(topics)}},
                "sink": {"hudi": hudi},
                "control": {"topic": f"control-{name}"},
            }
        )
    )
    pipeline = load_pipeline(file)

    @contextmanager
    def same_jvm() -> Iterator[HudiJvm]:
        yield jvm

    create_topics(
        settings, {pipeline.control.topic: 1}
    )  # beforehand: a busy broker takes a while to know of a new topic
    coordinator, participant = Coordinator(pipeline, settings, jvm=same_jvm), TinyParticipant(pipeline, settings)
    everywhere = [(topic, p) for topic, number in topics.items() for p in range(number)]
    producer = Producer(settings.client())
    starts, commits = [], []  # seconds, and those of this process's processor time
    for run in range(INTERVALS):
        for i in range(active):
            topic, partition = everywhere[(i * len(everywhere) // active + run) % len(everywhere)]
            for _ in range(10):
                producer.produce(topic, b"{}", partition=partition)
        if producer.flush(60):
            raise RuntimeError("the broker did not take the records")
        begun, busy = time.perf_counter(), time.process_time()
        started = coordinator.start(Run("width", f"run-{run}"))
        starts.append((time.perf_counter() - begun, time.process_time() - busy))
        if isinstance(started, Outcome):
            raise TypeError(started.summary)
        participant.write(started)
        begun, busy = time.perf_counter(), time.process_time()
        coordinator.commit(started.control_offset)
        commits.append((time.perf_counter() - begun, time.process_time() - busy))
    sample = Sample(partitions, len(topics), active)
    sample.start, sample.start_cpu = map(statistics.median, zip(*starts, strict=True))
    sample.commit, sample.commit_cpu = map(statistics.median, zip(*commits, strict=True))
    _weigh(sample, settings, pipeline.control.topic)
    sample.metadata = max(f.stat().st_size for f in (folder / name / ".hoodie" / "timeline").glob("*.commit"))
    _look(sample, settings, pipeline.control.topic, topics, pipeline.sink.hudi.path)
    return sample


def _topics(settings: KafkaSettings, partitions: int) -> dict[str, int]:
    """New topics, with their numbers of partitions."""
    number = min(TOPICS, partitions)
    mark = uuid.uuid4().hex[:6]
    topics = {f"events.of.shop-{i:02}.{mark}": partitions // number for i in range(number)}
    create_topics(settings, topics)
    return topics


def create_topics(settings: KafkaSettings, topics: dict[str, int]) -> None:
    """Create topics and wait until the broker leads all of their partitions."""
    admin = AdminClient(settings.client())
    for topic, size in topics.items():  # one after the other, since a broker of 512 MiB makes hundreds of logs each
        admin.create_topics([NewTopic(topic, size, 1)], request_timeout=120)[topic].result(120)
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        known = admin.list_topics(timeout=60).topics
        led = {t: sum(p.leader >= 0 for p in known[t].partitions.values()) for t in topics if t in known}
        if led == topics:
            return
        time.sleep(0.5)
    raise RuntimeError("the broker does not lead all partitions")


def _weigh(sample: Sample, settings: KafkaSettings, control: str) -> None:
    """The largest message of each type, as its records are in the topic, without what Kafka adds."""
    consumer = Consumer(settings.client(group_id="width", auto_offset_reset="earliest"))
    try:
        partition = TopicPartition(control, 0, 0)
        consumer.assign([partition])
        _, end = consumer.get_watermark_offsets(partition, 30)
        values = [record.value() or b"" for record in consumer.consume(end, 60)]
    finally:
        consumer.close()
    for value in values:
        fields = json.loads(value)
        sample.messages[fields["type"]] = max(len(value), sample.messages.get(fields["type"], 0))
        sample.parts = max(sample.parts, fields.get("packed", {}).get("parts", 1))


def _look(sample: Sample, settings: KafkaSettings, control: str, topics: dict[str, int], table: str) -> None:
    """What the page does: read the messages, ask for the logs' ends, and make its answers of them."""
    os.environ.setdefault("AIRFLOW_HOME", tempfile.mkdtemp(prefix="sluice-width-airflow-"))
    from sluice.page import present

    reader = ControlReader(settings, control)
    bounds = reader.bounds()
    begun = time.perf_counter()
    tables: dict[str, TableHistory] = {}
    for batch in reader.read(bounds.first, bounds.end):
        fold(batch, tables)
    sample.fold = time.perf_counter() - begun
    begun = time.perf_counter()
    ends = log_ends(settings, topics)
    sample.lag = time.perf_counter() - begun
    begun = time.perf_counter()
    history = tables[table]
    newest = list(history.newest())
    answers: list[Any] = [
        present.partitions(history, ends, present.last_record_times(newest)),
        present.lag_lines(newest[::-1]),
        [present.transaction(t, history, None) for t in newest],
        present.whole_transaction(newest[0], history, None, newest[0]),
    ]
    sample.page_bytes = len(json.dumps(answers))
    sample.page = time.perf_counter() - begun


def _line(s: Sample) -> str:
    sizes = ", ".join(f"{kind} {size:,}" for kind, size in sorted(s.messages.items()))
    return (
        f"{s.partitions:6,} partitions of {s.topics} topics, {s.active} with records: start {s.start:.2f} s (cpu "
        f"{s.start_cpu:.2f}), commit {s.commit:.2f} s (cpu {s.commit_cpu:.2f}); "
        f"bytes: {sizes}, commit {s.metadata:,}; parts {s.parts}; page: fold {s.fold:.2f} s, lag "
        f"{s.lag:.2f} s, answers {s.page:.2f} s of {s.page_bytes:,} bytes"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, nargs="+", default=[10, 100, 1_000, 10_000])
    parser.add_argument("--active", type=int, default=10, help="partitions with records, of each interval")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="sluice-width-") as scratch,
        embedded_broker(Path(scratch), NARROW_LOGS) as bootstrap,
        lean_jvm() as jvm,
    ):
        samples = []
        for partitions in arguments.partitions:
            samples.append(measure(Path(scratch), bootstrap, jvm, partitions, min(arguments.active, partitions)))
            print(_line(samples[-1]), flush=True)
        if arguments.out:
            arguments.out.write_text(json.dumps([asdict(s) for s in samples], indent=2))


if __name__ == "__main__":
    main()
