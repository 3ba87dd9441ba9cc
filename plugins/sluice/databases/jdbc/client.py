"""Looks into any database by its JDBC driver, in the coordinator's JVM."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sluice.databases.address import JdbcAddress
from sluice.databases.client import Asking, Look, Row, failed
from sluice.databases.engine import Column
from sluice.databases.jdbc.dialect import DRIVER_CLASS
from sluice.databases.jdbc.types import ColumnThere, TypeThere, name_of
from sluice.databases.thrown import kind_of, refusal_of, sql_exception
from sluice.errors import ActionRequiredError, RetryableError
from sluice.jvm.gateway import open_here
from sluice.jvm.jdbc import JavaThrewError, connection_of, driver_of, java_errors
from sluice.jvm.kept import kept_jvm

_READ_UNCOMMITTED = 1  # java.sql.Connection
_NO_NULLS = 0  # java.sql.ResultSetMetaData
_TYPES = ("TABLE", "BASE TABLE", "VIEW")
_COLUMN = (
    *("TABLE_NAME", "COLUMN_NAME", "DATA_TYPE", "TYPE_NAME", "COLUMN_SIZE", "DECIMAL_DIGITS", "NULLABLE"),
    *("COLUMN_DEF", "IS_AUTOINCREMENT", "IS_GENERATEDCOLUMN"),
)
_TYPE = ("TYPE_NAME", "DATA_TYPE", "PRECISION", "CREATE_PARAMS", "UNSIGNED_ATTRIBUTE")


@dataclass(frozen=True)
class Named:
    """A table or view, as JDBC names it: empty where its database has no catalogs, or no schemas."""

    catalog: str
    schema: str
    name: str
    is_table: bool


@dataclass(frozen=True)
class JdbcAsking(Asking):
    """A connection that also tells what its driver knows of tables."""

    driver: Driver | None = None


class Driver:
    """What a JDBC connection and its metadata say. Each answer is a few rows: each value is a call of the JVM.

    Args:
        connection: Java's connection.
        wait: how many seconds a query may take.
    """

    def __init__(self, connection: Any, wait: int) -> None:
        self._connection, self._wait = connection, wait
        self._metadata = connection.getMetaData()
        self.quote = str(self._metadata.getIdentifierQuoteString() or "").strip()
        self.product = str(self._metadata.getDatabaseProductName())

    def ask(self, sql: str, *values: Any) -> list[Row]:
        """The first row of a query, as texts; see `Asking`. Not all databases know LIMIT."""
        statement = self._connection.prepareStatement(sql)
        try:
            statement.setMaxRows(1)
            statement.setQueryTimeout(self._wait)
            for i, value in enumerate(values, 1):
                statement.setObject(i, value)
            found = statement.executeQuery()
            number = range(1, int(found.getMetaData().getColumnCount()) + 1)
            return [tuple(found.getString(i) for i in number)] if found.next() else []
        finally:
            statement.close()

    def columns(self, rows: str) -> list[Column]:
        """The columns of a table or a subquery, as SQL after FROM, without its primary key."""
        statement = self._connection.prepareStatement(f"SELECT * FROM {rows} WHERE 1 = 0")
        try:
            statement.setQueryTimeout(self._wait)
            of = statement.executeQuery().getMetaData()
            return [self._column(of, i) for i in range(1, int(of.getColumnCount()) + 1)]
        finally:
            statement.close()

    def _column(self, of: Any, i: int) -> Column:
        size = (int(of.getPrecision(i)), int(of.getScale(i)))
        kind = name_of(int(of.getColumnType(i)), str(of.getColumnTypeName(i)), *size, signed=bool(of.isSigned(i)))
        nullable = int(of.isNullable(i)) != _NO_NULLS
        return Column(str(of.getColumnLabel(i)), kind, nullable, numbered=bool(of.isAutoIncrement(i)), quote=self.quote)

    def described(self, query: str) -> list[tuple[str, str]]:
        """See `Asking`."""
        return [(column.name, column.type) for column in self.columns(f"(\n{query}\n) sluice_query")]

    def tables(self, name: str = "%") -> list[Named]:
        """Tables and views of the connection's catalog, whose names match one of JDBC's patterns."""
        found = self._metadata.getTables(self._connection.getCatalog(), None, name, None)
        return [
            Named(catalog, schema, name, kind != "VIEW")
            for catalog, schema, name, kind in self._rows(found, "TABLE_CAT", "TABLE_SCHEM", "TABLE_NAME", "TABLE_TYPE")
            if kind in _TYPES
        ]

    def columns_of(self, table: Named) -> list[ColumnThere]:
        """The columns of a table, with what their database says of their types."""
        schema = self.pattern(table.schema) if table.schema else None
        found = self._metadata.getColumns(table.catalog or None, schema, self.pattern(table.name), "%")
        rows = [row for of, *row in self._rows(found, *_COLUMN) if of == table.name]
        return [
            ColumnThere(
                name=name,
                code=int(code),
                type=kind,
                size=int(size or 0),
                digits=int(digits) if digits else None,
                nullable=nullable != str(_NO_NULLS),
                filled=default.upper() not in ("", "NULL") or numbered == "YES",
                generated=generated == "YES",
            )
            for name, code, kind, size, digits, nullable, default, numbered, generated in rows
        ]

    def types(self) -> list[TypeThere]:
        """The database's types."""
        found = self._rows(self._metadata.getTypeInfo(), *_TYPE)
        return [
            TypeThere(name, int(code), int(size or 0), parameters, unsigned.lower() in ("true", "1"))
            for name, code, size, parameters, unsigned in found
        ]

    def key(self, table: Named) -> dict[str, int]:
        """The columns of a table's primary key, each with its place, from 1."""
        found = self._metadata.getPrimaryKeys(table.catalog or None, table.schema or None, table.name)
        return {name: int(place) for name, place in self._rows(found, "COLUMN_NAME", "KEY_SEQ")}

    def schema(self) -> str:
        """The schema of tables that are named without one; empty if the driver doesn't say."""
        return str(self._connection.getSchema() or "")

    def pattern(self, name: str) -> str:
        """A name as a pattern of JDBC's that matches it alone."""
        escape = str(self._metadata.getSearchStringEscape() or "")
        for character in (escape, "%", "_") if escape else ():
            name = name.replace(character, f"{escape}{character}")
        return name

    @staticmethod
    def _rows(found: Any, *columns: str) -> list[Any]:
        """A result of the metadata's."""
        rows = []
        while found.next():
            rows.append(tuple(str(found.getString(column) or "") for column in columns))
        found.close()
        return rows


