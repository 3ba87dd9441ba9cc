"""The log of a table's intervals: one file per interval, numbered from 1 without gaps, in the order of their commits.

An interval gets the number after the log's last one at the time when its offsets were compared with the table's.
Creating the file fails if it exists: of two commits based on the same offsets, only one succeeds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sluice.errors import ActionRequiredError, RetryableError
from sluice.sinks.files.options.names import DataFile, Layout, log_entry
from sluice.untrusted import first_mistake

_VERSION = 1
_IF_ANY = ("voids", "comments")  # are left out where there is nothing to say


@dataclass(frozen=True)
class Record:
    """One committed interval.

    Attributes:
        instant: the transaction.
        layout: how its files become visible.
        data_format: the format of its files.
        schema: the files' columns as Spark DDL.
        rows: the number of rows in the files.
        files: the files.
        extra: the coordinator's metadata: offsets and its note.
        comments: comments on columns, by the columns' names in lower case.
        voids: the instant of a rolled-back interval, whose commit this entry prevents by taking its number. Such an
            entry represents no interval; its `instant` is no earlier than the instants before it, since searches of
            the log rely on their order.
    """

    instant: str
    layout: Layout
    data_format: str
    schema: str
    rows: int
    files: Sequence[DataFile] = ()
    extra: Mapping[str, str] = field(default_factory=dict)
    voids: str = ""
    comments: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> bytes:
        """The record as the content of its file in the log."""
        names = {"instant": "transaction", "data_format": "format"}
        own = {names.get(k, k): v for k, v in vars(self).items() if k != "files" and (v or k not in _IF_ANY)}
        return json.dumps({"version": _VERSION, **own, "files": [asdict(one) for one in self.files]}).encode()

    @classmethod
    def void(cls, position: str, instant: str) -> Record:
        """An entry that represents no interval, and takes the number that a rolled-back interval would have got.

        Args:
            position: an instant that keeps the log's instants in order: the last one's, or the rolled-back interval's
                if that is later.
            instant: the rolled-back interval.
        """
        return cls(position, "connect", "", "", 0, voids=instant)

    @classmethod
    def of_json(cls, text: bytes, path: str) -> Record:
        """Read a file of the log.

        Args:
            text: its content.
            path: its path, for errors.

        Raises:
            ActionRequiredError: this release can't read it.
        """
        try:
            found = _Entry.model_validate_json(text)
        except ValidationError as error:
            raise ActionRequiredError(
                "A file of the table's log can't be read.",
                next_step="restore it from a backup, or use the release that wrote it; without it the loaded offsets "
                "are unknown.",
                path=path,
                reason=first_mistake(error, "the file"),
            ) from None
        return cls(
            found.transaction,
            found.layout,
            found.data_format,
            found.schema_ddl,
            found.rows,
            found.files,
            found.extra,
            found.voids,
            found.comments,
        )


class _Entry(BaseModel):
    """A file of the log, validated strictly: other programs may write to the log's folder, too."""

    model_config = ConfigDict(strict=True)

    version: Literal[1]
    transaction: str
    layout: Layout
    data_format: str = Field(alias="format")
    schema_ddl: str = Field(alias="schema")
    rows: int
    files: tuple[DataFile, ...]
    extra: dict[str, str]
    voids: str = ""
    comments: dict[str, str] = Field(default_factory=dict)


class ReadsFiles(Protocol):
    """A table's folder, as far as the log needs it; see `sluice.sinks.files.storage.Storage`."""

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
        self._seen = 0  # the last number found so far

    def last(self) -> int:
        """The last interval's number; 0 if there is none.

        Found by an exponential and then a binary search, beginning with the last result: a listing would take longer
        with every interval. The search is correct since only the last entry is ever taken out: if an entry exists, so
        do all before it.
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
            RetryableError: there is none, or it was taken out.
        """
        path = log_entry(number)
        try:
            return Record.of_json(self._storage.read(path), path)
        except FileNotFoundError as error:
            raise RetryableError(
                "A file of the table's log was removed while the log was being read.",
                next_step="the step is retried.",
                path=path,
            ) from error

    def newest_first(self, last: int | None = None) -> Iterator[tuple[int, Record]]:
        """The intervals with their numbers, without entries of voided intervals.

        Args:
            last: the number to begin with; the log's last by default.
        """
        for number in range(self.last() if last is None else last, 0, -1):
            record = self.read(number)
            if not record.voids:
                yield number, record

    def find(self, instant: str) -> tuple[int, Record] | None:
        """An interval's number and record; None if it isn't committed.

        Instants ascend with the numbers: a new instant is later than all instants in the log, and of several open
        intervals only the last can be committed. The search begins at the end, where the interval usually is.
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
