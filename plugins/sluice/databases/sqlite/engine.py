"""SQLite as a source. It has one writer at a time: while a session holds its lock, no other has open changes."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import ClassVar

from sluice.databases.engine import (
    SECOND,
    Ask,
    Bound,
    Column,
    Engine,
    Horizon,
    NumericMapping,
    Reading,
    Relation,
    at,
    not_exact,
    unreadable,
)
from sluice.errors import ActionRequiredError
from sluice.identifiers import sql_quoted
from sluice.records.times import is_time, of_text

_NOW = (
    "SELECT CAST(strftime('%s', 'now') AS INTEGER) * 1000000 + CAST(substr(strftime('%f', 'now'), 4) AS INTEGER) * 1000"
)
_BUSY = 5  # SQLITE_BUSY
_ANOTHER = "another process, which writes to the file"
_TIMES = ("DATE", "TIME")
# Defaults that give the clock in UTC, as texts that sort like CURRENT_TIMESTAMP.
_CLOCK = r"\(?(current_timestamp|datetime\('now'\)|strftime\('%Y-%m-%d %H:%M:%(S|f)', ?'now'\))\)?"


class Sqlite(Engine):
    """SQLite 3.35 and later."""

    name = "SQLite"
    properties: ClassVar[dict[str, str]] = {"transaction_mode": "DEFERRED"}  # readers never wait

    def names(self, ask: Ask) -> list[str]:
        """There are no schemas."""
        found = ask(
            "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' "
            "AND name NOT LIKE '\\_sluice\\_%' ESCAPE '\\' ORDER BY 1"
        )
        return [str(name) for (name,) in found]

    def relation(self, ask: Ask, topic: str) -> Relation:
        """By its name."""
        found = ask(
            "SELECT name, type, coalesce(sql, '') FROM sqlite_master WHERE type IN ('table', 'view') "
            "AND lower(name) = lower(?)",
            topic,
        )
        if not found:
            raise ActionRequiredError(
                f"There is no table or view {topic}.", next_step="correct the source's `tables`.", source=topic
            )
        name, kind, sql = found[0]
        numbered = bool(re.search(r"\bAUTOINCREMENT\b", sql, re.IGNORECASE))
        columns = tuple(
            Column(str(n), str(t), not (notnull or pk), int(pk), bool(pk) and numbered)
            for n, t, notnull, pk in ask(
                'SELECT name, type, "notnull", pk FROM pragma_table_xinfo(?) ORDER BY cid', name
            )
        )
        ((file,),) = ask("SELECT file FROM pragma_database_list WHERE name = 'main'")
        return Relation(topic, sql_quoted(name), name.lower(), "", name, kind == "table", columns, engine=str(file))

    def reading(self, column: Column, mapping: NumericMapping, zone: str) -> Reading:  # noqa: ARG002
        """A column may hold values of any type: values of another type are bad records."""
        sql, kind = sql_quoted(column.name), column.type.upper()
        if "INT" in kind:
            return _checked(f"CAST({sql} AS TEXT)", column, "BIGINT")
        if any(word in kind for word in ("REAL", "FLOA", "DOUB")):
            return _checked(f"CAST({sql} AS TEXT)", column, "DOUBLE")
        if kind == "BLOB":
            return Reading(f"CAST({sql} AS BLOB)", "BINARY", "BINARY")
        if kind.startswith("BOOL"):
            return _checked(f"CAST({sql} AS TEXT)", column, "BOOLEAN")
        return Reading(f"CAST({sql} AS TEXT)", "STRING", "STRING")

    def bound_of(self, column: Column) -> Bound | None:
        """Whole numbers, and times as text: 2026-01-31 12:00:00, in the zone of the pipeline."""
        kind = column.type.upper()
        if "INT" in kind:
            return "number"
        return "text" if any(word in kind for word in (*_TIMES, "TEXT", "CHAR")) else None

    def microseconds(self, expression: str, bound: Bound, zone: str) -> str:  # noqa: ARG002
        """To the millisecond, which its functions know."""
        seconds = f"CAST(strftime('%s', {expression}) AS INTEGER) * 1000000"
        return f"({seconds} + CAST(substr(strftime('%f', {expression}), 4) AS INTEGER) * 1000)"

    def literal(self, value: int, bound: Bound, zone: str) -> str:  # noqa: ARG002
        """Whole seconds as text, which sort right whatever fractions the column has."""
        return str(value) if bound == "number" else f"'{at(value):%Y-%m-%d %H:%M:%S}'"

    def grain(self, column: Column) -> int:  # noqa: ARG002
        """CURRENT_TIMESTAMP is cut to seconds."""
        return SECOND

    def now(self, ask: Ask) -> int:
        """This machine's clock."""
        return int(ask(_NOW)[0][0])

    def require_written(self, ask: Ask, relation: Relation, columns: Sequence[Column], zone: str) -> None:  # noqa: ARG002
        """By the columns' defaults and the table's triggers: see `Engine`.

        The clock's functions give UTC. What a trigger writes can't be asked; it runs in the writer's transaction.
        """
        ((triggers,),) = ask(
            "SELECT count(*) FROM sqlite_master WHERE type = 'trigger' AND tbl_name = ?", relation.name
        )
        defaults = dict(ask("SELECT name, coalesce(dflt_value, '') FROM pragma_table_xinfo(?)", relation.name))
        if not (triggers or any(_is_clock(str(defaults[column.name])) for column in columns)):
            raise not_exact(
                f"the database doesn't write {', '.join(column.name for column in columns)}: no default is "
                "CURRENT_TIMESTAMP, and no trigger is there that could",
                relation,
            )

    def server(self, ask: Ask) -> dict[str, str]:
        """The file's number on its disk, which another one in its place doesn't have: see `Engine`."""
        ((file,),) = ask("SELECT file FROM pragma_database_list WHERE name = 'main'")
        return {"inode": _inode(str(file))}

    def is_here(self, url: str, server: Mapping[str, str]) -> bool:
        """See `Engine`."""
        return not server or _inode(path_of(url)) == server["inode"]

    def missing(self, ask: Ask, last: Mapping[str, str], durable: Mapping[str, str], *, numbers: bool) -> str | None:  # noqa: ARG002
        """By the file's number, which it keeps when it is moved on its disk or vacuumed, and a copy doesn't have."""
        now = self.server(ask)["inode"]
        return f"it is another file (inode {now}, and {last['inode']} before)" if now != last["inode"] else None

    def settled_time(self, ask: Ask, relations: Sequence[Relation], margin: timedelta, wait: timedelta) -> Horizon:
        """Now, while no session writes; see `Engine`."""
        for relation in relations:
            _require_table(relation)
        now, found = self._alone(ask, relations[0].engine, [], wait)
        if found is None:
            return Horizon(now, None, _ANOTHER, wait)
        return Horizon(now, now - margin // timedelta(microseconds=1))

    def settled_numbers(self, ask: Ask, columns: Sequence[tuple[Relation, Column]], wait: timedelta) -> list[Horizon]:
        """The next numbers, while no session writes; see `Engine`."""
        for relation, column in columns:
            _require_table(relation)
            if not column.numbered:
                words = f"column {column.name} is no AUTOINCREMENT, so that numbers of deleted rows come again"
                raise not_exact(words, relation)
        now, found = self._alone(ask, columns[0][0].engine, [relation.name for relation, _ in columns], wait)
        if found is None:
            return [Horizon(now, None, _ANOTHER, wait) for _ in columns]
        return [Horizon(now, last + 1) for last in found]

    def _alone(self, ask: Ask, file: str, names: Sequence[str], wait: timedelta) -> tuple[int, list[int] | None]:
        """The clock, and the last numbers of tables, at a moment when no session has changes open; None if none."""
        last = "SELECT seq FROM sqlite_sequence WHERE name = ?"
        try:
            with closing(sqlite3.connect(file, timeout=wait.total_seconds(), isolation_level=None)) as own:
                own.execute("BEGIN IMMEDIATE")
                now = int(own.execute(_NOW).fetchone()[0])
                found = [own.execute(last, (name,)).fetchone() for name in names]
                own.execute("ROLLBACK")
                return now, [-1 if one is None else int(one[0]) for one in found]
        except sqlite3.OperationalError as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF == _BUSY:
                return self.now(ask), None
            raise not_exact(
                f"the file can't be locked for a moment, so it can't be known who writes to it ({error}): this process "
                "needs the right to write to the file and its folder"
            ) from None


def path_of(url: str) -> str:
    """The path of a JDBC URL's file."""
    return url.removeprefix("jdbc:sqlite:").removeprefix("file:").partition("?")[0]


def _inode(file: str) -> str:
    """The number of a file on its disk; empty if it isn't there."""
    try:
        return str(Path(file).stat().st_ino)
    except OSError:
        return ""


def _is_clock(default: str) -> bool:
    return re.fullmatch(_CLOCK, default.strip(), re.IGNORECASE) is not None


def _require_table(relation: Relation) -> None:
    if not relation.is_table:
        raise not_exact("a view may have rows of tables that others write", relation)


def _checked(sql: str, column: Column, kind: str) -> Reading:
    made = of_text("{0}", kind.lower()) if is_time(kind.lower()) else f"try_cast({{0}} AS {kind})"
    other = unreadable(column, kind, f"{{0}} IS NOT NULL AND {made} IS NULL", "it is of another type")
    return Reading(sql, "STRING", kind, made, other)
