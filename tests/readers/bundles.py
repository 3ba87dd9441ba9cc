"""Reads tables with Spark and Hudi's bundle of an earlier release, in a process that has no jar of Sluice's."""

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
_SCRIPT = Path(__file__).with_name("read.py")


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
    command = [sys.executable, str(_SCRIPT), str(jar), columns, *map(str, tables)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, list[list[object]] | str] = json.loads(done.stdout.splitlines()[-1])
    return found
