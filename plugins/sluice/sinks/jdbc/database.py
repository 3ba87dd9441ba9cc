"""A JDBC connection to a database, in the JVM of a coordinator or of a Spark driver."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any

from py4j.protocol import Py4JError

from sluice.databases.address import JdbcAddress
from sluice.databases.dialect import DatabaseColumn, Dialect
from sluice.errors import ActionRequiredError, RetryableError, SluiceError
from sluice.jvm.gateway import java_properties
from sluice.sinks.jdbc.failures import database_errors
from sluice.sinks.jdbc.options.names import staging_prefix
from sluice.sinks.jdbc.statements import Target, append, bookkeeping, staging

_TEXT = 12  # java.sql.Types.VARCHAR

Row = tuple[str | None, ...]


class Database:
    """An open connection; outside of `transaction`, each statement is a separate transaction.

    Raises (all methods):
        RetryableError, ActionRequiredError: as for `database_errors`.
    """

    def __init__(self, jvm: Any, address: JdbcAddress, connection: Any) -> None:
        self.address = address
        self._jvm = jvm
        self._connection = connection
        self._in_transaction = False

    @property
    def dialect(self) -> Dialect:
        """The database's dialect."""
        return self.address.dialect

    def rows(self, sql: str, *values: str | None, doing: str = "reading its tables") -> list[Row]:
        """A query's rows, with all values as text; for few rows only, since each value is a call of the JVM."""
        with self._bounded(doing), self._statement(sql, values, doing) as statement:
            found = statement.executeQuery()
            number = range(1, int(found.getMetaData().getColumnCount()) + 1)
            rows: list[Row] = []
            while found.next():
                rows.append(tuple(found.getString(i) for i in number))
            return rows

    def run(self, sql: str, *values: str | int | None, doing: str = "writing its tables") -> int:
        """Execute a statement that changes something; returns the number of affected rows."""
        with self._bounded(doing), self._statement(sql, values, doing) as statement:
            return int(statement.executeUpdate())

    @contextmanager
    def transaction(self, doing: str) -> Iterator[None]:
        """A transaction around the block, rolled back if the block raises anything."""
        with database_errors(doing, self._jvm, self.address):
            self._connection.setAutoCommit(False)
        self._in_transaction = True
        try:
            if self.dialect.in_transaction is not None:
                self.rows(self.dialect.in_transaction, doing=doing)
            yield
            self.end_transaction(doing)
        except BaseException:
            self._roll_back()
            raise
        finally:
            self._in_transaction = False
            self._end_transactions()

    def _end_transactions(self) -> None:
        with suppress(Py4JError, OSError):
            self._connection.setAutoCommit(True)

    def _roll_back(self) -> None:
        with suppress(Py4JError, OSError):  # the connection is lost, and with it the transaction
            self._connection.rollback()

    def _bounded(self, doing: str) -> AbstractContextManager[None]:
        """A transaction around one statement, where its waits are the transaction's."""
        alone = not self._in_transaction and self.dialect.in_transaction is not None
        return self.transaction(doing) if alone else nullcontext()

    @contextmanager
    def changing(self, doing: str) -> Iterator[None]:
        """A transaction that may create tables, in one process at a time.

        MariaDB commits each statement that defines a table by itself.
        """
        dialect = self.dialect
        if dialect.lock_schema is None or dialect.unlock_schema is None:
            with self.transaction(doing):
                if dialect.lock_schema is not None:
                    self.rows(dialect.lock_schema, doing=doing)
                yield
            return
        if self.rows(dialect.lock_schema, doing=doing) != [("1",)]:
            raise RetryableError(
                f"Another process holds the schema's lock, while {doing}.",
                next_step="the step is retried; if it comes back, look what the database's other connections do.",
                connection=self.address.connection,
            )
        try:
            with self.transaction(doing):
                yield
        finally:
            with suppress(SluiceError):  # the connection is lost, and with it the lock
                self.rows(dialect.unlock_schema, doing=doing)

    def end_transaction(self, doing: str) -> None:
        """Commit. After an error the outcome is unknown: the connection may be lost before the answer arrives."""
        with database_errors(doing, self._jvm, self.address):
            self._connection.commit()

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """A part of a transaction that can fail alone."""
        with database_errors("setting a savepoint", self._jvm, self.address):
            point = self._connection.setSavepoint()
        try:
            yield
        except BaseException:
            with suppress(Py4JError, OSError):
                self._connection.rollback(point)
            raise
        with database_errors("releasing a savepoint", self._jvm, self.address):
            self._connection.releaseSavepoint(point)

    def close(self) -> None:
        """Close the connection; a transaction that is open is lost."""
        with suppress(Py4JError, OSError):
            self._connection.close()

    # The tables

    def schema_of(self, schema: str) -> str:
        """The schema of a table that a pipeline file names, which may name it without one.

        Raises:
            ActionRequiredError: the login has none.
        """
        if self.dialect.schema_query is None:
            return ""
        found = schema or self.rows(self.dialect.schema_query)[0][0]
        if not found:
            raise ActionRequiredError(
                "The database has no schema for tables that are named without one.",
                next_step="name the table with its schema, such as public.flights.",
                connection=self.address.connection,
            )
        return found

    @property
    def has_schemas(self) -> bool:
        """Whether its tables may be named with a schema."""
        return self.dialect.schema_query is not None

    def row_limit(self) -> int | None:
        """The bytes that a row may have, where the connection breaks at a longer one."""
        found = self.rows(self.dialect.row_limit_query) if self.dialect.row_limit_query is not None else []
        return int(found[0][0] or 0) if found else None

    def unfit(self, schema: str, name: str) -> str | None:
        """Why a table can't have rows and offsets in one transaction, in words; None if it can, or isn't there."""
        found = self.rows(self.dialect.unfit_query, schema, name) if self.dialect.unfit_query is not None else []
        return found[0][0] if found else None

    def has_table(self, schema: str, name: str) -> bool:
        """Whether there is such a table."""
        return bool(self.rows(self.dialect.table_query, schema, name))

    def columns(self, schema: str, name: str) -> list[DatabaseColumn]:
        """A table's columns; none if it isn't there."""
        found = self.rows(self.dialect.columns_query, schema, name)
        return [DatabaseColumn(str(n), str(t), *(one == "1" for one in flags)) for n, t, *flags in found]

    def create_bookkeeping(self, target: Target, doing: str) -> None:
        """Create the sink's bookkeeping tables in a table's schema, unless they exist."""
        with self.changing(doing):
            for _, statement in bookkeeping(target):
                self.run(statement, doing=doing)

    def create_staging(self, target: Target, name: str) -> None:
        """Make a staging table."""
        self.run(staging(target, name), doing="creating a staging table")

    def append(self, target: Target, name: str) -> str:
        """A statement that inserts a staging table's rows into the table."""
        return append(target, name)

    def staging_tables(self, target: Target, table: str, instant: str | None = None) -> list[str]:
        """The names of an interval's staging tables, or of those of all of a table's intervals.

        Args:
            target: whose schema they are in.
            table: the table's canonical name.
            instant: the interval's; None for all.
        """
        found = self.rows(self.dialect.tables_query, target.schema, staging_prefix(table, instant))
        return [str(name) for (name,) in found]

    @contextmanager
    def _statement(self, sql: str, values: Any, doing: str) -> Iterator[Any]:
        with database_errors(doing, self._jvm, self.address):
            statement = self._connection.prepareStatement(sql)
            try:
                for i, value in enumerate(values, 1):
                    if value is None:
                        statement.setNull(i, _TEXT)
                    elif isinstance(value, int):
                        statement.setLong(i, value)
                    else:
                        statement.setString(i, value)
                yield statement
            finally:
                with suppress(Py4JError, OSError):
                    statement.close()


