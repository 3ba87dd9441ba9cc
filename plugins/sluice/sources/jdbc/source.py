"""The tables of a database as logs, when an interval is planned: what is settled, and what of it one interval reads.

An offset is a position in the column that bounds windows: microseconds since 1970, or a number. A window's rows
are read by the interval's write jobs, after START-COMMIT has fixed its bounds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from sluice.connectors.options import SourceOptions
from sluice.databases.engine import (
    SECOND,
    Ask,
    Engine,
    Horizon,
    Relation,
    at,
    has_one_offset,
    micros,
    risen,
)
from sluice.errors import ActionRequiredError, RetryableError
from sluice.protocol.offsets import Checkpoint, TopicPartition
from sluice.protocol.redriven import Places
from sluice.protocol.state import ClusterState, PartitionBounds, Remark
from sluice.sources.jdbc.noted import Noted, as_option, noted
from sluice.sources.jdbc.options import JdbcTables
from sluice.sources.jdbc.tables import (
    DURABLE,
    SERVER,
    Windowed,
    log_id,
    looking,
    position_of,
    relation_of,
    section_of,
    windowed_of,
)

_STANDS_STILL = timedelta(minutes=5)
_QUARTER = 15 * 60 * SECOND


def source_of(options: SourceOptions, settings: Any) -> JdbcSource:  # noqa: ARG001 - they are Kafka's
    """The source that a pipeline's section names."""
    return JdbcSource(section_of(options))


class JdbcSource:
    """Tables of one database; see `sluice.connectors.source.Source`."""

    def __init__(self, options: JdbcTables) -> None:
        self._options = options

    @property
    def name(self) -> str:
        """The connection's id."""
        return self._options.connection

    def cluster_ids(self) -> dict[str, str | None]:
        """A database is known by its connection; each table has an id."""
        return {self.name: None}

    def topics_like(self, pattern: str, but_not: Collection[str | None] = ()) -> tuple[str, ...]:
        """The tables and views whose whole names match; see `Source`."""
        with looking(self._options) as (ask, engine):
            known = engine.names(ask)
        out = self._options.table_exclude
        found = tuple(
            name
            for name in known
            if re.fullmatch(pattern, name) and name not in but_not and not (out is not None and re.fullmatch(out, name))
        )
        if not found:
            raise ActionRequiredError(
                "No table has a name like the source's `table_include`.",
                next_step="create one, or correct the pattern, which a whole name must match, with its schema.",
                pattern=pattern,
                connection=self.name,
            )
        return found

    def state(
        self,
        topics: Sequence[str],
        window_end: datetime | None,
        window_start: datetime | None = None,
        *,
        max_future: timedelta | None = None,  # noqa: ARG002 - a horizon is never ahead of the clock
        checkpoint: Checkpoint | None = None,
    ) -> ClusterState:
        """How far each table is settled, and how much of that an interval of `max_records` reads; see `Source`.

        Raises:
            ActionRequiredError: the end of a window isn't exact; a table or column isn't there; the clock was set back.
            RetryableError: the database doesn't answer.
        """
        known = checkpoint or Checkpoint()
        with looking(self._options) as (ask, engine):
            windowed = [windowed_of(ask, engine, self._options, topic) for topic in topics]
            # Before the look: if numbers begin again in between, the next START finds another note than this one.
            notes = (
                {w.relation.topic: noted(ask, engine, self._options, w) for w in windowed}
                if self._options.has_horizon
                else {}
            )
            look = _Look(self._options, ask, engine, known, window_end, window_start)
            splits = range(self._options.splits)
            found = look.bounds([(TopicPartition(self.name, w.relation.topic, n), w) for w in windowed for n in splits])
            server = engine.server(ask) if self._options.has_horizon else {}
            durable = engine.durable(ask) if server else {}
        return ClusterState(
            [bounds for bounds, _ in found],
            self.cluster_ids(),
            {(self.name, w.relation.topic): log_id(self._options, w.relation) for w in windowed},
            remarks=tuple(remark for _, remarks in found for remark in remarks),
            waits=look.waits,
            reading={
                **({SERVER: json.dumps(server)} if server else {}),
                **({DURABLE: json.dumps(durable)} if durable else {}),
                **as_option(_with_positions(notes, known, [bounds for bounds, _ in found], window_start)),
            },
        )

    def topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        """What tells a table from another of its name, and a position from one in another column."""
        with looking(self._options) as (ask, engine):
            return {topic: log_id(self._options, relation_of(ask, engine, self._options, topic)) for topic in topics}

    def truncated_since(self, read: Mapping[TopicPartition, tuple[int, int]]) -> dict[TopicPartition, int]:  # noqa: ARG002
        """Rows that are gone are no loss: a table has what it has."""
        return {}

    def sent_again(self, topic: str, table: str) -> Places:  # noqa: ARG002
        """None: rows are never sent again."""
        return Places()

    def copy_to_group(self, group: str, next_offsets: Mapping[TopicPartition, int]) -> None:
        """A database has no consumer groups."""


