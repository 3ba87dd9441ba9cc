"""What each test costs, for whoever makes the suite shorter, and in what order files run so that no worker is left.

`make test ARGS="--costs=costs.tsv"` writes a line for each test: seconds on the clock, seconds of CPU, JVMs started,
and its name; at the end it shows the ten that took longest. CPU and JVMs count all processes that descend from the
worker, so that a broker, a Spark driver or an Airflow that a fixture keeps running counts where it works. CPU is what
to compare: on a busy machine the clock tells of the others.

`python -m tests.costs costs.tsv` then writes seconds.json, by which files are ordered: the longest first.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from xdist.scheduler import LoadScopeScheduling

_EVERY = 1.0  # seconds between two looks at the processes: no JVM of ours lives shorter
_SECONDS = Path(__file__).with_name("seconds.json")
_UNKNOWN = 60.0  # seconds of a file that wasn't measured yet
# Files that share what takes long to start run in one worker, one after the other.
_CONVERTERS = ("test_converters", "test_converters_avro", "test_converters_json", "test_converters_protobuf")
_TOGETHER = {
    "tests/airflow/test_dag_run.py": "live Airflow",
    "tests/airflow/test_starts_by_arrival.py": "live Airflow",
    "tests/airflow/test_starts_by_mapping.py": "live Airflow",
    "tests/airflow/test_watching.py": "live Airflow",
    "tests/airflow/test_workers_in_airflow.py": "live Airflow",
    "tests/page/test_connect_rest.py": "page's Airflow",
    "tests/page/test_page.py": "page's Airflow",
    "tests/page/test_read_api.py": "page's Airflow",
    "tests/page/test_workers_on_the_page.py": "page's Airflow",
    **{f"tests/guarantees/{name}.py": "schema registry" for name in _CONVERTERS},
}


class LongestFirst(LoadScopeScheduling):  # type: ignore[misc]
    """Gives each worker whole files, the longest first, so that all workers end at about the same time.

    With `--minutes` the shortest come first: as many as there is time for, and none that takes much longer than that.
    """

    def __init__(self, config: pytest.Config, log: Any = None) -> None:
        super().__init__(config, log)
        self._seconds: dict[str, float] = json.loads(_SECONDS.read_text())
        self._may_end_early = config.getoption("--minutes") is not None

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return _TOGETHER.get(file, file)

    def _assign_work_unit(self, node: Any) -> None:
        self.workqueue.move_to_end(max(self.workqueue, key=self._cost), last=False)
        super()._assign_work_unit(node)

    def _cost(self, scope: str) -> float:
        files = {nodeid.partition("::")[0] for nodeid in self.workqueue[scope]}
        seconds = sum(self._seconds.get(file, _UNKNOWN) for file in files)
        return -seconds if self._may_end_early else seconds


class Costs:
    """Writes the line of each test that this process runs; the process that has no tests of its own shows them."""

    def __init__(self, file: Path, *, worker: bool) -> None:
        self._file = file
        self._me = psutil.Process()
        self._jvms: set[tuple[int, float]] = set()
        self._running = 0.0  # seconds of CPU of the processes that ran at the last look
        self._lost = 0.0  # and of those that had ended by the next one, which nobody waited for
        self._look = threading.Lock()
        if not worker:
            file.unlink(missing_ok=True)
        threading.Thread(target=self._watch, name="costs", daemon=True).start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        before, jvms, began = self._cpu(), len(self._jvms), time.monotonic()
        result = yield
        wall, cpu = time.monotonic() - began, self._cpu() - before
        with self._file.open("a") as file:  # one write, at the end: workers share the file
            file.write(f"{wall:8.2f}\t{cpu:8.2f}\t{len(self._jvms) - jvms:3d}\t{item.nodeid}\n")
        return result

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        lines = self._file.read_text().splitlines() if self._file.exists() else []
        terminalreporter.section("ten longest: seconds, seconds of CPU, JVMs")
        for line in sorted(lines, reverse=True)[:10]:
            terminalreporter.line(line)

    def _cpu(self) -> float:
        """Seconds of CPU of this process and all that descend from it, ended or running.

        What a process had used is added to its parent's when that waits for it. Of a daemon, whose parent has ended
        long before, it is gone from all sums: the sum gets smaller, and so much was lost.
        """
        with self._look:
            total = self._sum()
            if total < self._running:
                total = self._sum()  # a parent was looked at just before it waited for a child
            self._lost += max(self._running - total, 0.0)
            self._running = total
            return total + self._lost

    def _sum(self) -> float:
        total = 0.0
        for process in self._processes():
            with contextlib.suppress(psutil.Error):
                total += sum(process.cpu_times()[:4])  # its own, and those of children that it has waited for
        return total

    def _processes(self) -> list[psutil.Process]:
        return [self._me, *self._me.children(recursive=True)]

    def _watch(self) -> None:
        while True:
            for process in self._processes():
                with contextlib.suppress(psutil.Error):
                    if process.name() == "java":
                        self._jvms.add((process.pid, process.create_time()))
            self._cpu()  # so that it is known what a process had used shortly before it ends
            time.sleep(_EVERY)


def main(measured: list[str]) -> None:
    """Write seconds.json from what `--costs` has written; files that weren't run keep their figure."""
    seconds: Counter[str] = Counter()
    for file in measured:
        for line in Path(file).read_text().splitlines():
            wall, _, _, nodeid = line.split("\t")
            seconds[nodeid.partition("::")[0]] += float(wall)
    known = json.loads(_SECONDS.read_text()) if _SECONDS.exists() else {}
    known |= {file: round(took, 1) for file, took in seconds.items()}
    there = {file: took for file, took in known.items() if Path(__file__).parents[1].joinpath(file).exists()}
    _SECONDS.write_text(json.dumps(dict(sorted(there.items())), indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
