"""What a kind of database says of itself: its names for things, and which of our types its columns hold. Pure."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, Literal

from sluice.records.structs import Type, in_words
from sluice.sinks.jdbc.fits import Fit
from sluice.sinks.jdbc.names import quoted

Kind = Literal["passing", "login", "refused", "data", "other"]
"""What an error of a database is: it may go by itself, the login is refused, a right is missing, rows are refused."""


@dataclass(frozen=True)
class DatabaseColumn:
    """A column of a table, as its database describes it.

    Attributes:
        name: its name, as the database writes it.
        type: its type in the database's own words, such as `character varying(10)`.
        nullable: whether it may be null.
        filled: whether the database fills it where a row doesn't say it: it has a default, or is an identity.
        generated: whether the database alone may fill it.
    """

    name: str
    type: str
    nullable: bool = True
    filled: bool = False
    generated: bool = False


class Dialect(ABC):
    """One kind of database."""

    name: ClassVar[str]
    driver: ClassVar[str]
    properties: ClassVar[Mapping[str, str]]
    """What its driver is always told."""
    isolation: ClassVar[str]
    """Spark's name for the isolation of a write job's transactions."""
    one_writer: ClassVar[bool]
    """Whether one transaction at a time may write."""
    session: ClassVar[Sequence[str]] = ()
    """Statements with which the coordinator's connections begin."""
    batch_properties: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """What its driver is told besides where rows are staged."""
    hidden_causes: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """What went wrong, and may go by itself, by the words that Spark's writer has in its place: those of the roll-back
    that it tries then, and that fails."""
    row_limit_query: ClassVar[str | None] = None
    """A query for the bytes that a row may have, where the connection breaks at a longer one."""
    lock_schema: ClassVar[str | None] = None
    """A query that keeps two processes from creating the same table, until their transaction ends."""
    unlock_schema: ClassVar[str | None] = None
    """Where the lock isn't the transaction's: a query that gives it back. `lock_schema` finds 1 where it has it."""
    refusal_query: ClassVar[str | None] = None
    """A query for why a server isn't one that the sink writes to, in words; null where it is."""
    unfit_query: ClassVar[str | None] = None
    """A query for why a table can't have rows and offsets in one transaction, in words, given schema and name."""
    lock_row: ClassVar[str]
    """The end of a query that locks the rows it finds."""
    staging_begins: ClassVar[str]
    """The beginning of a statement that creates a staging table."""
    temporary: ClassVar[str]
    """The beginning of a statement that makes a table of a query, which ends with the transaction or the connection."""
    drop_temporary: ClassVar[str] = "DROP TABLE"
    """The beginning of a statement that drops one."""
    table_options: ClassVar[str] = ""
    """The end of a statement that creates a table."""
    long_text: ClassVar[str] = "TEXT"
    """The type of a text of any length."""
    joins: ClassVar[bool] = False
    """Whether UPDATE and DELETE name a second table by JOIN; otherwise by FROM and a subquery."""
    joined: ClassVar[str]
    """An aggregate that puts texts of several rows into one, with commas between."""
    analyze: ClassVar[bool] = False
    """Whether a new table is to be analyzed before it is joined."""

    @abstractmethod
    def table(self, schema: str, name: str) -> str:
        """A table's name in a statement."""

    @abstractmethod
    def canonical(self, schema: str, name: str) -> str:
        """One name for a table, however a pipeline file spells it."""

    schema_query: ClassVar[str | None]
    """A query for the schema of tables that are named without one; None where there are no schemas."""
    table_query: ClassVar[str]
    """A query for a table's name, given schema and name; no row if it isn't there."""
    tables_query: ClassVar[str]
    """A query for the names of tables, given schema and what these begin with."""
    columns_query: ClassVar[str]
    """A query for name, type, nullable, filled and generated of a table's columns, given schema and name; the last
    three are 0 or 1."""

    def staging(self, name: str, table: str, columns: str, places: Mapping[str, int | None]) -> str:
        """A statement that makes a staging table, whose columns have the table's own types and may be null.

        Args:
            name: the staging table, as SQL.
            table: the table, as SQL.
            columns: its columns, as SQL.
            places: the names of columns beside them; by each the length of its text, or None for a whole number.
        """
        nulls = ", ".join(
            f"CAST(NULL AS {'BIGINT' if length is None else f'VARCHAR({length})'}) AS {quoted(place)}"
            for place, length in places.items()
        )
        return f"{self.staging_begins} {name} AS SELECT {columns}, {nulls} FROM {table} WHERE 1 = 0"

    def temporary_table(self, schema: str, name: str) -> str:  # noqa: ARG002 - it is in no schema of a user's
        """A temporary table of a commit."""
        return quoted(name)

    def kind_of(self, code: int) -> Kind | None:  # noqa: ARG002
        """What an error of the database's own number is; None where its SQLSTATE says it."""
        return None

    @abstractmethod
    def made(self, kind: Type, in_key: int = 0) -> str | None:
        """The type of a column that is created for one of Spark's types; None if there is none.

        Args:
            kind: the type, as in Spark's JSON.
            in_key: of a column of the primary key, how many columns that has.
        """

    @abstractmethod
    def fit(self, value: str, kind: Type, column: DatabaseColumn, zone: str) -> Fit | str:
        """How values of one of Spark's types become a column's.

        Args:
            value: the value as Spark SQL.
            kind: its type, as in Spark's JSON.
            column: the database's column.
            zone: the time zone of columns that have times without one.

        Returns:
            A `Fit`, or in words why they don't fit.
        """

    def misfit(self, kind: Type, column: DatabaseColumn) -> str:
        """In words that a column doesn't hold a type."""
        return f"`{column.name}` is {column.type} in the database, which doesn't hold {in_words(kind)}"


_NUMBERS = re.compile(r"\(([\d, ]+)\)")


def parts_of_type(declared: str) -> tuple[str, list[int]]:
    """A declared type's name in lower case, without its numbers, and these: `numeric(10,2)`, `timestamp(6) with …`."""
    numbers = _NUMBERS.search(declared)
    name = " ".join(_NUMBERS.sub(" ", declared.lower()).split())
    return name, [int(n) for n in numbers[1].split(",")] if numbers else []
