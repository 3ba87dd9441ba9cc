"""One table of a database as the coordinator sees it: its checkpoint, and the steps of a two-phase commit."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from sluice.connectors.clock import instant_now
from sluice.connectors.intervals import LoggedCommit, TransactionalTable, Turn
from sluice.connectors.sink import InstantState
from sluice.errors import ActionRequiredError, IntervalError, SluiceError
from sluice.failpoints import reach
from sluice.jvm.gateway import HudiJvm
from sluice.jvm.schema import struct_of_ddl
from sluice.logs import log
from sluice.protocol.committable import Committable
from sluice.protocol.messages import TableSpec
from sluice.records.structs import Type
from sluice.sinks.jdbc.database import Database
from sluice.sinks.jdbc.merge import COMMITTING, Merge, merge
from sluice.sinks.jdbc.metadata import kept_metadata
from sluice.sinks.jdbc.options.names import (
    INSTANTS,
    KEPT,
    POSITIONS,
    instant_of_staging,
    is_staging_of,
    schema_and_name,
)
from sluice.sinks.jdbc.options.pinned import PinnedJdbc
from sluice.sinks.jdbc.shape import Shape
from sluice.sinks.jdbc.statements import Target

_LOADED_WITH = "sluice.loaded_with"
_CLAIMING = "saying which tables are loaded together"


class JdbcTable(TransactionalTable):
    """The table, opened by one process; see `sluice.connectors.sink.Table`.

    Attributes:
        writer: the settings for writing it.
        clock_wait: how long to wait for this machine's clock to pass the last interval.
        jvm: the JVM with the connection.
        process: the JVM's, with which the connection ends.
    """

    def __init__(
        self,
        database: Database,
        jvm: HudiJvm,
        schema: str,
        name: str,
        writer: TableSpec,
        clock_wait: timedelta,
        process: str,
        *,
        writable: bool,
    ) -> None:
        self._database = database
        self.jvm = jvm
        self._target = Target(database.dialect, schema, name)
        self._key = database.dialect.canonical(schema, name)
        self.writer, self.clock_wait, self.process = writer, clock_wait, process
        self._writable = writable
        self._positions, self._instants = self._target.own(POSITIONS), self._target.own(INSTANTS)

    # The tables themselves

    @property
    def _shape(self) -> Shape:
        return Shape(self._database, self._target, self.writer)

    def _target_of(self, writer: TableSpec) -> Target:
        return replace(self._target, name=schema_and_name(PinnedJdbc.of(writer).table)[1])

    def has_bookkeeping(self) -> bool:
        """Whether the sink's bookkeeping tables exist."""
        return self._shape.has_bookkeeping()

    def prepare_bookkeeping(self) -> None:
        """Create the bookkeeping tables, shared by all tables of the schema, unless they exist."""
        self._shape.prepare_bookkeeping()

    def fit(self, fields: Sequence[Mapping[str, Type]], place: str, *, create: bool, evolve: bool) -> None:
        """Make sure that the table can hold the rows; if it is open for reading only, check that it could.

        Args:
            fields: the rows' columns, as in Spark's JSON.
            place: the sink's section in the pipeline file.
            create: whether the table may be created.
            evolve: whether columns may be added.

        Raises:
            ActionRequiredError: the table can't hold the rows without a change, which isn't possible or not allowed.
        """
        self._shape.fit(fields, place, create=create, evolve=evolve, writable=self._writable)

    def fit_further(
        self, writer: TableSpec, fields: Sequence[Mapping[str, Type]], place: str, *, create: bool, evolve: bool
    ) -> None:
        """As `fit`, for a further table."""
        shape = Shape(self._database, self._target_of(writer), writer)
        shape.fit(fields, place, create=create, evolve=evolve, writable=self._writable)

    def claim(self, tables: Sequence[TableSpec]) -> None:
        """Record that these tables are loaded together with this one, so that no other pipeline loads one of them.

        So a table's offsets are always in one place. If the table is open for reading only, this only checks.

        Raises:
            ActionRequiredError: two of them are the same table in the database, or another pipeline has loaded one.
        """
        keys = [self._target.dialect.canonical(self._target.schema, self._target_of(one).name) for one in tables]
        twice = sorted(key for key, number in Counter([self._key, *keys]).items() if number > 1)
        if twice:
            raise ActionRequiredError(
                f"Two tables of the pipeline are one table of the database: {', '.join(twice)}.",
                next_step="name it once, with all of its topics.",
                table=self._key,
            )
        claimed = json.dumps({_LOADED_WITH: self._key})
        missing = []
        for key in keys:
            found = self._database.rows(f"SELECT instant, metadata FROM {self._positions} WHERE sink_table = ?", key)
            if not found:
                missing.append(key)
            elif found[0] != (None, claimed):
                other = _loaded_with(found[0][1])
                raise ActionRequiredError(
                    f"The table {key} has been loaded "
                    + (f"together with {other}." if other else "by another pipeline alone, and has separate offsets."),
                    next_step=f"stop that pipeline and delete the table's row in {POSITIONS}, once the source's "
                    "`starting_offsets` say where to continue; or load into another table.",
                    table=self._key,
                )
        if self._writable and missing:
            with self._database.transaction(_CLAIMING):
                for key in missing:
                    sql = f"INSERT INTO {self._positions} (sink_table, metadata) VALUES (?, ?)"
                    self._run(sql, _CLAIMING, key, claimed)

    # What is committed

    def _last(self) -> LoggedCommit | None:
        """See `TransactionalTable`.

        Raises:
            ActionRequiredError: another pipeline loads the table together with others.
        """
        found = self._database.rows(
            f"SELECT instant, metadata FROM {self._positions} WHERE sink_table = ?",
            self._key,
            doing="reading its position",
        )
        instant, metadata = found[0] if found else (None, None)
        together = _loaded_with(metadata) if instant is None else None
        if together is not None:
            raise ActionRequiredError(
                f"The table is loaded together with {together}, by another pipeline, which has its offsets.",
                next_step=f"name another table; or take it out of that pipeline's `tables`, and delete its row in "
                f"{POSITIONS}.",
                table=self._key,
            )
        return None if instant is None else LoggedCommit(instant, kept_metadata(metadata))

    def state_of(self, instant: str) -> InstantState:
        """See `Table`. By the interval's row."""
        found = self._interval("state", instant)
        if not found:
            return "absent"
        return "completed" if found[0][0] == "completed" else "pending"

    def _committed(self, instant: str) -> LoggedCommit | None:
        found = self._interval("state, metadata", instant)
        done = found and found[0][0] == "completed"
        return LoggedCommit(instant, kept_metadata(found[0][1])) if done else None

    # The two phases of a commit

    def newest_time(self) -> str:
        """See `TimedByMachine`. The times of intervals and of their commits."""
        found = self._database.rows(
            f"SELECT max(instant), max(completed) FROM {self._instants} WHERE sink_table = ?", self._key
        )
        return max((one or "" for one in found[0]), default="")

    def open(self, instant: str) -> None:
        """Enter the interval as pending, with the commit on which it is based."""
        rests_on = self._plan_base()
        if not self._has_position():
            self._add_position()
        with self._database.transaction("opening the interval"):
            self._run(
                f"INSERT INTO {self._instants} (sink_table, instant, state, rests_on) VALUES (?, ?, 'pending', ?)",
                "opening the interval",
                self._key,
                instant,
                rests_on,
            )

    def commit(
        self,
        instant: str,
        committables: Iterable[Committable],
        extra: Mapping[str, str],
    ) -> list[str]:
        """Merge the participants' staged rows and write the table's new position, in one transaction.

        Raises:
            RetryableError: the interval is no longer pending, or the database doesn't answer: its state has to be read
                again.
            IntervalError: another interval was committed since this one was planned, or staged rows are gone.
            ActionRequiredError: the database refuses the rows.
        """
        staged = tuple(committables)
        for one in staged:
            if not is_staging_of(one.path, self._key, instant):
                raise IntervalError(
                    "A WRITE-STATUS names a table that is no staging table of this interval.",
                    next_step="find out which other program writes to the control topic; the next interval reads the "
                    "same offsets.",
                    path=one.path,
                    instant=instant,
                )
        reach("jdbc.before_transaction")
        with self._database.transaction(COMMITTING):
            if not self._may_commit(instant):
                return []
            mirrors = self.writer.mirrors  # an empty snapshot counts, too
            absent = self._merge(instant, [one for one in staged if mirrors or one.rows or one.deletes])
            reach("jdbc.before_position")
            self._write_position(instant, staged, json.dumps(dict(extra)), absent)
            reach("jdbc.before_database_commit")
        reach("jdbc.after_database_commit")
        self._delete_staged(instant)
        return []

    def last_commits(self) -> list[str]:
        """See `sluice.connectors.sink.ForbidsCommits`. All that the database remembers, at most 1,000."""
        names = self._target.dialect.joined.format("instant")  # one value: each row is a call of the JVM
        found = self._database.rows(
            f"SELECT {names} FROM {self._instants} WHERE sink_table = ? AND state = 'completed'", self._key
        )
        return sorted((found[0][0] or "").split(",")) if found[0][0] else []

    def _take_back(self, instant: str) -> InstantState:
        """See `TransactionalTable`. Deletes the interval's row."""
        gone = self._run(
            f"DELETE FROM {self._instants} WHERE sink_table = ? AND instant = ? AND state = 'pending'",
            "taking an interval back",
            self._key,
            instant,
        )
        if gone:
            return "pending"
        return "completed" if self.state_of(instant) == "completed" else "absent"

    # What processes leave behind that were suspended for too long

    def _pending(self) -> set[str]:
        found = self._database.rows(
            f"SELECT instant FROM {self._instants} WHERE sink_table = ? AND state = 'pending'", self._key
        )
        return {instant for (instant,) in found if instant is not None}

    def _staged(self) -> set[str]:
        names = self._database.staging_tables(self._target, self._key)
        return {instant for instant in map(instant_of_staging, names) if instant is not None}

    def _delete_staged(self, instant: str) -> list[str]:
        """See `IntervalTable`. A table that a zombie still writes to is left for the next sweep."""
        gone = []
        for name in self._database.staging_tables(self._target, self._key, instant):
            try:
                self._run(f"{self._target.dialect.drops} {self._target.own(name)}", "dropping a staging table")
            except SluiceError as error:
                log.warning("a staging table could not be dropped; the next interval tries again", reason=str(error))
            else:
                gone.append(name)
        return gone

    # The commit's transaction

    def _turn(self, instant: str) -> Turn:
        """See `TransactionalTable`. Locks the table's position."""
        found = self._locked_position()
        last = found[0][0] if found else None
        state, rests_on = next(iter(self._interval("state, rests_on", instant)), (None, None))
        if state == "completed":
            return Turn("completed", rests_on, last)
        return Turn("pending" if state and found else "absent", rests_on, last)

    def _merge(self, instant: str, staged: Sequence[Committable]) -> int:
        """Merge staging tables; returns the number of rows deleted because a snapshot lacks their keys."""
        tables = []
        for number, writer in enumerate((self.writer, *self.further)):
            of_table = [one for one in staged if one.table == (writer.name if number else "")]
            if of_table:
                fields = struct_of_ddl(self.jvm, writer.schema_ddl)["fields"]
                target = Shape(self._database, self._target_of(writer), writer).target(fields)
                target = replace(target, number=number)
                tables.append(Merge(self._database, target, writer, (self._key, instant), of_table))
        if sum(len(table) for table in tables) != len(staged):
            raise ValueError("a committable that belongs to none of the interval's tables has passed the audit")
        if tables:
            merge(self._database, tables)
        return sum(table.absent for table in tables)

    def _write_position(self, instant: str, staged: Sequence[Committable], metadata: str, absent: int) -> None:
        """Write the table's position, and complete the interval.

        The commit has locked the position and not the interval's row, which ABORT deletes without waiting for a
        commit. So the update of that row decides: it finds a pending row, and a later ABORT a completed one.

        Raises:
            RetryableError: the interval was taken back after the commit had looked.
        """
        self._run(
            f"UPDATE {self._positions} SET instant = ?, metadata = ? WHERE sink_table = ?",
            COMMITTING,
            instant,
            metadata,
            self._key,
        )
        completed = self._run(
            f"UPDATE {self._instants} SET state = 'completed', completed = ?, rows_written = ?, rows_deleted = ?, "
            "metadata = ? WHERE sink_table = ? AND instant = ? AND state = 'pending'",
            COMMITTING,
            instant_now(),
            sum(one.rows for one in staged),
            sum(one.deletes for one in staged) + absent,
            metadata,
            self._key,
            instant,
        )
        if not completed:
            raise self._rolled_back(instant)
        self._forget_old()

    def _forget_old(self) -> None:
        """Delete the rows of committed intervals but the last ones."""
        self._run(
            f"DELETE FROM {self._instants} WHERE sink_table = ? AND state = 'completed' AND instant < "
            f"(SELECT instant FROM {self._instants} WHERE sink_table = ? AND state = 'completed' "
            f"ORDER BY instant DESC LIMIT 1 OFFSET {KEPT})",
            COMMITTING,
            self._key,
            self._key,
        )

    # How

    def _has_position(self) -> bool:
        return bool(self._database.rows(f"SELECT 1 FROM {self._positions} WHERE sink_table = ?", self._key))

    def _add_position(self) -> None:
        with self._database.changing("opening the interval"):
            self._run(
                f"INSERT INTO {self._positions} (sink_table) SELECT ? WHERE NOT EXISTS "
                f"(SELECT 1 FROM {self._positions} WHERE sink_table = ?)",
                "opening the interval",
                self._key,
                self._key,
            )

    def _locked_position(self) -> list[tuple[str | None, ...]]:
        """The table's row of positions, locked until the transaction ends."""
        lock = self._target.dialect.lock_row
        return self._database.rows(
            f"SELECT instant FROM {self._positions} WHERE sink_table = ?{lock}", self._key, doing=COMMITTING
        )

    def _interval(self, columns: str, instant: str) -> list[tuple[str | None, ...]]:
        return self._database.rows(
            f"SELECT {columns} FROM {self._instants} WHERE sink_table = ? AND instant = ?", self._key, instant
        )

    def _run(self, sql: str, doing: str, *values: Any) -> int:
        return self._database.run(sql, *values, doing=doing)


def _loaded_with(metadata: str | None) -> str | None:
    """The first table of the pipeline that loads a table, from the metadata in the table's row of positions."""
    return kept_metadata(metadata).get(_LOADED_WITH)
