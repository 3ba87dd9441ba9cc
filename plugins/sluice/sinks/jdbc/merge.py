"""Moves the participants' staged rows into the table, within the commit's transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from sluice.errors import ActionRequiredError, IntervalError
from sluice.logs import log
from sluice.protocol.committable import Committable
from sluice.protocol.messages import TableSpec
from sluice.sinks.jdbc import statements
from sluice.sinks.jdbc.database import Database
from sluice.sinks.jdbc.failures import RowsRefusedError
from sluice.sinks.jdbc.options.pinned import PinnedJdbc
from sluice.sinks.jdbc.statements import Target

COMMITTING = "committing the interval"
"""The purpose of a commit's statements, for errors."""


def merge(database: Database, tables: Sequence[Merge]) -> None:
    """Merge the rows of an interval's tables, all or none.

    Deletes come first, from the last table to the first; then updates and inserts, from the first to the last. So
    foreign keys hold at all times if each table comes after the tables to which it refers.

    Args:
        database: the database, with an open transaction.
        tables: the tables' merges, in the order of the pipeline file.

    Raises:
        IntervalError: reported rows are missing.
        ActionRequiredError: the database refuses rows, or a key's last version can't be determined.
        RetryableError: the database doesn't answer.
    """
    for table in tables:
        table.require_staged()
    in_order: list[Merge] = []
    while True:
        at = tables[0]
        try:
            with database.savepoint():
                for table, step in _steps(tables, in_order):
                    at = table
                    step()
        except RowsRefusedError:
            if at in in_order or not at.has_versions:
                raise
            log.info("a constraint is broken by the merge of all rows: they are merged in order", table=at.name)
            in_order.append(at)
        else:
            return


def _steps(tables: Sequence[Merge], in_order: Sequence[Merge]) -> Iterator[tuple[Merge, Callable[[], None]]]:
    at_once = [table for table in tables if table not in in_order]
    yield from ((table, table.prepare) for table in at_once)
    yield from ((table, table.delete) for table in reversed(at_once))
    yield from ((table, table.put_in_order if table in in_order else table.put) for table in tables)


