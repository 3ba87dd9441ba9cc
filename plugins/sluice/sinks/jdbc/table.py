"""One table of a database as the coordinator sees it: where it stands, and the steps of a two-phase commit."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from datetime import UTC, datetime, timedelta
from typing import Any

from sluice.connectors.sink import Completion, InstantState, Registered, WrittenInterval
from sluice.errors import ActionRequiredError, IntervalError, RetryableError, SluiceError
from sluice.failpoints import reach
from sluice.jvm.gateway import HudiJvm
from sluice.jvm.schema import struct_of_ddl
from sluice.logs import log
from sluice.protocol.committable import Committable
from sluice.protocol.messages import TableSpec
from sluice.protocol.offsets import OFFSETS_KEY, TRANSACTION_KEY, Checkpoint
from sluice.records.structs import Type
from sluice.sinks.jdbc import statements
from sluice.sinks.jdbc.columns import Matched, created, key_columns, matched, row_columns
from sluice.sinks.jdbc.database import Database
from sluice.sinks.jdbc.dialects import DatabaseColumn
from sluice.sinks.jdbc.names import INSTANTS, KEPT, LATEST, POSITIONS, is_staging_of, quoted
from sluice.sinks.jdbc.statements import Target

_COMMITTING = "committing the interval"


class JdbcTable:
    """The table, opened by one process; see `sluice.connectors.sink.Table`.

    Attributes:
        writer: how it is written.
        clock_wait: how long to wait for this machine's clock to pass the last interval.
        jvm: the JVM with the connection.
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
        self.writer = writer
        self.clock_wait = clock_wait
        self._process = process
        self._writable = writable
        self._positions, self._instants = self._target.own(POSITIONS), self._target.own(INSTANTS)
        self._rests_on: tuple[str | None] | None = None

    @property
    def process(self) -> str:
        """The JVM: the connection is its own, and ends with it."""
        return self._process

    def written_as(self, writer: TableSpec) -> JdbcTable:
        """The same table, by the same connection."""
        other = copy(self)
        other.writer = writer
        return other

    # The tables themselves

    def has_bookkeeping(self) -> bool:
        """Whether the sink's own tables are there."""
        return all(self._database.has_table(self._target.schema, name) for name in (POSITIONS, INSTANTS))

    def prepare_bookkeeping(self) -> None:
        """Create the sink's own tables, where they aren't there; they are for all tables of the schema."""
        if self.has_bookkeeping():
            return
        doing = f"creating {POSITIONS} and {INSTANTS}"
        with self._database.transaction(doing):
            self._lock_schema()
            for _, statement in statements.bookkeeping(self._target):
                self._database.run(statement, doing=doing)

    def fit(self, fields: Sequence[Mapping[str, Type]], place: str, *, create: bool, evolve: bool) -> None:
        """See to it that the table holds the rows; where this may only look, say whether it would.

        Args:
            fields: the rows' columns, as in Spark's JSON.
            place: the sink's section in the pipeline file.
            create: whether the table may be created.
            evolve: whether columns may be added.

        Raises:
            ActionRequiredError: it doesn't hold them, or would have to be changed and may not be.
        """
        if self._fits(fields, place, create=create, evolve=evolve) or not self._writable:
            return
        with self._database.transaction("creating the table or its columns"):
            self._lock_schema()
            self._change(fields)
        if not self._fits(fields, place, create=create, evolve=evolve):
            raise RetryableError("The table changed while it was created.", next_step="the step is retried.")

    def _fits(self, fields: Sequence[Mapping[str, Type]], place: str, *, create: bool, evolve: bool) -> bool:
        """Whether rows can be written at once; False where the table has to be changed first, and may be."""
        rows = row_columns(self.writer, fields)
        table = self._columns()
        if not table:
            if not create:
                raise ActionRequiredError(
                    "The table isn't there.",
                    next_step=f"create it, or set {place}.auto_create to true.",
                    table=self._key,
                    connection=self._database.address.connection,
                )
            self._require(created(self._target.dialect, rows)[1], place)
            return False
        found = matched(self._target.dialect, rows, table, self.writer.options["db_timezone"])
        problems = list(found.problems)
        if found.missing and not evolve:
            names = ", ".join(row.name for row in found.missing)
            raise ActionRequiredError(
                f"The table lacks columns that the rows have: {names}.",
                next_step=f"add them, set {place}.auto_evolve to true, or leave them out in `transforms`.",
                table=self._key,
                connection=self._database.address.connection,
            )
        problems += [
            f"`{row.name}` must not be null, so it can't be added to a table that may have rows"
            for row in found.missing
            if row.name in key_columns(self.writer)
        ]
        problems += created(self._target.dialect, found.missing)[1]
        self._require(problems, place)
        return not found.missing

    def _require(self, problems: Sequence[str], place: str) -> None:
        if problems:
            raise ActionRequiredError(
                f"The database's table doesn't hold the rows: {'; '.join(problems)}.",
                next_step=f"give the columns other types in {place}.schema or by `cast` in `transforms`, or change the "
                "table; the types that fit are in docs/jdbc-sink.md. Nothing was changed.",
                table=self._key,
                connection=self._database.address.connection,
            )

    def _change(self, fields: Sequence[Mapping[str, Type]]) -> None:
        """Create the table, or add columns, as another process hasn't done meanwhile."""
        rows = row_columns(self.writer, fields)
        table = self._columns()
        dialect = self._target.dialect
        if not table:
            columns, _ = created(dialect, rows)
            self._run(statements.create(self._target, columns, key_columns(self.writer)), "creating the table")
            log.info("created the table", table=self._key, columns=", ".join(name for name, _, _ in columns))
            return
        for name, kind, _ in created(dialect, self._matched(fields, table).missing)[0]:
            self._run(statements.add_column(self._target, name, kind), "adding a column")
            log.info("added a column", table=self._key, column=name, type=kind)

    def _columns(self) -> list[DatabaseColumn]:
        return self._database.columns(self._target.schema, self._target.name)

    def _matched(self, fields: Sequence[Mapping[str, Type]], table: Sequence[DatabaseColumn]) -> Matched:
        rows = row_columns(self.writer, fields)
        return matched(self._target.dialect, rows, table, self.writer.options["db_timezone"])

    def _lock_schema(self) -> None:
        if self._target.dialect.lock_schema is not None:
            self._database.rows(self._target.dialect.lock_schema)

    # What is committed

    def last_checkpoint(self) -> dict[str, str] | None:
        """Extra metadata of the last commit. An interval that is opened afterwards rests on that commit."""
        found = self._database.rows(
            f"SELECT instant, metadata FROM {self._positions} WHERE sink_table = ?",
            self._key,
            doing="reading where it stands",
        )
        instant, metadata = found[0] if found else (None, None)
        self._rests_on = (instant,)
        return None if instant is None else dict(json.loads(metadata or "{}"))

    def is_empty(self) -> bool:
        """Whether there was no commit."""
        return self._position() is None

    def state_of(self, instant: str) -> InstantState:
        """An interval's state, as its row has it."""
        found = self._interval("state", instant)
        if not found:
            return "absent"
        return "completed" if found[0][0] == "completed" else "pending"

    def written_by(self, instant: str) -> WrittenInterval | None:
        """What a committed interval's row says, of those that are kept."""
        found = self._interval("state, metadata", instant)
        if not found or found[0][0] != "completed":
            return None
        extra = json.loads(found[0][1] or "{}")
        checkpoint = Checkpoint.model_validate_json(extra[OFFSETS_KEY])
        return WrittenInterval(instant, json.loads(extra[TRANSACTION_KEY]), {}, checkpoint)

    def replayed_by(self, instant: str) -> str | None:  # noqa: ARG002
        """None: no interval's rows are replaced here."""
        return None

    def moved_file_groups(self, written: WrittenInterval) -> dict[str, str | None]:  # noqa: ARG002
        """None: there are no files."""
        return {}

    # The two phases of a commit

    def await_clock(self) -> None:
        """Wait until this machine's clock is later than all intervals, as long as `clock_wait` lets us."""
        found = self._database.rows(
            f"SELECT max(instant), max(completed) FROM {self._instants} WHERE sink_table = ?", self._key
        )
        last = max((one or "" for one in found[0]), default="")
        if not last:
            return
        behind = _time_of(last) - datetime.now(UTC)
        if behind > self.clock_wait:
            raise RetryableError(
                "This machine's clock is behind the table's last interval.",
                next_step="set the clocks of all machines that write this table (NTP).",
                table=self._key,
                last_instant=last,
                behind=str(behind),
            )
        if behind >= timedelta(milliseconds=-1):
            threading.Event().wait(behind.total_seconds() + 0.002)

    def new_instant(self) -> str:
        """The time, in milliseconds."""
        self.await_clock()
        return _now()

    def open(self, instant: str, *, replaces: bool = False) -> None:
        """Say that the interval is under way, and on which commit it rests."""
        if replaces:
            raise ActionRequiredError(
                "Rows of a database's table can't be replaced by interval.",
                next_step="load the records into a new table.",
                table=self._key,
            )
        rests_on = self._rests_on[0] if self._rests_on is not None else self._position()
        with self._database.transaction("opening the interval"):
            if not self._database.rows(f"SELECT 1 FROM {self._positions} WHERE sink_table = ?", self._key):
                self._lock_schema()
                self._run(
                    f"INSERT INTO {self._positions} (sink_table) SELECT ? WHERE NOT EXISTS "
                    f"(SELECT 1 FROM {self._positions} WHERE sink_table = ?)",
                    "opening the interval",
                    self._key,
                    self._key,
                )
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
        replaced: Mapping[str, Iterable[str]] | None = None,  # noqa: ARG002 - `open` has refused it
    ) -> None:
        """Merge what the participants have staged and write where the table stands, in one transaction.

        Raises:
            RetryableError: the interval isn't under way any more, or the database doesn't answer: look at its state.
            IntervalError: another commit came since the interval was planned, or staged rows are gone.
            ActionRequiredError: the database refuses the rows.
        """
        staged = tuple(committables)
        for one in staged:
            if not is_staging_of(one.path, self._key, instant):
                raise IntervalError(
                    "A WRITE-STATUS names a table that is no staging table of this interval.",
                    next_step="find who else writes to the control topic; the next interval reads the same offsets.",
                    path=one.path,
                    instant=instant,
                )
        reach("jdbc.before_transaction")
        with self._database.transaction(_COMMITTING):
            if not self._take_turn(instant):
                log.info("another process has committed the interval already", instant=instant, table=self._key)
                return
            self._merge(instant, staged)
            self._write_position(instant, staged, json.dumps(dict(extra)))
            reach("jdbc.before_database_commit")
        reach("jdbc.after_database_commit")
        self._drop(self._database.staging_tables(self._target, self._key, instant))

    def forbid_commit(self, instant: str) -> bool:
        """Take an interval's turn away; see `sluice.connectors.sink.ForbidsCommits`."""
        self._run(
            f"DELETE FROM {self._instants} WHERE sink_table = ? AND instant = ? AND state = 'pending'",
            "taking an interval back",
            self._key,
            instant,
        )
        return self.state_of(instant) != "completed"

    def rollback(self, instant: str) -> bool:
        """Take its turn away first: whoever is about to commit it then can't. Its staging tables go after that."""
        gone = self._run(
            f"DELETE FROM {self._instants} WHERE sink_table = ? AND instant = ? AND state = 'pending'",
            "taking an interval back",
            self._key,
            instant,
        )
        if self.state_of(instant) == "completed":
            return False
        self._drop(self._database.staging_tables(self._target, self._key, instant))
        return gone > 0

    def finish_rollbacks(self) -> list[str]:
        """None: what one has left behind is swept up."""
        return []

    # What processes leave that stood still for too long

    def completions(self) -> dict[str, Completion]:
        """The committed intervals. None of them was rolled back: the database commits no interval that was."""
        names = self._target.dialect.joined.format("instant || '_' || completed")  # one value: there are up to 1,000
        found = self._database.rows(
            f"SELECT {names} FROM {self._instants} WHERE sink_table = ? AND state = 'completed'", self._key
        )
        done = sorted((found[0][0] or "").split(",")) if found[0][0] else []
        return {name.partition("_")[0]: Completion("commit", [f"{name}.commit"], requested=True) for name in done}

    def registered(self, completion: str) -> Registered:  # noqa: ARG002
        """A commit names no files: its rows are in the table."""
        return Registered(0, 0)

    def take_off(self, instant: str, files: list[str]) -> None:  # noqa: ARG002
        """Refuse: rows that were merged can't be told from those before them.

        Nobody asks for it, since the database completes no interval twice, nor one whose turn was taken away.
        """
        raise ActionRequiredError(
            "A committed interval can't be taken off a database's table.",
            next_step="look at the table `_sluice_instants`: somebody other than Sluice has changed it.",
            table=self._key,
            instant=instant,
        )

    def marker_partitions(self, instant: str) -> set[str]:
        """The table itself, where the interval has staging tables."""
        return {""} if self._database.staging_tables(self._target, self._key, instant) else set()

    def partitions_on_storage(self) -> set[str]:
        """The table itself."""
        return {""}

    def sweep(self, committed: Mapping[str, set[str]], partitions: Iterable[str]) -> list[str]:  # noqa: ARG002
        """Drop the staging tables of intervals that have ended, also those that a commit has merged."""
        swept = []
        for instant in committed:
            names = self._database.staging_tables(self._target, self._key, instant)
            if names and self.state_of(instant) != "pending":
                swept += self._drop(names)
        return swept

    # The commit's transaction

    def _take_turn(self, instant: str) -> bool:
        """Lock where the table stands, and see whether it is this interval's turn; False if it is committed already."""
        lock = self._target.dialect.lock_row
        found = self._database.rows(
            f"SELECT instant FROM {self._positions} WHERE sink_table = ?{lock}", self._key, doing=_COMMITTING
        )
        last = found[0][0] if found else None
        row = self._interval("state, rests_on", instant)
        if row and row[0][0] == "completed":
            return False
        if not row or not found:
            raise RetryableError(
                "The interval is not under way any more: it was rolled back.",
                next_step="nothing was committed; the step looks again.",
                table=self._key,
                instant=instant,
            )
        if row[0][1] != last:
            raise IntervalError(
                "Another interval was committed since this one was planned: committing it would double or lose rows.",
                next_step="nothing was committed; the next interval starts from where the table stands now.",
                table=self._key,
                instant=instant,
                planned_on=row[0][1] or "an empty table",
                stands_at=last or "an empty table",
            )
        return True

    def _merge(self, instant: str, staged: Sequence[Committable]) -> None:
        staged = [one for one in staged if one.rows or one.deletes]
        if not staged:
            return
        target = self._merged()
        missing = {one.path for one in staged} - set(self._database.staging_tables(target, self._key, instant))
        if missing:
            raise _staging_gone(self._key, instant, sorted(missing))
        if self.writer.operation == "append":
            for one in staged:
                self._append(target, one, instant)
            return
        self._merge_versions(target, staged, instant)

    def _merged(self) -> Target:
        fields = struct_of_ddl(self.jvm, self.writer.schema_ddl)["fields"]
        return target_of(self._target, self.writer, self._matched(fields, self._columns()))

    def _append(self, target: Target, one: Committable, instant: str) -> None:
        try:
            with self._database.savepoint():
                number = self._run(statements.append(target, one.path), _COMMITTING)
                if number > one.rows:
                    raise _TwiceError
        except _TwiceError:
            number = self._run(statements.append_once(target, one.path), _COMMITTING)
            log.info("a task of Spark's has written its rows twice: they were taken once", table=self._key)
        if number != one.rows:
            raise _staging_gone(self._key, instant, [one.path], number, one.rows)

    def _merge_versions(self, target: Target, staged: Sequence[Committable], instant: str) -> None:
        for one in staged:
            there = int(self._database.rows(f"SELECT count(*) FROM {target.own(one.path)}")[0][0] or 0)
            if there < one.rows + one.deletes:
                raise _staging_gone(self._key, instant, [one.path], there, one.rows + one.deletes)
        self._run(statements.latest(target, [one.path for one in staged]), _COMMITTING)
        if target.dialect.analyze:
            self._run(f"ANALYZE {quoted(LATEST)}", _COMMITTING)
        if not target.ordering:
            self._refuse_scattered(target, instant)
        if any(one.deletes for one in staged):
            self._run(statements.delete(target), _COMMITTING)
        update = statements.update(target)
        if update is not None:
            self._run(update, _COMMITTING)
        if self.writer.options["insert_mode"] == "upsert":
            self._run(statements.insert_new(target), _COMMITTING)
        self._run(f"DROP TABLE {quoted(LATEST)}", _COMMITTING)

    def _refuse_scattered(self, target: Target, instant: str) -> None:
        """Which of two versions is the last, their offsets say only within one partition."""
        found = self._database.rows(statements.scattered(target))
        if found:
            first, second, *key = found[0]
            raise ActionRequiredError(
                f"A key is in two partitions, {first} and {second}, and nothing says which version is the last.",
                next_step="nothing was committed. Name a column by which versions are ordered in `ordering_field`, or "
                "have the producer send a key to one partition.",
                table=self._key,
                instant=instant,
                key=", ".join(f"{name}={value}" for name, value in zip(target.key, key, strict=True)),
            )

    def _write_position(self, instant: str, staged: Sequence[Committable], metadata: str) -> None:
        self._run(
            f"UPDATE {self._positions} SET instant = ?, metadata = ? WHERE sink_table = ?",
            _COMMITTING,
            instant,
            metadata,
            self._key,
        )
        self._run(
            f"UPDATE {self._instants} SET state = 'completed', completed = ?, rows_written = ?, rows_deleted = ?, "
            "metadata = ? WHERE sink_table = ? AND instant = ?",
            _COMMITTING,
            _now(),
            sum(one.rows for one in staged),
            sum(one.deletes for one in staged),
            metadata,
            self._key,
            instant,
        )
        self._run(
            f"DELETE FROM {self._instants} WHERE sink_table = ? AND state = 'completed' AND instant < "
            f"(SELECT instant FROM {self._instants} WHERE sink_table = ? AND state = 'completed' "
            f"ORDER BY instant DESC LIMIT 1 OFFSET {KEPT})",
            _COMMITTING,
            self._key,
            self._key,
        )

    # How

    def _drop(self, names: Iterable[str]) -> list[str]:
        """Drop staging tables. One that a zombie still writes to is left for the next sweep."""
        gone = []
        for name in names:
            try:
                self._run(f"DROP TABLE IF EXISTS {self._target.own(name)}", "dropping a staging table")
            except SluiceError as error:
                log.warning("a staging table could not be dropped; the next interval tries again", reason=str(error))
            else:
                gone.append(name)
        return gone

    def _position(self) -> str | None:
        found = self._database.rows(f"SELECT instant FROM {self._positions} WHERE sink_table = ?", self._key)
        return found[0][0] if found else None

    def _interval(self, columns: str, instant: str) -> list[tuple[str | None, ...]]:
        return self._database.rows(
            f"SELECT {columns} FROM {self._instants} WHERE sink_table = ? AND instant = ?", self._key, instant
        )

    def _run(self, sql: str, doing: str, *values: Any) -> int:
        return self._database.run(sql, *values, doing=doing)


def target_of(table: Target, writer: TableSpec, found: Matched) -> Target:
    """The table with the columns that an interval writes, as the database spells them."""

    def named(names: Iterable[str]) -> tuple[str, ...]:
        return tuple(found.found[name].name for name in names)

    columns = tuple(column.name for column in found.found.values())
    return Target(
        table.dialect, table.schema, table.name, columns, named(writer.record_key), named(writer.ordering_fields)
    )


class _TwiceError(Exception):
    """More rows were staged than a participant has reported."""


def _staging_gone(
    table: str, instant: str, names: Sequence[str], found: int | None = None, reported: int | None = None
) -> IntervalError:
    return IntervalError(
        "Rows that participants have staged are gone: the database may have been restarted after a crash, or somebody "
        "has dropped a staging table.",
        next_step="nothing was committed; the next interval reads the same offsets.",
        table=table,
        instant=instant,
        staging=", ".join(names),
        found=found,
        reported=reported,
    )


def _now() -> str:
    return datetime.now(UTC).strftime("%Y%m%d%H%M%S%f")[:17]


def _time_of(instant: str) -> datetime:
    return datetime.strptime(f"{instant}000", "%Y%m%d%H%M%S%f").replace(tzinfo=UTC)
