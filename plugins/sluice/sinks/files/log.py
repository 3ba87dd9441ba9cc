"""The log of a table's intervals: a file for each, numbered from 1 without a gap, in the order of their commits.

An interval's number is the one after the last that was there when its offsets were compared with the table's. Making
the file fails where there is one already: of two commits that rest on the same offsets one wins.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from sluice.errors import ActionRequiredError, RetryableError
from sluice.sinks.files.names import DataFile, Layout, log_entry

_VERSION = 1


@dataclass(frozen=True)
class Record:
    """One committed interval.

    Attributes:
        instant: the transaction.
        layout: how its files become visible.
        data_format: of its files.
        schema: their columns as Spark DDL.
        rows: how many rows they have.
        files: the files.
        extra: what the coordinator has given: offsets and its note.
        voids: an interval that was rolled back, and which this entry keeps from being committed in its place. Such an
            entry stands for no interval; `instant` is then no earlier than those before it, by which others are found.
    """

    instant: str
    layout: Layout
    data_format: str
    schema: str
    rows: int
    files: Sequence[DataFile] = ()
    extra: Mapping[str, str] = field(default_factory=dict)
    voids: str = ""

    def to_json(self) -> bytes:
        """As it stands in the log."""
        names = {"instant": "transaction", "data_format": "format"}
        own = {names.get(k, k): v for k, v in vars(self).items() if k != "files" and (v or k != "voids")}
        return json.dumps({"version": _VERSION, **own, "files": [asdict(one) for one in self.files]}).encode()

    @classmethod
    def void(cls, position: str, instant: str) -> Record:
        """An entry that stands for no interval, and takes the number of one that was rolled back.

        Args:
            position: the instant after which it comes in the log.
            instant: the interval that was rolled back.
        """
        return cls(position, "connect", "", "", 0, voids=instant)

    @classmethod
    def of_json(cls, text: bytes, path: str) -> Record:
        """Read a file of the log.

        Args:
            text: its content.
            path: where it is, for errors.

        Raises:
            ActionRequiredError: it is none that this release can read.
        """
        try:
            found: dict[str, Any] = json.loads(text)
            if found["version"] != _VERSION:
                raise ValueError(f"version {found['version']}")
            files = tuple(DataFile(**one) for one in found["files"])
            return cls(
                found["transaction"],
                found["layout"],
                found["format"],
                found["schema"],
                found["rows"],
                files,
                found["extra"],
                found.get("voids", ""),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise ActionRequiredError(
                "A file of the table's log can't be read.",
                next_step="put it back from a backup, or use the release that wrote it; without it nobody knows which "
                "offsets are loaded.",
                path=path,
                reason=f"{type(error).__name__}: {error}",
            ) from error


class ReadsFiles(Protocol):
    """What the log asks of a table's folder; see `sluice.sinks.files.storage.Storage`."""

    def size(self, path: str) -> int | None:
        """A file's size in bytes; None if there is no file."""
        ...

    def read(self, path: str) -> bytes:
        """A file's content."""
        ...


class IntervalLog:
    """The log of one table."""

    def __init__(self, storage: ReadsFiles) -> None:
        self._storage = storage
        self._seen = 0  # the last number that was found

    def last(self) -> int:
        """The last interval's number, 0 if there is none.

        Looked for by doubling and halving, from the one that was found before: a listing would take longer with each
        interval of the table's life. Only the last of a log is ever taken out, so where one is all before it are.
        """
        there, step = self._seen if self._seen and self._has(self._seen) else 0, 1
        while self._has(there + step):
            there, step = there + step, step * 2
        beyond = there + step
        while beyond - there > 1:
            middle = (there + beyond) // 2
            there, beyond = (middle, beyond) if self._has(middle) else (there, middle)
        self._seen = there
        return there

    def read(self, number: int) -> Record:
        """An interval's record.

        Raises:
            RetryableError: there is none, or none any more.
        """
        path = log_entry(number)
        try:
            return Record.of_json(self._storage.read(path), path)
        except FileNotFoundError as error:
            raise RetryableError(
                "A file of the table's log has gone while it was looked at.",
                next_step="the step is retried.",
                path=path,
            ) from error

    def newest_first(self, last: int | None = None) -> Iterator[tuple[int, Record]]:
        """The intervals with their numbers, without entries that stand for none.

        Args:
            last: the number to begin with, by default the last one.
        """
        for number in range(self.last() if last is None else last, 0, -1):
            record = self.read(number)
            if not record.voids:
                yield number, record

    def find(self, instant: str) -> tuple[int, Record] | None:
        """An interval's number and record; None if it isn't committed.

        Instants grow with the numbers: each is later than all that stood in the log when it was made, and of those that
        are open at the same time only the last can be committed. The one that is asked for is mostly near the end.
        """
        there, high = 1, self.last()
        step = 1
        while high >= there:
            number = max(there, high - step + 1) if step else (there + high) // 2
            record = self.read(number)
            if record.instant == instant and not record.voids:
                return number, record
            if record.instant >= instant:
                high, step = number - 1, step * 2
            else:
                there, step = number + 1, 0
        return None

    def _has(self, number: int) -> bool:
        return self._storage.size(log_entry(number)) is not None
