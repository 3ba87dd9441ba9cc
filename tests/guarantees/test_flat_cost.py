"""An interval costs the same after others as before them, and leaves as many files: the benchmark's short form."""

from __future__ import annotations

from pathlib import Path
from statistics import median

import psutil
import pytest
from bench.flat import Table

from .harness import SharedJvm

SERVICES = {
    "keep_commits": 3,
    "keep_timeline": 5,
    "metadata_after_delta_commits": 3,
    # By the table's own policy Hudi keeps at least 20 commits of the metadata table, more than this test has time for.
    "options": {"hoodie.metadata.derive.from.datatable.clean.policy": "false"},
}
EVERY, ROUNDS = 4, 7  # intervals between two runs of the services, and how many of these
BOUNDED = ("timeline", "metadata_timeline", "metadata_data")


def cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


@pytest.mark.thorough
def test_start_and_commit_cost_the_same_after_many_intervals(
    tmp_path: Path, bootstrap: str, shared_jvm: SharedJvm
) -> None:
    with shared_jvm() as jvm:
        table = Table(tmp_path, bootstrap, jvm, SERVICES)
        table.serve()  # on a table that has no commit yet, as a schedule may have it
        process = psutil.Process(jvm.pid)
        spent: list[float] = []
        files = []
        for number in range(1, ROUNDS * EVERY + 1):
            before = cpu(process)
            table.interval()
            spent.append(cpu(process) - before)
            if number % EVERY == 0:
                files.append(table.files())
                table.serve()
    for name in BOUNDED:
        counts = [found[name] for found in files]
        # What is archived follows what the metadata table has compacted, a round or two later: two rounds count as one.
        assert max(counts[-2:]) <= max(counts[-4:-2]) + EVERY - 1, f"files of the {name} pile up: {counts}"
    early, late = median(spent[EVERY : 2 * EVERY]), median(spent[-EVERY:])
    assert late <= 1.5 * early, f"an interval took {early:.2f} s of the coordinator's CPU, and {late:.2f} s later"
