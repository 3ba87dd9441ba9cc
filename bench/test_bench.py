"""What the benchmark's numbers rest on. `pytest bench`; the last test starts Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from bench import measure, records, report
from bench.participants import SLUICE, STREAMING, environment, spark_submit
from bench.runner import Sample
from bench.scenarios import TARGETS, Target, scenarios

if TYPE_CHECKING:
    from pathlib import Path

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
