"""A database that only its JDBC driver knows, as a source: what the standard and its metadata say.

What it can't say is how far its rows are settled, so that windows end by the clock alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any, Final, NoReturn
from zoneinfo import ZoneInfo

from sluice.databases.dialect import parts_of_type
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
    local_text,
    micros,
    not_exact,
    numeric,
    unreadable,
)
from sluice.databases.jdbc.client import Driver, JdbcAsking, Named
from sluice.databases.jdbc.types import UNREADABLE
from sluice.errors import ActionRequiredError
from sluice.identifiers import dotted, parts
from sluice.records.times import of_text


@dataclass(frozen=True)
class Ways:
    """How a database says what the standard, or JDBC, leaves open.

    Attributes:
        clock: a query for its clock.
        zone: the zone of that clock; empty if its text has one, or it is that of `db_timezone`.
        local: a time without a zone as SQL, with `{}` for its text.
        instant: a time with a zone as SQL, with `{}` for its text in UTC.
        text: a time with a zone as text, in SQL.
        skip: the end of a query for the first row after others.
    """

    clock: str = "SELECT CURRENT_TIMESTAMP"
    zone: str = ""
    local: str = "{{ts '{}'}}"  # JDBC has each driver translate it
    instant: str = "TIMESTAMP WITH TIME ZONE '{}+00:00'"
    text: str = "CAST({} AS VARCHAR(60))"
    skip: str = "OFFSET {} ROWS FETCH NEXT 1 ROWS ONLY"


WAYS: Final = MappingProxyType(
    {
        "db2": Ways(clock="VALUES CURRENT TIMESTAMP - CURRENT TIMEZONE", zone="UTC"),
        "derby": Ways(clock="VALUES CURRENT_TIMESTAMP"),
        "mysql": Ways(clock="SELECT utc_timestamp(6)", zone="UTC", skip="LIMIT 1 OFFSET {}"),
        "oracle": Ways(
            clock="SELECT SYS_EXTRACT_UTC(SYSTIMESTAMP) FROM DUAL",
            zone="UTC",
            instant="TIMESTAMP '{} +00:00'",
            text="TO_CHAR(SYS_EXTRACT_UTC({}), 'YYYY-MM-DD HH24:MI:SS.FF6') || '+00:00'",
        ),
        "sqlserver": Ways(
            clock="SELECT SYSUTCDATETIME()",
            zone="UTC",
            local="CAST('{}' AS DATETIME2)",
            instant="CAST('{}+00:00' AS DATETIMEOFFSET)",
        ),
    }
)
"""By the part of a JDBC URL after `jdbc:`; all but Derby's by the databases' manuals alone."""

_TIME = re.compile(
    r"(?P<day>\d{4}-\d{1,2}-\d{1,2})[ T](?P<clock>\d{1,2}:\d{1,2}:\d{1,2})(?:\.(?P<part>\d+))? ?"
    r"(?P<zone>Z|(?P<sign>[+-])(?P<hours>\d{1,2})(?::?(?P<minutes>\d{2}))?)?"
)
_OWN = ("information_schema", "sys", "syscat", "sysibm", "sysstat", "syscs_util", "mysql", "performance_schema")
_NAMES = re.compile(r"[A-Za-z]\w*")
_APART: Final = timedelta(minutes=5)
_INTEGERS = MappingProxyType({"tinyint": "INT", "smallint": "INT", "integer": "INT", "bigint": "BIGINT"})
_UNSIGNED = MappingProxyType({"integer": "BIGINT", "bigint": "DECIMAL(20,0)"})
_ZONED = "timestamp with time zone"
_PLAIN: Final = MappingProxyType(
    {
        "bit": "BOOLEAN", "boolean": "BOOLEAN", "float": "DOUBLE", "real": "FLOAT", "double": "DOUBLE",
        "binary": "BINARY", "varbinary": "BINARY", "longvarbinary": "BINARY", "blob": "BINARY",
    }
)  # fmt: skip


class AnyEngine(Engine):
    """A database by the part of its JDBC URL after `jdbc:`."""

    inside = True

    def __init__(self, subprotocol: str) -> None:
        self.name = subprotocol
        self._ways = WAYS.get(subprotocol, Ways())

    def names(self, ask: Ask) -> list[str]:
        """As schema.table, or catalog.table where there are no schemas."""
        found = [(one.schema or one.catalog, one.name) for one in _driver(ask).tables()]
        return sorted(dotted(*filter(None, one)) for one in found if one[0].lower() not in _OWN)

    def relation(self, ask: Ask, topic: str) -> Relation:
        """By its name, as it is or in the case in which the database keeps names without quotes."""
        driver = _driver(ask)
        table = _table(driver, topic)
        of = [one for one in (table.schema or table.catalog, table.name) if one]
        sql = ".".join(Column(one, "", quote=driver.quote).sql for one in of)
        key = driver.key(table)
        columns = tuple(replace(column, in_key=key.get(column.name, 0)) for column in driver.columns(sql))
        _require_names(driver, [*of, *(column.name for column in columns)], topic)
        return Relation(topic, sql, dotted(*of), of[0] if len(of) > 1 else "", table.name, table.is_table, columns)

    def of_query(self, ask: Ask, topic: str, query: str) -> Relation:
        """See `Engine`. None of its columns is known to be filled."""
        driver = _driver(ask)
        sql = f"(\n{query}\n) sluice_query"
        columns = tuple(replace(column, nullable=True, numbered=False) for column in driver.columns(sql))
        _require_names(driver, [column.name for column in columns], topic)
        return Relation(topic, sql, topic, is_table=False, columns=columns)

    def reading(self, column: Column, mapping: NumericMapping, zone: str) -> Reading:
        """Times travel as texts, which drivers give as they are stored, without a calendar's or a zone's say."""
        kind, numbers = parts_of_type(column.type)
        sql, first = column.sql, kind.split()[0]
        if first in _INTEGERS:
            made = _UNSIGNED.get(first, _INTEGERS[first]) if "unsigned" in kind else _INTEGERS[first]
            return Reading(sql, made, made)
        if first in ("numeric", "decimal"):
            precision, scale = numbers or (None, None)
            made = numeric(precision, scale, mapping) or "STRING"
            return Reading(sql, made, made)
        if kind in _PLAIN:
            return Reading(sql, _PLAIN[kind], _PLAIN[kind])
        if kind in ("date", "timestamp", _ZONED):
            ddl, value = "DATE" if kind == "date" else "TIMESTAMP", _time(kind, zone)
            other = unreadable(
                column, ddl, f"{{0}} IS NOT NULL AND {value} IS NULL", "it is in none of the years 1 to 9999"
            )
            return Reading(self._as_text(sql, kind), "STRING", ddl, value, other)
        if column.type.startswith(UNREADABLE):
            raise ActionRequiredError(
                f"Column {column.name} is {column.type}.",
                next_step="name the columns in a `query`, without that one or with a CAST of it, such as to VARCHAR.",
            )
        return Reading(self._as_text(sql, kind), "STRING", "STRING")

    def _as_text(self, sql: str, kind: str) -> str:
        return self._ways.text.format(sql) if kind.endswith("with time zone") else sql

    def bound_of(self, column: Column) -> Bound | None:
        """Whole numbers, and times with or without a zone."""
        if column.type.split()[0] in _INTEGERS:
            return "number"
        found: dict[str, Bound] = {"timestamp": "local", _ZONED: "instant"}
        return found.get(column.type)

    def microseconds(self, expression: str, bound: Bound, zone: str) -> str:  # noqa: ARG002
        """The time itself, as text: which functions a database has for it isn't known."""
        return self._as_text(expression, _ZONED if bound == "instant" else "timestamp")

    def position(self, bound: Bound, zone: str) -> tuple[str, str]:
        """See `Engine`."""
        if bound == "number":
            return super().position(bound, zone)
        return "STRING", f"unix_micros({_time('timestamp' if bound == 'local' else _ZONED, zone)})"

    def position_of(self, value: Any, bound: Bound, zone: str) -> int:
        """See `Engine`."""
        return int(value) if bound == "number" else _micros(str(value), zone)[0]

    def literal(self, value: int, bound: Bound, zone: str) -> str:
        """Of the column's own type, without a fraction where there is none."""
        if bound == "number":
            return str(value)
        text = local_text(value, "UTC" if bound == "instant" else zone).removesuffix(".000000")
        return (self._ways.instant if bound == "instant" else self._ways.local).format(text)

    def grain(self, column: Column) -> int:  # noqa: ARG002
        """Whole seconds, which every database's times know."""
        return SECOND

    def now(self, ask: Ask) -> int:
        """See `clock`."""
        return self.clock(ask, "UTC")

    def clock(self, ask: Ask, zone: str) -> int:
        """By its text; of a clock without a zone, and of the hour that comes twice, by this machine's which it is.

        Raises:
            ActionRequiredError: it shows another time than this machine's. By a clock that is ahead, as that of another
                zone is, windows would end before their rows are there.
        """
        ((text,),) = ask(self._ways.clock)
        here = micros(datetime.now(UTC))
        now = min(_micros(str(text), self._ways.zone or zone), key=lambda one: abs(one - here))
        if abs(now - here) > _APART / timedelta(microseconds=1):
            raise ActionRequiredError(
                "The database's clock isn't this machine's, so it isn't known how far its rows may be read.",
                next_step="correct the clock that is wrong. If the database's shows the time of a zone, name that zone "
                "in the source's `db_timezone`.",
                database=f"{text}, in {self._ways.zone or zone} {at(now).isoformat()}",
                machine=at(here).isoformat(),
            )
        return now

    def first(self, query: str, skipped: int = 0) -> str:
        """By the standard of 2008; the driver fetches one row alone."""
        return f"{query} {self._ways.skip.format(skipped)}" if skipped else query

    def split_of(self, number: str, splits: int) -> str:
        """By functions that JDBC has each driver translate."""
        return f"{{fn ABS({{fn MOD({number}, {splits})}})}}"

    def require_horizon(self) -> NoReturn:
        """See `Engine`. No standard has a question for it."""
        raise not_exact(f"{self.name} is none of the databases that Sluice can ask which transactions are open")

    def require_snapshots(self) -> NoReturn:
        """See `Engine`."""
        raise ActionRequiredError(
            f"Whether a query of {self.name} sees one state of the table isn't known, and a row that it passes over "
            "while others write would be deleted.",
            next_step="leave `deletes` out; rows that are gone from the source then stay.",
        )

    def settled_time(self, ask: Ask, relations: Sequence[Relation], margin: timedelta, wait: timedelta) -> Horizon:  # noqa: ARG002
        """None: see `require_horizon`."""
        self.require_horizon()

    def settled_numbers(self, ask: Ask, columns: Sequence[tuple[Relation, Column]], wait: timedelta) -> list[Horizon]:  # noqa: ARG002
        """None: see `require_horizon`."""
        self.require_horizon()


