"""What it costs that an interval's records are on two clusters rather than on one.

    python -m bench.two_clusters                                # 1,000,000 records, 3 runs of each, interleaved

The same records in as many partitions, once on one cluster and once half on each of two, by a stream that a file maps.
Both brokers run all the time. What runs is what the DAG's tasks run, as separate processes; printed are the wall
and processor seconds of all steps together, and the ratio of the medians.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import uuid
from contextlib import ExitStack
from pathlib import Path

import yaml
from confluent_kafka import Producer

from bench.active import Sample, interval
from bench.records import DDL, record
from bench.width import create_topics
from sluice.kafka.config import KafkaSettings
from sluice.local.broker import LocalBroker
from sluice.local.home import SluiceHome

SEED = 7
PARTITIONS = 8
TOPIC = "ticks"
_IDS = ("YmVuY2gtY2x1c3Rlci1lYXN0MA", "YmVuY2gtY2x1c3Rlci13ZXN0MA")


def fill(settings: KafkaSettings, topic: str, first: int, last: int, partitions: int) -> None:
    """Make the topic, and send records `[first, last)` to its partitions in turn."""
    create_topics(settings, {topic: partitions})
    producer = Producer(settings.client(linger_ms=50, queue_buffering_max_messages=500_000))
    for number in range(first, last):
        producer.produce(topic, record(SEED, number), str(number), partition=number % partitions)
        if number % 1000 == 0:
            producer.poll(0)
    if producer.flush(300):
        raise RuntimeError("the broker did not take the records")


def measure(work: Path, clusters: list[KafkaSettings], topic: str, records: int) -> Sample:
    """The first interval of a new table, of one cluster or of several."""
    name = f"clusters-{uuid.uuid4().hex[:6]}"
    streams = work / f"{name}-streams.yaml"
    mapped = {c.name: {"topics": topic, "connection": c.name} for c in clusters}
    streams.write_text(yaml.safe_dump({"streams": {"ticks": {"clusters": mapped}}}))
    source = {"streams": "ticks", "metadata": {"service": "file", "path": str(streams)}, "max_records": records}
    described = {
        "name": name,
        "source": {"kafka": {"connection": clusters[0].name, **source}},
        "sink": {"hudi": {"path": str(work / name), "schema": DDL}},
        "control": {"topic": f"control-{name}"},
    }
    file = work / f"{name}.yaml"
    file.write_text(yaml.safe_dump(described))
    sample = Sample(f"{len(clusters)} clusters", PARTITIONS, records)
    interval(sample, file, clusters[0], work / f"{name}.log", clusters)
    return sample


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    home, found = SluiceHome.from_env(), dict[int, list[Sample]]({1: [], 2: []})
    with ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sluice-clusters-")))
        brokers = [stack.enter_context(LocalBroker(home, work / i, cluster_id=i)) for i in _IDS]
        names = ("east", "west")
        clusters = [
            KafkaSettings(name, {"bootstrap.servers": broker.bootstrap})
            for name, broker in zip(names, brokers, strict=True)
        ]
        fill(clusters[0], "whole", 0, arguments.records, PARTITIONS)
        for number, cluster in enumerate(clusters):
            half = arguments.records // 2
            fill(cluster, "half", number * half, (number + 1) * half, PARTITIONS // 2)
        for _ in range(arguments.runs):
            for number, topic in ((1, "whole"), (2, "half")):
                found[number].append(measure(work, clusters[:number], topic, arguments.records))
                s = found[number][-1]
                print(f"{s.kind}: wall {sum(s.wall.values()):.1f} s, CPU {sum(s.cpu.values()):.1f} s", flush=True)
    medians = {
        what: {n: statistics.median(sum(getattr(s, what).values()) for s in of) for n, of in found.items()}
        for what in ("wall", "cpu")
    }
    for what, of in medians.items():
        print(f"two clusters ÷ one, {what}: {of[2] / of[1]:.2f}")
    if arguments.out:
        arguments.out.write_text(json.dumps(medians, indent=2))


if __name__ == "__main__":
    main()
