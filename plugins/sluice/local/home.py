"""Where the embedded runtime keeps its files: one folder, safe to delete as a whole."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path

from sluice import runtime


@dataclass(frozen=True, slots=True)
class SluiceHome:
    """The folders below `SLUICE_HOME`. A value: creating it touches no disk."""

    root: Path

    @classmethod
    def from_env(cls) -> SluiceHome:
        """That of `sluice.runtime`."""
        return cls(runtime.home().resolve())

    @property
    def jars(self) -> Path:
        """Class paths, one folder for each: `spark`, `coordinator`, `local`, `broker`."""
        return self.root / "class-paths"

    @property
    def broker(self) -> Path:
        """The embedded broker's log segments, settings and pid file."""
        return self.root / "broker"

    @property
    def airflow(self) -> Path:
        """`AIRFLOW_HOME`: the SQLite database, keys and task logs."""
        return self.root / "airflow"

    @property
    def lake(self) -> Path:
        """The Hudi tables of local pipelines."""
        return self.root / "lake"

    @property
    def logs(self) -> Path:
        """Output of the processes that the runtime starts."""
        return self.root / "logs"

    @property
    def archive(self) -> Path:
        """Class-data-sharing archives, which halve the start-up of Spark's JVM."""
        return self.root / "archive"

    @property
    def java(self) -> Path:
        """What Java needs besides itself: the trust store made from this machine's authorities."""
        return self.root / "java"

    def create(self) -> SluiceHome:
        """Make the folders, readable by their owner only, and return this home."""
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        for folder in (self.broker, self.airflow, self.lake, self.logs, self.archive, self.java):
            folder.mkdir(exist_ok=True)
        return self

    @contextmanager
    def locked(self, name: str) -> Iterator[None]:
        """Hold a lock of this home across processes: two `up`, or two test workers, take turns.

        The kernel drops it when the holder dies, so it can't go stale.
        """
        self.create()
        with (self.root / f"{name}.lock").open("w") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield


def ensure_dags(project: Path) -> None:
    """Put the files of a DAGs folder into a project that has none; a checkout has them, and a wheel brings them.

    A folder that is there stays as it is: its pipelines are the user's.
    """
    dags = project / "dags"
    if dags.exists():
        return
    partial = project / f"dags.{os.getpid()}"
    with _dags() as ours:
        shutil.copytree(ours, partial, ignore=shutil.ignore_patterns("__pycache__"))
    partial.rename(dags)


def write_dag_files(folder: Path) -> list[Path]:
    """Write the modules that make DAGs of pipeline files into a DAGs folder, and make the folders that they read.

    Args:
        folder: Airflow's DAGs folder, or a folder in it. Modules of an earlier release are replaced.

    Returns:
        The modules.
    """
    for name in ("pipelines", "workers"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    with _dags() as ours:
        return [Path(shutil.copy(module, folder)) for module in sorted(ours.glob("sluice_*.py"))]


def _dags() -> AbstractContextManager[Path]:
    """The files of a DAGs folder that come with this package."""
    checkout = runtime.checkout()
    return nullcontext(checkout / "dags") if checkout else as_file(files("sluice.local") / "dags")