@contextmanager
def connected(jvm: Any, address: JdbcAddress) -> Iterator[Database]:
    """A connection for as long as the block.

    Args:
        jvm: Py4J's view of a JVM with the database's driver on its class path.
        address: the database's.

    Raises:
        RetryableError: it doesn't answer.
        ActionRequiredError: the driver is missing, or the login is refused.
    """
    if address.dialect.appends_only:
        # Here, since it is made from the class above.
        from sluice.sinks.jdbc.appends.database import connected as by_driver

        with by_driver(jvm, address) as appends:
            yield appends
        return
    with database_errors("connecting to it", jvm, address):
        # Not by way of DriverManager, which hides drivers of other class loaders from its caller.
        driver = jvm.java.lang.Class.forName(address.dialect.driver).newInstance()
        connection = driver.connect(address.url, java_properties(jvm, address.properties))
    if connection is None:
        raise ActionRequiredError(
            f"{address.dialect.name}'s driver doesn't understand the connection's URL.",
            next_step="correct the host of the Airflow connection.",
            connection=address.connection,
        )
    database = Database(jvm, address, connection)
    try:
        for statement in address.dialect.session:
            database.run(statement)
        if address.dialect.refusal_query is not None:
            ((refusal,),) = database.rows(address.dialect.refusal_query)
            if refusal is not None:
                raise ActionRequiredError(
                    f"The JDBC sink isn't made for this server: {refusal}.",
                    next_step="write to another one; docs/jdbc-sink.md says which were tried.",
                    connection=address.connection,
                )
        yield database
    finally:
        database.close()
