"""The coordinator's sink of a relational database: opens the table, and pins the rows' schema and settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from sluice.connectors.connections import connection
from sluice.connectors.sink import Pinned
from sluice.databases.connection import address_of
from sluice.databases.settings import require_known
from sluice.errors import ActionRequiredError
from sluice.jvm.gateway import HudiJvm, Jvm
from sluice.jvm.kept import kept_jvm
from sluice.jvm.schema import struct_of_ddl
from sluice.pipeline.model import Pipeline
from sluice.process import identity
from sluice.protocol.mapping import ClusterTopics, topics_of
from sluice.protocol.messages import FurtherTable, TableSpec
from sluice.protocol.quarantine import Quarantined
from sluice.records.structs import Type
from sluice.schemas.pinner import RecordPinner
from sluice.schemas.registry.config import Registries, registry_of_environment
from sluice.sinks.jdbc.appends.table import AppendedTable, require_appends
from sluice.sinks.jdbc.database import Database, connected
from sluice.sinks.jdbc.options import Jdbc
from sluice.sinks.jdbc.options.names import schema_and_name
from sluice.sinks.jdbc.options.pinned import PinnedJdbc
from sluice.sinks.jdbc.quarantine import QuarantineTable, bad_records, quarantine_writer
from sluice.sinks.jdbc.statements import Target
from sluice.sinks.jdbc.table import JdbcTable


@dataclass
class _Known:
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
            if schema and not database.has_schemas:
                raise ActionRequiredError(
                    f"{database.dialect.name} has no schemas.",
                    next_step=f"name the table {name} alone in {self._pipeline.sink.place}.table.",
                    table=self._options.table,
                )
            opens = JdbcTable
            if database.dialect.appends_only:
                require_appends(self._pipeline, self._options, database.dialect.name)
                opens = AppendedTable
            where = (database.schema_of(schema), name)
            wait = self._pipeline.control.clock_wait
            self._database = database
            try:
                yield opens(
                    database,
                    jvm,
                    *where,
                    self._pipeline.writer(),
                    wait,
                    identity(jvm.pid),
                    writable=writable,
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

    def pin(self, table: JdbcTable, last: Pinned | None, clusters: Sequence[ClusterTopics]) -> Pinned:
        """How the next interval's records become rows; see `sluice.connectors.sink`.

        If the table is open for writing, this creates the tables and their columns, as far as the pipeline allows it.

        Raises:
            ActionRequiredError: as for `Sink.pin`; or the database's table can't hold the rows, or another pipeline
                loads a further table.
        """
        topics, taken = topics_of(clusters), {topic for of, _ in self._pipeline.further_tables for topic in of}
        if topics and taken.issuperset(topics):
            raise ActionRequiredError(
                f"All topics that are read are those of {self._pipeline.sink.place}.tables: "
                f"{self._options.table} is left with none.",
                next_step=f"make one of the others {self._pipeline.sink.place}.table.",
                table=self._pipeline.table_id,
            )
        place = self._pipeline.sink.place
        self._require_keys(self._options, place)
        pinner = RecordPinner(self._pipeline, _of(clusters, lambda topic: topic not in taken), self._registries)
        pinned = pinner.pin(_Known(table.writer, table.jvm), last.records if last else None)
        fields = struct_of_ddl(table.jvm, pinned.writer.schema_ddl)["fields"]
        table.fit(fields, place, create=self._options.auto_create, evolve=self._options.auto_evolve)
        return replace(pinned, further=self._pin_further(table, last, clusters))

    def _pin_further(
        self, table: JdbcTable, last: Pinned | None, clusters: Sequence[ClusterTopics]
    ) -> tuple[FurtherTable, ...]:
        if not self._pipeline.further_tables:
            return ()
        table.claim([pipeline.writer() for _, pipeline in self._pipeline.further_tables])
        known = {one.writer.path: one.records for one in last.further} if last else {}
        pinned = []
        for number, (of_table, pipeline) in enumerate(self._pipeline.further_tables):
            read = tuple(topic for topic in of_table if topic in topics_of(clusters))
            if not read:  # no topic matches the table's pattern yet, so the schema of its records is unknown
                continue
            place, options = f"{self._pipeline.sink.place}.tables.{number}", pipeline.sink.options
            assert isinstance(options, Jdbc)
            self._require_keys(options, place)
            pinner = RecordPinner(pipeline, _of(clusters, read.__contains__), self._registries)
            one = pinner.pin(_Known(pipeline.writer(), table.jvm), known.get(pipeline.table_id))
            fields = struct_of_ddl(table.jvm, one.writer.schema_ddl)["fields"]
            table.fit_further(one.writer, fields, place, create=options.auto_create, evolve=options.auto_evolve)
            pinned.append(FurtherTable(topics=read, writer=one.writer, records=one.records))
        return tuple(pinned)

    def _require_keys(self, options: Jdbc, place: str) -> None:
        source = self._pipeline.source
        if options.pk_mode == "record_key" and source.options.key is None:
            raise ActionRequiredError(
                f"{place}.pk_mode is record_key, and nothing says how keys are read.",
                next_step=f"say it in {source.place}.key, or take the key from the row: pk_mode record_value.",
                table=options.table_id,
            )


def _of(clusters: Sequence[ClusterTopics], takes: Callable[[str], bool]) -> list[ClusterTopics]:
    """The clusters' topics, as far as they are one table's."""
    return [replace(one, topics=tuple(filter(takes, one.topics))) for one in clusters]
