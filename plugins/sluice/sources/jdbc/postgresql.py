"""PostgreSQL as a source. Pure.

`now()` is the time at which a transaction began, so a transaction that is open may still write times from then on,
even if it has written nothing yet. Sequences give numbers that are committed in any order.
docs/guarantees/jdbc-source.md says why what is asked here is enough.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta

from sluice.errors import ActionRequiredError
from sluice.sinks.jdbc.dialect import parts_of_type
from sluice.sources.jdbc.engine import (
    Ask,
    Bound,
    Column,
    Engine,
    Horizon,
    NumericMapping,
    Reading,
    Relation,
    comes_to_disk,
    local_text,
    not_exact,
    not_on_disk,
    numeric,
)

_OWN = "n.nspname NOT LIKE 'pg\\_%' AND n.nspname <> 'information_schema'"
_MICROS = "(extract(epoch FROM {}) * 1000000)::bigint"
# They write no rows of a user's, or only what other sessions here have written.
_NO_WRITERS = (
    "'autovacuum worker', 'autovacuum launcher', 'walsender', 'walwriter', 'checkpointer', 'background writer', "
    "'logical replication launcher', 'walreceiver', 'startup', 'archiver'"
)
_OPEN = (
    "SELECT pid, coalesce(usename::text, backend_type), coalesce(application_name, ''), state, "
    f"{_MICROS.format('xact_start')} FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
    f"AND (datid IS NULL OR datname = current_database()) AND backend_type NOT IN ({_NO_WRITERS}) "
    "AND (xact_start IS NOT NULL OR state = 'disabled') ORDER BY xact_start NULLS FIRST"
)
_LOCKS = (
    "SELECT DISTINCT coalesce(pid, 0), virtualtransaction FROM pg_locks WHERE locktype = 'relation' "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND relation = ?::oid "
    "AND pid IS DISTINCT FROM pg_backend_pid() "
    "AND mode IN ('RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')"
)
_PAUSE = 0.05  # seconds between two looks whether transactions have ended: nothing tells it


class PostgreSql(Engine):
    """PostgreSQL 12 and later."""

    name = "PostgreSQL"

    def names(self, ask: Ask) -> list[str]:
        """As schema.table."""
        sql = (
            "SELECT n.nspname || '.' || c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            f"WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT c.relispartition AND {_OWN} ORDER BY 1"
        )
        return [str(name) for (name,) in ask(sql)]

    def relation(self, ask: Ask, topic: str) -> Relation:
        """By the search path where the name has no schema."""
        found = ask(
            "SELECT c.oid::bigint, n.nspname, c.relname, c.relkind::text FROM pg_class c "
            "JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') "
            "AND CASE WHEN ? LIKE '%.%' THEN n.nspname || '.' || c.relname = ? "
            "ELSE c.relname = ? AND pg_table_is_visible(c.oid) END",
            topic,
            topic,
            topic,
        )
        if len(found) != 1:
            raise ActionRequiredError(
                f"There is no table or view {topic} that the login sees.",
                next_step="correct the source's `tables`, with schema and in the database's own upper and lower case, "
                "or grant the login USAGE on the schema.",
                source=topic,
            )
        oid, schema, name, kind = found[0]
        columns = ask(
            "SELECT a.attname, format_type(a.atttypid, a.atttypmod), NOT a.attnotnull, "
            "coalesce(array_position(string_to_array(i.indkey::text, ' '), a.attnum::text), 0), "
            "pg_get_serial_sequence(quote_ident(n.nspname) || '.' || quote_ident(c.relname), a.attname) IS NOT NULL "
            "FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace "
            "LEFT JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary "
            "WHERE a.attrelid = ?::oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum",
            oid,
        )
        made = tuple(Column(str(n), str(t), bool(null), int(key), bool(own)) for n, t, null, key, own in columns)
        sql = f"{self.quoted(schema)}.{self.quoted(name)}"
        return Relation(topic, sql, str(oid), schema, name, kind in ("r", "p"), made)

    def reading(self, column: Column, mapping: NumericMapping, zone: str) -> Reading:
        """Times travel as numbers, and what Spark has no type for as text."""
        name, numbers = parts_of_type(column.type)
        sql = self.quoted(column.name)
        plain = {
            "smallint": "INT", "integer": "INT", "bigint": "BIGINT", "real": "FLOAT", "double precision": "DOUBLE",
            "boolean": "BOOLEAN", "bytea": "BINARY",
        }  # fmt: skip
        if name in plain:
            return Reading(sql, plain[name], plain[name])
        if name == "numeric":
            precision, scale = (*numbers, 0)[:2] if numbers else (None, None)
            found = numeric(precision, scale, mapping)
            if found is not None:
                return Reading(sql, found, found)
        bound = self.bound_of(column)
        if bound in ("instant", "local"):
            return Reading(self.microseconds(sql, bound, zone), "BIGINT", "TIMESTAMP", "timestamp_micros({})")
        if name == "date":
            return Reading(f"({sql} - DATE '1970-01-01')", "INT", "DATE", "date_from_unix_date({})")
        return Reading(f"({sql})::text", "STRING", "STRING")

    def bound_of(self, column: Column) -> Bound | None:
        """Times with a zone, without one, and whole numbers."""
        name, numbers = parts_of_type(column.type)
        if name == "numeric":
            return "number" if len(numbers) == 1 or (len(numbers) == 2 and numbers[1] == 0) else None
        found: dict[str, Bound] = {
            "timestamp with time zone": "instant",
            "timestamp without time zone": "local",
            "smallint": "number",
            "integer": "number",
            "bigint": "number",
        }
        return found.get(name)

    def microseconds(self, expression: str, bound: Bound, zone: str) -> str:
        """By the epoch, which is exact to the microsecond."""
        return _MICROS.format(expression if bound == "instant" else f"({expression} AT TIME ZONE '{zone}')")

    def literal(self, value: int, bound: Bound, zone: str) -> str:
        """Of the column's own type."""
        if bound == "number":
            return str(value)
        if bound == "instant":
            return f"TIMESTAMPTZ '{local_text(value, 'UTC')}+00'"
        return f"TIMESTAMP '{local_text(value, zone)}'"

    def grain(self, column: Column) -> int:
        """By the precision of its type."""
        _, numbers = parts_of_type(column.type)
        return int(10 ** (6 - (numbers[0] if numbers else 6)))

    def now(self, ask: Ask) -> int:
        """Not the time of a transaction."""
        return int(ask(f"SELECT {_MICROS.format('clock_timestamp()')}")[0][0])

    def settled_time(self, ask: Ask, relations: Sequence[Relation], margin: timedelta, wait: timedelta) -> Horizon:  # noqa: ARG002
        """The start of the oldest open transaction of any session, or now less the margin; see `Engine`."""
        ((standby, sees_all, tracks),) = ask(
            "SELECT pg_is_in_recovery(), pg_has_role('pg_read_all_stats', 'USAGE'), "
            "current_setting('track_activities')::boolean"
        )
        if standby:
            raise not_exact("this server is a replica, which doesn't know the transactions of its primary")
        if not sees_all:
            raise ActionRequiredError(
                "The login doesn't see when the transactions of others began, so it can't be known which rows are "
                "still to come.",
                next_step="grant it pg_read_all_stats: GRANT pg_read_all_stats TO the login.",
            )
        if not tracks:
            raise not_exact("track_activities is off, by which the server shows its open transactions")
        for relation in relations:
            self._require_own(ask, relation)
        # In this order: what begins after the clock was read is later than it, and what is prepared after it was seen
        # open is seen, too.
        now = self.now(ask)
        sessions = ask(_OPEN)
        prepared = ask(
            f"SELECT gid, owner, {_MICROS.format('prepared')} FROM pg_prepared_xacts "
            "WHERE database = current_database() ORDER BY prepared"
        )
        if prepared:
            gid, owner, since = prepared[0]
            held = f"the prepared transaction {gid!r} of {owner}, whose beginning nobody knows any more"
            return Horizon(now, None, held, timedelta(microseconds=now - int(since)))
        for pid, who, _, state, _ in sessions:
            if state == "disabled":
                raise not_exact(f"session {pid} of {who} has track_activities off, so nobody sees what it has begun")
        upper = now - margin // timedelta(microseconds=1)
        if not sessions or int(sessions[0][4]) >= upper:
            return Horizon(now, upper)
        pid, who, application, state, began = sessions[0]
        words = f"session {pid} of {who}" + f" ({application})" * bool(application) + f", {state}"
        return Horizon(now, int(began), words, timedelta(microseconds=now - int(began)))

    def _require_own(self, ask: Ask, relation: Relation) -> None:
        if not relation.is_table:
            raise not_exact("a view, or a foreign table, may have rows of tables that others write", relation)
        subscribed = ask(
            "SELECT 1 FROM pg_subscription_rel WHERE srrelid = ?::oid LIMIT 1",
            int(relation.id),
        )
        if subscribed:
            raise not_exact("a subscription writes to the table, with times of another server", relation)

    def settled_numbers(self, ask: Ask, columns: Sequence[tuple[Relation, Column]], wait: timedelta) -> list[Horizon]:
        """What each sequence has given, once all have ended that took numbers of it; see `Engine`.

        Who takes a number locks its sequence until the transaction ends, also of a prepared one.
        """
        for relation, _ in columns:
            self._require_own(ask, relation)
        now = self.now(ask)  # rows that are committed later may have numbers that aren't given yet
        given = [self._given(ask, relation, column) for relation, column in columns]
        before = [set(ask(_LOCKS, sequence)) for sequence, _ in given]
        deadline = time.monotonic() + wait.total_seconds()
        while any(before) and time.monotonic() < deadline:
            time.sleep(_PAUSE)
            before = [
                locked & set(ask(_LOCKS, sequence)) if locked else locked
                for locked, (sequence, _) in zip(before, given, strict=True)
            ]
        is_on_disk = self._comes_to_disk(ask)
        found = []
        for locked, (_, last), (_, column) in zip(before, given, columns, strict=True):
            if locked:
                pid, transaction = min(locked)
                who = f"session {pid}" if pid else f"a prepared transaction ({transaction})"
                found.append(Horizon(now, None, f"{who}, which has taken a number of {column.name}", wait))
            elif not is_on_disk:
                found.append(not_on_disk(now))
            else:
                found.append(Horizon(now, 0 if last is None else last + 1))
        return found

    @staticmethod
    def _comes_to_disk(ask: Ask) -> bool:
        """Whether what the log has by now comes to the server's disk soon."""
        ((target,),) = ask("SELECT pg_current_wal_insert_lsn()::text")

        def is_there() -> bool:
            return bool(ask("SELECT pg_current_wal_flush_lsn() >= ?::pg_lsn", target)[0][0])

        if is_there():
            return True
        # The WAL writer goes on to the end of each transaction, and not past it: this is one, without a change.
        ask("SELECT txid_current()")
        return comes_to_disk(is_there)

    @staticmethod
    def _given(ask: Ask, relation: Relation, column: Column) -> tuple[int, int | None]:
        """A column's sequence, and the last number that it has given."""
        found = ask(
            "SELECT s.seqrelid::bigint, s.seqincrement, s.seqcache, s.seqcycle, "
            "has_sequence_privilege(s.seqrelid, 'SELECT, USAGE'), pg_is_in_recovery() FROM pg_sequence s "
            "WHERE s.seqrelid = pg_get_serial_sequence(?, ?)::regclass",
            relation.sql,
            column.name,
        )
        if not found:
            raise not_exact(
                f"column {column.name} has no sequence, so nobody knows who has taken which number", relation
            )
        sequence, increment, cache, cycles, readable, standby = found[0]
        if standby:
            raise not_exact("this server is a replica, which doesn't know the transactions of its primary", relation)
        if cache != 1 or increment != 1 or cycles:
            raise not_exact(
                f"the sequence of column {column.name} has CACHE {cache}, INCREMENT {increment} and "
                f"{'CYCLE' if cycles else 'NO CYCLE'}, so numbers are used out of their order",
                relation,
            )
        if not readable:
            raise ActionRequiredError(
                "The login may not read the sequence of the column, so it can't be known which numbers are given.",
                next_step="GRANT SELECT ON SEQUENCE to the login, as docs/jdbc-source.md says under `Rights`.",
                source=relation.topic,
            )
        ((last,),) = ask("SELECT pg_sequence_last_value(?::oid::regclass)", sequence)
        return int(sequence), None if last is None else int(last)
