"""The coordinator's sink of a relational database: opens the table, and pins the rows' schema and settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from sluice.connectors.connections import connection
from sluice.databases.connection import address_of
from sluice.databases.settings import require_known
from sluice.errors import ActionRequiredError
from sluice.jvm.gateway import HudiJvm, Jvm
from sluice.jvm.kept import kept_jvm
from sluice.jvm.schema import struct_of_ddl
from sluice.pipeline.model import Pipeline
from sluice.process import identity
from sluice.protocol.mapping import ClusterTopics
from sluice.protocol.messages import FurtherTable, TableSpec
from sluice.protocol.quarantine import Quarantined
from sluice.records.plan import RecordPlan
from sluice.records.structs import Type
from sluice.registry.config import Registries, registry_of_environment
from sluice.schemas.pinner import RecordPinner
from sluice.sinks.jdbc.database import Database, connected
from sluice.sinks.jdbc.options import Jdbc
from sluice.sinks.jdbc.options.names import schema_and_name
from sluice.sinks.jdbc.options.pinned import PinnedJdbc
from sluice.sinks.jdbc.quarantine import QuarantineTable, bad_records, quarantine_writer
from sluice.sinks.jdbc.statements import Target
from sluice.sinks.jdbc.table import JdbcTable


@dataclass
class _Pinned:
    """See `sluice.schemas.pinner.PinnedTable`. Columns are compared with the database's, not with earlier ones."""

    writer: TableSpec
    jvm: HudiJvm
    columns: Type | None = None


