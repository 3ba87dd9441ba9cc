"""Runs the tests of Airflow's side on each combination of Airflow and Python, or on those that are named.

Each has an environment in SLUICE_HOME, made by uv when it is first needed, with the packages of the lock file as far as
that Airflow takes them. A combination whose Python isn't on this machine is not run, and the table says so.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path

from sluice.local.home import SluiceHome

_TOP = Path(__file__).resolve().parents[2]
_UV = str(Path(sys.executable).with_name("uv"))
_OF_AWS = ("glue", "msk", "s3")  # extras that tests expect not to be there, or have in a separate folder
_UNIT = ("tests/unit",)
_AIRFLOW = ("tests/airflow",)  # among them whole DAG runs, in a real Airflow
# What Airflow says of the packages that it needs leaves these out. Its published constraints have SQLAlchemy 2.0.
_OLDER = {"3.2": ("sqlalchemy<2.1",)}


@dataclass(frozen=True)
class Combination:
    """A minor release of Airflow on one of Python."""

    airflow: str
    python: str

    @property
    def name(self) -> str:
        return f"{self.airflow}-py{self.python}"

    @property
    def constraints(self) -> str:
        return "\n".join((f"apache-airflow=={self.airflow}.*", *_OLDER.get(self.airflow, ()), ""))


COMBINATIONS = tuple(Combination(airflow, python) for airflow in ("3.2", "3.3") for python in ("3.11", "3.12", "3.13"))


@dataclass(frozen=True)
class Result:
    """What came of a combination's tests."""

    airflow: str
    passed: int
    skipped: int
    failed: list[str]

    def __str__(self) -> str:
        more = f", {self.skipped} skipped" if self.skipped else ""
        return f"Airflow {self.airflow}: {self.passed} passed, {len(self.failed)} failed{more}"


def main() -> int:
    names = [one.name for one in COMBINATIONS]
    parser = argparse.ArgumentParser(prog="python -m tests.matrix", description=__doc__)
    listed = ", ".join(names)
    parser.add_argument("names", nargs="*", default=names, choices=[*names, names], metavar="NAME", help=listed)
    parser.add_argument("--unit", action="store_true", help="only the tests that start no process")
    arguments = parser.parse_args()
    tests = _UNIT if arguments.unit else (*_UNIT, *_AIRFLOW)
    results: dict[str, Result | str] = {}
    for one in (one for one in COMBINATIONS if one.name in arguments.names):
        print(f"==> Airflow {one.airflow} on Python {one.python}", flush=True)
        results[one.name] = _result(one, tests)
    print()
    for name, result in results.items():
        print(f"{name:<12} {result}")
        for test in result.failed if isinstance(result, Result) else ():
            print(f"{'':<12} {test}")
    wrong = [name for name, one in results.items() if isinstance(one, Result) and (one.failed or not one.passed)]
    return 1 if wrong else 0


def _result(one: Combination, tests: tuple[str, ...]) -> Result | str:
    interpreter = _interpreter(one.python)
    if interpreter is None:
        return f"not run: there is no Python {one.python} on PATH or among pyenv's"
    return _run(_environment(one, interpreter), tests)


def _interpreter(version: str) -> str | None:
    """A Python of this release that can be run: pyenv's commands on PATH may be those of a release that is off."""
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    candidates = [shutil.which(f"python{version}"), *map(str, root.glob(f"versions/{version}.*/bin/python"))]
    ask = "import sys; print('.'.join(map(str, sys.version_info[:2])))"
    for candidate in filter(None, candidates):
        done = subprocess.run([candidate, "-c", ask], capture_output=True, text=True, check=False)
        if done.returncode == 0 and done.stdout.strip() == version:
            return candidate
    return None


def _environment(one: Combination, interpreter: str) -> Path:
    """The folder of the combination's environment. It is made anew where what it is made from has changed."""
    home = SluiceHome.from_env().create()
    folder = home.root / "matrix" / one.name
    project, lock = _TOP / "pyproject.toml", _TOP / "requirements.lock"
    made_from = hashlib.sha256(project.read_bytes() + lock.read_bytes() + one.constraints.encode()).hexdigest()
    stamp = folder / "made-from"
    if stamp.is_file() and stamp.read_text() == f"{made_from} {_TOP}":
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(exist_ok=True)
    subprocess.run([_UV, "venv", "--quiet", "--python", interpreter, folder], check=True)
    packages, constraints = folder / "requirements.txt", folder / "constraints.txt"
    shutil.copy(lock, packages)  # uv prefers the versions of the file that it is to write
    constraints.write_text(one.constraints)
    extras = tomllib.loads(project.read_text())["project"]["optional-dependencies"]
    asked = [f"--extra={name}" for name in extras if name not in _OF_AWS]
    compile_ = [_UV, "pip", "compile", "--quiet", *asked, "--python-version", one.python]
    subprocess.run([*compile_, "--constraint", constraints, "--output-file", packages, project], check=True)
    into = [_UV, "pip", "install", "--quiet", "--python", folder]
    subprocess.run([*into, "--compile-bytecode", "--requirement", packages], check=True)
    subprocess.run([*into, "--no-deps", "--no-build-isolation", "--editable", _TOP], check=True)
    stamp.write_text(f"{made_from} {_TOP}")
    return folder


def _run(folder: Path, tests: tuple[str, ...]) -> Result:
    python = folder / "bin" / "python"
    path = os.pathsep.join([str(python.parent), os.environ.get("PATH", os.defpath)])
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    with tempfile.TemporaryDirectory(prefix="sluice-matrix-") as reports:
        report = Path(reports, "report.xml")
        command = [python, "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", f"--junit-xml={report}", *tests]
        subprocess.run(command, cwd=_TOP, env={**environment, "PATH": path}, check=False)
        cases = [*ET.parse(report).iter("testcase")] if report.is_file() else []
    failed = [case for case in cases if case.find("failure") is not None or case.find("error") is not None]
    skipped = sum(case.find("skipped") is not None for case in cases)
    ask = "from importlib.metadata import version; print(version('apache-airflow'))"
    airflow = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True).stdout.strip()
    names = [f"{case.get('classname')}.{case.get('name')}" for case in failed]
    return Result(airflow, len(cases) - len(failed) - skipped, skipped, names)


if __name__ == "__main__":
    sys.exit(main())
