"""Moves what participants have staged into the table, within the commit's transaction."""

from __future__ import annotations

from collections.abc import Sequence

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


class Merge:
    """An interval's rows, from their staging tables into the table.

    Args:
        database: where both are; a transaction of it is open.
        target: the table, with the columns that rows have.
        writer: how it is written.
        table: its canonical name.
        instant: the interval's.
    """

    def __init__(self, database: Database, target: Target, writer: TableSpec, table: str, instant: str) -> None:
        self._database, self._target, self._writer = database, target, writer
        self._table, self._instant = table, instant
        self._deletes = False

    def run(self, staged: Sequence[Committable]) -> None:
        """Merge the rows of these staging tables, and of no others.

        Raises:
            IntervalError: rows that were reported aren't there.
            ActionRequiredError: the database refuses them, or nothing says which version of a key is the last.
            RetryableError: the database doesn't answer.
        """
        missing = {one.path for one in staged} - set(
            self._database.staging_tables(self._target, self._table, self._instant)
        )
        if missing:
            raise self._gone(sorted(missing))
        if self._writer.operation == "append":
            for one in staged:
                self._append(one)
        else:
            self._merge_versions(staged)

    def _append(self, one: Committable) -> None:
        target = self._target
        try:
            with self._database.savepoint():
                number = self._run(statements.append(target, one.path))
                if number > one.rows:
                    raise _TwiceError
        except _TwiceError:
            number = self._run(statements.append_once(target, one.path))
            log.info("a task of Spark's has written its rows twice: they were taken once", table=self._table)
        if number != one.rows:
            raise self._gone([one.path], number, one.rows)

    def _merge_versions(self, staged: Sequence[Committable]) -> None:
        target = self._target
        for one in staged:
            there = int(self._database.rows(f"SELECT count(*) FROM {target.own(one.path)}")[0][0] or 0)
            if there < one.rows + one.deletes:
                raise self._gone([one.path], there, one.rows + one.deletes)
        names = [one.path for one in staged]
        self._deletes = any(one.deletes for one in staged)
        try:
            with self._database.savepoint():
                self._run(statements.latest(target, names))
                if not target.ordering:
                    self._refuse_scattered()
                self._take_latest()
        except RowsRefusedError as refused:
            self._merge_in_order(names, refused)

    def _take_latest(self) -> None:
        """Make the last versions of keys the table's rows."""
        target = self._target
        if target.dialect.analyze:
            self._run(f"ANALYZE {target.latest}")
        if self._deletes:
            self._run(statements.delete(target))
        update = statements.update(target)
        if update is not None:
            self._run(update)
        if self._writer.options["insert_mode"] == "upsert":
            self._run(statements.insert_new(target))
        self._run(statements.drop_temporary(target, target.latest))

    def _merge_in_order(self, names: Sequence[str], refused: RowsRefusedError) -> None:
        """Merge versions in runs, in the order in which they came.

        A constraint that holds after each record needn't hold between the steps of a merge of all of them: a value that
        is unique may have gone from one row to another. A run that is refused is halved, down to single records; what
        is refused then, the database refuses of the records one by one, too.
        """
        target = self._target
        self._run(statements.ordered(target, names))
        number = int(self._database.rows(f"SELECT count(*) FROM {target.ordered}")[0][0] or 0)
        if number == 1:
            raise refused
        log.info("a constraint is broken by the merge of all rows: they are merged in order", table=self._table)
        runs = self._halves(1, number)
        while runs:
            first, last = runs.pop()
            try:
                with self._database.savepoint():
                    self._run(statements.latest_of(target, first, last))
                    self._take_latest()
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
                table=self._table,
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
            table=self._table,
            instant=self._instant,
            staging=", ".join(names),
            found=found,
            reported=reported,
        )


class _TwiceError(Exception):
    """More rows were staged than a participant has reported."""
