"""Files as a sink of the coordinator's: opens the folder, and pins its rows."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

from sluice.errors import ActionRequiredError
from sluice.jvm.gateway import HudiJvm, Jvm, lean_jvm
from sluice.jvm.schema import struct_of_ddl
from sluice.pipeline.model import Pipeline
from sluice.private import hadoop_settings
from sluice.process import identity
from sluice.protocol.mapping import ClusterTopics
from sluice.protocol.messages import TableSpec
from sluice.protocol.quarantine import Quarantined, quarantine_path
from sluice.records.plan import RecordPlan
from sluice.registry.config import Registries, registry_of_environment
from sluice.schemas.pinner import RecordPinner
from sluice.sinks.files.hadoop import HadoopStorage
from sluice.sinks.files.partitioning import partitioning_of
from sluice.sinks.files.quarantine import bad_records, quarantine_writer, require_own
from sluice.sinks.files.storage import LocalStorage, Storage, local_folder
from sluice.sinks.files.table import FilesTable


@dataclass
class _Pinned:
    """See `sluice.schemas.pinner.PinnedTable`."""

    writer: TableSpec
    columns: Any
    jvm: HudiJvm


class FilesSink:
    """One pipeline's folder; see `sluice.connectors.sink.Sink`.

    Args:
        pipeline: whose folder it is.
        jvm: where Hadoop's file systems are; a lean JVM each time by default. A local disk needs none, but for types.
        registries: where a schema registry is, by its connection's id.
    """

    def __init__(
        self, pipeline: Pipeline, jvm: Jvm | None = None, registries: Registries = registry_of_environment
    ) -> None:
        self._pipeline = pipeline
        self._jvm = jvm or partial(lean_jvm, hadoop_settings(pipeline.write.conf))
        self._registries = registries
        self._running: HudiJvm | None = None

    @contextmanager
    def open(self) -> Iterator[FilesTable]:
        """The folder, made on first use; see `sluice.connectors.sink`."""
        with self._table() as table:
            table.prepare()
            yield table

    @contextmanager
    def look(self) -> Iterator[FilesTable | None]:
        """The folder for looking only, None where it was never written."""
        with self._table() as table:
            yield table if table.is_there() else None

    def pin_quarantine(self, table: FilesTable, writer: TableSpec) -> TableSpec:  # noqa: ARG002
        """The folder of bad records, as START-COMMIT names it; see `sluice.connectors.sink`."""
        return quarantine_writer(writer, self._pipeline.errors)

    def open_quarantine(self, table: FilesTable, pinned: TableSpec) -> FilesTable:
        """The folder of bad records, made on first use; see `sluice.connectors.sink`."""
        storage = self._storage(pinned.path)
        opened = FilesTable(storage, pinned, table.clock_wait, table.process)
        opened.prepare()
        require_own(storage, pinned.path, self._pipeline.table_id)
        return opened

    def bad_records(self, paths: Sequence[str]) -> Iterator[Quarantined]:
        """The records that a commit has named; see `sluice.connectors.sink`."""
        path = quarantine_path(self._pipeline.table_id, self._pipeline.errors)
        return bad_records(self._storage(path), paths)

    def _storage(self, path: str) -> Storage:
        """The folder of bad records, on the file system of this process or by the JVM of the table."""
        local = local_folder(path)
        if local is not None:
            return LocalStorage(local)
        if self._running is None:
            raise ActionRequiredError(
                "The quarantine is on another kind of file system than the table.",
                next_step="leave errors.quarantine out, or name a folder where the table's is.",
                table=self._pipeline.table_id,
                quarantine=path,
            )
        return HadoopStorage(self._running.jvm, self._running.storage.unwrap(), path)

    @contextmanager
    def _table(self) -> Iterator[FilesTable]:
        path, wait = self._pipeline.table_id, self._pipeline.control.clock_wait
        local = local_folder(path)
        if local is not None:
            yield FilesTable(LocalStorage(local), self._pipeline.writer(), wait, identity(os.getpid()))
            return
        with self._jvm() as jvm:
            self._running = jvm
            try:
                storage = HadoopStorage(jvm.jvm, jvm.storage.unwrap(), path)
                yield FilesTable(storage, self._pipeline.writer(), wait, identity(jvm.pid))
            finally:
                self._running = None

    def pin(self, table: FilesTable, last: RecordPlan | None, topics: tuple[str, ...]) -> tuple[RecordPlan, TableSpec]:
        """How the next interval's records become rows; see `sluice.connectors.sink`.

        Raises:
            ActionRequiredError: as there; or the format can't hold a column, or no folder can be made of one.
        """
        return self._pin(table, last, RecordPinner(self._pipeline, topics, self._registries))

    def pin_by_cluster(
        self, table: FilesTable, last: RecordPlan | None, clusters: Sequence[ClusterTopics]
    ) -> tuple[RecordPlan, TableSpec]:
        """The same, where clusters have registries of their own; see `sluice.connectors.sink`."""
        return self._pin(table, last, RecordPinner(self._pipeline, (), self._registries, clusters))

    def _pin(self, table: FilesTable, last: RecordPlan | None, pinner: RecordPinner) -> tuple[RecordPlan, TableSpec]:
        with nullcontext(self._running) if self._running is not None else self._jvm() as jvm:
            plan, writer = pinner.pin(_Pinned(table.writer, table.columns, jvm), last)
            fields = struct_of_ddl(jvm, writer.schema_ddl)["fields"]
        self._require_types(writer, {str(f["name"]): f["type"] for f in fields})
        return plan, writer

    def _require_types(self, writer: TableSpec, types: dict[str, Any]) -> None:
        """Check that folders can be made of the columns, and that the format holds them."""
        place, options = self._pipeline.sink.place, writer.options
        made = partitioning_of(options)
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
        if unfit and options["format"] == "csv":
            raise ActionRequiredError(
                f"CSV has no place for values inside of values, nor for bytes: {', '.join(unfit)}.",
                next_step=f"choose another {place}.format, or leave these columns out in `transforms`.",
                table=writer.path,
            )
