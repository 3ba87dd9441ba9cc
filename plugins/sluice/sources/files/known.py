"""A folder's files beside the entries of their log: which ones are new, and which have changed.

Both may be a million, so they are in a database on disk, which SQLite makes for the time of a START.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple, Self

from sluice.errors import ActionRequiredError
from sluice.sources.files.entries import Entry, Found, Logged

_BATCH = 10_000
_COLUMNS = "path, size, modified, id, start, end, head, tail, header"
_SAME = "(e.path = f.path AND e.size = f.size AND e.modified = f.modified AND e.id = f.id)"
_LISTED = f"EXISTS (SELECT 1 FROM entries e WHERE {_SAME})"
_COVERED = (
    "(e.at < coalesce((SELECT c.end FROM covered c WHERE c.part = e.part AND c.start <= e.at "
    "ORDER BY c.start DESC LIMIT 1), 0))"
)


class Compared(NamedTuple):
    """A file that isn't as its last entry says.

    Attributes:
        found: as it is now.
        before: the last entry of the file; None where it has none.
        displaced: the last entry under the file's name, where that is of another file which isn't in the folder now.
        partition: the log's partition that has the file's last entry, and will have its next ones: only there have they
            an order, however many partitions the log has by then. None where the file has no entry.
    """

    found: Found
    before: Entry | None
    displaced: Entry | None = None
    partition: int | None = None


class Known:
    """What a log and a folder have.

    Args:
        grows: whether a file is known by its id rather than by its name.
    """

    def __init__(self, *, grows: bool) -> None:
        self._key = "id" if grows else "path"
        self._grows = grows
        self._db = sqlite3.connect("", isolation_level=None)  # a file that is gone when it is closed
        self._db.execute("PRAGMA synchronous = OFF")
        self._db.execute(
            "CREATE TABLE entries (number INTEGER PRIMARY KEY, part INT, at INT, listed INT, path TEXT, size INT, "
            "modified INT, id TEXT, start INT, end INT, head TEXT, tail TEXT, header TEXT)"
        )
        self._db.execute("CREATE TABLE found (path TEXT, size INT, modified INT, id TEXT)")
        self._db.execute("CREATE TABLE covered (part INT, start INT, end INT, PRIMARY KEY (part, start)) WITHOUT ROWID")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()

    def learn(self, entries: Iterable[Logged]) -> int:
        """Take entries of the log in, in their order; returns their number."""
        return self._insert(
            f"INSERT INTO entries (part, at, listed, {_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                (part, at, listed, e.path, e.size, e.modified, e.id, e.start, e.end, e.head, e.tail, e.header)
                for part, at, listed, e in entries
            ),
        )

    def see(self, found: Iterable[Found]) -> int:
        """Take a listing in; returns its number of files."""
        return self._insert("INSERT INTO found VALUES (?, ?, ?, ?)", found)

    def compared(self) -> Iterator[Compared]:
        """The files that aren't as their last entries say, the oldest first.

        Raises:
            ActionRequiredError: the log has a file twice.
        """
        self._refuse_twice()
        self._index()
        if self._grows:
            self._db.execute("CREATE INDEX by_path ON entries (path, number)")
            self._db.execute("CREATE INDEX there ON found (id)")
        last = f"(SELECT max(number) FROM entries e WHERE e.{self._key} = f.{self._key})"
        # A file of before that was put back has an entry, though not the last one, and is read once.
        same = f"(b.number IS NOT NULL AND {_SAME.replace('e.', 'b.')})" if self._grows else _LISTED
        rows = self._db.execute(
            f"SELECT f.path, f.size, f.modified, f.id, b.part, {', '.join(f'b.{c}' for c in _COLUMNS.split(', '))} "
            f"FROM found f LEFT JOIN entries b ON b.number = {last} WHERE NOT {same} ORDER BY f.modified, f.path"
        )
        for path, size, modified, id_, partition, *before in rows:
            found = Found(path, size, modified, id_)
            if partition is not None:
                yield Compared(found, Entry(*before), partition=partition)
            else:
                yield Compared(found, None, self._displaced(found) if self._grows else None)

    def cover(self, partition: int, stretches: Iterable[tuple[int, int]]) -> None:
        """Take in which entries of a partition of the log are committed: those from a number up to another."""
        self._insert("INSERT INTO covered VALUES (?, ?, ?)", ((partition, start, end) for start, end in stretches))

    def committed(self, before: int) -> Iterator[Found]:
        """The files that are as an entry says, and of which each entry is committed, the oldest first.

        Not for files that grow.

        Args:
            before: when a file's entries have to have been added, in milliseconds since 1970.
        """
        self._index()
        rows = self._db.execute(
            f"SELECT f.* FROM found f WHERE {_LISTED} AND NOT EXISTS (SELECT 1 FROM entries e "
            f"WHERE e.path = f.path AND (e.listed > ? OR NOT {_COVERED})) ORDER BY f.modified, f.path",
            (before,),
        )
        return (Found(*row) for row in rows)

    def is_listed(self, found: Found) -> bool:
        """Whether there is an entry of a file as it was found. Not for files that grow."""
        self._index()
        row = self._db.execute(
            "SELECT 1 FROM entries e WHERE path = ? AND size = ? AND modified = ? AND id = ?", found
        ).fetchone()
        return row is not None

    def is_committed(self, found: Found) -> bool:
        """Whether there is an entry of a file as it was found, and it is committed. Not for files that grow."""
        self._index()
        row = self._db.execute(
            f"SELECT 1 FROM entries e WHERE path = ? AND size = ? AND modified = ? AND id = ? AND {_COVERED}", found
        ).fetchone()
        return row is not None

    def _index(self) -> None:
        """Once the entries are there, which are taken in faster without."""
        self._db.execute(f"CREATE INDEX IF NOT EXISTS by_key ON entries ({self._key}, number)")

    def _displaced(self, found: Found) -> Entry | None:
        row = self._db.execute(
            f"SELECT {_COLUMNS} FROM entries e WHERE path = ? AND NOT EXISTS (SELECT 1 FROM found f WHERE f.id = e.id) "
            "AND number = (SELECT max(number) FROM entries WHERE path = ?)",
            (found.path, found.path),
        ).fetchone()
        return None if row is None else Entry(*row)

    def _refuse_twice(self) -> None:
        if self._grows:
            return
        twice = self._db.execute(
            "SELECT path, count(*) FROM entries GROUP BY path, size, modified, id, start HAVING count(*) > 1 LIMIT 1"
        ).fetchone()
        if twice is not None:
            raise ActionRequiredError(
                "The files' log has a file twice: two processes have appended to it at once.",
                next_step="nothing was read. Have no other program write to that topic, and load the folder into a new "
                "table by another topic in the source's `log`.",
                file=twice[0],
            )

    def _insert(self, statement: str, rows: Iterable[tuple[object, ...]]) -> int:
        given, number = iter(rows), 0
        while batch := list(islice(given, _BATCH)):
            self._db.execute("BEGIN")
            self._db.executemany(statement, batch)
            self._db.execute("COMMIT")
            number += len(batch)
        return number
