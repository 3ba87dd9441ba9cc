"""The properties of a kind of database: its SQL, and the types that its columns can hold. Pure."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, Literal

from sluice.answers import has_sign
from sluice.databases.fits import Fit
from sluice.databases.stored import Stored
from sluice.identifiers import sql_quoted
from sluice.records.structs import Type, in_words

Kind = Literal["passing", "login", "refused", "data", "other"]
"""The kind of a database's error: it may pass, the connection is refused, a permission is missing, rows are refused, or
the statement has a mistake, such as a table that isn't there."""


STATES: Mapping[Kind, tuple[str, ...]] = MappingProxyType(
    {
        "refused": ("42501",),
        "login": ("08004", "0L", "0P", "28", "3D"),
        # 40002: a constraint that is checked at the commit. 45, P0001: a trigger refuses a row. 54: a value too large
        # for an index.
        "data": ("22", "23", "40002", "44", "45", "54", "P0001"),
        # A lost or refused connection, a lock held by another transaction, a server that is starting, has no room or
        # is read-only since another one has taken its place, an internal error.
        "passing": ("08", "25006", "25P03", "40", "53", "55006", "55P03", "57", "58", "XX000"),
        "other": ("07", "0A", "21", "2B", "2F", "3F", "42", "55", "F0", "P0", "XX001", "XX002"),
    }
)
"""Prefixes of SQLSTATEs, for classes and for some states of PostgreSQL, by kind; the first that fits counts.

ISO/IEC 9075-2; https://www.postgresql.org/docs/current/errcodes-appendix.html
"""


def kind_of_state(state: str) -> Kind:
    """An error's kind by its SQLSTATE; one that isn't in the table may pass."""
    return next((kind for kind, beginnings in STATES.items() if state.startswith(beginnings)), "passing")


@dataclass(frozen=True)
class DatabaseColumn:
    """A column of a table, as its database describes it.

    Attributes:
        name: its name, as spelled in the database.
        type: its type, as named by the database, such as `character varying(10)`.
        nullable: whether it may be null.
        filled: whether the database fills it if a row has no value for it: it has a default, or is an identity.
        generated: whether only the database may fill it.
    """

    name: str
    type: str
    nullable: bool = True
    filled: bool = False
    generated: bool = False


