"""Reads and writes tables with Spark and an earlier Hudi, in a process that has no jar of Sluice's."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.ivy import ensure

from sluice import runtime
from sluice.local.home import SluiceHome

RELEASES = ("0.15.0", "1.0.2", "1.1.1")
_FOLDER = Path(__file__).parent


def bundle(home: SluiceHome, release: str) -> Path:
    """The jar of a release, fetched if it isn't there; for 1.2 the one that Sluice itself has."""
    if release not in RELEASES:
        (own,) = (runtime.home() / "class-paths" / "spark").glob("hudi-spark*-bundle*.jar")
        return own
    (jar,) = ensure(home, f"hudi-{release}", Path(__file__).with_name("ivy.xml"), ("jar",)).glob("*.jar")
    return jar


def read(jar: Path, tables: Sequence[Path], columns: str) -> dict[str, list[list[object]] | str]:
    """What Spark with this bundle reads: by table its rows, or the first line of the error.

    Args:
        jar: the bundle.
        tables: the tables' base paths.
        columns: the columns of the rows, as Spark SQL.
    """
    found: dict[str, list[list[object]] | str] = json.loads(_run("read", str(jar), columns, *map(str, tables)))
    return found


def append(
    jar: Path, table: Path, ddl: str, commits: Sequence[Sequence[Sequence[object]]], options: dict[str, str]
) -> None:
    """Commit rows by Spark's data source for Hudi.

    Args:
        jar: the bundle.
        table: the table's base path.
        ddl: the rows' columns and types.
        commits: of each commit its rows.
        options: the data source's options.
    """
    _run("append", str(jar), str(table), ddl, given=json.dumps({"commits": commits, "options": options}))


def _run(script: str, *arguments: str, given: str = "") -> str:
    """The last line that one of this folder's scripts prints."""
    command = [sys.executable, str(_FOLDER / f"{script}.py"), *arguments]
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    return (done.stdout.splitlines() or [""])[-1]
