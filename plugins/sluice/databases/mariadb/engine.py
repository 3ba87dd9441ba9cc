"""MariaDB as a source. Pure.

`NOW()` is the time at which a statement began, and a number is given while one runs. What may still commit rows from
before is therefore a thread that is busy, or a transaction that has changed rows: these are waited for.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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
)
from sluice.errors import ActionRequiredError
from sluice.identifiers import sql_quoted

_MICROS = "timestampdiff(MICROSECOND, TIMESTAMP '1970-01-01 00:00:00', {})"
_OWN = "('mysql', 'information_schema', 'performance_schema', 'sys')"
# All threads that do something. What each says of its statement is that of the innermost one: one that calls a stored
# function, or fires a trigger, has another id and another beginning with each instruction of it.
_BUSY = (
    "SELECT id, concat('thread ', id, ' of ', user), time_ms * 1000 FROM information_schema.processlist "
    "WHERE id <> connection_id() AND command NOT IN ('Sleep', 'Daemon', 'Binlog Dump')"
)
# Transactions that are open, and which have changed rows. A prepared one may have no thread.
_OPEN = (
    "SELECT trx_id, trx_mysql_thread_id, trx_rows_modified > 0 OR trx_mysql_thread_id = 0, "
    "timestampdiff(MICROSECOND, convert_tz(trx_started, 'SYSTEM', '+00:00'), now(6)), "
    "trx_mysql_thread_id = connection_id() AND trx_isolation_level = ? FROM information_schema.innodb_trx"
)
_NEXT_LOOK = "SELECT @sluice_look := coalesce(@sluice_look, 0) + 1"
_BEGIN = "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY"
_LEVELS = ("READ COMMITTED", "REPEATABLE READ")
_LOCK, _UNLOCK = "SELECT get_lock('sluice_innodb_trx', 0)", "SELECT release_lock('sluice_innodb_trx')"
_CLOCK, _UTC_CLOCK = r"(?:current_timestamp|now)(?:\(\d?\))?", r"\(?utc_timestamp(?:\(\d?\))?\)?"
# How many triggers may date a row that is inserted, or any that is written.
_TRIGGERS = (
    "SELECT coalesce(sum(event_manipulation = 'INSERT'), 0), count(*) FROM information_schema.triggers "
    "WHERE action_timing = 'BEFORE' AND event_object_schema = ? AND event_object_table = ?"
)
_ALONE = "SELECT variable_value FROM information_schema.global_variables WHERE variable_name = 'WSREP_ON'"
_FILE = "concat(CAST(convert(? USING filename) AS BINARY), '/', CAST(convert(? USING filename) AS BINARY){})"
_PARTITIONS = _FILE.format(", '#P#'")
_TABLE_IDS = (
    "SELECT name, table_id FROM information_schema.innodb_sys_tables "
    f"WHERE CAST(name AS BINARY) = {_FILE.format('')} "
    f"OR left(CAST(name AS BINARY), length({_PARTITIONS})) = {_PARTITIONS}"
)
_CURRENT, _FLUSHED = "innodb_lsn_current", "innodb_lsn_flushed"
_LOG = (
    "SELECT variable_name, variable_value FROM information_schema.global_status "
    f"WHERE variable_name IN ('{_CURRENT}', '{_FLUSHED}')"
)
# What a replica, a restored copy and another server have another of; `server_uid` is of MariaDB 10.6.19 and later.
_SERVER = (
    "SELECT lower(variable_name), variable_value FROM information_schema.global_variables "
    "WHERE variable_name IN ('SERVER_UID', 'SERVER_ID', 'HOSTNAME', 'PORT', 'DATADIR') ORDER BY 1"
)
_LOG_NOW = (
    "(SELECT CAST(variable_value AS UNSIGNED) FROM information_schema.global_status "
    f"WHERE variable_name = '{_CURRENT}')"
)
_KEPT = 0.12  # seconds: InnoDB's list of transactions is renewed after a tenth of a second without a look at it
_PAUSE = 0.02  # seconds between two looks at threads: no event says when one is idle
_SEEN_WITHIN = 2.0  # seconds that a look at transactions may take at least
_OTHERS = "readers of information_schema.innodb_trx, who look too often for it to be renewed"
_ZERO = "its year, month or day is 0"
_LEAST_MARGIN = timedelta(milliseconds=120)  # a thread has a statement's time a moment before it shows that it is busy
_INTEGERS = {"tinyint": "INT", "smallint": "INT", "mediumint": "INT", "int": "INT", "bigint": "BIGINT", "year": "INT"}
_UNSIGNED = {"int": "BIGINT", "bigint": "DECIMAL(20,0)"}


_GEOMETRIES = (
    "point", "geometry", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon", "geometrycollection",
)  # fmt: skip


def _never_null(sql: str, number: str, instead: int) -> str:
    """The number of a date or time, and `instead` of a zero date, of which the server's functions make a null."""
    return f"IF({sql} IS NULL, NULL, coalesce({number}, {instead}))"


