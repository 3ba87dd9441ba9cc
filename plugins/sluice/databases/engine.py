"""What a kind of database says of itself as a source: its tables, its values, and how far its rows are settled. Pure.

A *horizon* is the bound of a column below which no transaction can commit any more: rows below it are all there.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Literal, Protocol
from zoneinfo import ZoneInfo

from sluice.databases.fits import literal
from sluice.errors import ActionRequiredError
from sluice.identifiers import sql_quoted


class Ask(Protocol):
    """Asks a database; see `sluice.databases.client.Asking`."""

    def __call__(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """What a query with `?` for each value finds."""
        ...

    def described(self, query: str) -> list[tuple[str, str]]:
        """The names and types of a query's columns."""
        ...

    def together(self, *begin: str) -> AbstractContextManager[None]:
        """Questions of one transaction, which these statements begin."""
        ...


Bound = Literal["instant", "local", "text", "number"]
"""What a column holds that bounds windows: instants, times of a zone, times as SQLite's text, numbers."""
NumericMapping = Literal["none", "precision_only", "best_fit", "best_fit_eager_double"]
ELSEWHERE = "sluice_another_server"
"""The word in the error of a session that isn't on the server that START has looked at."""
NO_DAY, NO_TIME = 6_585_370, 568_971_820_800_000_000
"""A day and a time (in microseconds) of the year 20000, for values that are no time in Spark, such as `infinity` and
MariaDB's zero dates: their record is a bad one, and never one with a null."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SECOND = 1_000_000
"""Microseconds, which times are counted in."""
_LONG = 19  # digits that don't fit an INT64 any more


@dataclass(frozen=True)
class Column:
    """A column as its database describes it.

    Attributes:
        name: its name.
        type: its type in the database's words, such as `numeric(10,2)`.
        nullable: whether it may be null.
        in_key: its place in the primary key, from 1; 0 if it is not in it.
        numbered: whether the database gives it its numbers.
        quote: the mark around names in its database's SQL; empty if there is none.
    """

    name: str
    type: str
    nullable: bool = True
    in_key: int = 0
    numbered: bool = False
    quote: str = '"'

    @property
    def sql(self) -> str:
        """Its name as SQL."""
        return sql_quoted(self.name, self.quote)


@dataclass(frozen=True)
class Relation:
    """A table, a view or a query.

    Attributes:
        topic: its name, as the pipeline has it.
        sql: the text after FROM.
        id: distinguishes it from another of its name, as far as the database says.
        schema: where it is.
        name: its name there; empty for a query.
        is_table: whether rows are written to it itself.
        columns: in their order.
        engine: what keeps it: a storage engine, or a file.
    """

    topic: str
    sql: str
    id: str
    schema: str = ""
    name: str = ""
    is_table: bool = True
    columns: tuple[Column, ...] = field(default=())
    engine: str = ""

    def column(self, name: str) -> Column:
        """A column by its name, in its own case or another.

        Raises:
            ActionRequiredError: there is none.
        """
        exact = [c for c in self.columns if c.name == name] or [
            c for c in self.columns if c.name.lower() == name.lower()
        ]
        if len(exact) == 1:
            return exact[0]
        raise ActionRequiredError(
            f"There is no column {name} by which rows could be found.",
            next_step="correct the source's `timestamp_column` or `incrementing_column`: name one of "
            f"{', '.join(c.name for c in self.columns)}.",
            source=self.topic,
        )


@dataclass(frozen=True)
class Horizon:
    """How far a database's rows are settled.

    Attributes:
        now: the database's clock when it was looked, in microseconds since 1970: rows that are committed later aren't
            below the horizon of numbers.
        at: the horizon in the column's unit; None where it can't move on from where it was.
        held_by: the transaction that holds it, in words.
        since: how long that has been open.
    """

    now: int
    at: int | None
    held_by: str | None = None
    since: timedelta = timedelta(0)


@dataclass(frozen=True)
class Reading:
    """How a column's values travel, so that no driver's own types or clocks have a say in them.

    Attributes:
        sql: the value in the database's SQL.
        fetched: Spark's type of that.
        value: Spark SQL of the value, with `{}` for the fetched one.
        ddl: Spark's type of the value.
        problem: Spark SQL of why the value can't be read, in words, with `{}` for the fetched value; null where it can.
            Empty if all values can.
        earlier: the SQL of an earlier release where it gives another value: a table that was begun with it keeps it.
    """

    sql: str
    fetched: str
    ddl: str
    value: str = "{}"
    problem: str = ""
    earlier: str = ""


def unreadable(column: Column, ddl: str, condition: str, why: str) -> str:
    """A `Reading.problem`.

    Args:
        column: the column.
        ddl: Spark's type of its values.
        condition: Spark SQL of which values have none of that type, with `{}` for the fetched one.
        why: what these are, in words.
    """
    words = literal(f"the value of {column.name} can't be read as {ddl}: {why}")
    return f"CASE WHEN {condition} THEN {words} END"


def no_time(column: Column, ddl: str, why: str) -> str:
    """A `Reading.problem` of a column whose SQL gives `NO_DAY` or `NO_TIME` for a value that is no date or time."""
    return unreadable(column, ddl, f"{{}} = {NO_DAY if ddl == 'DATE' else NO_TIME}", why)


class Engine(ABC):
    """One kind of database."""

    name: str
    begun_again: ClassVar[str] = ""
    """What has happened, in words, where `life` is another."""
    properties: ClassVar[dict[str, str]] = {}
    """Properties of a reader's JDBC driver, besides those of all connections."""
    inside: ClassVar[bool] = False
    """Whether a window is put into the query of rows itself: Spark may not know the type of what bounds it."""

    @abstractmethod
    def names(self, ask: Ask) -> list[str]:
        """The names of all tables and views that aren't the database's own."""

    @abstractmethod
    def relation(self, ask: Ask, topic: str) -> Relation:
        """A table or view by its name.

        Raises:
            ActionRequiredError: there is none, or it may not be read.
        """

    def of_query(self, ask: Ask, topic: str, query: str) -> Relation:
        """A query's result, whose columns have the types of what it finds; none is known to be filled."""
        return Relation(
            topic,
            f"(\n{query}\n) sluice_query",  # a comment at its end ends with its line
            topic,
            is_table=False,
            columns=tuple(Column(name, kind) for name, kind in ask.described(query)),
        )

    @abstractmethod
    def reading(self, column: Column, mapping: NumericMapping, zone: str) -> Reading:
        """How a column is read."""

    @abstractmethod
    def bound_of(self, column: Column) -> Bound | None:
        """What a column holds as a window's bound; None if it can't be one."""

    @abstractmethod
    def microseconds(self, expression: str, bound: Bound, zone: str) -> str:
        """A time as microseconds since 1970, in SQL."""

    def position(self, bound: Bound, zone: str) -> tuple[str, str]:  # noqa: ARG002
        """Spark's type of what `microseconds` or a column of numbers gives, and Spark SQL of the position.

        The SQL has `{}` for the given value.
        """
        return "BIGINT", "{}"

    def position_of(self, value: Any, bound: Bound, zone: str) -> int:  # noqa: ARG002
        """The position of a row, by the answer to what `microseconds` or a column of numbers asks."""
        return int(value)

    @abstractmethod
    def literal(self, value: int, bound: Bound, zone: str) -> str:
        """A bound of a window in SQL, to be compared with the column itself, so that its index serves."""

    @abstractmethod
    def grain(self, column: Column) -> int:
        """The microseconds to which the database rounds the times of a column."""

    @abstractmethod
    def now(self, ask: Ask) -> int:
        """The database's clock."""

    def clock(self, ask: Ask, zone: str) -> int:  # noqa: ARG002
        """The same, where a clock may show the time of a zone alone, which is then this one."""
        return self.now(ask)

    def first(self, query: str, skipped: int = 0) -> str:
        """A query's first row, or the first one after so many others that are in order."""
        return f"{query} LIMIT 1 OFFSET {skipped}"

    def split_of(self, number: str, splits: int) -> str:
        """In which of so many splits a row is, by a column of numbers, in SQL."""
        return f"abs({number} % {splits})"

    def require_horizon(self) -> None:  # noqa: B027
        """Check for `exact` that this kind of database can say how far its rows are settled.

        Raises:
            ActionRequiredError: it can't.
        """

    def require_snapshots(self) -> None:  # noqa: B027
        """Check for `deletes` that a query sees one state of all rows.

        Raises:
            ActionRequiredError: that isn't known.
        """

    def require_written(self, ask: Ask, relation: Relation, columns: Sequence[Column], zone: str) -> None:  # noqa: B027
        """Check for `exact` that the database writes the times of these columns itself, and in which zone.

        Args:
            ask: the database.
            relation: their table.
            columns: the columns that bound windows; a row's time is the first that isn't null.
            zone: the zone in which `local` times are read.

        Raises:
            ActionRequiredError: a column's default is none of the database's clock, or one of each session's zone.
        """

    def life(self, ask: Ask, relation: Relation, column: Column) -> dict[str, str]:  # noqa: ARG002
        """By names in the database ids, of which one is another after the column's numbers have begun again.

        It is empty where nothing tells that.
        """
        return {}

    def parts(self, ask: Ask, relation: Relation) -> list[str]:  # noqa: ARG002
        """The ids of other tables whose rows are the relation's, such as partitions that can be attached filled."""
        return []

    def filled_below(self, ask: Ask, relation: Relation, part: str, expression: str, bound: str) -> str | None:  # noqa: ARG002
        """The name of one of `parts` if it has rows below a window's bound; None if not.

        Args:
            ask: the database.
            relation: the table whose part it is.
            part: its id.
            expression: the column that bounds windows, as SQL.
            bound: the bound, as SQL.
        """
        return None

    def server(self, ask: Ask) -> dict[str, str]:  # noqa: ARG002
        """Which server answers, and how far its log is: START-COMMIT has it, and `guard` checks it where rows are read.

        It is empty where nothing tells one server from another, as of a database that is a file.

        Raises:
            ActionRequiredError: the login may not ask.
        """
        return {}

    def durable(self, ask: Ask) -> dict[str, str]:  # noqa: ARG002
        """What is on the server's disk by now: START-COMMIT has it, and the next START looks for it by `missing`."""
        return {}

    def missing(self, ask: Ask, last: Mapping[str, str], durable: Mapping[str, str], *, numbers: bool) -> str | None:  # noqa: ARG002
        """Why the server that answers may lack what another one had, or it itself, in words; None if it has all.

        Args:
            ask: the database.
            last: `server` of an earlier START.
            durable: `durable` of that START; empty if that was of an earlier release.
            numbers: whether numbers count, too, that were given to transactions without a row.
        """
        return None

    def guard(self, server: Mapping[str, str]) -> str:  # noqa: ARG002
        """The statement with which each session of a reader begins, in the transaction in which it reads.

        It fails, and its error has the word `ELSEWHERE`, on any server but that of `server`, and on one that lacks
        something that that had. It is empty where there is nothing to check, or where `guarded` checks it.
        """
        return ""

    def is_here(self, url: str, server: Mapping[str, str]) -> bool:  # noqa: ARG002
        """Whether the file of a JDBC URL is that of `server`, where no query could ask it."""
        return True

    def guarded(self, rows: str, server: Mapping[str, str]) -> str:  # noqa: ARG002
        """Rows, as SQL after FROM, whose query fails as `guard` does.

        It is for a database whose proxies send each statement of a session to a server of their choice.
        """
        return rows

    def require_zone(self, ask: Ask, zone: str) -> None:  # noqa: B027
        """Check that the database converts times of a zone, where it is asked to.

        Raises:
            ActionRequiredError: it knows no such zone.
        """

    @abstractmethod
    def settled_time(self, ask: Ask, relations: Sequence[Relation], margin: timedelta, wait: timedelta) -> Horizon:
        """The horizon of times that the database writes itself.

        Raises:
            ActionRequiredError: it can't be known here; it is said why.
        """

    @abstractmethod
    def settled_numbers(self, ask: Ask, columns: Sequence[tuple[Relation, Column]], wait: timedelta) -> list[Horizon]:
        """The horizon of each column's numbers, which the database gives.

        Raises:
            ActionRequiredError: it can't be known here; it is said why.
        """