class JdbcSink:
    """One pipeline's table; see `sluice.connectors.sink.Sink`.

    Args:
        pipeline: the pipeline that writes the table.
        jvm: opens a JVM for the driver; a new lean JVM each time by default.
        registries: returns a schema registry, given its connection's id.
    """

    def __init__(
        self, pipeline: Pipeline, jvm: Jvm | None = None, registries: Registries = registry_of_environment
    ) -> None:
        options = pipeline.sink.options
        if not isinstance(options, Jdbc):
            raise TypeError(f"{type(options).__name__} is no section of the JDBC sink's")
        self._pipeline, self._options = pipeline, options
        self._jvm = jvm or kept_jvm
        self._registries = registries
        self._database: Database | None = None

    @contextmanager
    def open(self) -> Iterator[JdbcTable]:
        """The table, with the sink's bookkeeping tables; see `sluice.connectors.sink`.

        The table itself is created by `pin`, when its columns are known.
        """
        with self._table(writable=True) as table:
            table.prepare_bookkeeping()
            yield table

    @contextmanager
    def look(self) -> Iterator[JdbcTable | None]:
        """The table for reading only; None if it was never written to."""
        with self._table(writable=False) as table:
            yield table if table.has_bookkeeping() else None

    @contextmanager
    def _table(self, *, writable: bool) -> Iterator[JdbcTable]:
        address = address_of(connection(self._options.connection))
        require_known(address)
        with self._jvm() as jvm, connected(jvm.jvm, address) as database:
            schema, name = schema_and_name(self._options.table)
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
                    database,
                    jvm,
                    *where,
                    self._pipeline.writer(),
                    wait,
                    identity(jvm.pid),
                    writable=writable,
                    further=[pipeline.writer() for _, pipeline in self._pipeline.further_tables],
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
        """The bad records that a commit names; see `sluice.connectors.sink`."""
        database = self._open_database()
        pinned = quarantine_writer(self._pipeline.writer(), self._pipeline.errors)
        return bad_records(database.rows, self._quarantine(database, pinned), paths)

    def _quarantine(self, database: Database, pinned: TableSpec) -> Target:
        schema, name = schema_and_name(PinnedJdbc.of(pinned).table)
        return Target(database.dialect, database.schema_of(schema), name)

    def _open_database(self) -> Database:
        if self._database is None:
            raise ValueError("bad records are looked at while the table is open")
        return self._database

    def pin(self, table: JdbcTable, last: RecordPlan | None, topics: tuple[str, ...]) -> tuple[RecordPlan, TableSpec]:
        """How the next interval's records become rows; see `sluice.connectors.sink`.

        If the table is open for writing, this creates the table and its columns, as far as the pipeline allows it.

        Raises:
            ActionRequiredError: as for `Sink.pin`; or the database's table can't hold the rows.
        """
        taken = {topic for of_table, _ in self._pipeline.further_tables for topic in of_table}
        own = tuple(topic for topic in topics if topic not in taken)
        if topics and not own:
            raise ActionRequiredError(
                f"All topics that are read are those of {self._pipeline.sink.place}.tables: "
                f"{self._options.table} is left with none.",
                next_step=f"make one of the others {self._pipeline.sink.place}.table.",
                table=self._pipeline.table_id,
            )
        return self._pin(table, last, RecordPinner(self._pipeline, own, self._registries))

    def pin_further_tables(
        self, table: JdbcTable, last: Mapping[str, RecordPlan], topics: tuple[str, ...]
    ) -> tuple[FurtherTable, ...]:
        """How records become rows of the further tables; see `sluice.connectors.sink.HasFurtherTables`.

        Raises:
            ActionRequiredError: as for `pin`; or another pipeline loads one of these tables.
        """
        table.claim([pipeline.writer() for _, pipeline in self._pipeline.further_tables])
        pinned = []
        for number, (of_table, pipeline) in enumerate(self._pipeline.further_tables):
            read = tuple(topic for topic in of_table if topic in topics)
            if not read:  # no topic matches the table's pattern yet, so the schema of its records is unknown
                continue
            place, options = f"{self._pipeline.sink.place}.tables.{number}", pipeline.sink.options
            assert isinstance(options, Jdbc)
            self._require_keys(options, place)
            pinner = RecordPinner(pipeline, read, self._registries)
            plan, writer = pinner.pin(_Pinned(pipeline.writer(), table.jvm), last.get(pipeline.table_id))
            fields = struct_of_ddl(table.jvm, writer.schema_ddl)["fields"]
            table.fit_further(writer, fields, place, create=options.auto_create, evolve=options.auto_evolve)
            pinned.append(FurtherTable(topics=read, writer=writer, records=plan))
        return tuple(pinned)

    def with_further_tables(self, table: JdbcTable, tables: Sequence[FurtherTable]) -> JdbcTable:
        """The table for the commit of an interval that wrote further tables; see `sluice.connectors.sink`."""
        return table.with_further(tables)

    def pin_by_cluster(
        self, table: JdbcTable, last: RecordPlan | None, clusters: Sequence[ClusterTopics]
    ) -> tuple[RecordPlan, TableSpec]:
        """As `pin`, for clusters with separate registries; see `sluice.connectors.sink`."""
        return self._pin(table, last, RecordPinner(self._pipeline, (), self._registries, clusters))

    def _pin(self, table: JdbcTable, last: RecordPlan | None, pinner: RecordPinner) -> tuple[RecordPlan, TableSpec]:
        place = self._pipeline.sink.place
        self._require_keys(self._options, place)
        plan, writer = pinner.pin(_Pinned(table.writer, table.jvm), last)
        fields = struct_of_ddl(table.jvm, writer.schema_ddl)["fields"]
        table.fit(fields, place, create=self._options.auto_create, evolve=self._options.auto_evolve)
        return plan, writer

    def _require_keys(self, options: Jdbc, place: str) -> None:
        source = self._pipeline.source
        if options.pk_mode == "record_key" and source.options.key is None:
            raise ActionRequiredError(
                f"{place}.pk_mode is record_key, and nothing says how keys are read.",
                next_step=f"say it in {source.place}.key, or take the key from the row: pk_mode record_value.",
                table=options.table_id,
            )