class Dialect(ABC):
    """One kind of database."""

    name: str
    driver: str
    properties: ClassVar[Mapping[str, str]]
    """The driver's properties for every connection."""
    connection_types: ClassVar[Sequence[str]]
    """The types of Airflow connections that name a server of this kind by host and port, or a file."""
    extra_fields: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Settings in a connection's extra field that Airflow's hook reads, with the driver's names for them."""
    settings: ClassVar[Collection[str]]
    """The driver's settings that choose no server, and change neither values nor what a transaction is."""
    choosing: ClassVar[Collection[str]] = ()
    """Its settings that choose one of several servers when it connects, and never later."""
    one_writer_advice: ClassVar[str] = ""
    """How a connection leads to the one server that writes, for an error's next step."""
    isolation: ClassVar[str]
    """Spark's name for the isolation of a write job's transactions."""
    one_writer: ClassVar[bool]
    """Whether one transaction at a time may write."""
    session: ClassVar[Sequence[str]] = ()
    """Statements that the coordinator executes at the beginning of each connection."""
    in_transaction: ClassVar[str | None] = None
    """A query with which each of its transactions begins. Its settings end with the transaction: a pooler hands the
    session on to others."""
    batch_properties: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Additional driver properties for staging rows."""
    codes: ClassVar[Mapping[Kind, tuple[int, ...]]] = MappingProxyType({})
    """The database's error numbers whose SQLSTATE says less, by kind."""
    signs: ClassVar[Mapping[Kind, tuple[str, ...]]] = MappingProxyType({})
    """Fixed words of the driver's errors that have neither a number nor an SQLSTATE, by kind."""
    hidden_causes: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Causes of errors that may pass, by the message that hides them: after such an error, Spark's writer tries a
    roll-back, which fails, and reports the failure of that."""
    row_limit_query: ClassVar[str | None] = None
    """A query for the maximum size of a row in bytes, for databases that break the connection at a larger one."""
    lock_schema: ClassVar[str | None] = None
    """A query that keeps two processes from creating the same table, until their transaction ends."""
    unlock_schema: ClassVar[str | None] = None
    """A query that releases the lock, if it isn't bound to the transaction; `lock_schema` then returns 1 on success."""
    refusal_query: ClassVar[str | None] = None
    """A query for the reason why the sink doesn't support a server; null if it does."""
    unfit_query: ClassVar[str | None] = None
    """A query, given schema and name, for the reason why a table's rows and offsets can't share a transaction."""
    lock_row: ClassVar[str]
    """The end of a query that locks the rows it finds."""
    staging_begins: ClassVar[str]
    """The beginning of a statement that creates a staging table."""
    temporary: ClassVar[str]
    """The beginning of a statement that creates a table from a query, until the transaction or the connection ends."""
    drop_temporary: ClassVar[str] = "DROP TABLE"
    """The beginning of a statement that drops a temporary table."""
    table_options: ClassVar[str] = ""
    """The end of a statement that creates a table."""
    long_text: ClassVar[str] = "TEXT"
    """The type for texts of any length."""
    joins: ClassVar[bool] = False
    """Whether UPDATE and DELETE name a second table by JOIN; otherwise by FROM and a subquery."""
    joined: ClassVar[str]
    """An aggregate that joins the texts of several rows with commas."""
    analyze: ClassVar[bool] = False
    """Whether a new table should be analyzed before it is joined."""
    mark: str = '"'
    """What is put around names."""
    creates: ClassVar[str] = "CREATE TABLE IF NOT EXISTS"
    """The beginning of a statement that creates a bookkeeping table."""
    drops: ClassVar[str] = "DROP TABLE IF EXISTS"
    """The beginning of a statement that drops a staging table."""
    whole_number: ClassVar[str] = "BIGINT"
    """The type for whole numbers of 64 bits."""
    appends_only: ClassVar[bool] = False
    """Whether the sink only adds rows to one table that is there: what more the database's SQL has isn't known."""

    json_object: ClassVar[str]
    """A JSON object as text, with `{}` for its keys and values in turn."""
    hexadecimal: ClassVar[str]
    """Bytes as hexadecimal digits in a JSON object, with `{}` for the column."""
    time_text: ClassVar[str]
    """A time as text in UTC in a JSON object, with `{}` for the column."""
    reading_session: ClassVar[str] = ""
    """The first statements of a connection that reads values by `stored`, in the transaction in which it reads."""

    @abstractmethod
    def stored(self, kind: Type, column: DatabaseColumn, zone: str) -> Stored | None:
        """SQL for reading a column's values as they were sent; None if the database may write them differently.

        Args:
            kind: the type of the rows' column, as in Spark's JSON.
            column: the database's column.
            zone: the time zone for columns with times that have none.
        """

    @abstractmethod
    def url(self, host: str, port: int | None, schema: str, login: str) -> str:
        """The JDBC URL of a connection of one of `connection_types`."""

    def require_url(self, url: str, connection: str) -> None:  # noqa: B027 - most kinds refuse none
        """Refuse a JDBC URL by which processes could reach different databases.

        Args:
            url: the URL.
            connection: the Airflow connection's id, for the error.

        Raises:
            ActionRequiredError: they could.
        """

    def is_of_the_writer(self, name: str, value: str) -> bool:  # noqa: ARG002
        """Whether one of `choosing` leads to the one server that writes, and to no other."""
        return False

    def unknown_values(self, given: Mapping[str, str]) -> list[str]:  # noqa: ARG002
        """Parts of known settings that aren't known, such as one of PostgreSQL's `options`.

        Args:
            given: all settings, by their names.
        """
        return []

    def several_servers(self, where: str, given: Mapping[str, str], *, exact: bool) -> str | None:  # noqa: ARG002
        """Why a URL may lead to another server each time, in words; None if that doesn't matter, or it doesn't.

        Args:
            where: the URL without its settings.
            given: all settings, by their names.
            exact: whether windows are read, whose end was asked of one server.
        """
        return None

    def quoted(self, name: str) -> str:
        """A name as SQL."""
        return sql_quoted(name, self.mark)

    @abstractmethod
    def table(self, schema: str, name: str) -> str:
        """A table's name as SQL."""

    @abstractmethod
    def canonical(self, schema: str, name: str) -> str:
        """A table's canonical name, which doesn't depend on its spelling in the pipeline file."""

    schema_query: ClassVar[str | None]
    """A query for the schema of tables that are named without one; None if the database has no schemas."""
    table_query: ClassVar[str]
    """A query for a table's name, given schema and name; it returns no row if the table doesn't exist."""
    tables_query: ClassVar[str]
    """A query for the names of tables, given a schema and a prefix."""
    columns_query: ClassVar[str]
    """A query for name, type, nullable, filled and generated of a table's columns, given schema and name; the last
    three are 0 or 1."""

    def staging(self, name: str, table: str, columns: str, places: Mapping[str, int | None]) -> str:
        """A statement that creates a staging table, whose columns have the table's types and may be null.

        Args:
            name: the staging table, as SQL.
            table: the table, as SQL.
            columns: its columns, as SQL.
            places: additional columns by name, each with its text's length, or None for a whole number.
        """
        nulls = ", ".join(
            f"CAST(NULL AS {'BIGINT' if length is None else f'VARCHAR({length})'}) AS {sql_quoted(place)}"
            for place, length in places.items()
        )
        return f"{self.staging_begins} {name} AS SELECT {columns}, {nulls} FROM {table} WHERE 1 = 0"

    def temporary_table(self, schema: str, name: str) -> str:  # noqa: ARG002 - temporary tables are in a special schema
        """The name of a commit's temporary table as SQL."""
        return sql_quoted(name)

    def kind_of(self, code: int) -> Kind | None:
        """The kind of an error by the database's error number; None if its SQLSTATE decides."""
        return next((kind for kind, codes in self.codes.items() if code in codes), None)

    def kind_of_words(self, said: str) -> Kind | None:
        """The kind of an error of the driver's, by its words; None if they are in no table."""
        return next((kind for kind, signs in self.signs.items() if has_sign(said, signs)), None)

    def refused(self, said: str, code: int, state: str) -> str:  # noqa: ARG002 - other databases quote values
        """What the database says of rows that it refuses, without their values.

        A value may have line breaks, quotes, and the database's words, so that it can't be cut out of any text: a text
        that isn't known is replaced by its number.

        Args:
            said: the database's text.
            code: the database's number.
            state: the SQLSTATE.
        """
        return " ".join(said.split())

    @abstractmethod
    def made(self, kind: Type, in_key: int = 0) -> str | None:
        """The type of a column created for one of Spark's types; None if there is none.

        Args:
            kind: the type, as in Spark's JSON.
            in_key: for a column of the primary key, the number of the key's columns; else 0.
        """

    @abstractmethod
    def fit(self, value: str, kind: Type, column: DatabaseColumn, zone: str) -> Fit | str:
        """The conversion of values of one of Spark's types to a column's type.

        Args:
            value: the value as Spark SQL.
            kind: its type, as in Spark's JSON.
            column: the database's column.
            zone: the time zone for columns with times that have none.

        Returns:
            A `Fit`, or the reason why the types don't fit.
        """

    def misfit(self, kind: Type, column: DatabaseColumn) -> str:
        """The message that a column can't hold a type."""
        return f"`{column.name}` is {column.type} in the database, which doesn't hold {in_words(kind)}"


_NUMBERS = re.compile(r"\(([\d, ]+)\)")


def parts_of_type(declared: str) -> tuple[str, list[int]]:
    """A declared type's name in lower case, and its numbers, as in `numeric(10,2)` or `timestamp(6) with …`."""
    numbers = _NUMBERS.search(declared)
    name = " ".join(_NUMBERS.sub(" ", declared.lower()).split())
    return name, [int(n) for n in numbers[1].split(",")] if numbers else []
