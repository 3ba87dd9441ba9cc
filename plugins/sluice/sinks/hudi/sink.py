"""The coordinator's sink of Hudi tables: opens the table and its quarantine, and pins the rows' schema and settings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from sluice.connectors.sink import Pinned
from sluice.errors import ActionRequiredError
from sluice.jvm.gateway import HudiJvm, Jvm, lean_jvm
from sluice.jvm.kept import kept_jvm
from sluice.jvm.schema import struct_of_ddl, table_schema
from sluice.pipeline.model import Pipeline
from sluice.private import PrivateSettings, hadoop_settings
from sluice.protocol.mapping import ClusterTopics
from sluice.protocol.messages import TableSpec
from sluice.protocol.quarantine import SCHEMA, Quarantined, quarantine_path
from sluice.schemas.pinner import RecordPinner
from sluice.schemas.registry.config import Registries, registry_of_environment
from sluice.sinks.hudi.catalog_sync import require_catalogs, sync_catalogs
from sluice.sinks.hudi.creation import table_exists
from sluice.sinks.hudi.failures import hudi_errors
from sluice.sinks.hudi.metadata_table import meta_client
from sluice.sinks.hudi.opening import open_table, open_to_change_version, with_own_version
from sluice.sinks.hudi.quarantine import quarantine_writer
from sluice.sinks.hudi.quarantine_files import QuarantineFiles
from sluice.sinks.hudi.table import HudiTable
from sluice.sinks.hudi.version_change import HudiVersionChange
from sluice.sinks.hudi.versions import require_no_change
from sluice.sinks.hudi.write_config import write_options
from sluice.sinks.reading import require_readable, require_reader
from sluice.storages import require_in_spark


class HudiSink:
    """One pipeline's Hudi table, in a JVM that is held as long as the table is open.

    Args:
        pipeline: the pipeline that writes the table.
        jvm: opens a JVM for Hudi; by default a lean one that is kept for later steps.
        registries: returns a schema registry, given its connection's id.
    """

    def __init__(
        self, pipeline: Pipeline, jvm: Jvm | None = None, registries: Registries = registry_of_environment
    ) -> None:
        self._pipeline = pipeline
        self._given = jvm
        self._registries = registries

    def _jvm(self) -> AbstractContextManager[HudiJvm]:
        if self._given is not None:
            return self._given()
        # In a JVM, Hudi keeps one generator of times per table, with the options of its first use.
        options = {**self._pipeline.writer().options, **PrivateSettings.from_environment().hudi}
        return kept_jvm(hadoop_settings(self._pipeline.write.conf), options)

    @contextmanager
    def open(self) -> Iterator[HudiTable]:
        """The table, created on first use; see `sluice.connectors.sink`."""
        with self._jvm() as jvm:
            yield self._opened(jvm, self._writer())

    @contextmanager
    def open_to_change_version(self) -> Iterator[HudiVersionChange]:
        """The table, for the service `table_version`; see `sluice.connectors.sink.ChangesVersion`."""
        with self._jvm() as jvm:
            settings = self._pipeline.control.clock_wait, self._pipeline.table_services
            yield open_to_change_version(jvm, self._writer(), *settings)

    @contextmanager
    def look(self) -> Iterator[HudiTable | None]:
        """The table for reading only; None if it was never written to."""
        with self._jvm() as jvm:
            writer = self._writer()
            yield self._opened(jvm, writer) if table_exists(jvm, writer) else None

    def _writer(self) -> TableSpec:
        writer = self._pipeline.writer()
        write_options(writer)  # refuses options that would break the commit before anything is opened
        return writer

    def _opened(self, jvm: HudiJvm, writer: TableSpec) -> HudiTable:
        return open_table(jvm, writer, self._pipeline.control.clock_wait, self._pipeline.table_services)

    def pin(self, table: HudiTable, last: Pinned | None, clusters: Sequence[ClusterTopics]) -> Pinned:
        """How the next interval's records become rows; see `sluice.connectors.sink`."""
        return RecordPinner(self._pipeline, clusters, self._registries).pin(table, last.records if last else None)

    def pin_quarantine(self, table: HudiTable, writer: TableSpec) -> TableSpec:
        """The quarantine as START-COMMIT names it, given the table's settings; see `sluice.connectors.sink`."""
        columns = struct_of_ddl(table.jvm, SCHEMA)
        avro = table_schema(table.jvm, f"{writer.name}_quarantine", columns).avro
        return with_own_version(table.jvm, quarantine_writer(writer, self._pipeline.errors, avro))

    def open_quarantine(self, table: HudiTable, pinned: TableSpec) -> HudiTable:
        """The quarantine, created on first use; see `sluice.connectors.sink`."""
        quarantine = open_table(table.jvm, pinned, table.clock_wait)
        if quarantine.name != pinned.name:
            raise ActionRequiredError(
                "The quarantine's path holds another table.",
                next_step="give each pipeline a separate path in errors.quarantine.",
                quarantine=pinned.path,
                holds=quarantine.name,
                expected=pinned.name,
            )
        quarantine.ensure_metadata_table()
        return quarantine.written_as(pinned)

    def bad_records(self, paths: Sequence[str]) -> Iterator[Quarantined]:
        """The records in files of the quarantine, read without a JVM; see `sluice.connectors.sink`."""
        return QuarantineFiles(quarantine_path(self._pipeline.table_id, self._pipeline.errors)).records(paths)

    def look_ahead(self, table: HudiTable, *, first: bool) -> None:
        """See whether Spark reaches the table, dead letters can be read, and, the first time, catalogs be asked.

        See `sluice.connectors.sink`.
        """
        errors = self._pipeline.errors
        require_in_spark(self._pipeline.table_id, self._pipeline.write.conf)
        if errors.tolerance == "all" and errors.dead_letter_topic is not None:
            path, purpose = quarantine_path(self._pipeline.table_id, errors), "Bad records are read for dead letters"
            require_reader(path, purpose)
            if first:
                require_readable(path, "sink.hudi.path", "looking for bad records")
        if first:
            require_catalogs(table.jvm, self._pipeline)

    def sync_catalogs(self) -> list[str]:
        """Register the table in each catalog that the pipeline names, and return the catalogs' names."""
        # Clients of catalogs keep sessions and log-ins for the whole JVM, so that JVM is used for nothing else.
        with self._given() if self._given else lean_jvm(hadoop_settings(self._pipeline.write.conf)) as jvm:
            writer = self._writer()
            if table_exists(jvm, writer):
                with hudi_errors("reading the table's settings", table=writer.path):
                    require_no_change(meta_client(jvm.jvm, jvm.storage, writer.path), writer.path)
            return sync_catalogs(jvm, self._pipeline)
