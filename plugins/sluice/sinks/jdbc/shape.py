"""Checks that a table's columns fit an interval's rows, and creates the table or adds columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sluice.databases.dialect import DatabaseColumn
from sluice.errors import ActionRequiredError, RetryableError
from sluice.logs import log
from sluice.protocol.messages import TableSpec
from sluice.records.structs import Type
from sluice.sinks.jdbc import statements
from sluice.sinks.jdbc.columns import Matched, created, key_columns, matched, row_columns
from sluice.sinks.jdbc.database import Database
from sluice.sinks.jdbc.options.names import INSTANTS, POSITIONS
from sluice.sinks.jdbc.options.pinned import PinnedJdbc
from sluice.sinks.jdbc.statements import Target


class Shape:
    """A table's columns, compared with the pipeline's.

    Args:
        database: the table's database.
        table: the table.
        writer: the settings for writing it.
    """

    def __init__(self, database: Database, table: Target, writer: TableSpec) -> None:
        self._database, self._table, self._writer = database, table, writer
        self._key = table.dialect.canonical(table.schema, table.name)

    def has_bookkeeping(self) -> bool:
        """Whether the sink's bookkeeping tables exist."""
        return all(self._database.has_table(self._table.schema, name) for name in (POSITIONS, INSTANTS))

    def prepare_bookkeeping(self) -> None:
        """Create the bookkeeping tables, shared by all tables of the schema, unless they exist."""
        if not self.has_bookkeeping():
            self._database.create_bookkeeping(self._table, f"creating {POSITIONS} and {INSTANTS}")

    def target(self, fields: Sequence[Mapping[str, Type]]) -> Target:
        """The table with the columns that an interval writes, in the database's spelling."""
        return target_of(self._table, self._writer, self._matched(fields, self._columns()))

    def fit(
        self, fields: Sequence[Mapping[str, Type]], place: str, *, create: bool, evolve: bool, writable: bool
    ) -> None:
        """Make sure that the table can hold the rows; if it is open for reading only, check that it could.

        Args:
            fields: the rows' columns, as in Spark's JSON.
            place: the sink's section in the pipeline file.
            create: whether the table may be created.
            evolve: whether columns may be added.
            writable: whether anything may be changed now.

        Raises:
            ActionRequiredError: the table can't hold the rows without a change, which isn't possible or not allowed.
        """
        if self._fits(fields, place, create=create, evolve=evolve) or not writable:
            return
        with self._database.changing("creating the table or its columns"):
            self._change(fields)
        if not self._fits(fields, place, create=create, evolve=evolve):
            raise RetryableError("The table changed while it was created.", next_step="the step is retried.")

    def _fits(self, fields: Sequence[Mapping[str, Type]], place: str, *, create: bool, evolve: bool) -> bool:
        """Whether rows can be written at once; False if the table has to be changed first, and may be."""
        rows, key = row_columns(self._writer, fields), key_columns(self._writer)
        table = self._columns()
        if not table:
            if not create:
                create_it = f"create it, or set {place}.auto_create to true."
                if self._table.dialect.appends_only:
                    create_it = "create it. If it is there, name it as the database does, in upper and lower case."
                raise ActionRequiredError(
                    "The table isn't there.",
                    next_step=create_it,
                    table=self._key,
                    connection=self._database.address.connection,
                )
            self._require(created(self._table.dialect, rows, key)[1], place)
            return False
        unfit = self._database.unfit(self._table.schema, self._table.name)
        if unfit is not None:
            raise ActionRequiredError(
                f"Rows and offsets of this table can't be one transaction: {unfit}.",
                next_step="name another table, or change this one; nothing was written.",
                table=self._key,
                connection=self._database.address.connection,
            )
        found = matched(self._table.dialect, rows, table, PinnedJdbc.of(self._writer).db_timezone)
        problems = list(found.problems)
        if found.missing and not evolve:
            names = ", ".join(row.name for row in found.missing)
            or_evolve = "" if self._table.dialect.appends_only else f", set {place}.auto_evolve to true,"
            raise ActionRequiredError(
                f"The table lacks columns that the rows have: {names}.",
                next_step=f"add them{or_evolve} or leave them out in `transforms`.",
                table=self._key,
                connection=self._database.address.connection,
            )
        problems += [
            f"`{row.name}` must not be null, so it can't be added to a table that may have rows"
            for row in found.missing
            if row.name in key
        ]
        problems += created(self._table.dialect, found.missing)[1]
        self._require(problems, place)
        return not found.missing

    def _require(self, problems: Sequence[str], place: str) -> None:
        if problems:
            raise ActionRequiredError(
                f"The database's table doesn't hold the rows: {'; '.join(problems)}.",
                next_step=f"give the columns other types in {place}.schema or by `cast` in `transforms`, or change the "
                "table; the types that fit are in docs/jdbc-sink.md. Nothing was changed.",
                table=self._key,
                connection=self._database.address.connection,
            )

    def _change(self, fields: Sequence[Mapping[str, Type]]) -> None:
        """Create the table, or add columns, unless another process has done so meanwhile."""
        rows, key = row_columns(self._writer, fields), key_columns(self._writer)
        table = self._columns()
        dialect = self._table.dialect
        if not table:
            columns, _ = created(dialect, rows, key)
            self._run(statements.create(self._table, columns, key), "creating the table")
            log.info("created the table", table=self._key, columns=", ".join(name for name, _, _ in columns))
            return
        for name, kind, _ in created(dialect, self._matched(fields, table).missing)[0]:
            self._run(statements.add_column(self._table, name, kind), "adding a column")
            log.info("added a column", table=self._key, column=name, type=kind)

    def _columns(self) -> list[DatabaseColumn]:
        return self._database.columns(self._table.schema, self._table.name)

    def _matched(self, fields: Sequence[Mapping[str, Type]], table: Sequence[DatabaseColumn]) -> Matched:
        rows = row_columns(self._writer, fields)
        return matched(self._table.dialect, rows, table, PinnedJdbc.of(self._writer).db_timezone)

    def _run(self, sql: str, doing: str) -> None:
        self._database.run(sql, doing=doing)


def target_of(table: Target, writer: TableSpec, found: Matched) -> Target:
    """The table with the columns that an interval writes, in the database's spelling."""

    def named(names: Iterable[str]) -> tuple[str, ...]:
        return tuple(found.found[name].name for name in names)

    columns = tuple(column.name for column in found.found.values())
    return Target(
        table.dialect, table.schema, table.name, columns, named(writer.record_key), named(writer.ordering_fields)
    )