def _with_positions(
    notes: Mapping[str, Noted], known: Checkpoint, bounds: Sequence[PartitionBounds], window_start: datetime | None
) -> dict[str, Noted]:
    """Notes for the next START, with how far the schedule has read by then."""
    found: dict[str, Noted] = {}
    for one in bounds:
        tp = one.topic_partition
        note = notes.get(tp.topic)
        if note is not None:
            read_to = one.window_end if window_start is None else known.next_offset(tp) or 0
            found[tp.topic] = replace(note, read_to=max(read_to, found.get(tp.topic, note).read_to))
    return found


class _Look:
    """One look at the tables' bounds."""

    def __init__(
        self,
        options: JdbcTables,
        ask: Ask,
        engine: Engine,
        known: Checkpoint,
        window_end: datetime | None,
        window_start: datetime | None,
    ) -> None:
        self._options, self._ask, self._engine, self._known = options, ask, engine, known
        self._end, self._start = window_end, window_start
        self.waits = False  # whether rows of any time are unread, or may be

    def bounds(
        self, tables: Sequence[tuple[TopicPartition, Windowed]]
    ) -> list[tuple[PartitionBounds, tuple[Remark, ...]]]:
        """The bounds of each table, with remarks."""
        if self._options.mode == "bulk":
            now = datetime.now(UTC)
            return [(self._snapshot(tp, now), ()) for tp, _ in tables]
        if not self._options.by_time:
            once = {w.relation.topic: (w.relation, w.column) for _, w in tables if w.column is not None}
            settled = self._engine.settled_numbers(self._ask, list(once.values()), self._options.horizon_wait)
            found = dict(zip(once, settled, strict=True))
            self.waits = any(horizon.at is None for horizon in settled)  # it isn't known how far these are settled
            return [self._numbered(tp, w, found[tp.topic]) for tp, w in tables]
        if any(w.bound == "local" for _, w in tables):
            self._engine.require_zone(self._ask, self._options.db_timezone)
        horizon = self._horizon(list({w.relation.topic: w.relation for _, w in tables}.values()))
        if self._options.has_horizon:
            for windowed in {w.relation.topic: w for _, w in tables}.values():
                self._engine.require_written(self._ask, windowed.relation, windowed.columns, self._options.db_timezone)
        return [self._timed(tp, w, horizon) for tp, w in tables]

    def _snapshot(self, tp: TopicPartition, now: datetime) -> PartitionBounds:
        """Each interval is one more snapshot of the table."""
        position = self._known.next_offset(tp) or 0
        return PartitionBounds(tp, 0, position + 1, position + 1, now, position + 1)

    # Times

    def _horizon(self, relations: Sequence[Relation]) -> Horizon:
        options = self._options
        delay = options.timestamp_delay // timedelta(microseconds=1)
        if options.consistency != "exact":
            now = self._engine.clock(self._ask, options.db_timezone)
            return Horizon(now, now - delay)
        if not has_one_offset(options.db_timezone):
            raise ActionRequiredError(
                f"Clocks of {options.db_timezone} are set back once a year, and with them times without a zone.",
                next_step="keep times in a column with a zone, or in UTC; or choose consistency overlap or delay.",
            )
        found = self._engine.settled_time(self._ask, relations, options.clock_margin, options.horizon_wait)
        return found if found.at is None else replace(found, at=min(found.at, found.now - delay))

    def _timed(
        self, tp: TopicPartition, windowed: Windowed, horizon: Horizon
    ) -> tuple[PartitionBounds, tuple[Remark, ...]]:
        position = self._known.next_offset(tp)
        read = self._read_before(tp, horizon) if position is None else position
        settled = read
        if position is None and horizon.now < read:
            raise _ahead(tp, at(read).isoformat(), at(horizon.now).isoformat())
        if position is not None and horizon.now < position:
            raise ActionRequiredError(
                "The database's clock was set back behind what was read: rows that it dates before that would be lost.",
                next_step="nothing was read. Correct the clock, and run again when it has passed that time; rows dated "
                "before it meanwhile have to be touched, so that they are dated anew.",
                source=tp.topic,
                read_up_to=at(position).isoformat(),
                clock=at(horizon.now).isoformat(),
            )
        if horizon.at is not None:
            upper = self._dividing(windowed, horizon.at - horizon.at % windowed.grain)
            if read and horizon.held_by is not None and upper < read - windowed.grain and self._start is None:
                raise ActionRequiredError(
                    "A transaction is open that by the database's clock began before rows that were read: the clock "
                    "was set back, or an earlier interval didn't wait for it.",
                    next_step="nothing was read. Let it end; if it writes rows dated before that time, touch them, so "
                    "that they are dated anew.",
                    source=tp.topic,
                    session=horizon.held_by,
                    read_up_to=at(read).isoformat(),
                )
            settled = max(settled, upper)
        if self._start is not None and self._end is not None and horizon.held_by and settled < micros(self._end):
            raise RetryableError(
                f"Rows of this window may be still to come, of {horizon.held_by}.",
                next_step="the step is tried again; let the transaction end, or end the window before it.",
                source=tp.topic,
                settled=at(settled).isoformat(),
            )
        bounds = self._cut(tp, windowed, settled, position, horizon.now)
        return bounds, self._remarks(tp, horizon)

    # Numbers

    def _numbered(
        self, tp: TopicPartition, windowed: Windowed, horizon: Horizon
    ) -> tuple[PartitionBounds, tuple[Remark, ...]]:
        assert windowed.column is not None
        position = self._known.next_offset(tp)
        if horizon.at is not None and position is not None and horizon.at < position:
            raise ActionRequiredError(
                f"The numbers of column {windowed.column.name} have begun again: the next is {horizon.at}, and "
                f"those up to {position - 1} were read.",
                next_step="nothing was read. Rows with numbers that were read would be lost: number them anew from "
                f"{position} on, set the sequence to {position} at least, and name {position} as the table's position "
                "in `starting_offsets` for one run; or load the source's table into a new one.",
                source=tp.topic,
            )
        read = self._read_before(tp, horizon) if position is None else position
        if position is None and horizon.at is not None and horizon.at < read:
            raise _ahead(tp, read, horizon.at)
        bounds = self._cut(tp, windowed, max(read, horizon.at or 0), position, horizon.now)
        return bounds, self._remarks(tp, horizon)

    # Both

    def _read_before(self, tp: TopicPartition, horizon: Horizon) -> int:
        """The position up to which another loader has read a table that is new here; 0 if none has.

        Raises:
            RetryableError: rows that are still to come may be before it or behind it, which isn't known yet.
        """
        wanted = self._options.starting_offsets
        read = 0 if isinstance(wanted, str) else wanted.get(tp.topic, {}).get(tp.partition, 0)
        if self._start is not None or not (read or wanted == "latest"):
            return 0
        if horizon.at is None:
            raise RetryableError(
                f"It isn't known yet whether rows of {horizon.held_by} are before the first interval's start or in it.",
                next_step="nothing was read. The step is tried again; let the transaction end.",
                source=tp.topic,
            )
        return read

    def _remarks(self, tp: TopicPartition, horizon: Horizon) -> tuple[Remark, ...]:
        if horizon.held_by is None or (horizon.at is not None and horizon.since < _STANDS_STILL):
            return ()
        words = f"newer rows wait for {horizon.held_by}, open for {horizon.since.total_seconds():.0f} s"
        return (Remark(tp, words),)

    def _cut(
        self, tp: TopicPartition, windowed: Windowed, settled: int, position: int | None, now: int
    ) -> PartitionBounds:
        """The bounds up to a horizon: nothing where there is no row, and no more than `max_records` at a time."""
        begin = self._begin(tp, settled) if position is None else position
        if position is None and not self._options.positions_of(tp.topic):
            self._refuse_negative(windowed)
        end = settled
        if self._end is not None and self._options.by_time:
            end = min(end, self._dividing(windowed, micros(self._end) - micros(self._end) % windowed.grain))
        if self._start is not None and self._options.by_time:  # a window that was asked for is read whole
            start = self._dividing(windowed, micros(self._start))
            return PartitionBounds(tp, 0, settled, max(end, start), at(end), settled, window_start=start)
        limited = self._limited(windowed, tp.partition, begin, end) if begin < end else begin
        has_more = begin < limited < end
        through = at((limited if has_more else end) if self._options.by_time else now)
        self.waits = self.waits or (has_more and not self._options.by_time)  # rows that are left may be of any time
        # Where no row is left, none is behind, however far the clock is.
        return PartitionBounds(tp, 0, settled if has_more else limited, limited, through, settled)

    def _begin(self, tp: TopicPartition, settled: int) -> int:
        wanted = self._options.starting_offsets
        if isinstance(wanted, str):
            return 0 if wanted == "earliest" else settled
        return min(wanted.get(tp.topic, {}).get(tp.partition, 0), settled)  # a backfill may be before it

    def _refuse_negative(self, windowed: Windowed) -> None:
        below = self._literal(windowed, 0)
        found = f"SELECT 1 FROM {windowed.relation.sql} WHERE {windowed.expression} < {below}"
        if self._ask(self._engine.first(found)):
            raise ActionRequiredError(
                "Rows have times before 1970, or numbers below 0, from which no window can begin.",
                next_step="correct them; or leave them out: name 0 as the table's first position, in "
                f"`starting_offsets` {{{windowed.relation.topic}: {{0: 0}}}}.",
                source=windowed.relation.topic,
            )

    def _limited(self, windowed: Windowed, split: int, begin: int, end: int) -> int:
        """The end of a window from `begin` on with at most `max_records` rows; more where all have one value."""
        of, expression = windowed.relation.sql, windowed.expression
        mine = f" AND {windowed.split} = {split}" if windowed.split else ""
        below_end = f"{expression} < {self._literal(windowed, end)}{mine}"
        window = f"{expression} >= {self._literal(windowed, begin)} AND {below_end}"
        again = self._options.overlap // timedelta(microseconds=1)
        from_ = f"{expression} >= {self._literal(windowed, max(0, begin - again))}"
        first = self._engine.first
        if not self._ask(first(f"SELECT 1 FROM {of} WHERE {from_} AND {below_end}")):
            return begin
        value = self._number(windowed)
        most = max(1, self._options.max_records // self._options.splits)
        first_of_next = self._ask(first(f"SELECT {value} FROM {of} WHERE {window} ORDER BY {expression}", most))
        if not first_of_next:
            return end
        found = self._engine.position_of(first_of_next[0][0], windowed.bound, self._options.db_timezone)
        cut = self._dividing(windowed, found - found % windowed.grain)
        below = f"{window} AND {expression} < {self._literal(windowed, cut)}"
        if cut > begin and self._ask(first(f"SELECT 1 FROM {of} WHERE {below}")):
            return cut
        # More rows have this one value than an interval was to have; or these two hours, whose texts are the same.
        after = cut + windowed.grain
        while after < end and self._dividing(windowed, after) < after:
            after += _QUARTER
        return min(end, after)

    def _dividing(self, windowed: Windowed, value: int) -> int:
        """The last time up to `value` that may be a window's bound; see `risen`."""
        return risen(value, self._options.db_timezone) if windowed.bound == "local" else value

    def _number(self, windowed: Windowed) -> str:
        return position_of(self._engine, self._options, windowed)

    def _literal(self, windowed: Windowed, value: int) -> str:
        return self._engine.literal(value, windowed.bound, self._options.db_timezone)


def _ahead(tp: TopicPartition, start: Any, end: Any) -> ActionRequiredError:
    return ActionRequiredError(
        "The source's `starting_offsets` lie ahead of what the database has given.",
        next_step="correct them; docs/jdbc-source.md says what positions are.",
        source=tp.topic,
        starts=start,
        database=end,
    )
