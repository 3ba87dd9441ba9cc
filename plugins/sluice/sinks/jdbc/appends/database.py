"""A connection to a database that only its JDBC driver knows, by that driver's metadata and the standard's SQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from typing import Any

from py4j.protocol import Py4JError

from sluice.databases.address import JdbcAddress
from sluice.databases.dialect import DatabaseColumn
from sluice.databases.jdbc.client import Driver, Named, no_driver
from sluice.databases.jdbc.dialect import AnyDatabase
from sluice.databases.jdbc.types import TEXTS, TIMES, ColumnThere, TypeThere, long_text
from sluice.errors import ActionRequiredError, SluiceError
from sluice.jvm.gateway import java_properties
from sluice.jvm.jdbc import driver_of
from sluice.sinks.jdbc.database import Database
from sluice.sinks.jdbc.failures import database_errors
from sluice.sinks.jdbc.options.names import DELETED, LOG, LONGEST_OWN, OFFSET, staging_prefix
from sluice.sinks.jdbc.statements import Target, append_as, bookkeeping

_READ_COMMITTED, _STRICTER = 2, (4, 8)  # java.sql.Connection
_ASKING = "asking its driver"
_OTHER = "write to another database; docs/jdbc-sink.md says under `Other databases` what one needs."


class DriverDatabase(Database):
    """See `Database`. Days and times are staged as texts, whatever a driver's calendar makes of them."""

    def __init__(self, jvm: Any, address: JdbcAddress, connection: Any) -> None:
        super().__init__(jvm, address, connection)
        self._lost = False
        with self._asking():
            self._metadata = connection.getMetaData()
            self._driver = Driver(connection, 0)

    def require_fit(self) -> None:
        """See that the driver claims what the sink needs, and that its transactions read committed rows alone.

        Raises:
            ActionRequiredError: it doesn't.
        """
        with self._asking():
            if not self._metadata.supportsTransactions():
                raise self.unfit_for("it has no transactions, by its driver")
            if self._metadata.supportsTransactionIsolationLevel(_READ_COMMITTED):
                self._connection.setTransactionIsolation(_READ_COMMITTED)
            elif int(self._connection.getTransactionIsolation()) not in _STRICTER:
                raise self.unfit_for("its transactions read rows that aren't committed")
            self._connection.setAutoCommit(True)
            longest = int(self._metadata.getMaxTableNameLength())
        if 0 < longest < LONGEST_OWN:
            raise self.unfit_for(f"names of its tables have at most {longest} characters, and Sluice's {LONGEST_OWN}")
        if not self._driver.quote:
            raise self.unfit_for("it has no quotes for names")

    def unfit_for(self, reason: str, next_step: str = _OTHER) -> ActionRequiredError:
        """The error of a database that rows can't be appended to exactly once."""
        return ActionRequiredError(
            f"Rows and offsets can't be one transaction of this database: {reason}.",
            next_step=f"nothing was written. {next_step[0].upper()}{next_step[1:]}",
            connection=self.address.connection,
            database=self.dialect.name,
        )

    def _roll_back(self) -> None:
        """See `Database`. A connection that can't is ended: to close it or to turn autocommit on could commit."""
        try:
            self._connection.rollback()
        except (Py4JError, OSError):
            self._lost = True
            with suppress(Py4JError, OSError):
                self._connection.abort(self._jvm.java.util.concurrent.ForkJoinPool.commonPool())

    def _end_transactions(self) -> None:
        if not self._lost:
            super()._end_transactions()

    def close(self) -> None:
        """See `Database`."""
        if not self._lost:
            super().close()

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """See `Database`. There may be none: what fails takes the whole transaction with it, and it is reported."""
        yield

    # The tables

    @property
    def has_schemas(self) -> bool:
        """See `Database`. MySQL's are JDBC's catalogs."""
        return True

    def schema_of(self, schema: str) -> str:
        """See `Database`."""
        with self._asking():
            return schema or self._driver.schema() or self._catalog()

    def _catalog(self) -> str:
        """The connection's catalog, where tables have one in place of a schema; empty if they don't."""
        alone = not self._metadata.supportsSchemasInTableDefinitions()
        return str(self._connection.getCatalog() or "") if alone else ""

    def unfit(self, schema: str, name: str) -> str | None:
        """See `Database`."""
        found = self._named(schema, name)
        if found is not None and not found.is_table:
            return "it is a view"
        query = self._habits.unfit_query
        rows = self.rows(query, schema, name) if query is not None else []
        return rows[0][0] if rows else None

    def has_table(self, schema: str, name: str) -> bool:
        """See `Database`."""
        found = self._named(schema, name)
        return found is not None and found.is_table

    def columns(self, schema: str, name: str) -> list[DatabaseColumn]:
        """See `Database`."""
        return [
            DatabaseColumn(
                one.name,
                one.in_words(self._types, self._habits.times),
                nullable=one.nullable,
                filled=one.filled,
                generated=one.generated,
            )
            for one in self._columns(schema, name)
        ]

    def create_bookkeeping(self, target: Target, doing: str) -> None:
        """See `Database`. Where two processes create one at the same time, one of them finds the other's."""
        for name, statement in bookkeeping(target, self._long_text()):
            if self.has_table(target.schema, name):
                continue
            try:
                self.run(statement, doing=doing)
            except SluiceError:
                if not self.has_table(target.schema, name):
                    raise
            if not self.has_table(target.schema, name):
                raise self.unfit_for("it doesn't keep the name of a table as it is written")

    def create_staging(self, target: Target, name: str) -> None:
        """See `Database`. By the types that its driver tells.

        Raises:
            ActionRequiredError: a type can't be declared by what the driver tells of it.
        """
        known = {one.name: one for one in self._columns(target.schema, target.name)}
        wanted = [known[column] for column in target.columns]
        columns = [(one.name, self._staged_as(one)) for one in wanted]
        columns += [(LOG, "VARCHAR(300)"), (OFFSET, self.dialect.whole_number), (DELETED, self.dialect.whole_number)]
        declared = ", ".join(f"{self.dialect.quoted(column)} {kind}" for column, kind in columns)
        self.run(f"CREATE TABLE {target.own(name)} ({declared})", doing="creating a staging table")
        made = {one.name: one for one in self._columns(target.schema, name)}
        for one in wanted:
            if self._staged_as(one) == self._declared(one) and _kind(made[one.name]) != _kind(one):
                self.run(f"{self.dialect.drops} {target.own(name)}", doing="dropping a staging table")
                raise ActionRequiredError(
                    f"A second column of the type of `{one.name}` can't be made by what the driver tells of it: "
                    f"{one.type} became {made[one.name].type}.",
                    next_step="nothing was written. Give the column another type, or leave it out.",
                    table=target.name,
                    connection=self.address.connection,
                )

    def append(self, target: Target, name: str) -> str:
        """See `Database`. Texts of days and times become what they are in the table."""
        known = {one.name: one for one in self._columns(target.schema, target.name)}
        values = [self._value(known[column]) for column in target.columns]
        return append_as(target, name, values)

    def staging_tables(self, target: Target, table: str, instant: str | None = None) -> list[str]:
        """See `Database`."""
        prefix = staging_prefix(table, instant)
        with self._asking():
            found = self._driver.tables(f"{self._driver.pattern(prefix)}%")
        return [one.name for one in found if one.name.startswith(prefix) and _is_in(one, target.schema)]

    @cached_property
    def _types(self) -> list[TypeThere]:
        with self._asking():
            return self._driver.types()

    @property
    def _habits(self) -> Any:
        dialect = self.dialect
        assert isinstance(dialect, AnyDatabase)
        return dialect.habits

    def _long_text(self) -> str:
        found = long_text(self._types)
        if found is None:
            raise self.unfit_for("it has no type for long texts, by its driver")
        return found

    def _named(self, schema: str, name: str) -> Named | None:
        with self._asking():
            found = self._driver.tables(self._driver.pattern(name))
        return next((one for one in found if one.name == name and _is_in(one, schema)), None)

    def _columns(self, schema: str, name: str) -> list[ColumnThere]:
        table = self._named(schema, name)
        with self._asking():
            return [] if table is None else self._driver.columns_of(table)

    def _declared(self, column: ColumnThere) -> str:
        return column.declared(self._types, self._habits.largest)

    def _staged_as(self, column: ColumnThere) -> str:
        if self._habits.strict_nulls and column.family in (*TEXTS, *TIMES):
            return self._long_text()
        return "VARCHAR(40)" if column.family in TIMES else self._declared(column)

    def _value(self, column: ColumnThere) -> str:
        sql = self.dialect.quoted(column.name)
        if column.family not in TIMES:
            return sql
        return str(self._habits.cast.format(sql, kind=self._declared(column)))

    def _asking(self) -> Any:
        return database_errors(_ASKING, self._jvm, self.address)


def _is_in(table: Named, schema: str) -> bool:
    return (table.schema or table.catalog) == schema if schema else True


def _kind(column: ColumnThere) -> tuple[object, ...]:
    return column.code, column.type.removesuffix(" identity").lower(), column.size, column.digits


@contextmanager
def connected(jvm: Any, address: JdbcAddress) -> Iterator[DriverDatabase]:
    """See `sluice.sinks.jdbc.database.connected`.

    Raises:
        ActionRequiredError: there is no driver, or rows can't be appended to its database exactly once.
    """
    dialect = address.dialect
    assert isinstance(dialect, AnyDatabase)
    with database_errors("connecting to it", jvm, address):
        driver = driver_of(jvm, address.url, dialect.driver)
        if driver is None:
            raise no_driver(address)
        connection = driver.connect(address.url, java_properties(jvm, address.properties))
        if connection is None:
            raise no_driver(address)
        mark = str(connection.getMetaData().getIdentifierQuoteString() or "").strip()
        known = AnyDatabase(dialect.subprotocol, str(driver.getClass().getName()), mark)
    database = DriverDatabase(jvm, replace(address, dialect=known), connection)
    try:
        database.require_fit()
        yield database
    finally:
        database.close()
