"""Where the embedded runtime keeps its files: one folder, safe to delete as a whole."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


def project_root() -> Path:
    """The folder that holds `pyproject.toml`, `dags/` and `plugins/`.

    `SLUICE_PROJECT` overrides it, for an installation that is not editable.
    """
    configured = os.environ.get("SLUICE_PROJECT")
    return Path(configured).resolve() if configured else Path(__file__).resolve().parents[3]


@dataclass(frozen=True, slots=True)
class SluiceHome:
    """The folders below `SLUICE_HOME`. A value: creating it touches no disk."""

    root: Path

    @classmethod
    def from_env(cls) -> SluiceHome:
        """`SLUICE_HOME`, or `.sluice` in the project's folder."""
        configured = os.environ.get("SLUICE_HOME")
        return cls(Path(configured).resolve() if configured else project_root() / ".sluice")

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