def _driver(ask: Ask) -> Driver:
    if not isinstance(ask, JdbcAsking) or ask.driver is None:
        raise TypeError("these are no questions by JDBC")
    return ask.driver


def _table(driver: Driver, topic: str) -> Named:
    """The table or view of a topic's name.

    Raises:
        ActionRequiredError: there is none, or there are several.
    """
    try:
        *before, name = parts(topic)
    except ValueError:
        before, name = [], topic
    names = dict.fromkeys((name, name.upper(), name.lower()))
    found = [one for spelled in names for one in driver.tables(driver.pattern(spelled)) if one.name == spelled]
    of = before[-1].lower() if before else driver.schema().lower()
    inside = [one for one in found if (one.schema or one.catalog).lower() == of] or ([] if before else found)
    exact = [one for one in inside if one.name == name] or inside
    if len(before) > 1 or len(exact) != 1:
        raise ActionRequiredError(
            f"There is no table or view {topic} that the login sees" + (", or there are several." if exact else "."),
            next_step="correct the source's `tables`, in the database's own upper and lower case, with the schema "
            "(schema.table); a name with a dot is between double quotes. Or grant SELECT.",
            source=topic,
        )
    return exact[0]


def _require_names(driver: Driver, names: Sequence[str], topic: str) -> None:
    """Check that names can be written in SQL, where a database has no marks to put around them."""
    odd = [name for name in names if not driver.quote and not _NAMES.fullmatch(name)]
    if odd:
        raise ActionRequiredError(
            f"{driver.product} has no quotes for names, and {odd[0]} can't be written without them.",
            next_step="give it another name in a view, and load that.",
            source=topic,
        )


