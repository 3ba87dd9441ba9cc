"""A pipeline that writes files, and what readers find who know nothing of Sluice: they list folders."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import pytest

from sluice.coordinator import Started
from sluice.errors import ActionRequiredError

from .drivers import Job
from .flow import Flow
from .kafka import Sent
from .processes import Pause
from .readers import DDL


class FileFlow(Flow):
    """One pipeline with topic, control topic and a folder of files."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args)
        files = {"path": str(self.path), "schema": DDL, "codec": "deflate"}  # fastavro has no snappy here
        self._settings["sink"] = {"files": files}
        self.set(**settings)

    @property
    def table(self) -> str:
        return self.pipeline.table_id

    @property
    def topics(self) -> Path:
        """The folder that readers list."""
        return self.path / "topics"

    def files(self) -> dict[str, Path]:
        """What a reader finds, by the paths below the topics' folder."""
        found = sorted(file for file in self.topics.rglob("*") if file.is_file())
        return {file.relative_to(self.topics).as_posix(): file for file in found}

    def rows(self, *, metadata: bool) -> Counter[tuple[int, str]]:
        return Counter(pair for file in self.files().values() for pair in rows_of(file))

    def log(self) -> list[dict[str, Any]]:
        """The records of the log, by their numbers."""
        return [json.loads(file.read_text()) for file in sorted((self.path / "_sluice" / "log").glob("*"))]

    def commits(self) -> list[dict[str, str]]:
        return [{**record["extra"], "instant": record["transaction"]} for record in self.log()]

    def left(self) -> list[str]:
        """What lies in Sluice's own folder beside the log: intervals under way, and what nobody has swept up."""
        own = self.path / "_sluice"
        lasting = [file for name in ("pending", "aborting") for file in (own / name).iterdir()]
        return sorted(file.name for file in (*lasting, *own.glob("[0-9]*")))

    def committed(self) -> list[int]:
        """The numbers of the intervals that are said to be whole."""
        return sorted(int(file.name) for file in (self.path / "_sluice" / "committed").iterdir())

    def _rows_of(self, covered: Sequence[Sent]) -> Counter[tuple[int, str]]:
        return Counter((s.id, s.value) for s in covered)

    @contextmanager
    def reader(self) -> Iterator[Reader]:
        """Somebody who lists the topics' folder all the time."""
        reader = Reader(self.topics)
        reader.start()
        try:
            yield reader
        finally:
            reader.stop()


class Loads:
    """A pipeline from a folder of files into files of another one, of rows with an `id` and a `v`."""

    def __init__(self, flow: FileFlow) -> None:
        self.flow = flow

    def rows(self) -> list[tuple[Any, Any]]:
        return sorted(self.flow.rows(metadata=False).elements())

    def ids(self) -> list[int]:
        return [number for number, _ in self.rows()]

    def interval(self) -> list[int]:
        self.flow.interval()
        return self.ids()

    def refused(self) -> str:
        with pytest.raises(ActionRequiredError) as caught:
            self.flow.coordinator().start(self.flow.run())
        return str(caught.value)

    def fails(self, started: Started) -> str:
        job = self.flow.write(started)
        assert job.wait() != 0
        return job.text()

    @contextmanager
    def after_the_read(self, started: Started) -> Iterator[Job]:
        """Something happens between the read of an interval and the check after that; yields the write job."""
        pause = Pause("participant.after_write", self.flow.folder)
        job = self.flow.write(started, failpoint=pause.failpoint)
        pause.wait(job)
        yield job
        pause.release()


class Reader(threading.Thread):
    """Lists a folder again and again, and keeps the distinct listings: names and sizes."""

    def __init__(self, folder: Path) -> None:
        super().__init__(daemon=True)
        self._folder = folder
        self._end = threading.Event()
        self.seen: list[frozenset[tuple[str, int]]] = []
        self.listings = 0

    def run(self) -> None:
        while not self._end.wait(0.0005):
            found = frozenset(self._list())
            self.listings += 1
            if not self.seen or self.seen[-1] != found:
                self.seen.append(found)

    def _list(self) -> Iterator[tuple[str, int]]:
        for file in self._folder.rglob("*"):
            if file.is_file():
                yield file.relative_to(self._folder).as_posix(), file.stat().st_size

    def stop(self) -> None:
        self._end.set()
        self.join()


def rows_of(file: Path) -> list[tuple[int, str]]:
    """The rows of an Avro file, by a reader that shares no code with what wrote it."""
    return rows_in(file.read_bytes())


def rows_in(content: bytes) -> list[tuple[int, str]]:
    return [(row["id"], row["v"]) for row in fastavro.reader(BytesIO(content))]
