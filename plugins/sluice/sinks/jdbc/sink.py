"""A relational database as a sink of the coordinator's: opens the table, and pins its rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from sluice.connectors.connections import connection
from sluice.errors import ActionRequiredError
from sluice.jvm.gateway import HudiJvm, Jvm, lean_jvm
from sluice.jvm.schema import struct_of_ddl
from sluice.pipeline.model import Pipeline
from sluice.process import identity
from sluice.protocol.mapping import ClusterTopics
from sluice.protocol.messages import TableSpec
from sluice.protocol.quarantine import Quarantined
from sluice.records.plan import RecordPlan
from sluice.records.structs import Type
from sluice.registry.config import Registries, registry_of_environment
from sluice.schemas.pinner import RecordPinner
from sluice.sinks.jdbc.address import address_of
from sluice.sinks.jdbc.database import Database, connected
from sluice.sinks.jdbc.options import Jdbc
from sluice.sinks.jdbc.quarantine import QuarantineTable, bad_records, quarantine_writer
from sluice.sinks.jdbc.statements import Target
from sluice.sinks.jdbc.table import JdbcTable


@dataclass
class _Pinned:
    """See `sluice.schemas.pinner.PinnedTable`. Columns are compared with the database's own, not with earlier ones."""

    writer: TableSpec
    jvm: HudiJvm
    columns: Type | None = None


class JdbcSink:
    """One pipeline's table; see `sluice.connectors.sink.Sink`.

    Args:
        pipeline: whose table it is.
        jvm: where the driver runs; a lean JVM each time by default.
        registries: where a schema registry is, by its connection's id.
    """

    def __init__(
        self, pipeline: Pipeline, jvm: Jvm | None = None, registries: Registries = registry_of_environment
    ) -> None:
        options = pipeline.sink.options
        if not isinstance(options, Jdbc):
            raise TypeError(f"{type(options).__name__} is no section of the JDBC sink's")
        self._pipeline, self._options = pipeline, options
        self._jvm = jvm or lean_jvm
        self._registries = registries
        self._database: Database | None = None

    @contextmanager
    def open(self) -> Iterator[JdbcTable]:
        """The table, with the sink's own tables beside it; see `sluice.connectors.sink`.

        The table itself is created when its columns are known: by `pin`.
        """
        with self._table(writable=True) as table:
            table.prepare_bookkeeping()
            yield table

    @contextmanager
    def look(self) -> Iterator[JdbcTable | None]:
        """The table for looking only, None where it was never written."""
        with self._table(writable=False) as table:
            yield table if table.has_bookkeeping() else None

    @contextmanager
    def _table(self, *, writable: bool) -> Iterator[JdbcTable]:
        address = address_of(connection(self._options.connection))
        with self._jvm() as jvm, connected(jvm.jvm, address) as database:
            schema, _, name = self._options.table.rpartition(".")
            if schema and database.dialect.schema_query is None:
                raise ActionRequiredError(
                    f"{database.dialect.name} has no schemas.",
                    next_step=f"name the table {name} alone in {self._pipeline.sink.place}.table.",
                    table=self._options.table,
                )
            where = (database.schema_of(schema), name)
            wait = self._pipeline.control.clock_wait
            self._database = database
            try:
                yield JdbcTable(
                    database, jvm, *where, self._pipeline.writer(), wait, identity(jvm.pid), writable=writable
                )
            finally:
                self._database = None

    def pin_quarantine(self, table: JdbcTable, writer: TableSpec) -> TableSpec:  # noqa: ARG002
        """The table of bad records, as START-COMMIT names it; see `sluice.connectors.sink`."""
        return quarantine_writer(writer, self._pipeline.errors)

    def open_quarantine(self, table: JdbcTable, pinned: TableSpec) -> JdbcTable:
        """The table of bad records, created on first use; see `sluice.connectors.sink`."""
        database = self._open_database()
        where = self._quarantine(database, pinned)
        opened = QuarantineTable(
            database, table.jvm, where.schema, where.name, pinned, table.clock_wait, table.process, writable=True
        )
        opened.create()
        return opened

    def bad_records(self, paths: Sequence[str]) -> Iterator[Quarantined]:
        """The records that a commit has named; see `sluice.connectors.sink`."""
        database = self._open_database()
        pinned = quarantine_writer(self._pipeline.writer(), self._pipeline.errors)
        return bad_records(database.rows, self._quarantine(database, pinned), paths)

    def _quarantine(self, database: Database, pinned: TableSpec) -> Target:
        schema, _, name = pinned.options["table"].rpartition(".")
        return Target(database.dialect, database.schema_of(schema), name)

    def _open_database(self) -> Database:
        if self._database is None:
            raise ValueError("bad records are looked at while the table is open")
        return self._database

    def pin(self, table: JdbcTable, last: RecordPlan | None, topics: tuple[str, ...]) -> tuple[RecordPlan, TableSpec]:
        """How the next interval's records become rows; see `sluice.connectors.sink`.

        Of a table that was opened, rather than looked at, this creates what is missing and may be created.

        Raises:
            ActionRequiredError: as there; or the database's table doesn't hold the rows.
        """
        return self._pin(table, last, RecordPinner(self._pipeline, topics, self._registries))

    def pin_by_cluster(
        self, table: JdbcTable, last: RecordPlan | None, clusters: Sequence[ClusterTopics]
    ) -> tuple[RecordPlan, TableSpec]:
        """The same, where clusters have registries of their own; see `sluice.connectors.sink`."""
        return self._pin(table, last, RecordPinner(self._pipeline, (), self._registries, clusters))

    def _pin(self, table: JdbcTable, last: RecordPlan | None, pinner: RecordPinner) -> tuple[RecordPlan, TableSpec]:
        place, source = self._pipeline.sink.place, self._pipeline.source
        if self._options.pk_mode == "record_key" and source.options.key is None:
            raise ActionRequiredError(
                f"{place}.pk_mode is record_key, and nothing says how keys are read.",
                next_step=f"say it in {source.place}.key, or take the key from the row: pk_mode record_value.",
                table=self._pipeline.table_id,
            )
        plan, writer = pinner.pin(_Pinned(table.writer, table.jvm), last)
        fields = struct_of_ddl(table.jvm, writer.schema_ddl)["fields"]
        table.fit(fields, place, create=self._options.auto_create, evolve=self._options.auto_evolve)
        return plan, writer