def _time(kind: str, zone: str) -> str:
    """Spark SQL of a text `{0}` as a day or a time."""
    value = of_text("{0}", "date" if kind == "date" else "timestamp")
    return f"to_utc_timestamp({value}, '{zone}')" if kind == "timestamp" and zone != "UTC" else value


def _micros(text: str, zone: str) -> list[int]:
    """A time's text as microseconds since 1970: two of them, in order, for an hour that comes twice in its zone.

    Raises:
        ActionRequiredError: it is no time.
    """
    found = _TIME.fullmatch(text.strip())
    if found is None:
        raise ActionRequiredError(
            f"The database writes a time as {text[:40]!r}, which isn't JDBC's form of it.",
            next_step="choose another column in `timestamp_column`, or a `query` that gives it as a TIMESTAMP.",
        )
    time = datetime.strptime(f"{found['day']} {found['clock']}", "%Y-%m-%d %H:%M:%S")
    time += timedelta(microseconds=int((found["part"] or "").ljust(6, "0")[:6]))
    if found["zone"] is None:
        return [micros(time.replace(tzinfo=ZoneInfo(zone), fold=fold)) for fold in (0, 1)]
    offset = timedelta(hours=int(found["hours"] or 0), minutes=int(found["minutes"] or 0))
    return [micros(time.replace(tzinfo=UTC) - (-offset if found["sign"] == "-" else offset))]
