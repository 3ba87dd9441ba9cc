"""MariaDB as a source. Pure.

`NOW()` is the time at which a statement began, and a number is given while one runs. What may still commit rows from
before is therefore a statement that runs, or a transaction that has changed rows: these are waited for.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
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

_MICROS = "timestampdiff(MICROSECOND, TIMESTAMP '1970-01-01 00:00:00', {})"
_OWN = "('mysql', 'information_schema', 'performance_schema', 'sys')"
# What may commit rows that are dated, or numbered, before now. A prepared transaction has no thread.
_CHANGED = (
    "SELECT concat('transaction ', trx_id), concat('transaction ', trx_id, ' of thread ', trx_mysql_thread_id), "
    "timestampdiff(MICROSECOND, trx_started, now(6)) FROM information_schema.innodb_trx "
    "WHERE trx_rows_modified > 0 OR trx_mysql_thread_id = 0"
)
_RUNNING = (
    "SELECT concat('statement ', id, ' ', query_id), concat('thread ', id, ' of ', user), time_ms * 1000 "
    "FROM information_schema.processlist WHERE id <> connection_id() AND command NOT IN ('Sleep', 'Daemon', "
    "'Binlog Dump')"
)
_CURRENT, _FLUSHED = "innodb_lsn_current", "innodb_lsn_flushed"
_LOG = (
    "SELECT variable_name, variable_value FROM information_schema.global_status "
    f"WHERE variable_name IN ('{_CURRENT}', '{_FLUSHED}')"
)
_STALE = 0.12  # seconds: what the server shows of transactions may be a tenth of a second old
_INTEGERS = {"tinyint": "INT", "smallint": "INT", "mediumint": "INT", "int": "INT", "bigint": "BIGINT", "year": "INT"}
_UNSIGNED = {"int": "BIGINT", "bigint": "DECIMAL(20,0)"}


class MariaDb(Engine):
    """MariaDB 10.6 and later, with InnoDB."""

    name = "MariaDB"

    def names(self, ask: Ask) -> list[str]:
        """As database.table."""
        found = ask(
            "SELECT concat(table_schema, '.', table_name) FROM information_schema.tables "
            f"WHERE table_type IN ('BASE TABLE', 'VIEW') AND table_schema NOT IN {_OWN} ORDER BY 1"
        )
        return [str(name) for (name,) in found]

    def relation(self, ask: Ask, topic: str) -> Relation:
        """In the connection's database where the name has none."""
        schema, _, name = topic.rpartition(".")
        found = ask(
            "SELECT table_schema, table_name, table_type, coalesce(engine, '') "
            "FROM information_schema.tables WHERE table_schema = coalesce(?, database()) AND table_name = ?",
            schema or None,
            name,
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
        sql = f"{self.quoted(schema)}.{self.quoted(name)}"
        # An ALTER may make a table anew, so that nothing but its name is the same.
        return Relation(topic, sql, f"{schema}.{name}", schema, name, kind == "BASE TABLE", made, engine=str(engine))

    def reading(self, column: Column, mapping: NumericMapping, zone: str) -> Reading:
        """Times travel as numbers, and what Spark has no type for as text."""
        name, numbers = parts_of_type(column.type)
        first, *more = name.split()
        sql = self.quoted(column.name)
        if first in _INTEGERS:
            kind = _UNSIGNED.get(first, _INTEGERS[first]) if "unsigned" in more else _INTEGERS[first]
            return Reading(sql, kind, kind)
        if first in ("float", "double"):
            return Reading(sql, first.upper(), first.upper())
        if first in ("decimal", "numeric"):
            precision, scale = (*numbers, 0)[:2] if numbers else (10, 0)
            found = numeric(precision, scale, mapping)
            return Reading(sql, found, found) if found else Reading(f"CAST({sql} AS CHAR)", "STRING", "STRING")
        if first == "bit":
            return Reading(f"CAST({sql} AS UNSIGNED)", "DECIMAL(20,0)", "DECIMAL(20,0)")
        if first.endswith(("blob", "binary")):
            return Reading(sql, "BINARY", "BINARY")
        bound = self.bound_of(column)
        if bound in ("instant", "local"):
            return Reading(self.microseconds(sql, bound, zone), "BIGINT", "TIMESTAMP", "timestamp_micros({})")
        if first == "date":
            return Reading(f"(to_days({sql}) - 719528)", "INT", "DATE", "date_from_unix_date({})")
        if first in ("point", "geometry", "linestring", "polygon"):
            return Reading(f"ST_AsText({sql})", "STRING", "STRING")
        return Reading(f"CAST({sql} AS CHAR)", "STRING", "STRING")

    def bound_of(self, column: Column) -> Bound | None:
        """TIMESTAMP is an instant, DATETIME a time of a zone."""
        first = parts_of_type(column.type)[0].split()[0]
        if first in _INTEGERS:
            return "number"
        found: dict[str, Bound] = {"timestamp": "instant", "datetime": "local"}
        return found.get(first)

    def microseconds(self, expression: str, bound: Bound, zone: str) -> str:
        """The session's zone is UTC."""
        if bound == "local" and zone != "UTC":
            expression = f"convert_tz({expression}, '{zone}', '+00:00')"
        return _MICROS.format(expression)

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

    def settled_time(self, ask: Ask, relations: Sequence[Relation], margin: timedelta, wait: timedelta) -> Horizon:
        """Now less the margin, once all have ended that had changed rows, or ran, by then; see `Engine`."""
        self._require(ask, relations)
        now = self.now(ask)
        least = max(margin, timedelta(seconds=_STALE))
        return self._after_all(ask, now, now - least // timedelta(microseconds=1), wait)

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
                words = f"column {column.name} is no AUTO_INCREMENT, so nobody knows who has taken which number"
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
        # The server refuses it to a login without PROCESS, which would see its own statements alone.
        ask("SELECT 1 FROM information_schema.innodb_trx LIMIT 1")
        replicas = ask(
            "SELECT 1 FROM information_schema.processlist WHERE command IN ('Slave_SQL', 'Slave_worker') LIMIT 1"
        )
        if replicas:
            raise not_exact("this server is a replica, whose rows have times and numbers of another")

    @staticmethod
    def _after_all(ask: Ask, now: int, settled: int, wait: timedelta) -> Horizon:
        """The horizon once all have ended that are at work by now."""
        deadline = time.monotonic() + wait.total_seconds()
        running, before = _look(ask)
        while (running or before) and time.monotonic() < deadline:
            still, changed = _look(ask)
            before = {name: row for name, row in before.items() if name in changed}
            if running.keys() - still.keys():  # what has ended may have left a transaction open
                before |= changed
            running = {name: row for name, row in running.items() if name in still}
        if not running and not before:
            return Horizon(now, settled)
        held, since = max((*running.values(), *before.values()), key=lambda one: one[1])
        return Horizon(now, None, held, timedelta(microseconds=since))


_Seen = dict[str, tuple[str, int]]


def _look(ask: Ask) -> tuple[_Seen, _Seen]:
    """Statements that run, and transactions that have changed rows: by name, in words, and for how many microseconds.

    In this order: a statement that isn't among the first has left its transaction among the second.
    """
    running = {str(name): (str(words), int(since or 0)) for name, words, since in ask(_RUNNING)}
    time.sleep(_STALE)
    return running, {str(name): (str(words), int(since or 0)) for name, words, since in ask(_CHANGED)}
