"""Runs tests and simulated histories in a copy of the sources, each job in a process forked from a warm one.

`python tests/mutants/runner.py`, started in the copy, reads a job from each line of its input and answers on a line.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NoReturn

import pytest

_HISTORY = 60  # seconds after which a history is taken for endless; it takes a tenth of one
_TEST = 60
_WARM = ("confluent_kafka.admin", "fastavro", "hypothesis", "msgspec", "psutil", "pydantic", "structlog", "xdist")
_PRELOADED = "ignore::pytest.PytestAssertRewriteWarning"  # of plugins that are imported before pytest asks for them
_PATHS = [".", "plugins", "tests/unit", "examples/sluice-lines"]


class Calls:
    """Which functions of the sources were called, by their file and first line."""

    def __init__(self) -> None:
        self._root = str(Path.cwd() / "plugins" / "sluice") + "/"
        self._seen: dict[int, CodeType] = {}

    @contextlib.contextmanager
    def noted(self) -> Iterator[set[str]]:
        self._seen, found = {}, set[str]()
        threading.settrace(self._called)
        sys.settrace(self._called)
        try:
            yield found
        finally:
            sys.settrace(None)
            threading.settrace(None)  # type: ignore[arg-type]
            codes = [code for code in self._seen.values() if code.co_filename.startswith(self._root)]
            found |= {f"{code.co_filename.removeprefix(self._root)}:{code.co_firstlineno}" for code in codes}

    def _called(self, frame: FrameType, _event: str, _argument: Any) -> None:
        self._seen[id(frame.f_code)] = frame.f_code


class Noted:
    """Has pytest note of each test that passes what it called, and how long it took."""

    def __init__(self) -> None:
        self._calls = Calls()
        self._failed: set[str] = set()
        self.tests: dict[str, tuple[float, list[str]]] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        began = time.process_time()
        with self._calls.noted() as called:
            result = yield
        if item.nodeid not in self._failed:
            self.tests[item.nodeid] = round(time.process_time() - began, 3), sorted(called)
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.passed:
            self._failed.add(report.nodeid)


class Chosen:
    """Has pytest run the tests that were named, in their order, and remember the first that fails."""

    def __init__(self, tests: list[str]) -> None:
        self._tests = {nodeid: number for number, nodeid in enumerate(tests)}
        self.failed: str | None = None

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        chosen = [item for item in items if item.nodeid in self._tests]
        items[:] = sorted(chosen, key=lambda item: self._tests[item.nodeid])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and self.failed is None:
            self.failed = report.nodeid

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed and self.failed is None:
            self.failed = report.nodeid


def _pytest(files: list[str], plugin: object) -> int:
    options = ["-q", "-p", "no:cacheprovider", f"--timeout={_TEST}", "-W", _PRELOADED]
    return int(pytest.main([*options, *files], plugins=[plugin]))


def note_tests(files: list[str]) -> dict[str, tuple[float, list[str]]]:
    """What each test of whole files calls, and how long it takes, of the sources as they are."""
    noted = Noted()
    _pytest(files, noted)
    return noted.tests


def run_tests(tests: list[str]) -> str | None:
    """The first of some tests that fails."""
    chosen = Chosen(tests)
    code = _pytest(["-x", *dict.fromkeys(nodeid.partition("::")[0] for nodeid in tests)], chosen)
    return chosen.failed or (None if code == 0 else f"pytest ended with {code}")


def note_histories(many: int) -> dict[int, list[str]]:
    """Play histories, of the sources as they are: the first ones, and those of docs/simulation.md, as `make test`."""
    from tests.simulation.campaign import play, quiet
    from tests.simulation.mutants import known_seeds

    quiet()
    calls, found = Calls(), {}
    for seed in sorted({*range(many), *known_seeds(Path("docs/simulation.md").read_text()).values()}):
        with calls.noted() as called:
            error, _ = play(seed)
        if error is None:
            found[seed] = sorted(called)
    return found


def play_histories(seeds: list[int]) -> str | None:
    """What the first history says that something is violated in, or that breaks."""
    from tests.simulation.campaign import play, quiet

    quiet()
    signal.signal(signal.SIGALRM, _too_long)
    for seed in seeds:
        signal.alarm(_HISTORY)
        try:
            error, _ = play(seed)
        except Exception as broken:
            error = f"{type(broken).__name__}: {broken}"
        if error is not None:
            return f"history {seed}: {error}"
    return None


def _too_long(*_: object) -> NoReturn:
    raise TimeoutError("a history didn't end")


JOBS = {one.__name__: one for one in (note_tests, run_tests, note_histories, play_histories)}


def _in_child(job: dict[str, Any], into: int) -> NoReturn:
    """Answer a job; what imports or runs differently ends this process only."""
    os.setpgid(0, 0)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    try:
        answer = {"answer": JOBS[job["do"]](job["of"])}
    except BaseException as error:  # such as a module that can't be imported with a change
        answer = {"answer": f"{type(error).__name__}: {error}"}
    with os.fdopen(into, "w") as pipe:
        json.dump(answer, pipe)
    os._exit(0)


def _answered(job: dict[str, Any]) -> str:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _in_child(job, writing)
    os.close(writing)
    ends, got = time.monotonic() + job["seconds"], b""
    while select.select([reading], [], [], max(ends - time.monotonic(), 0))[0]:
        part = os.read(reading, 1 << 20)
        if not part:
            break
        got += part
    else:
        got = json.dumps({"answer": f"nothing within {job['seconds']} s"}).encode()
    os.close(reading)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return got.decode() or json.dumps({"answer": "the process ended"})


def main() -> None:
    sys.path[:0] = [str(Path(path).absolute()) for path in _PATHS]
    for name in _WARM:
        importlib.import_module(name)
    for line in sys.stdin:
        print(_answered(json.loads(line)), flush=True)


if __name__ == "__main__":
    main()