def _time(column: Column, sql: str, kind: str, zone: str) -> Reading:
    """A column of times or days.

    The server converts times of a zone between 1970 and 2038 alone, and gives others back as they are: Spark does it.
    """
    if kind == "date":
        days = _never_null(sql, f"(to_days({sql}) - 719528)", NO_DAY)
        return Reading(days, "INT", "DATE", "date_from_unix_date({})", no_time(column, "DATE", _ZERO))
    value = "timestamp_micros({})"
    if kind == "datetime" and zone != "UTC":
        value = f"to_utc_timestamp({value}, '{zone}')"
    micros = _never_null(sql, _MICROS.format(sql), NO_TIME)
    return Reading(micros, "BIGINT", "TIMESTAMP", value, no_time(column, "TIMESTAMP", _ZERO))


class MariaDb(Engine):
    """MariaDB 10.6 and later, with InnoDB."""

    name = "MariaDB"
    begun_again = "the table was emptied, or made anew (TRUNCATE, or an ALTER or OPTIMIZE that rebuilds it)"

    def names(self, ask: Ask) -> list[str]:
        """As database.table."""
        found = ask(
            "SELECT concat(table_schema, '.', table_name) FROM information_schema.tables "
            f"WHERE table_type IN ('BASE TABLE', 'VIEW') AND table_schema NOT IN {_OWN} ORDER BY 1"
        )
        return [str(name) for (name,) in found]

    def relation(self, ask: Ask, topic: str) -> Relation:
        """In the connection's database where the name has none."""
        found = ask(
            "SELECT table_schema, table_name, table_type, coalesce(engine, '') FROM information_schema.tables "
            "WHERE concat(table_schema, '.', table_name) = ? OR (table_schema = database() AND table_name = ?)",
            topic,
            topic,
        )
        if len(found) != 1:
            raise ActionRequiredError(
                f"There is no table or view {topic} that the login sees.",
                next_step="correct the source's `tables`, in the database's own upper and lower case, or grant SELECT.",
                source=topic,
            )
        schema, name, kind, engine = found[0]
        # Two questions: the server answers a join of both by opening the table once more for each column.
        columns = ask(
            "SELECT column_name, column_type, is_nullable = 'YES', extra LIKE '%auto_increment%' "
            "FROM information_schema.columns WHERE table_schema = ? AND table_name = ? ORDER BY ordinal_position",
            schema,
            name,
        )
        keys = ask(
            "SELECT column_name, seq_in_index FROM information_schema.statistics "
            "WHERE table_schema = ? AND table_name = ? AND index_name = 'PRIMARY'",
            schema,
            name,
        )
        place = {str(column): int(number) for column, number in keys}
        made = tuple(Column(str(n), str(t), bool(null), place.get(str(n), 0), bool(own)) for n, t, null, own in columns)
        sql = f"{sql_quoted(schema)}.{sql_quoted(name)}"
        # An ALTER may make a table anew, so that nothing but its name is the same.
        return Relation(topic, sql, f"{schema}.{name}", schema, name, kind == "BASE TABLE", made, engine=str(engine))

    def reading(self, column: Column, mapping: NumericMapping, zone: str) -> Reading:
        """Times travel as numbers, and what Spark has no type for as text."""
        name, numbers = parts_of_type(column.type)
        first, *more = name.split()
        sql = sql_quoted(column.name)
        if first in _INTEGERS:
            kind = _UNSIGNED.get(first, _INTEGERS[first]) if "unsigned" in more else _INTEGERS[first]
            return Reading(sql, kind, kind)
        if first == "float":  # the protocol's text of a FLOAT has six digits
            return Reading(f"CAST({sql} AS DOUBLE)", "DOUBLE", "FLOAT", "CAST({} AS FLOAT)")
        if first == "double":
            return Reading(sql, "DOUBLE", "DOUBLE")
        if first in ("decimal", "numeric"):
            precision, scale = (*numbers, 0)[:2] if numbers else (10, 0)
            found = numeric(precision, scale, mapping)
            return Reading(sql, found, found) if found else Reading(f"CAST({sql} AS CHAR)", "STRING", "STRING")
        if first == "bit":
            return Reading(f"CAST({sql} AS UNSIGNED)", "DECIMAL(20,0)", "DECIMAL(20,0)")
        if first.endswith(("blob", "binary")):
            return Reading(sql, "BINARY", "BINARY")
        if first in ("timestamp", "datetime", "date"):
            return _time(column, sql, first, zone)
        if first in _GEOMETRIES:
            return Reading(f"ST_AsText({sql})", "STRING", "STRING")
        return Reading(f"CAST({sql} AS CHAR)", "STRING", "STRING")

    def bound_of(self, column: Column) -> Bound | None:
        """TIMESTAMP is an instant, DATETIME a time of a zone."""
        first = parts_of_type(column.type)[0].split()[0]
        if first in _INTEGERS:
            return "number"
        found: dict[str, Bound] = {"timestamp": "instant", "datetime": "local"}
        return found.get(first)

    def require_written(self, ask: Ask, relation: Relation, columns: Sequence[Column], zone: str) -> None:
        """By the columns' defaults and the table's triggers: see `Engine`.

        A TIMESTAMP is an instant whatever the session's zone is; a DATETIME holds the clock of the session's own zone,
        unless its default is UTC's. In which zone a trigger dates rows can't be asked.
        """
        names = ", ".join(column.name for column in columns)
        described = [self._written(ask, relation, column) for column in columns]
        ((inserting, dating),) = ask(_TRIGGERS, relation.schema, relation.name)
        if self.bound_of(columns[0]) == "local":
            of_utc = all(re.fullmatch(_UTC_CLOCK, default) and not updated for default, updated in described)
            if not (of_utc and zone == "UTC" and not dating):
                raise not_exact(
                    f"nothing says that {names}, of type DATETIME, is written in {zone}, the source's `db_timezone`: "
                    "current_timestamp is there the clock of each session's own zone. Make the column a TIMESTAMP; or "
                    "make its default utc_timestamp(6), without ON UPDATE and without triggers, and db_timezone UTC",
                    relation,
                )
        elif not (inserting or any(re.fullmatch(_CLOCK, default) for default, _ in described)):
            raise not_exact(
                f"the database doesn't write {names}: no default is current_timestamp, and no trigger is there that "
                "could",
                relation,
            )

    def _written(self, ask: Ask, relation: Relation, column: Column) -> tuple[str, bool]:
        """A column's default, and whether an update dates the row."""
        ((default, extra),) = ask(
            "SELECT coalesce(column_default, ''), extra FROM information_schema.columns "
            "WHERE table_schema = ? AND table_name = ? AND column_name = ?",
            relation.schema,
            relation.name,
            column.name,
        )
        return str(default).lower(), "on update" in str(extra).lower()

    def microseconds(self, expression: str, bound: Bound, zone: str) -> str:
        """The session's zone is UTC."""
        if bound == "local" and zone != "UTC":
            expression = f"convert_tz({expression}, '{zone}', '+00:00')"
        return _MICROS.format(expression)

    def require_zone(self, ask: Ask, zone: str) -> None:
        """By a time that it knows for certain: without its tables of zones, the server converts each to null."""
        ((converted,),) = ask("SELECT convert_tz('2020-06-01 12:00:00', ?, '+00:00') IS NOT NULL", zone)
        if zone != "UTC" and not converted:
            raise ActionRequiredError(
                f"The database knows no time zone {zone}, so it can't say when rows were changed.",
                next_step="fill its tables of zones (mariadb-tzinfo-to-sql /usr/share/zoneinfo | mariadb mysql), or "
                "correct db_timezone.",
            )

    def literal(self, value: int, bound: Bound, zone: str) -> str:
        """Of the column's own type; its earliest second is the first after 1970's beginning."""
        if bound == "number":
            return str(value)
        return f"TIMESTAMP '{local_text(value, 'UTC' if bound == 'instant' else zone)}'"

    def grain(self, column: Column) -> int:
        """By the precision of its type, which is seconds where it says none."""
        _, numbers = parts_of_type(column.type)
        return int(10 ** (6 - (numbers[0] if numbers else 0)))

    def now(self, ask: Ask) -> int:
        """The time of the statement."""
        return int(ask(f"SELECT {_MICROS.format('utc_timestamp(6)')}")[0][0])

    def server(self, ask: Ask) -> dict[str, str]:
        """The server's own names, and the position in InnoDB's log, which never goes back."""
        found = {str(name): str(value) for name, value in ask(_SERVER)}
        ((log,),) = ask(f"SELECT {_LOG_NOW}")
        return {**found, "log": str(log)}

    def durable(self, ask: Ask) -> dict[str, str]:
        """How far InnoDB's log is on the disk, and each domain's last transaction in the binary log."""
        flushed = next(int(value) for name, value in ask(_LOG) if str(name).lower() == _FLUSHED)
        return {"log": str(flushed), "gtid": str(ask("SELECT @@global.gtid_binlog_pos")[0][0] or "")}

    def missing(self, ask: Ask, last: Mapping[str, str], durable: Mapping[str, str], *, numbers: bool) -> str | None:
        """By `server_id`, InnoDB's log and the transactions' own names: see `Engine`.

        Servers that replicate have different ids, and a server that moves, or whose container is made anew, keeps its
        id, and gets another host name. Numbers of transactions that were rolled back aren't replicated. A replica that
        was promoted before the look has dated rows before it; a later transaction of the old server tells that it
        wasn't.
        """
        now, had, committed = self.server(ask), durable.get("log", last["log"]), durable.get("gtid", "")
        other = f"it is another server: its server_id is {now['server_id']}, and was {last['server_id']}"
        if now["server_id"] == last["server_id"]:
            if int(now["log"]) < int(had):
                return f"its log ends at {now['log']}, and had {had} before: it was set back"
            if not committed:
                return None
        else:
            if numbers:
                return f"{other}. It gives numbers again that the other one has given to transactions which didn't end"
            if not committed:
                return f"{other}, and START had no binary log there by which what it lacks could be known"
        ((state, applied),) = ask("SELECT @@global.gtid_binlog_state, @@global.gtid_slave_pos")
        has: dict[tuple[int, int], int] = {}
        for d, server, number in (*_gtids(state), *_gtids(applied)):
            has[d, server] = max(number, has.get((d, server), 0))
        noted = {(d, server): number for d, server, number in _gtids(committed)}
        lacks = [f"{d}-{server}-{number}" for (d, server), number in noted.items() if has.get((d, server), -1) < number]
        if lacks:
            return f"it has no transaction {', '.join(lacks)}, which START has found there"
        if now["server_id"] != last["server_id"] and all(has[key] == number for key, number in noted.items()):
            return f"{other}, and it may have dated rows before START looked there: it has no later transaction of it"
        return None

    def guarded(self, rows: str, server: Mapping[str, str]) -> str:
        """By a number that is too large. A table of one row is asked first, whatever the others are."""
        if not server:
            return rows
        names = [f"concat(@@global.{name}) = {_text(value)}" for name, value in server.items() if name != "log"]
        same = " AND ".join([*names, f"{_LOG_NOW} >= {int(server['log'])}"])
        here = f"exp(length('{ELSEWHERE}') * IF({same}, 0, 100))"
        return f"{rows} JOIN (SELECT {here} AS sluice_here) sluice_server ON sluice_here = 1"

    def settled_time(self, ask: Ask, relations: Sequence[Relation], margin: timedelta, wait: timedelta) -> Horizon:
        """Now less the margin, once all have ended that had changed rows, or ran, by then; see `Engine`."""
        self._require(ask, relations)
        now = self.now(ask)
        least = max(margin, _LEAST_MARGIN)
        return self._after_all(ask, now, now - least // timedelta(microseconds=1), wait)

    def life(self, ask: Ask, relation: Relation, column: Column) -> dict[str, str]:  # noqa: ARG002
        """InnoDB's ids of the table or its partitions: a TRUNCATE gives another one, and so does what rebuilds it."""
        names = [relation.schema, relation.name]
        found = ask(_TABLE_IDS, *names, *names, *names)
        return {_utf8(name): str(id_) for name, id_ in found}

    def settled_numbers(self, ask: Ask, columns: Sequence[tuple[Relation, Column]], wait: timedelta) -> list[Horizon]:
        """The next numbers, once all have ended that may have taken one before; see `Engine`."""
        self._require(ask, [relation for relation, _ in columns])
        ((step,),) = ask("SELECT @@auto_increment_increment")
        if int(step) != 1:
            raise not_exact(f"auto_increment_increment is {step}: several servers give numbers")
        now = self.now(ask)  # rows that are committed later may have numbers that aren't given yet
        following = []
        for relation, column in columns:
            if not column.numbered:
                words = f"column {column.name} is no AUTO_INCREMENT, so it is unknown which session took which number"
                raise not_exact(words, relation)
            ((found,),) = ask(
                "SELECT auto_increment FROM information_schema.tables WHERE table_schema = ? AND table_name = ?",
                relation.schema,
                relation.name,
            )
            following.append(int(found or 0))
        whole = self._after_all(ask, now, 0, wait)
        if whole.at is not None and not self._comes_to_disk(ask):
            whole = not_on_disk(now)
        return [replace(whole, at=None if whole.at is None else one) for one in following]

    @staticmethod
    def _comes_to_disk(ask: Ask) -> bool:
        """Whether what InnoDB's log has by now comes to the server's disk soon."""

        def log() -> dict[str, int]:
            found = {str(name).lower(): int(value) for name, value in ask(_LOG)}
            if found.keys() != {_CURRENT, _FLUSHED}:
                raise not_exact("the server doesn't say how far its log is on its disk")
            return found

        target = log()[_CURRENT]
        return comes_to_disk(lambda: log()[_FLUSHED] >= target)

    @staticmethod
    def _require(ask: Ask, relations: Sequence[Relation]) -> None:
        for relation in relations:
            if not relation.is_table:
                raise not_exact("a view may have rows of tables that others write", relation)
            if relation.engine != "InnoDB":
                raise not_exact(f"the table's engine is {relation.engine or 'none'}, not InnoDB", relation)
        # A login without PROCESS sees no other's thread; the server refuses its look at transactions.
        if ask(_ALONE) not in ([], [("OFF",)]):
            raise not_exact(
                "this server is a node of a cluster (wsrep_on), whose other nodes write by their own clocks"
            )
        if ask("SHOW ALL SLAVES STATUS"):
            raise not_exact("this server is set up as a replica, whose rows have times and numbers of another")

    @staticmethod
    def _after_all(ask: Ask, now: int, settled: int, wait: timedelta) -> Horizon:
        """The horizon once all have ended that are at work by now.

        A statement has ended when its thread is seen idle, or when the transaction that the thread had is over.
        """
        deadline = time.monotonic() + wait.total_seconds()
        busy = _busy(ask)
        seen = _transactions(ask, deadline)
        before = {one.key: one for one in seen or () if one.changed}
        had: dict[int, int] = {}  # by its thread the first transaction that was seen of it since it was busy
        while seen is not None and (busy or before) and time.monotonic() < deadline:
            had = {one.thread: one.id for one in seen if one.id and one.thread in busy} | had
            idle = _idle_soon(ask, busy)
            seen = _transactions(ask, deadline)
            open_now = {one.id for one in seen or ()}
            changed = {one.key: one for one in seen or () if one.changed}
            before = {key: changed[key] for key in before if key in changed}
            # What has ended may have left a transaction open; one that is prepared has no thread any more.
            before |= {key: one for key, one in changed.items() if one.thread in idle or not one.thread}
            over = {thread for thread, id_ in had.items() if id_ not in open_now}
            busy = {thread: one for thread, one in busy.items() if thread not in idle | over}
        if seen is None:
            return Horizon(now, None, _OTHERS, wait)
        held = [*busy.values(), *((one.words, one.since) for one in before.values())]
        if not held:
            return Horizon(now, settled)
        words, since = max(held, key=lambda one: one[1])
        return Horizon(now, None, words, timedelta(microseconds=since))


def _gtids(text: object) -> list[tuple[int, int, int]]:
    """Domain, server and number of each transaction of a list."""
    parts = (one.strip().split("-") for one in str(text or "").split(",") if one.strip())
    return [(int(domain), int(server), int(number)) for domain, server, number in parts]


def _text(value: str) -> str:
    """A text as SQL, by its bytes: a backslash has a meaning by the session's `sql_mode`."""
    return f"X'{value.encode().hex()}'"


def _utf8(name: object) -> str:
    return name.decode() if isinstance(name, bytes) else str(name)


_Busy = dict[int, tuple[str, int]]


@dataclass(frozen=True)
class _Open:
    """A transaction that is open.

    Attributes:
        id: its number, 0 of one that has written nothing.
        thread: whose it is; 0 of one that is prepared and has none.
        changed: whether it has changed rows.
        since: the microseconds that it has been open.
    """

    id: int
    thread: int
    changed: bool
    since: int

    @property
    def key(self) -> int:
        """What tells it from others."""
        return self.id or -self.thread

    @property
    def words(self) -> str:
        """What it is called in a run's remarks."""
        return f"transaction {self.id} of thread {self.thread}"


def _busy(ask: Ask) -> _Busy:
    """Threads that do something: each in words, and the microseconds of its present instruction."""
    return {int(id_): (str(words), int(since or 0)) for id_, words, since in ask(_BUSY)}


def _idle_soon(ask: Ask, busy: _Busy) -> set[int]:
    """Those of the threads that were idle, or gone, at a look, of which there are several in a short time."""
    idle: set[int] = set()
    end = time.monotonic() + _KEPT
    while True:
        idle |= busy.keys() - _busy(ask).keys()
        if len(idle) == len(busy) or time.monotonic() >= end:
            return idle
        time.sleep(_PAUSE)


def _transactions(ask: Ask, deadline: float) -> list[_Open] | None:
    """Transactions that are open, as they are no earlier than now; None if the server doesn't show that in time.

    InnoDB shows a copy of its list, and keeps it for as long as any session looks at it every tenth of a second. A
    transaction that is begun here, and is in the list, tells that the list is younger. Who looks holds a lock, so that
    several loaders don't keep the list old for one another.
    """
    deadline = max(deadline, time.monotonic() + _SEEN_WITHIN)
    ((look,),) = ask(_NEXT_LOOK)
    level = _LEVELS[int(look) % 2]  # what tells this transaction from the one of the look before
    locked = False
    with ask.together(f"SET TRANSACTION ISOLATION LEVEL {level}", _BEGIN):
        try:
            while True:
                locked = locked or ask(_LOCK) == [(1,)]
                found = ask(_OPEN, level) if locked else []
                if any(own for *_, own in found):
                    return [
                        _Open(int(id_), int(thread), bool(mod), int(since or 0)) for id_, thread, mod, since, _ in found
                    ]
                if time.monotonic() >= deadline:
                    return None
                time.sleep(_KEPT if locked else _PAUSE)
        finally:
            if locked:
                ask(_UNLOCK)
