"""One hot partition: a write job whose cores share it, against one task for the partition.

    python -m bench.hot                                # 2,000,000 records, three rounds, local[2]
    python -m bench.hot --records 200000 --rounds 1    # does it work at all?

Both sides take turns on one topic of one partition, each into a new table. What is timed is the write job as a process,
from cold start; the interval's own audit says that all records are written.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

from bench.broker import embedded_broker
from bench.records import DDL, Window, create_topic, produce
from sluice.coordinator import Started
from sluice.kafka.config import KafkaSettings
from sluice.participant.launch.submit import driver_environment, submit_command
from sluice.pipeline import load_pipeline

TOPIC = "hot"
SIDES: dict[str, dict[str, Any]] = {"one task": {"records_per_task": 10**9}, "divided": {}}


def seconds_of_write(work: Path, bootstrap: str, side: str, records: int, master: str) -> float:
    """Load the topic into a new table; returns the seconds of its write job."""
    name = work.name
    hudi = {"path": str(work / "table"), "schema": DDL, "partition_fields": "exchange"}
    described = {
        "name": name,
        "source": {"kafka": {"topics": TOPIC, "max_records": records}},
        "sink": {"hudi": hudi},
        "control": {"topic": f"control-{name}"},
        "write": SIDES[side],
    }
    file = work / "pipeline.yaml"
    file.write_text(yaml.safe_dump(described))
    settings = KafkaSettings("kafka_default", {"bootstrap.servers": bootstrap})
    environment = driver_environment(settings, settings, "local")

    def run(*command: str) -> dict[str, Any]:
        with (work / "log").open("ab") as log:
            done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=log, check=True)
        found: dict[str, Any] = json.loads(done.stdout or b"{}")
        return found

    step = (sys.executable, "-m", "sluice.cli", "interval")
    started = run(*step, "start", str(file), "--run-id", "1")
    offset = int(started["control_offset"])
    command = submit_command(load_pipeline(file), Started(started["instant"], offset, ()), 0, master)
    begun = time.perf_counter()
    with (work / "log").open("ab") as log:
        subprocess.run(command, env=environment, stdout=log, stderr=log, check=True)
    taken = time.perf_counter() - begun
    outcome = run(*step, "commit", str(file), "--control-offset", str(offset))
    if outcome["records"] != records:
        raise RuntimeError(f"{outcome['records']:,} of {records:,} records were loaded")
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--master", default="local[2]")
    arguments = parser.parse_args()
    taken: dict[str, list[float]] = {side: [] for side in SIDES}
    with tempfile.TemporaryDirectory(prefix="sluice-hot-") as folder, embedded_broker(Path(folder)) as bootstrap:
        create_topic(bootstrap, TOPIC, 1)
        produce(bootstrap, TOPIC, 7, Window(0, arguments.records), 1)
        for number in range(arguments.rounds):
            for place, (side, found) in enumerate(taken.items()):
                work = Path(folder) / f"hot-{number}-{place}"
                work.mkdir()
                found.append(seconds_of_write(work, bootstrap, side, arguments.records, arguments.master))
                print(f"{side}: {found[-1]:.1f} s", flush=True)
    one, divided = (statistics.median(found) for found in taken.values())
    print(f"divided / one task: {divided / one:.2f}")


if __name__ == "__main__":
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    main()