@contextmanager
def connected(look: Look) -> Iterator[Asking]:
    """See `sluice.databases.client.Client`."""
    with _jvm() as jvm:
        try:
            with java_errors():
                yield from _asking(jvm.jvm, look)
        except JavaThrewError as error:
            raise _said(jvm.jvm, look, error.exception) from None


def _asking(jvm: Any, look: Look) -> Iterator[Asking]:
    address = look.address
    driver = driver_of(jvm, address.url, address.dialect.driver)
    if driver is None:
        raise no_driver(address)
    with connection_of(jvm, driver, address.url, dict(address.properties), look.wait) as connection:
        if connection is None:
            raise no_driver(address)
        if int(connection.getTransactionIsolation()) == _READ_UNCOMMITTED:
            raise ActionRequiredError(
                "The connection reads rows that aren't committed.",
                next_step="take the setting out of its URL or `properties` that asks for READ UNCOMMITTED.",
                connection=address.connection,
            )
        connection.setReadOnly(True)
        found = Driver(connection, look.wait)
        yield JdbcAsking(found.ask, found.described, driver=found)


@contextmanager
def _jvm() -> Iterator[Any]:
    """The JVM that this process has open, as where an interval begins, or another one for the block."""
    here = open_here()
    if here is not None:
        yield here
        return
    with kept_jvm() as own:
        yield own


def no_driver(address: JdbcAddress) -> ActionRequiredError:
    """The error of a class path without the driver of a connection."""
    named = address.dialect.driver
    which = f"of the class {named}" if named else f"that takes a URL of jdbc:{address.dialect.name}"
    return ActionRequiredError(
        f"There is no JDBC driver {which}.",
        next_step="put the database's driver into the folders class-paths/coordinator and class-paths/spark of "
        f"SLUICE_HOME (or SLUICE_JARS), and look whether the connection's URL"
        f"{' and its' if named else ', or a'} `{DRIVER_CLASS}` in the extra field {'are' if named else 'is'} right; "
        "docs/jdbc-source.md, under `Other databases`.",
        connection=address.connection,
    )


def _said(jvm: Any, look: Look, exception: Any | None) -> ActionRequiredError | RetryableError:
    """The error for what a driver has thrown; a value of a row shows in none."""
    if exception is None:
        return failed(look, "the JVM was lost", "passing")
    found = sql_exception(jvm, exception)
    if found is None:
        return failed(look, str(exception.getClass().getName()), "other")
    kind, said = kind_of(found, look.address.dialect), look.address.hidden(str(found.getMessage()))
    return failed(look, refusal_of(found, look.address.dialect, said) if kind == "data" else said, kind)
