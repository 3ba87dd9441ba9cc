"""The pipeline files that Connect's API writes, each with the configuration that it was made of. Without Airflow.

Such a file begins with a line that has the configuration, and a checksum of it and of all lines below. A file without
that line, or one that was edited since, is a person's, and is left alone.

A file is complete before it has its name: it is written under another one, which no reader of pipeline files looks
for. The name is given by a link where the file is new, so that of two who make it one gets to know that it is there;
and by a rename where it changes, so that who reads it meanwhile reads the old one or the new one. Changes exclude each
other by a lock on a file of the folder, which ends with its process.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Final, Literal, get_args
from uuid import uuid4

from sluice.pipeline.load import BOUNDS, load_pipelines
from sluice.pipeline.model import Pipeline
from sluice.untrusted import json_of

InitialState = Literal["RUNNING", "PAUSED", "STOPPED"]
"""What a connector is at first (KIP-980)."""
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,189}")
_LOCK = ".sluice-connect.lock"
_HEAD: Final = "# Written by Kafka Connect's REST API, which changes and deletes it. To edit it, take both lines out.\n"
_MARK: Final = "# connect: "


@dataclass(frozen=True)
class Written:
    """What the API wrote.

    Attributes:
        config: the configuration as it was sent.
        state: what the connector was to be at first.
        keys: the pipeline file's own text.
    """

    config: Mapping[str, str] = field(repr=False)
    state: InitialState
    keys: str = field(repr=False)

    def text(self) -> str:
        """The whole file."""
        given = {"config": dict(self.config), "initial_state": self.state, "sha256": self._checksum()}
        return f"{_HEAD}{_MARK}{json.dumps(given)}\n{self.keys}"

    @classmethod
    def of_text(cls, text: str) -> Written | None:
        """What a file has; None if it is a person's."""
        head, _, rest = text.removeprefix(_HEAD).partition("\n")
        if not text.startswith(_HEAD + _MARK):
            return None
        try:
            given = json_of(head.removeprefix(_MARK))
        except ValueError:
            return None
        config = given.get("config") if isinstance(given, dict) else None
        if not isinstance(config, dict) or given.get("initial_state") not in get_args(InitialState):
            return None
        found = cls({key: str(value) for key, value in config.items()}, given["initial_state"], rest)
        return found if given.get("sha256") == found._checksum() else None

    def _checksum(self) -> str:
        return sha256(json.dumps([dict(self.config), self.state, self.keys]).encode()).hexdigest()


class ConnectorFiles:
    """The files of one folder.

    Attributes:
        folder: one of the folders of pipeline files.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, name: str) -> Path | None:
        """Where a connector's file is, or would be; None if the name is none of a connector's."""
        return self._file(name) if _NAME.fullmatch(name) else None

    def read(self, name: str) -> Written | None:
        """What was written for a connector; None if there is no file, or it is a person's.

        Raises:
            OSError: it can't be read.
        """
        path = self.path(name)
        try:
            if path is None:
                return None
            with path.open("rb") as file:
                text = file.read(BOUNDS.characters + 1)
            return Written.of_text(text.decode())
        except (FileNotFoundError, UnicodeDecodeError):
            return None

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other changes of the folder's files out, also those of other API servers.

        Raises:
            OSError: the folder can't be written.
        """
        lock = os.open(self.folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def create(self, name: str, written: Written) -> Pipeline:
        """Write a file that isn't there, and return its pipeline.

        Raises:
            FileExistsError: it is there.
            PipelineFileError: what was made is no pipeline file.
            OSError: the folder can't be written.
        """
        with self._complete(name, written) as (made, pipeline):
            os.link(made, self._file(name))
        return pipeline

    def replace(self, name: str, written: Written) -> Pipeline:
        """Write a file in another one's place, and return its pipeline.

        Raises:
            PipelineFileError: what was made is no pipeline file.
            OSError: the folder can't be written.
        """
        with self._complete(name, written) as (made, pipeline):
            made.replace(self._file(name))
        return pipeline

    def remove(self, name: str) -> None:
        """Take a file away.

        Raises:
            OSError: it isn't there, or the folder can't be written.
        """
        self._file(name).unlink()
        self._keep()

    @contextmanager
    def _complete(self, name: str, written: Written) -> Iterator[tuple[Path, Pipeline]]:
        """The file under another name, on the disk and loaded as Airflow will load it; gone after the block."""
        made = self.folder / f".{name}.{uuid4().hex}.tmp"
        try:
            with made.open("x", encoding="utf-8") as file:
                file.write(written.text())
                file.flush()
                os.fsync(file.fileno())
            (pipeline,) = load_pipelines(made)
            yield made, pipeline
            self._keep()
        finally:
            with suppress(FileNotFoundError):  # it has its name now
                made.unlink()

    def _file(self, name: str) -> Path:
        return self.folder / f"{name}.yaml"

    def _keep(self) -> None:
        """Wait until the folder's names are on the disk."""
        folder = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
