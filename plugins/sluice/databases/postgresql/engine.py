"""PostgreSQL as a source. Pure.

`now()` is the time at which a transaction began, so a transaction that is open may still write times from then on,
even if it has written nothing yet. Sequences give numbers that are committed in any order.
docs/guarantees/jdbc-source.md says why what is asked here is enough.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta

from sluice.databases.dialect import parts_of_type
from sluice.databases.engine import (
    ELSEWHERE,
    NO_DAY,
    NO_TIME,
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
    no_time,
    not_exact,
    not_on_disk,
    numeric,
    unreadable,
)
from sluice.errors import ActionRequiredError
from sluice.identifiers import sql_quoted

_OWN = "n.nspname NOT LIKE 'pg\\_%' AND n.nspname <> 'information_schema'"
# Seconds and what is below them apart: before PostgreSQL 14 both together are a double, which has too few digits.
_MICROS = (
    "(extract(epoch FROM date_trunc('second', {0}))::bigint * 1000000 "
    "+ extract(microseconds FROM {0})::bigint % 1000000)"
)
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
_TREE = (
    "WITH RECURSIVE tree(oid) AS (SELECT ?::oid UNION SELECT i.inhrelid FROM pg_inherits i JOIN tree t "
    "ON i.inhparent = t.oid)"
)
_PARTS = (
    f"{_TREE} SELECT c.oid::regclass::text, c.relkind::text, EXISTS (SELECT 1 FROM pg_subscription_rel s "
    "WHERE s.srrelid = c.oid), row_security_active(c.oid) FROM tree JOIN pg_class c ON c.oid = tree.oid"
)
# The defaults, as the database writes them, that give the transaction's beginning or a later time, not rounded.
_CLOCK = (
    r"(?:now\(\)|CURRENT_TIMESTAMP|transaction_timestamp\(\)|statement_timestamp\(\)|clock_timestamp\(\)"
    r"|\('now'::text\)::timestamp with time zone)"
)
_REPLICA = "this server is a replica, which doesn't know the transactions of its primary"
# What a restored copy, a promoted replica and another server have another of. A replica has no timeline to write on.
_SYSTEM = "(SELECT system_identifier::text FROM pg_control_system())"
_TIMELINE = "substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8)"
_LOG = "pg_current_wal_insert_lsn()"
_READ_FILE = "pg_read_file(text, bigint, bigint, boolean)"
_INFINITE = "it is infinite"
_PADDED = ("character", "bpchar")
# `char(n)`, and all domains over it, which are described as it is.
_PADDED_TYPES = (
    "WITH RECURSIVE padded(oid) AS (SELECT 'bpchar'::regtype::oid UNION SELECT t.oid FROM pg_type t JOIN padded p "
    "ON t.typbasetype = p.oid WHERE t.typtype = 'd')"
)
_PAUSE = 0.05  # seconds between two looks whether transactions have ended: nothing tells it


def _finite(sql: str, number: str, instead: int) -> str:
    """The number of a date or time, and `instead` of `infinity`, which has none; a null stays one."""
    return f"CASE WHEN isfinite({sql}) THEN {number} WHEN {sql} IS NOT NULL THEN {instead} END"


def _same_zone(one: str, other: str) -> bool:
    plain = {"utc", "gmt", "etc/utc", "etc/gmt", "zulu", "etc/zulu", "universal", "greenwich"}
    return one.lower() == other.lower() or {one.lower(), other.lower()} <= plain


def _is_local_clock(default: str, zone: str) -> bool:
    """Whether a default is the clock in a zone; PostgreSQL before 14 writes it as a call."""
    found = re.fullmatch(rf"\({_CLOCK} AT TIME ZONE '([^']+)'::text\)", default)
    found = found or re.fullmatch(rf"timezone\('([^']+)'::text, {_CLOCK}\)", default)
    return found is not None and _same_zone(found[1], zone)


class PostgreSql(Engine):
    """PostgreSQL 12 and later."""

    name = "PostgreSQL"
    begun_again = "its sequence was restarted (TRUNCATE … RESTART IDENTITY, ALTER SEQUENCE … RESTART) or made anew"

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
            f"{_PADDED_TYPES} SELECT a.attname, CASE WHEN a.atttypid IN (SELECT oid FROM padded) THEN 'character' "
            "ELSE format_type(a.atttypid, a.atttypmod) END, NOT a.attnotnull, "
            "coalesce(array_position(string_to_array(i.indkey::text, ' '), a.attnum::text), 0), "
            "pg_get_serial_sequence(quote_ident(n.nspname) || '.' || quote_ident(c.relname), a.attname) IS NOT NULL "
            "FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace "
            "LEFT JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary "
            "WHERE a.attrelid = ?::oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum",
            oid,
        )
        made = tuple(Column(str(n), str(t), bool(null), int(key), bool(own)) for n, t, null, key, own in columns)
        sql = f"{sql_quoted(schema)}.{sql_quoted(name)}"
        return Relation(topic, sql, str(oid), schema, name, kind in ("r", "p"), made)

    def reading(self, column: Column, mapping: NumericMapping, zone: str) -> Reading:
        """Times travel as numbers, and what Spark has no type for as text."""
        name, numbers = parts_of_type(column.type)
        sql = sql_quoted(column.name)
        plain = {
            "smallint": "INT", "integer": "INT", "bigint": "BIGINT", "real": "FLOAT", "double precision": "DOUBLE",
            "boolean": "BOOLEAN", "bytea": "BINARY",
        }  # fmt: skip
        if name in plain:
            return Reading(sql, plain[name], plain[name])
        if name == "numeric":
            precision, scale = (*numbers, 0)[:2] if numbers else (None, None)
            found = numeric(precision, scale, mapping)
            if found == "DOUBLE":
                return Reading(sql, found, found)
            if found is not None:  # as text, since the driver has no number for NaN
                nan = unreadable(column, found, "{} = 'NaN'", "it is NaN")
                return Reading(f"({sql})::text", "STRING", found, f"try_cast({{}} AS {found})", nan)
        bound = self.bound_of(column)
        if bound in ("instant", "local"):
            micros = _finite(sql, self.microseconds(sql, bound, zone), NO_TIME)
            infinite = no_time(column, "TIMESTAMP", _INFINITE)
            return Reading(micros, "BIGINT", "TIMESTAMP", "timestamp_micros({})", infinite)
        if name == "date":
            days = _finite(sql, f"({sql} - DATE '1970-01-01')", NO_DAY)
            return Reading(days, "INT", "DATE", "date_from_unix_date({})", no_time(column, "DATE", _INFINITE))
        if name in _PADDED:  # a cast strips the blanks at the end; the type's output, which clients get, has them
            return Reading(f"textin(bpcharout({sql}))", "STRING", "STRING", earlier=f"({sql})::text")
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

    def server(self, ask: Ask) -> dict[str, str]:
        """The cluster of databases, the timeline that it writes, and the position in its log."""
        ((allowed, standby),) = ask(
            "SELECT has_function_privilege('pg_control_system()', 'EXECUTE'), pg_is_in_recovery()"
        )
        if not allowed:
            raise ActionRequiredError(
                "The login may not ask which server answers, so it can't be known whether rows are read of the server "
                "that was looked at.",
                next_step="GRANT EXECUTE ON FUNCTION pg_control_system() TO the login.",
            )
        if standby:
            raise not_exact(_REPLICA)
        ((system, timeline, log),) = ask(f"SELECT {_SYSTEM}, {_TIMELINE}, {_LOG}::text")
        return {"system": str(system), "timeline": str(timeline), "log": str(log)}

    def durable(self, ask: Ask) -> dict[str, str]:
        """The position up to which the log is on the disk: replicas get it up to there."""
        return {"log": str(ask("SELECT pg_current_wal_flush_lsn()::text")[0][0])}

    def missing(self, ask: Ask, last: Mapping[str, str], durable: Mapping[str, str], *, numbers: bool) -> str | None:
        """By the place at which the present timeline parted from that of then: see `Engine`.

        A server that is promoted, or restored up to a time, begins a new timeline. Its history file, which stays, has
        the position in the log up to which each earlier timeline is its own. For times the promotion has to come after
        the look, too: an old primary that is still there has a clock that runs on. What the log has beyond the position
        at the look tells that.
        """
        now, had = self.server(ask), durable.get("log", last["log"]) if numbers else last["log"]
        if now["system"] != last["system"]:
            return f"it is another cluster of databases, with the system identifier {now['system']}"
        then, timeline = int(last["timeline"], 16), int(now["timeline"], 16)
        if timeline == then:
            flushed = durable.get("log", last["log"])
            ((behind,),) = ask("SELECT ?::pg_lsn < ?::pg_lsn", now["log"], flushed)
            return f"its log ends at {now['log']}, and had {flushed} before: it was set back" if behind else None
        file = f"pg_wal/{now['timeline']}.history"
        ((readable,),) = ask(f"SELECT has_function_privilege('{_READ_FILE}', 'EXECUTE')")
        if not readable:
            where = f"at {had} or later" if numbers else f"behind {had}"
            return (
                f"it was promoted or restored: its timeline is {timeline}, and was {then}. Where they part a superuser "
                f"sees by SELECT pg_read_file('{file}'): {where} in the line of {then}, and it lacks nothing. "
                f"GRANT EXECUTE ON FUNCTION {_READ_FILE} TO the login, and START looks itself"
            )
        ((history,),) = ask("SELECT pg_read_file(?, 0, 1048576, true)", file)
        parted = dict(re.findall(r"^(\d+)\s+([0-9A-F]+/[0-9A-F]+)", str(history or ""), re.MULTILINE)).get(str(then))
        if parted is None:
            return f"its timeline, {timeline}, doesn't come from timeline {then}, which was there before"
        ((less, same),) = ask("SELECT ?::pg_lsn < ?::pg_lsn, ?::pg_lsn = ?::pg_lsn", parted, had, parted, had)
        if less or (same and not numbers):
            return f"it was promoted or restored at {parted} of a log that had {had} when START looked"
        return None

    def guard(self, server: Mapping[str, str]) -> str:
        """A cast that fails. It isn't of a constant, which the planner would fold, and fail always."""
        if not server:
            return ""
        same = (
            f"{_SYSTEM} = '{server['system']}' AND {_TIMELINE} = '{server['timeline']}' "
            f"AND {_LOG} >= '{server['log']}'::pg_lsn"
        )
        here = f"CASE WHEN pg_is_in_recovery() THEN false ELSE {same} END"
        return f"SELECT CASE WHEN {here} THEN 1 ELSE ('{ELSEWHERE} ' || clock_timestamp()::text)::int END"

    def settled_time(self, ask: Ask, relations: Sequence[Relation], margin: timedelta, wait: timedelta) -> Horizon:  # noqa: ARG002
        """The start of the oldest open transaction of any session, or now less the margin; see `Engine`."""
        ((standby, sees_all, tracks),) = ask(
            "SELECT pg_is_in_recovery(), pg_has_role('pg_read_all_stats', 'USAGE'), "
            "current_setting('track_activities')::boolean"
        )
        if standby:
            raise not_exact(_REPLICA)
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
            held = f"the prepared transaction {gid!r} of {owner}, whose beginning is no longer known"
            return Horizon(now, None, held, timedelta(microseconds=now - int(since)))
        for pid, who, _, state, _ in sessions:
            if state == "disabled":
                raise not_exact(f"session {pid} of {who} has track_activities off, so its transactions aren't shown")
        upper = now - margin // timedelta(microseconds=1)
        if not sessions or int(sessions[0][4]) >= upper:
            return Horizon(now, upper)
        pid, who, application, state, began = sessions[0]
        words = f"session {pid} of {who}" + f" ({application})" * bool(application) + f", {state}"
        return Horizon(now, int(began), words, timedelta(microseconds=now - int(began)))

    def require_written(self, ask: Ask, relation: Relation, columns: Sequence[Column], zone: str) -> None:
        """By the columns' defaults, or a trigger's function: see `Engine`.

        A default that the database's clock gives to each session in its own zone is none for a column without a zone.
        """
        triggers = ask(
            f"{_TREE} SELECT DISTINCT coalesce(array_to_string(p.proconfig, ','), ''), t.tgtype & 4 FROM tree "
            "JOIN pg_trigger t ON t.tgrelid = tree.oid JOIN pg_proc p ON p.oid = t.tgfoid "
            "WHERE NOT t.tgisinternal AND t.tgenabled IN ('O', 'A') AND t.tgtype & 3 = 3",
            int(relation.id),
        )
        zones = [
            setting.partition("=")[2]
            for settings, _ in triggers
            for setting in str(settings).split(",")
            if setting.lower().startswith("timezone=")
        ]
        # What a trigger's function writes can't be asked, but in which zone it runs.
        of_one_zone = len(zones) == len(triggers) and all(_same_zone(one, zone) for one in zones)
        written = [self._is_written(ask, relation, column, zone) for column in columns]
        local = self.bound_of(columns[0]) == "local"
        inserting = any(inserts for _, inserts in triggers)
        if local and not (of_one_zone and (inserting or all(written))):
            raise not_exact(
                f"nothing says that {', '.join(column.name for column in columns)}, without a time zone, is written "
                f"in {zone}, the source's `db_timezone`: now() is there the clock of each session's own zone. Make the "
                f"default now() AT TIME ZONE '{zone}', and SET timezone = '{zone}' of the functions of triggers that "
                "run before a row is written; or give the column a time zone",
                relation,
            )
        if not (inserting or any(written)):
            raise not_exact(
                f"the database doesn't write {', '.join(column.name for column in columns)}: no default is now(), and "
                "no trigger is there that could",
                relation,
            )

    def _is_written(self, ask: Ask, relation: Relation, column: Column, zone: str) -> bool:
        """Whether a column's default is the clock, or the transaction's beginning, in its type."""
        texts = ask(
            f"{_TREE} SELECT DISTINCT coalesce((SELECT pg_get_expr(d.adbin, d.adrelid) FROM pg_attrdef d "
            "WHERE d.adrelid = a.attrelid AND d.adnum = a.attnum AND a.attgenerated = ''), '') FROM tree "
            "JOIN pg_attribute a ON a.attrelid = tree.oid WHERE a.attname = ?",
            int(relation.id),
            column.name,
        )
        local = self.bound_of(column) == "local"
        return all(_is_local_clock(text, zone) if local else re.fullmatch(_CLOCK, text) for (text,) in texts)

    def _require_own(self, ask: Ask, relation: Relation) -> None:
        """Of the table, and of all that are its partitions or inherit it: rows of theirs are rows of its."""
        if not relation.is_table:
            raise not_exact("a view, or a foreign table, may have rows of tables that others write", relation)
        for name, kind, subscribed, hidden in ask(_PARTS, int(relation.id)):
            if kind not in ("r", "p"):
                raise not_exact(f"a part of the table, {name}, is a foreign table, which others write", relation)
            if subscribed:
                raise not_exact(f"a subscription writes to {name}, with times of another server", relation)
            if hidden:
                raise not_exact(f"a row-level policy of {name} may show a row later than it was written", relation)

    def life(self, ask: Ask, relation: Relation, column: Column) -> dict[str, str]:
        """A restart gives the sequence another file, and nothing that only takes numbers does."""
        ((found,),) = ask(
            "SELECT max(s.oid::bigint || '/' || pg_relation_filenode(s.oid)) "
            "FROM (SELECT pg_get_serial_sequence(?, ?)::regclass::oid AS oid) s WHERE s.oid IS NOT NULL",
            relation.sql,
            column.name,
        )
        return {} if found is None else {"sequence": str(found)}

    def parts(self, ask: Ask, relation: Relation) -> list[str]:
        """Partitions, and tables that inherit it, by their oids."""
        if not relation.is_table:
            return []
        found = ask(f"{_TREE} SELECT oid::bigint FROM tree WHERE oid <> ?::oid", int(relation.id), int(relation.id))
        return [str(part) for (part,) in found]

    def filled_below(self, ask: Ask, relation: Relation, part: str, expression: str, bound: str) -> str | None:
        """By the part's own index, where the login may read it; else by way of the table."""
        found = ask(
            "SELECT c.oid::regclass::text, quote_ident(n.nspname) || '.' || quote_ident(c.relname), "
            "has_table_privilege(c.oid, 'SELECT') FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE c.oid = ?::oid AND c.relkind = 'r'",
            int(part),
        )
        for name, sql, readable in found:
            of = f"ONLY {sql} WHERE true" if readable else f"{relation.sql} WHERE tableoid = {int(part)}"
            if ask(f"SELECT 1 FROM {of} AND {expression} < {bound} LIMIT 1"):
                return str(name)
        return None

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
        # The WAL writer writes up to the end of each transaction, and not past it: this is one, without a change.
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
                f"column {column.name} has no sequence, so it is unknown which session took which number", relation
            )
        sequence, increment, cache, cycles, readable, standby = found[0]
        if standby:
            raise not_exact(_REPLICA, relation)
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
