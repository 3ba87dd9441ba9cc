"""What the benchmark's numbers rest on. `pytest bench`; the last test starts Spark."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bench import fleet, measure, records, report, trees, workers
from bench.participants import SLUICE, STREAMING, environment, spark_submit
from bench.runner import Sample
from bench.scenarios import TARGETS, Target, scenarios

BURN = "import time\nwhile time.process_time() < 0.6: pass"


def measured(tmp_path: Path, *argv: str, timeout: float = 60) -> dict[str, float]:
    result = tmp_path / "measured.json"
    subprocess.run(
        [sys.executable, measure.__file__, str(result), str(timeout), str(tmp_path / "log"), "--", *argv],
        check=True,
        env=environment(),
    )
    found: dict[str, float] = json.loads(result.read_text())
    return found


def test_a_record_depends_on_seed_id_and_version_alone() -> None:
    first = json.loads(records.record(7, 42))
    assert json.loads(records.record(7, 42)) == first
    assert json.loads(records.record(8, 42)) != first
    later = json.loads(records.record(7, 42, version=1))
    assert later["exchange"] == first["exchange"]
    assert later["ts"] > first["ts"]
    assert later["volume"] != first["volume"]


def test_records_are_about_200_bytes_and_spread_over_all_exchanges() -> None:
    sample = [records.record(7, n) for n in range(1_000_000, 1_004_000)]
    assert 180 < sum(map(len, sample)) / len(sample) < 220
    counts = [sum(f'"{e}"' in r for r in sample) for e in records.EXCHANGES]
    assert min(counts) > 900


def test_expected_rows_are_those_of_the_last_version() -> None:
    both = records.expected(7, records.Window(0, 8), records.Window(4, 12, version=1))
    volumes = [json.loads(records.record(7, n, int(n >= 4)))["volume"] for n in range(12)]
    assert both == records.Expected(12, sum(volumes))


@pytest.mark.parametrize(
    "command",
    [f"{{python}} -c '{BURN}'", f"{{python}} -c '{BURN}' & exit 0", f"({{python}} -c '{BURN}' &) ; exit 0"],
    ids=["child", "orphan", "grandchild"],
)
def test_no_descendants_time_is_lost(tmp_path: Path, command: str) -> None:
    found = measured(tmp_path, "sh", "-c", command.format(python=sys.executable))
    assert 0.6 <= found["cpu"] < 1.5
    assert found["exit_code"] == found["killed"] == 0


def test_wall_ends_with_the_command_and_not_with_its_orphans(tmp_path: Path) -> None:
    found = measured(tmp_path, "sh", "-c", "sleep 4 & exit 0")
    assert found["wall"] < 4 <= found["drained"]


def test_a_command_over_its_time_is_killed_with_its_children(tmp_path: Path) -> None:
    found = measured(tmp_path, "sh", "-c", "sleep 600 & sleep 600", timeout=0.5)
    assert found["killed"] >= 2
    assert found["drained"] < 600


METER = """
import os, sys, time
from pathlib import Path
from bench.trees import Meter
before, meter = os.fork(), None
if not before:  # there when the meter is made: left out
    while True: time.process_time()
meter = Meter()
try:
    with meter.measured() as cost:
        meter.run(["sh", "-c", sys.argv[1]], os.environ, Path(sys.argv[2]))
finally:
    os.kill(before, 9)