# Seconds within which what a server has in its log comes to its disk: PostgreSQL's WAL writer takes 0.6 by default, and
# MariaDB's log writer one.
_ON_DISK_WITHIN = 5.0
_PAUSE = 0.05  # seconds between two looks at the log: nothing tells how far it is


def comes_to_disk(is_there: Callable[[], bool]) -> bool:
    """Whether it is on the server's disk soon: what `is_there` asks for is looked at until it is."""
    deadline = time.monotonic() + _ON_DISK_WITHIN
    while not is_there():
        if time.monotonic() >= deadline:
            return False
        time.sleep(_PAUSE)
    return True


def not_on_disk(now: int) -> Horizon:
    """The horizon of numbers where a server's log doesn't come to its disk.

    A crash takes a number back that isn't there, and the server gives it again, to a row that stays.
    """
    return Horizon(now, None, "the server's own log to be on its disk", timedelta(seconds=_ON_DISK_WITHIN))


class NotExactError(ActionRequiredError):
    """A database can't say how far its rows are settled."""

    def of_numbers(self) -> None:
        """Name as next steps what a mode without timestamp has: it knows no other `consistency`."""
        self.next_step = (
            "docs/jdbc-source.md says what it needs. Or set the source's `mode` to bulk, or to timestamp with the "
            "`consistency` delay, which loses rows of transactions that take longer than `timestamp_delay`, or overlap "
            "for a sink that upserts."
        )
        self.args = (str(self),)