class Merge:
    """Merges one table's rows of an interval from staging tables into the table, in steps for `merge`.

    Args:
        database: the database, with an open transaction.
        target: the table, with the columns of the rows.
        writer: the settings for writing the table.
        interval: the canonical name of the interval's first table, and the instant, which identify its staging tables.
        staged: the staging tables to merge, and no others.

    Attributes:
        absent: the number of rows deleted because the interval's snapshot lacks their keys.
    """

    def __init__(
        self,
        database: Database,
        target: Target,
        writer: TableSpec,
        interval: tuple[str, str],
        staged: Sequence[Committable],
    ) -> None:
        self._database, self._target, self._writer = database, target, writer
        self._first, self._instant = interval
        self._staged = staged
        self._names = [one.path for one in staged]
        self._deletes = any(one.deletes for one in staged)
        self._mirrors = writer.mirrors
        self.absent = 0
        self.name = target.dialect.canonical(target.schema, target.name)

    @property
    def has_versions(self) -> bool:
        """Whether a key's row is its last version, so that rows can be merged in order."""
        return self._writer.upserts

    def __len__(self) -> int:
        """The number of staging tables to merge."""
        return len(self._staged)

    def require_staged(self) -> None:
        """Check that all reported rows exist.

        Raises:
            IntervalError: rows or staging tables are missing.
        """
        names = self._database.staging_tables(self._target, self._first, self._instant)
        missing = set(self._names) - set(names)
        if missing:
            raise self._gone(sorted(missing))
        for one in self._staged if self.has_versions else ():  # for appends, the merge itself counts the rows
            sql = f"SELECT count(*) FROM {self._target.own(one.path)}"
            there = int(self._database.rows(sql)[0][0] or 0)
            if there < one.rows + one.deletes:
                raise self._gone([one.path], there, one.rows + one.deletes)
            if self._mirrors and there > one.rows:  # two reads at different times: neither tells which rows are gone
                raise IntervalError(
                    "A snapshot was staged twice, since a task of Spark's was run again.",
                    next_step="nothing was committed; the next interval reads the table again.",
                    table=self.name,
                    instant=self._instant,
                    found=there,
                    reported=one.rows,
                )

    def prepare(self) -> None:
        """Find the last version of each key."""
        if not self.has_versions:
            return
        self._run(statements.latest(self._target, self._names))
        if not self._target.ordering:
            self._refuse_scattered()
        self._analyze()

    def delete(self) -> None:
        """Delete rows whose key's last version is a delete, or whose key is missing from a snapshot."""
        self._delete_last()
        if self._mirrors:
            self._delete_absent(self._target.latest)

    def _delete_last(self) -> None:
        if self._deletes and self.has_versions:
            self._run(statements.delete(self._target))

    def _delete_absent(self, snapshot: str) -> None:
        self.absent = self._run(statements.delete_absent(self._target, snapshot))
        if self.absent:
            log.info("deleted rows whose keys the snapshot lacks", table=self.name, rows=self.absent)

    def put(self) -> None:
        """Update existing rows, and insert new ones."""
        if self.has_versions:
            self._put_latest()
            return
        for one in self._staged:
            self._append(one)

    def _append(self, one: Committable) -> None:
        target = self._target
        try:
            with self._database.savepoint():
                number = self._run(self._database.append(target, one.path))
                if number > one.rows:
                    raise _TwiceError
        except _TwiceError:
            if target.dialect.appends_only:  # it may have no window functions
                raise IntervalError(
                    "A task of Spark's was run again, and has staged its rows twice.",
                    next_step="nothing was committed; the next interval reads the same offsets.",
                    table=self.name,
                    instant=self._instant,
                    found=number,
                    reported=one.rows,
                ) from None
            number = self._run(statements.append_once(target, one.path))
            log.info("a task of Spark's has written its rows twice: they were taken once", table=self.name)
        if number != one.rows:
            raise self._gone([one.path], number, one.rows)

    def _analyze(self) -> None:
        if self._target.dialect.analyze:
            self._run(f"ANALYZE {self._target.latest}")

    def _put_latest(self) -> None:
        target = self._target
        update = statements.update(target)
        if update is not None:
            self._run(update)
        if PinnedJdbc.of(self._writer).insert_mode == "upsert":
            self._run(statements.insert_new(target))
        self._run(statements.drop_temporary(target, target.latest))

    def put_in_order(self) -> None:
        """Merge versions, including deletes, in runs in the order of their arrival.

        A constraint that holds after each record needn't hold between the steps of a merge of all records: a unique
        value may have moved from one row to another. A refused run is halved, down to single records; the database
        would refuse a single record as well if the records were written one by one.
        """
        target = self._target
        self._run(statements.ordered(target, self._names))
        if self._mirrors:
            self._delete_absent(target.ordered)
        number = int(self._database.rows(f"SELECT count(*) FROM {target.ordered}")[0][0] or 0)
        runs = self._halves(1, number) if number > 1 else [(1, number)]
        while runs:
            first, last = runs.pop()
            try:
                with self._database.savepoint():
                    self._run(statements.latest_of(target, first, last))
                    self._analyze()
                    self._delete_last()
                    self._put_latest()
            except RowsRefusedError:
                if first == last:
                    raise
                runs += self._halves(first, last)
        self._run(statements.drop_temporary(target, target.ordered))

    @staticmethod
    def _halves(first: int, last: int) -> list[tuple[int, int]]:
        """Two halves of a run, the first half last."""
        middle = (first + last) // 2
        return [(middle + 1, last), (first, middle)]

    def _refuse_scattered(self) -> None:
        """Refuse a key with versions in several partitions: offsets order versions within one partition only."""
        found = self._database.rows(statements.scattered(self._target))
        if found:
            first, second, log_, offset = found[0]
            raise ActionRequiredError(
                f"A key is in two partitions, {first} and {second}, and nothing says which version is the last.",
                next_step="nothing was committed. Name a column by which versions are ordered in `ordering_field`, or "
                "have the producer send a key to one partition.",
                table=self.name,
                instant=self._instant,
                key=", ".join(self._target.key),
                one_of_its_versions=f"{log_}@{offset}",
            )

    def _run(self, sql: str) -> int:
        return self._database.run(sql, doing=COMMITTING)

    def _gone(self, names: Sequence[str], found: int | None = None, reported: int | None = None) -> IntervalError:
        return IntervalError(
            "Rows that participants have staged are gone: the database may have been restarted after a crash, or "
            "a staging table was dropped.",
            next_step="nothing was committed; the next interval reads the same offsets.",
            table=self.name,
            instant=self._instant,
            staging=", ".join(names),
            found=found,
            reported=reported,
        )


class _TwiceError(Exception):
    """More rows were staged than a participant has reported."""