print(cost.cpu, cost.wall)
"""


@pytest.mark.parametrize(
    "command",
    [
        f"{{python}} -c '{BURN}'",
        f"{{python}} -c '{BURN}' > /dev/null & exit 0",
        f"({{python}} -c '{BURN}' > /dev/null &) ; exit 0",
    ],
    ids=["child", "orphan", "grandchild"],
)
def test_a_meter_loses_no_descendants_time_and_leaves_out_who_was_there(tmp_path: Path, command: str) -> None:
    told = subprocess.run(
        [sys.executable, "-c", METER, command.format(python=sys.executable), str(tmp_path / "log")],
        check=True, capture_output=True, text=True, env=environment(),
    )  # fmt: skip
    cpu, _ = map(float, told.stdout.split())
    assert 0.57 <= cpu < 1.5  # the kernel tells of hundredths, of each process and kind


def test_a_meter_counts_processes_that_stay() -> None:
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        tree = psutil.Process(process.pid)
        before = trees.seconds_of(tree)
        while trees.seconds_of(tree) < before + 0.3:
            time.sleep(0.05)
        assert trees.resident_mib(trees.family(tree)) > 1
    finally:
        process.kill()
        process.wait()
    assert trees.family(tree) == []


def test_only_rows_of_completed_instants_can_be_read(tmp_path: Path) -> None:
    timeline, folder = tmp_path / ".hoodie" / "timeline", tmp_path / "NYSE"
    timeline.mkdir(parents=True)
    folder.mkdir()
    for instant, rows in (("001", 3), ("002", 4)):
        pq.write_table(pa.table({"id": list(range(rows))}), folder / f"f_0-0-0_{instant}.parquet")
        (timeline / f"{instant}.commit.requested").touch()
    table = workers.Timeline(tmp_path)
    (timeline / "001_003.commit").touch()
    assert table.rows() == 3
    (timeline / "002_004.commit").touch()
    assert table.rows() == 7


def test_a_void_interval_of_a_worker_counts_nowhere() -> None:
    def sample(wall: float, void: str | None = None) -> workers.Sample:
        return workers.Sample(trees.Cost(wall, 2 * wall), Path("table"), workers_cpu=wall, void=void)

    samples = {"peer": [sample(6.0)], "ours": [sample(3.0), sample(0.1, "rows lost")], "lost": [sample(1.0, "rows")]}
    peer, ours, lost = workers.rows_of(samples, "peer")
    assert peer[1:3] == ("6.00", "12.00")
    assert (*ours[1:6], ours[-1]) == ("3.00", "6.00", "3.00", "0.50", "0.50", "1 of 2")
    assert (lost[1], lost[-1]) == ("void", "0 of 1")


def test_a_fleets_period_holds_if_all_have_committed_in_it() -> None:
    shape = fleet.Shape(2, 10, 1, 60.0, True, 1)
    assert [shape.due(number) for number in range(2)] == [0.0, 24.0]
    assert fleet.Period({0: 9.0, 1: 10.0}, 34.0).holds(shape)
    assert not fleet.Period({0: 9.0}, 9.0).holds(shape)
    assert not fleet.Period({0: 9.0, 1: 40.0}, 64.0).holds(shape)


def test_every_target_is_about_participants_of_its_scenario() -> None:
    known = scenarios(100)
    assert {t.scenario for t in TARGETS} == set(known)
    for target in TARGETS:
        participants = {p.name for p in known[target.scenario].participants}
        assert {p.name for p in (*target.against, SLUICE)} <= participants


def test_a_target_needs_all_its_rivals() -> None:
    target = Target("append", "wall", (STREAMING,), 0.6)
    assert target.ratio({"sluice": {"wall": 3.0}}) is None
    assert target.ratio({"sluice": {"wall": 3.0}, "structured_streaming": {"wall": 6.0}}) == 0.5


JVM_TIME = """
import os
import sys
from pathlib import Path
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").getOrCreate()
spark.range(10_000_000).selectExpr("sum(hash(id))").first()
pid = spark._jvm.java.lang.ProcessHandle.current().pid()
stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
Path(sys.argv[1]).write_text(str((int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")))
"""


@pytest.mark.parametrize("launcher", ["spark-submit", "python"])
def test_the_jvms_time_is_counted(tmp_path: Path, launcher: str) -> None:
    """All that the kernel had charged the living JVM with, even where `python` leaves it an orphan."""
    script, told = tmp_path / "job.py", tmp_path / "told"
    script.write_text(JVM_TIME)
    argv = (
        [sys.executable, str(script), str(told)]
        if launcher == "python"
        else spark_submit(script, str(told), master="local[1]", driver_memory="1g")
    )
    found = measured(tmp_path, *argv)
    assert found["exit_code"] == 0
    assert float(told.read_text()) < found["cpu"] < 2 * float(told.read_text()) + 2


def sample(participant: str, wall: float, void: str | None = None) -> Sample:
    return Sample("append", participant, 1, void, wall=wall, cpu=2 * wall)


def test_a_void_run_counts_nowhere() -> None:
    append = scenarios(100)["append"]
    samples = [sample("sluice", 3.0), sample("sluice", 0.1, "rows lost"), sample("structured_streaming", 6.0)]
    assert report.medians(samples)["sluice"] == {"wall": 3.0, "cpu": 6.0}
    assert report.rows(append, samples)[0][1:3] == ("3.0", "6.0")
    verdicts = [(ratio, verdict) for _, ratio, verdict in report.verdicts(append, samples)]
    assert verdicts == [(0.5, "void"), (0.5, "void"), (None, "no data"), (None, "no data")]
    valid = [s for s in samples if s.void is None]
    assert [v for _, _, v in report.verdicts(append, valid)] == ["pass", "pass", "no data", "no data"]


def test_a_target_that_is_missed_says_so() -> None:
    samples = [sample("sluice", 5.0), sample("structured_streaming", 6.0)]
    assert report.verdicts(scenarios(100)["append"], samples)[0][2] == "FAIL"


def test_only_the_coordinators_ends_are_counted() -> None:
    steps: list[dict[str, float | int]] = [{"wall": 1.0}, {"wall": 9.0}, {"wall": 9.0}, {"wall": 2.0}]
    known = scenarios(100)
    assert known["coordinator"].counted(steps) == [{"wall": 1.0}, {"wall": 2.0}]
    assert known["coordinator"].counted(steps[:1]) == steps[:1]
    assert known["append"].counted(steps) == steps