def not_exact(why: str, relation: Relation | None = None) -> NotExactError:
    """The error of a database that can't say how far its rows are settled."""
    where = {} if relation is None else {"source": relation.topic}
    return NotExactError(
        f"consistency exact can't be had here: {why}.",
        next_step="docs/jdbc-source.md says what it needs. Or set the source's `consistency` to delay, which loses "
        "rows of transactions that take longer than `timestamp_delay`, or to overlap for a sink that upserts.",
        **where,
    )


def numeric(precision: int | None, scale: int | None, mapping: NumericMapping) -> str | None:
    """Spark's type of a NUMERIC column; None for text, where no DECIMAL holds all of its values."""
    if precision is None or scale is None:
        return "DOUBLE" if mapping == "best_fit_eager_double" else None
    if mapping != "none" and scale <= 0 and precision < _LONG:
        return "INT" if precision < 10 else "BIGINT"
    if scale > 0 and (mapping == "best_fit_eager_double" or (mapping == "best_fit" and precision < _LONG)):
        return "DOUBLE"
    if precision > 38 or not 0 <= scale <= precision:
        return None
    return f"DECIMAL({precision},{scale})"


def at(value: int) -> datetime:
    """Microseconds since 1970 as a time."""
    return EPOCH + timedelta(microseconds=value)


