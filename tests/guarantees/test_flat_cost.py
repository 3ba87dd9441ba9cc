"""An interval costs the same after others as before them, and leaves as many files: the benchmark's short form."""

from __future__ import annotations

from pathlib import Path

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


def cost(process: psutil.Process, table: Table) -> float:
    """The coordinator's CPU seconds for an interval."""
    before = process.cpu_times()
    table.interval()
    after = process.cpu_times()
    return float(after.user + after.system - before.user - before.system)


@pytest.mark.thorough
def test_start_and_commit_cost_the_same_after_many_intervals(
    tmp_path: Path, bootstrap: str, shared_jvm: SharedJvm
) -> None:
    with shared_jvm() as jvm:
        old, new = (Table(tmp_path, bootstrap, jvm, SERVICES) for _ in range(2))
        old.serve()  # on a table that has no commit yet, as a schedule may have it
        files = []
        for number in range(1, ROUNDS * EVERY + 1):
            old.interval()
            if number % EVERY == 0:
                files.append(old.files())
                old.serve()
        for _ in range(EVERY):
            new.interval()
        new.serve()
        # In turns, as what a machine has to do beside it changes what the same work costs.
        process = psutil.Process(jvm.pid)
        pairs = [(cost(process, old), cost(process, new)) for _ in range(2 * EVERY)]
    for name in BOUNDED:
        counts = [found[name] for found in files]
        # What is archived follows what the metadata table has compacted, a round or two later: two rounds count as one.
        assert max(counts[-2:]) <= max(counts[-4:-2]) + EVERY - 1, f"files of the {name} pile up: {counts}"
    late, early = map(sum, zip(*pairs, strict=True))
    assert late <= 1.5 * early, f"{len(pairs)} intervals took {late:.2f} s of CPU, and {early:.2f} s on a young table"
