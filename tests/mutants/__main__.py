"""Changes of the core that tests have to notice, a sample by seed: `python -m tests.mutants --seed 7 --sample 60`."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .changes import Change, change, places

_TOP = Path(__file__).resolve().parents[2]
_LISTED = Path(__file__).with_name("survivors.toml")
_KEPT = _TOP / "build" / "mutants.json"
_HISTORIES = 600  # as many as `make test` plays, beside those of docs/simulation.md
_TESTS = ("tests/unit/test_*.py", "tests/simulation/test_*.py")
_NOT = ("test_no_history_loses_or_doubles_a_row", "test_a_rule_that_is_taken_out_is_missed")  # histories by seed
_AT_ONCE = 20  # test files
_LONGEST = 900  # seconds that all tests of a change may take


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6), help="of the sample")
    parser.add_argument("--sample", type=int, default=60, help="how many changes are tried")
    parser.add_argument("--only", default="", metavar="PATH", help="only in files whose path contains this")
    parser.add_argument("--at-least", type=float, default=90, metavar="PERCENT", help="of them have to be noticed")
    parser.add_argument("--listed", action="store_true", help="try the changes of survivors.toml, and no others")
    arguments = parser.parse_args()
    with _copy() as copy:
        runner = Runner(copy)
        known = Known.of(copy, runner)
        code = _try(arguments, copy, runner, known)
        runner.end()
    return code


def _try(arguments: argparse.Namespace, copy: Path, runner: Runner, known: Known) -> int:
    root = copy / "plugins" / "sluice"
    listed = {(one["module"], one["function"], one["was"], one["now"]): one for one in _survivors()}
    print(f"seed {arguments.seed}, {arguments.sample} changes", flush=True)
    for do, of in (("run_tests", known.quickest()), ("play_histories", list(range(5)))):
        if (wrong := runner.answer(do, of)) is not None:
            raise SystemExit(f"Without any change, {wrong}. Tests have to pass before changes can be tried.")
    noticed, survived, excused = 0, [], 0
    began = time.monotonic()
    for tried in _sample(root, arguments, listed):
        if tried.identity in listed and not arguments.listed:
            excused += 1
            continue
        by = _notice(tried, root, runner, known)
        noticed += by is not None
        if by is None:
            survived.append(tried)
        _tell(tried, by)
    rate = 100 * noticed / max(noticed + len(survived), 1)
    print(
        f"\n{noticed} noticed, {len(survived)} survived, {excused} listed in {_LISTED.name}: {rate:.0f} %, "
        f"in {(time.monotonic() - began) / 60:.0f} minutes"
    )
    for tried in survived:
        _tell(tried, None)
    return 0 if rate >= arguments.at_least else 1


def _sample(root: Path, arguments: argparse.Namespace, listed: dict[Any, Any]) -> Iterator[Change]:
    modules = {module for module, *_ in listed}
    found = [place for place in places(root) if arguments.only in place.module]
    if arguments.listed:
        made = (change(root, place) for place in found if place.module in modules)
        yield from (one for one in made if one is not None and one.identity in listed)
        return
    random.Random(arguments.seed).shuffle(found)
    made = (change(root, place) for place in found)
    drawn = (one for one in made if one is not None)
    yield from (one for _, one in zip(range(arguments.sample), drawn, strict=False))


def _tell(tried: Change, by: str | None) -> None:
    place = tried.place
    print(
        f"{'noticed ' if by else 'SURVIVED'} {place.module}:{place.line} {place.function}\n"
        f"    - {tried.was}\n    + {tried.now}" + (f"\n    by {by[:160]}" if by else ""),
        flush=True,
    )


def _notice(tried: Change, root: Path, runner: Runner, known: Known) -> str | None:
    """The test or history that notices a change, the cheapest tests first."""
    file = root / tried.place.module
    before = file.read_text()
    file.write_text(tried.code)
    try:
        tests, seeds = known.calling(tried)
        by = runner.answer("run_tests", tests) if tests else None
        return by or (runner.answer("play_histories", seeds) if seeds else None)
    finally:
        file.write_text(before)


def _survivors() -> list[dict[str, str]]:
    return tomllib.loads(_LISTED.read_text()).get("survivor", []) if _LISTED.exists() else []


class Runner:
    """The process that runs tests in the copy; see `runner`."""

    def __init__(self, copy: Path) -> None:
        command = [sys.executable, "-B", "tests/mutants/runner.py"]
        self._process = subprocess.Popen(
            command, cwd=copy, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=_environment(copy)
        )

    def answer(self, do: str, of: Any, seconds: int = _LONGEST) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": do, "of": of, "seconds": seconds}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"The process that runs the tests has ended with {self._process.wait()}.")
        return json.loads(line)["answer"]

    def end(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


def _environment(copy: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(copy / "plugins"), "SLUICE_PROJECT": str(copy)}


@contextmanager
def _copy() -> Iterator[Path]:
    """A copy of the sources, which changes instead of them."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=_TOP,
        check=True,
        capture_output=True,
        text=True,
    )
    with tempfile.TemporaryDirectory(prefix="sluice-mutants-") as folder:
        for name in filter(None, listing.stdout.split("\0")):
            if (_TOP / name).is_file():
                Path(folder, name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(_TOP / name, Path(folder, name))
        yield Path(folder)


@dataclass
class Known:
    """What the tests and histories call, of the sources as they are.

    It is measured once, and then again for what has changed: it takes a few minutes.
    """

    sources: str = ""
    files: dict[str, Any] = field(default_factory=dict)
    histories: dict[str, list[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, copy: Path, runner: Runner) -> Known:
        known = cls(**json.loads(_KEPT.read_text())) if _KEPT.exists() else cls()
        shared = [*copy.glob("plugins/**/*.py"), *copy.glob("tests/*.py"), *copy.glob("tests/simulation/[!t]*.py")]
        sources = _digest(shared)
        if known.sources != sources:
            known = cls(sources)
        there = {
            file.relative_to(copy).as_posix(): _digest([file]) for one in _TESTS for file in sorted(copy.glob(one))
        }
        new = [file for file, digest in there.items() if known.files.get(file, {}).get("digest") != digest]
        known.files = {file: found for file, found in known.files.items() if file in there and file not in new}
        for some in (new[at : at + _AT_ONCE] for at in range(0, len(new), _AT_ONCE)):
            print(f"noting what the tests call, from {some[0]} on", flush=True)
            noted = runner.answer("note_tests", some, 3600)
            if not noted:
                raise SystemExit(f"None of the tests from {some[0]} on passes, without any change.")
            for file in some:
                tests = {one: was for one, was in noted.items() if one.partition("::")[0] == file}
                known.files[file] = {"digest": there[file], "tests": tests}
            known.keep()
        if not known.histories:
            print(f"noting what {_HISTORIES} histories call", flush=True)
            known.histories = runner.answer("note_histories", _HISTORIES, 3600)
        known.keep()
        return known

    def keep(self) -> None:
        _KEPT.parent.mkdir(exist_ok=True)
        _KEPT.write_text(json.dumps(vars(self)))

    def calling(self, tried: Change) -> tuple[list[str], list[int]]:
        """The tests that call what changes, the quickest first, and the seeds of such histories.

        What is outside of functions is looked at by each test that calls anything of the file, or is named like it.
        """
        place = tried.place
        key = f"{place.module}:" if place.first is None else f"{place.module}:{place.first}"
        of_file = place.first is None

        def calls(called: list[str]) -> bool:
            return any(one.startswith(key) for one in called) if of_file else key in called

        like = f"test_{Path(place.module).stem}"
        tests = [
            (seconds, one)
            for file, found in self.files.items()
            for one, (seconds, called) in found["tests"].items()
            if not any(left_out in one for left_out in _NOT)
            and (calls(called) or (of_file and Path(file).stem.startswith(like)))
        ]
        seeds = [int(seed) for seed, called in self.histories.items() if calls(called)]
        return [one for _, one in sorted(tests)], seeds

    def quickest(self) -> list[str]:
        """Of each file the quickest test."""
        of_files = [found["tests"] for found in self.files.values() if found["tests"]]
        return [min(tests, key=lambda one: tests[one][0]) for tests in of_files]


def _digest(files: list[Path]) -> str:
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in sorted(files))).hexdigest()


if __name__ == "__main__":
    sys.exit(main())
