"""Moves what participants have staged into the table, within the commit's transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from sluice.errors import ActionRequiredError, IntervalError
from sluice.logs import log
from sluice.protocol.committable import Committable
from sluice.protocol.messages import TableSpec
from sluice.sinks.jdbc import statements
from sluice.sinks.jdbc.database import Database
from sluice.sinks.jdbc.failures import RowsRefusedError
from sluice.sinks.jdbc.statements import Target

COMMITTING = "committing the interval"
"""What statements of a commit are doing, for errors."""


def merge(database: Database, tables: Sequence[Merge]) -> None:
    """Merge the rows of an interval's tables, all or none.

    Deletes come first, in the tables' order from the last to the first; then what changes and what is new, from the
    first to the last. So a foreign key holds all along whose table stands after the one that it refers to.

    Args:
        database: where they are; a transaction of it is open.
        tables: each table's part, in the order of the pipeline file.

    Raises:
        IntervalError: rows that were reported aren't there.
        ActionRequiredError: the database refuses them, or nothing says which version of a key is the last.
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
    """One table's rows of an interval, from their staging tables into the table, in steps for `merge`.

    Args:
        database: where both are; a transaction of it is open.
        target: the table, with the columns that rows have.
        writer: how it is written.
        interval: the canonical name of the interval's first table, and its instant: whose staging tables these are.
        staged: the staging tables to merge, and no others.

    Attributes:
        absent: how many rows the merge has deleted since the interval's snapshot hasn't their keys.
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
        """Whether the last version of a key is its row, so that rows can be merged in their order."""
        return self._writer.upserts

    def __len__(self) -> int:
        """How many staging tables it merges."""
        return len(self._staged)

    def require_staged(self) -> None:
        """Check that what was reported is there.

        Raises:
            IntervalError: it isn't.
        """
        names = self._database.staging_tables(self._target, self._first, self._instant)
        missing = set(self._names) - set(names)
        if missing:
            raise self._gone(sorted(missing))
        for one in self._staged if self.has_versions else ():  # of others the merge itself counts the rows
            sql = f"SELECT count(*) FROM {self._target.own(one.path)}"
            there = int(self._database.rows(sql)[0][0] or 0)
            if there < one.rows + one.deletes:
                raise self._gone([one.path], there, one.rows + one.deletes)
            if self._mirrors and there > one.rows:  # of two moments: which rows are gone, none of both says
                raise IntervalError(
                    "A snapshot was staged twice, since a task of Spark's was run again.",
                    next_step="nothing was committed; the next interval reads the table anew.",
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
        """Take the rows away of keys whose last version is a delete, or which a snapshot hasn't."""
        self._delete_last()
        if self._mirrors:
            self._delete_absent(self._target.latest)

    def _delete_last(self) -> None:
        if self._deletes and self.has_versions:
            self._run(statements.delete(self._target))

    def _delete_absent(self, snapshot: str) -> None:
        self.absent = self._run(statements.delete_absent(self._target, snapshot))
        if self.absent:
            log.info("rows were deleted that the snapshot hasn't", table=self.name, rows=self.absent)

    def put(self) -> None:
        """Change rows, and add new ones."""
        if self.has_versions:
            self._put_latest()
            return
        for one in self._staged:
            self._append(one)

    def _append(self, one: Committable) -> None:
        target = self._target
        try:
            with self._database.savepoint():
                number = self._run(statements.append(target, one.path))
                if number > one.rows:
                    raise _TwiceError
        except _TwiceError:
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
        if self._writer.options["insert_mode"] == "upsert":
            self._run(statements.insert_new(target))
        self._run(statements.drop_temporary(target, target.latest))

    def put_in_order(self) -> None:
        """Merge versions in runs, in the order in which they came, deletes among them.

        A constraint that holds after each record needn't hold between the steps of a merge of all of them: a value that
        is unique may have gone from one row to another. A run that is refused is halved, down to single records; what
        is refused then, the database refuses of the records one by one, too.
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
        """Two runs, the one that comes first at the end."""
        middle = (first + last) // 2
        return [(middle + 1, last), (first, middle)]

    def _refuse_scattered(self) -> None:
        """Which of two versions is the last, their offsets say only within one partition."""
        found = self._database.rows(statements.scattered(self._target))
        if found:
            first, second, *key = found[0]
            raise ActionRequiredError(
                f"A key is in two partitions, {first} and {second}, and nothing says which version is the last.",
                next_step="nothing was committed. Name a column by which versions are ordered in `ordering_field`, or "
                "have the producer send a key to one partition.",
                table=self.name,
                instant=self._instant,
                key=", ".join(f"{name}={value}" for name, value in zip(self._target.key, key, strict=True)),
            )

    def _run(self, sql: str) -> int:
        return self._database.run(sql, doing=COMMITTING)

    def _gone(self, names: Sequence[str], found: int | None = None, reported: int | None = None) -> IntervalError:
        return IntervalError(
            "Rows that participants have staged are gone: the database may have been restarted after a crash, or "
            "somebody has dropped a staging table.",
            next_step="nothing was committed; the next interval reads the same offsets.",
            table=self.name,
            instant=self._instant,
            staging=", ".join(names),
            found=found,
            reported=reported,
        )


class _TwiceError(Exception):
    """More rows were staged than a participant has reported."""
