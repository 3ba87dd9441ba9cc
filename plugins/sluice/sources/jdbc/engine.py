"""What a kind of database says of itself as a source: its tables, its values, and how far its rows are settled. Pure.

A *horizon* is the bound of a column below which no transaction can commit any more: rows below it are all there.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Literal, Protocol
from zoneinfo import ZoneInfo

from sluice.errors import ActionRequiredError


class Ask(Protocol):
    """Asks a database; see `sluice.databases.client.Asking`."""

    def __call__(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """What a query with `?` for each value finds."""
        ...

    def described(self, query: str) -> list[tuple[str, str]]:
        """The names and types of a query's columns."""
        ...


Bound = Literal["instant", "local", "text", "number"]
"""What a column holds that bounds windows: instants, times of a zone, times as SQLite's text, numbers."""
NumericMapping = Literal["none", "precision_only", "best_fit", "best_fit_eager_double"]
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
    """

    name: str
    type: str
    nullable: bool = True
    in_key: int = 0
    numbered: bool = False


@dataclass(frozen=True)
class Relation:
    """A table, a view or a query.

    Attributes:
        topic: its name, as the pipeline has it.
        sql: what stands after FROM.
        id: what tells it from another of its name, as far as the database says.
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
        value: Spark SQL of the value, with `{}` for what was fetched.
        ddl: Spark's type of the value.
    """

    sql: str
    fetched: str
    ddl: str
    value: str = "{}"


class Engine(ABC):
    """One kind of database."""

    name: ClassVar[str]
    properties: ClassVar[dict[str, str]] = {}
    """What the JDBC driver of a reader is told besides what all connections tell it."""

    def quoted(self, name: str) -> str:
        """A name as SQL."""
        return '"' + name.replace('"', '""') + '"'

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
            f"({query}) sluice_query",
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

    @abstractmethod
    def literal(self, value: int, bound: Bound, zone: str) -> str:
        """A bound of a window in SQL, to be compared with the column itself, so that its index serves."""

    @abstractmethod
    def grain(self, column: Column) -> int:
        """The microseconds to which the database rounds the times of a column."""

    @abstractmethod
    def now(self, ask: Ask) -> int:
        """The database's clock."""

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


def not_exact(why: str, relation: Relation | None = None) -> ActionRequiredError:
    """The error of a database that can't say how far its rows are settled."""
    where = {} if relation is None else {"source": relation.topic}
    return ActionRequiredError(
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


def has_one_offset(zone: str) -> bool:
    """Whether a zone's clocks are never put back."""
    return (
        len({ZoneInfo(zone).utcoffset(datetime(year, month, 1)) for year in (2020, 2030) for month in (1, 4, 7, 10)})
        == 1
    )