def micros(time: datetime) -> int:
    """A time as microseconds since 1970."""
    return (time - EPOCH) // timedelta(microseconds=1)


def local_text(value: int, zone: str) -> str:
    """The time that a clock of a zone shows."""
    return at(value).astimezone(ZoneInfo(zone)).strftime("%Y-%m-%d %H:%M:%S.%f")


_LONGEST_FOLD = timedelta(hours=3)
_STEP = timedelta(minutes=15)


def risen(value: int, zone: str) -> int:
    """The last time up to `value` that divides times as their texts in a zone do.

    Where clocks are set back, an hour's texts come twice: a bound in these two hours has texts of both sides on either.
    """
    here = ZoneInfo(zone)

    def offset(time: datetime) -> timedelta:
        return time.astimezone(here).utcoffset() or timedelta(0)

    time = at(value) - _LONGEST_FOLD
    while time < at(value) + _LONGEST_FOLD:
        back = offset(time) - offset(time + _STEP)
        if back > timedelta(0):
            early, late = time, time + _STEP
            while late - early > timedelta(seconds=1):
                middle = early + (late - early) / 2
                early, late = (middle, late) if offset(middle) == offset(early) else (early, middle)
            turn = micros(late.replace(microsecond=0))
            width = back // timedelta(microseconds=1)
            return turn - width if turn - width < value < turn + width else value
        time += _STEP
    return value


def has_one_offset(zone: str) -> bool:
    """Whether a zone's clocks are never put back."""
    return (
        len({ZoneInfo(zone).utcoffset(datetime(year, month, 1)) for year in (2020, 2030) for month in (1, 4, 7, 10)})
        == 1
    )
