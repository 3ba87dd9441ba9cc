"""The ranges of the package's metadata are what `make matrix` tests, and docs/production.md says the same."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import pytest

from ..matrix import __main__ as matrix

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def _minors(bounds: str) -> set[str]:
    """The minor releases of a range such as `>=3.2,<3.4`."""
    found = re.fullmatch(r".*>=3\.(\d+),<3\.(\d+)", bounds)
    assert found is not None, bounds
    return {f"3.{minor}" for minor in range(int(found[1]), int(found[2]))}


def test_each_airflow_and_each_python_of_the_ranges_is_tested_together() -> None:
    (airflow,) = (one for one in PROJECT["dependencies"] if re.match(r"apache-airflow[^-]", one))
    pairs = {(one.airflow, one.python) for one in matrix.COMBINATIONS}
    assert pairs == {(a, p) for a in _minors(airflow) for p in _minors(PROJECT["requires-python"])}


def test_the_page_names_each_of_them() -> None:
    page = (ROOT / "docs" / "production.md").read_text()
    rows = {name: re.search(rf"^\| {name} \| ([^|]+)", page, re.MULTILINE) for name in ("Airflow", "Python")}
    for one in matrix.COMBINATIONS:
        for name, release in (("Airflow", one.airflow), ("Python", one.python)):
            found = rows[name]
            assert found is not None
            assert re.search(rf"\b{re.escape(release)}\b", found[1]), (name, release)


def test_a_combination_whose_python_is_not_here_is_not_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    said = matrix._result(matrix.Combination("3.3", "3.11"), ())
    assert said == "not run: there is no Python 3.11 on PATH or among pyenv's"


def test_a_command_that_pyenv_has_switched_off_is_no_interpreter(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    here = ".".join(map(str, sys.version_info[:2]))
    off, on = tmp_path / "shims" / f"python{here}", tmp_path / "versions" / f"{here}.1" / "bin" / "python"
    for file, text in ((off, "#!/bin/sh\nexit 127\n"), (on, f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')):
        file.parent.mkdir(parents=True)
        file.write_text(text)
        file.chmod(0o755)
    monkeypatch.setenv("PATH", f"{off.parent}:/bin:/usr/bin")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    assert matrix._interpreter(here) == str(on)
