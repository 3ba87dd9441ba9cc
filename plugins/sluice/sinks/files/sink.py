"""The coordinator's sink of files: opens the folder, and pins the rows' schema and settings."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any, cast

from sluice.connectors.sink import Pinned
from sluice.errors import ActionRequiredError
from sluice.jvm.gateway import HudiJvm, Jvm, LateJvm, lean_jvm
from sluice.jvm.kept import kept_jvm
from sluice.jvm.schema import struct_of_ddl
from sluice.pipeline.catalog import HiveMetastore
from sluice.pipeline.model import Pipeline
from sluice.private import hadoop_settings
from sluice.process import identity
from sluice.protocol.mapping import ClusterTopics
from sluice.protocol.messages import TableSpec
from sluice.protocol.quarantine import Quarantined, quarantine_path
from sluice.records.structs import Type
from sluice.schemas.pinner import RecordPinner
from sluice.schemas.registry.config import Registries, registry_of_environment
from sluice.sinks.files.hadoop import HadoopStorage
from sluice.sinks.files.hive import HiveCatalog, HiveTable, partition_keys, partitions
from sluice.sinks.files.objects import ObjectTable
from sluice.sinks.files.options import Files
from sluice.sinks.files.options.compatibility import incompatible
from sluice.sinks.files.options.names import topic_folder
from sluice.sinks.files.options.pinned import PinnedFiles
from sluice.sinks.files.quarantine import bad_records, quarantine_writer, require_own
from sluice.sinks.files.remote import remote_storage
from sluice.sinks.files.renames import RenamedTable
from sluice.sinks.files.s3 import S3Storage
from sluice.sinks.files.storage import LocalStorage, local_folder
from sluice.sinks.files.table import FilesTable
from sluice.sinks.files.takeover import next_offsets
from sluice.storages import require_in_spark

_Storage = LocalStorage | HadoopStorage | S3Storage


@dataclass
class _Known:
    """See `sluice.schemas.pinner.PinnedTable`."""

    writer: TableSpec
    columns: Any
    jvm: HudiJvm


class FilesSink:
    """One pipeline's folder; see `sluice.connectors.sink.Sink`.

    Args:
        pipeline: the pipeline that writes the folder.
        jvm: opens a JVM with Hadoop's file systems; by default one that is kept between uses, and a new one for
            catalogs. A local disk needs a JVM only for transforms and for types that aren't plain.
        registries: returns a schema registry, given its connection's id.
    """

    def __init__(
        self, pipeline: Pipeline, jvm: Jvm | None = None, registries: Registries = registry_of_environment
    ) -> None:
        self._pipeline = pipeline
        hadoop = hadoop_settings(pipeline.write.conf)
        self._jvm = jvm or partial(kept_jvm, hadoop)
        # A catalog's client keeps sessions and log-ins for the whole JVM, so that JVM is used for nothing else.
        self._jvm_for_catalogs = jvm or partial(lean_jvm, hadoop)
        self._registries = registries
        self._running: HudiJvm | None = None

    @contextmanager
    def open(self) -> Iterator[FilesTable]:
        """The folder, created on first use; see `sluice.connectors.sink`."""
        with self._table() as table:
            table.prepare()
            yield table

    @contextmanager
    def look(self) -> Iterator[FilesTable | None]:
        """The folder for reading only; None if it was never written to."""
        with self._table() as table:
            yield table if table.is_there() else None

    def sync_catalogs(self) -> list[str]:
        """Register the folders with files in the Hive metastore; see `sluice.connectors.sink.TellsCatalogs`."""
        catalogs, options = self._pipeline.catalog_sync, self._options
        hive = catalogs.hive if catalogs is not None else None
        if catalogs is None or hive is None or catalogs.glue is not None:
            raise ActionRequiredError(
                "A table of files can be registered in a Hive metastore alone.",
                next_step="remove catalog_sync.glue. Glue's crawlers find the folders by themselves.",
                table=self._pipeline.table_id,
            )
        try:
            keys = partition_keys(options.partitioning, options.layout)
        except ValueError as error:
            raise ActionRequiredError(
                f"The table's folders can't be partitions of a catalog: {error}.",
                next_step=f"correct {self._pipeline.sink.place}, or leave catalog_sync out.",
                table=self._pipeline.table_id,
            ) from error
        with nullcontext(self._running) if self._running is not None else self._jvm_for_catalogs() as jvm:
            before, self._running = self._running, jvm
            try:
                with self._table() as table:
                    self._tell(jvm, hive, table, keys)
            finally:
                self._running = before
        return [f"hive {hive.database}.{hive.table or self._pipeline.table_name}"]

    def _tell(self, jvm: HudiJvm, hive: HiveMetastore, table: FilesTable, keys: Sequence[str]) -> None:
        ddl, options = table.last_schema(), self._options
        if ddl is None:
            return  # no interval is committed yet
        types = jvm.jvm.org.apache.spark.sql.types.StructType.fromDDL(ddl).fields()
        columns = {str(one.name()).lower(): str(one.dataType().catalogString()) for one in types}
        base = self._pipeline.table_id
        wanted = HiveTable(
            hive.database.lower(),
            (hive.table or self._pipeline.table_name).lower(),
            f"{base}/{options.topics_dir}",
            options.format,
            {name: kind for name, kind in columns.items() if name not in keys},
            keys,
            table.last_comments(),
        )
        shown = ((n, partitions(record, keys, options.topics_dir)) for n, record in table.published())
        HiveCatalog(jvm, hive).tell(wanted, shown, base)

    def taken_over(self, topics: Collection[str]) -> dict[str, dict[int, int]]:
        """The offsets at which Kafka Connect stopped; see `sluice.connectors.sink.TakesOver`."""
        options = self._options
        if options.takeover is None:
            return {}
        found: dict[str, dict[int, int]] = {}
        with self._storage() as (storage, _):
            for topic in topics:
                folder = f"{options.topics_dir}/{topic_folder(topic)}"
                at = f"{self._pipeline.table_id}/{folder}"
                found[topic] = next_offsets(storage.files(folder), topic, at)
        return found

    def look_ahead(self, table: FilesTable, *, first: bool) -> None:  # noqa: ARG002
        """See whether Spark reaches the folder, too; see `sluice.connectors.sink`."""
        require_in_spark(self._pipeline.table_id, self._pipeline.write.conf)

    def pin_quarantine(self, table: FilesTable, writer: TableSpec) -> TableSpec:  # noqa: ARG002
        """The folder of bad records, as START-COMMIT names it; see `sluice.connectors.sink`."""
        return quarantine_writer(writer, self._pipeline.errors)

    def open_quarantine(self, table: FilesTable, pinned: TableSpec) -> FilesTable:
        """The folder of bad records, created on first use; see `sluice.connectors.sink`."""
        storage = self._beside(pinned.path)
        opened = _table_of(storage, pinned, table.clock_wait, table.process)
        opened.prepare()
        require_own(storage, pinned.path, self._pipeline.table_id)
        return opened

    def bad_records(self, paths: Sequence[str]) -> Iterator[Quarantined]:
        """The bad records that a commit names; see `sluice.connectors.sink`."""
        path = quarantine_path(self._pipeline.table_id, self._pipeline.errors)
        return bad_records(self._beside(path), paths)

    def _beside(self, path: str) -> _Storage:
        """The folder of bad records, on a local disk or through the table's JVM."""
        local = local_folder(path)
        if local is not None:
            return LocalStorage(local)
        if self._running is None:
            raise ActionRequiredError(
                "The quarantine is on another kind of file system than the table.",
                next_step="leave errors.quarantine out, or name a folder on the table's file system.",
                table=self._pipeline.table_id,
                quarantine=path,
            )
        return remote_storage(self._running.jvm, self._running.storage.unwrap(), path)

    @contextmanager
    def _table(self) -> Iterator[FilesTable]:
        with self._storage() as (storage, process):
            yield _table_of(storage, self._pipeline.writer(), self._pipeline.control.clock_wait, process)

    @contextmanager
    def _storage(self) -> Iterator[tuple[_Storage, str]]:
        """The folder, and the identity of the process that writes to it."""
        path = self._pipeline.table_id
        local = local_folder(path)
        if local is not None:
            yield LocalStorage(local), identity(os.getpid())
            return
        with nullcontext(self._running) if self._running is not None else self._jvm() as jvm:
            before, self._running = self._running, jvm
            try:
                yield remote_storage(jvm.jvm, jvm.storage.unwrap(), path), identity(jvm.pid)
            finally:
                self._running = before

    def pin(self, table: FilesTable, last: Pinned | None, clusters: Sequence[ClusterTopics]) -> Pinned:
        """How the next interval's records become rows; see `sluice.connectors.sink`.

        Raises:
            ActionRequiredError: as for `Sink.pin`; or the format can't hold a column, or a column that determines
                folders has a wrong type.
        """
        pinner = RecordPinner(self._pipeline, clusters, self._registries)
        with ExitStack() as stack:
            jvm = self._running or cast("HudiJvm", LateJvm(self._jvm, stack))
            known = _Known(table.writer, table.columns, jvm)
            pinned = pinner.pin(known, last.records if last else None)
            columns = struct_of_ddl(jvm, pinned.writer.schema_ddl)
            self._require_compatible(table, columns, jvm)
        self._require_types(pinned.writer, {str(f["name"]): f["type"] for f in columns["fields"]})
        return replace(pinned, writer=self._divided(table, pinned.writer))

    def _divided(self, table: FilesTable, writer: TableSpec) -> TableSpec:
        """The settings with the number of rows per file, which is the same for all attempts at an interval."""
        wanted, average = self._options.target_bytes_per_file, table.bytes_per_row()
        if wanted is None or average is None:
            return writer
        most = self._options.max_rows_per_file or sys.maxsize
        rows = min(most, max(1, int(wanted / average)))
        return PinnedFiles.of(writer).model_copy(update={"max_rows_per_file": rows}).pinned_in(writer)

    def _require_compatible(self, table: FilesTable, columns: Type, jvm: HudiJvm) -> None:
        """Check that `schema_compatibility` allows the changes of the columns."""
        wanted = self._options.schema_compatibility
        before = table.last_schema() if wanted != "none" else None
        if before is None:
            return
        wrong = incompatible(struct_of_ddl(jvm, before, "the table's log"), columns, wanted)
        if wrong:
            raise ActionRequiredError(
                f"The columns are not {wanted} compatible with those of the last interval's files: {'; '.join(wrong)}.",
                next_step="make new columns nullable, and only widen types, in `schema`, the registry or `transforms`; "
                "or allow the change: set schema_compatibility to none for one run, or load into a new table.",
                table=table.writer.path,
                columns_before=before[:2000],
            )

    @property
    def _options(self) -> Files:
        options = self._pipeline.sink.options
        if not isinstance(options, Files):
            raise TypeError(f"not sink.files: {type(options).__name__}")
        return options

    def _require_types(self, writer: TableSpec, types: dict[str, Any]) -> None:
        """Check that folders can be derived from the columns, and that the format can hold them."""
        place, pinned = self._pipeline.sink.place, PinnedFiles.of(writer)
        made = pinned.partitioning
        if made.timestamp_field and made.timestamp_field not in types:
            raise ActionRequiredError(
                f"{place}.timestamp_field names a column that the rows don't have: {made.timestamp_field}.",
                next_step=f"name one of {', '.join(sorted(types))}.",
                table=writer.path,
            )
        nested = {name: kind if isinstance(kind, str) else str(kind["type"]) for name, kind in types.items()}
        try:
            made.columns(nested, "time")
        except ValueError as error:
            raise ActionRequiredError(
                f"{place}: {error}.", next_step="name another column, or `cast` it in `transforms`.", table=writer.path
            ) from error
        unfit = sorted(name for name, kind in nested.items() if kind in ("struct", "array", "map", "binary"))
        if unfit and pinned.format == "csv":
            raise ActionRequiredError(
                f"CSV can hold neither nested values nor bytes: {', '.join(unfit)}.",
                next_step=f"choose another {place}.format, or leave these columns out in `transforms`.",
                table=writer.path,
            )


def _table_of(storage: _Storage, writer: TableSpec, clock_wait: timedelta, process: str) -> FilesTable:
    """The table for a storage: a commit is decided by a conditional PUT on S3, and by a rename elsewhere."""
    if isinstance(storage, S3Storage):
        return ObjectTable(storage, writer, clock_wait, process)
    return RenamedTable(storage, writer, clock_wait, process)
