"""Opens a pipeline's table: creates it on first use, and checks that pipeline and table match."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from py4j.protocol import Py4JJavaError

from sluice.errors import ActionRequiredError
from sluice.jvm.gateway import HudiJvm
from sluice.jvm.schema import struct_of_hoodie, table_schema
from sluice.pipeline.services import TableServices
from sluice.protocol.messages import TableSpec
from sluice.records.folders import URL_ENCODED, is_on
from sluice.records.structs import Type
from sluice.sinks.hudi.clock import LONGEST_WAIT
from sluice.sinks.hudi.creation import create_table, table_exists
from sluice.sinks.hudi.failures import hudi_errors
from sluice.sinks.hudi.metadata_table import meta_client
from sluice.sinks.hudi.options import (
    FIRST_OF_UPSERTS,
    NEWEST_VERSION,
    PARTIAL_UPDATES,
    TABLE_VERSION,
    VERSIONS,
    needs_newest_version,
)
from sluice.sinks.hudi.schema_cache import hold_metadata_schema
from sluice.sinks.hudi.table import HudiTable
from sluice.sinks.hudi.version_change import HudiVersionChange
from sluice.sinks.hudi.versions import begun_change, require_no_change, version_of
from sluice.sinks.hudi.write_config import COLUMN_STATS

_MERGE_SETTINGS = (PARTIAL_UPDATES, "hoodie.record.merge.property.")

_PRECOMBINE = "hoodie.table.precombine.field"


def open_table(
    jvm: HudiJvm, writer: TableSpec, clock_wait: timedelta = LONGEST_WAIT, services: TableServices | None = None
) -> HudiTable:
    """Open the pipeline's table, creating it on first use, and check that pipeline and table match.

    The result's `writer` has the schema of the table's last commit; each interval pins a schema for itself.

    Args:
        jvm: the JVM with Hudi.
        writer: the pipeline's table, and the settings for writing it.
        clock_wait: how long to wait for this machine's clock to pass the table's last instant.
        services: the pipeline's settings of table services, if it has any.

    Raises:
        ActionRequiredError: the path can't be used, or the table differs from the pipeline in type or keys.
    """
    with hudi_errors("opening the table", table=writer.path):
        hold_metadata_schema(jvm.jvm)
        if not table_exists(jvm, writer):
            create_table(jvm, writer)
        meta = meta_client(jvm.jvm, jvm.storage, writer.path)
    require_no_change(meta, writer.path)
    _check_configuration(meta, writer)
    _check_version(meta, writer)
    wanted = {**_merging(writer), **_ordering(meta, writer), **_encoding(meta, writer)}
    meta = _with_settings(jvm, meta, writer, wanted)
    return _opened(jvm, meta, writer, clock_wait, services)


def open_to_change_version(
    jvm: HudiJvm, writer: TableSpec, clock_wait: timedelta, services: TableServices | None
) -> HudiVersionChange:
    """Open a table for the service `table_version`, in whatever version it is; see `ChangesVersion`.

    Args:
        jvm: the JVM with Hudi.
        writer: the pipeline's table, with the version to come among its options.
        clock_wait: see `open_table`.
        services: see `open_table`.

    Raises:
        ActionRequiredError: as `open_table`, or the pipeline names no version, or there is no table.
    """
    wanted = writer.options.get(TABLE_VERSION)
    if wanted is None:
        raise ActionRequiredError(
            "The pipeline file doesn't say which version the table is to have.",
            next_step="set sink.hudi.table_version, and run the service again.",
            table=writer.path,
        )
    with hudi_errors("opening the table", table=writer.path):
        hold_metadata_schema(jvm.jvm)
        if not table_exists(jvm, writer):
            raise ActionRequiredError(
                "There is no table yet.",
                next_step="run an interval: it creates the table with the pipeline's `table_version`.",
                table=writer.path,
            )
        meta = meta_client(jvm.jvm, jvm.storage, writer.path)
    _check_configuration(meta, writer)
    begun = begun_change(meta)
    if begun is not None:
        return HudiVersionChange(jvm, meta, _as_the_table_has_it(meta, writer), int(wanted), None)
    _check_change(meta, writer, int(wanted))
    table = _opened(jvm, meta, writer, clock_wait, services)
    return HudiVersionChange(jvm, meta, table.writer, int(wanted), table)


def _opened(
    jvm: HudiJvm, meta: Any, writer: TableSpec, clock_wait: timedelta, services: TableServices | None
) -> HudiTable:
    """The table with the schema of its last commit."""
    columns = _committed_columns(jvm, meta, writer)
    writer = _as_the_table_has_it(meta, writer)
    if columns is not None:
        schema = table_schema(jvm, writer.name, columns)
        writer = writer.model_copy(update={"schema_ddl": schema.ddl, "schema_avro": schema.avro})
    return HudiTable(jvm, meta, writer, columns, clock_wait, services)


def _merging(writer: TableSpec) -> dict[str, str]:
    """The writer's merge settings, which readers and compaction read from the table's settings."""
    return {name: value for name, value in writer.options.items() if name.startswith(_MERGE_SETTINGS)}


def _ordering(meta: Any, writer: TableSpec) -> dict[str, str]:
    """The ordering field under the name by which readers of earlier table versions look for it.

    Hudi 1.2 writes its present name alone. Hudi 1.0 doesn't know that name, and would take a key's latest write for its
    last version: seen with 1.0.2.
    """
    earlier = writer.operation == "upsert" and writer.ordering_fields and version_of(meta) < NEWEST_VERSION
    return {_PRECOMBINE: writer.ordering_fields[0]} if earlier else {}


def _encoding(meta: Any, writer: TableSpec) -> dict[str, str]:
    """The setting that folders are URL-encoded, for a table of an earlier release, which encoded without setting it.

    Only appends encoded in that release. An upsert's folders stay unencoded: a key's next version has to find its row.
    """
    encodes = writer.operation == "append" and is_on(writer.options, URL_ENCODED)
    return {URL_ENCODED: "true"} if encodes and not _encoded(meta) else {}


def _encoded(meta: Any) -> bool:
    return str(meta.getTableConfig().getUrlEncodePartitioning()).lower() == "true"


def _with_settings(jvm: HudiJvm, meta: Any, writer: TableSpec, wanted: dict[str, str]) -> Any:
    """The table, with additional settings in its `hoodie.properties`.

    They are written once in a table's life, or when they change; Hudi replaces the whole settings file.
    """
    properties = meta.getTableConfig().getProps()
    missing = {name: value for name, value in wanted.items() if properties.getProperty(name) != value}
    if not missing:
        return meta
    changed = jvm.jvm.java.util.Properties()
    for name, value in missing.items():
        changed.setProperty(name, value)
    with hudi_errors("changing the table's settings", table=writer.path):
        config = jvm.jvm.org.apache.hudi.common.table.HoodieTableConfig
        config.update(meta.getStorage(), meta.getMetaPath(), changed)
        return meta_client(jvm.jvm, jvm.storage, writer.path)


def _as_the_table_has_it(meta: Any, writer: TableSpec) -> TableSpec:
    """The writer with the settings that a table keeps for life, and with column statistics if another writer uses them.

    Otherwise Sluice's commits would drop the statistics, and Hudi would take its newest table version for the table's.
    """
    encoded = _encoded(meta)
    kept = {URL_ENCODED: str(encoded).lower()} if encoded or URL_ENCODED in writer.options else {}
    statistics = meta.getTableConfig().getMetadataPartitions().contains("column_stats")
    found = {COLUMN_STATS: "true"} if statistics else {}
    kept[TABLE_VERSION] = str(version_of(meta))
    return writer.model_copy(update={"options": {**found, **writer.options, **kept}})


def with_own_version(jvm: HudiJvm, writer: TableSpec) -> TableSpec:
    """The writer with the version of its table, if that is there: another program may have upgraded it."""
    if not table_exists(jvm, writer):
        return writer
    with hudi_errors("reading the table's version", table=writer.path):
        found = version_of(meta_client(jvm.jvm, jvm.storage, writer.path))
    return writer.model_copy(update={"options": {**writer.options, TABLE_VERSION: str(found)}})


def _check_version(meta: Any, writer: TableSpec) -> None:
    """Refuse a table whose version the pipeline can't write, or doesn't want."""
    found = version_of(meta)
    wanted = int(writer.options.get(TABLE_VERSION, found))
    if found not in VERSIONS:
        problem, next_step = "can't be written", f"upgrade it with Hudi's command line to one of {VERSIONS}"
    elif found != wanted:
        problem = "isn't the pipeline's `table_version`"
        next_step = f"`sluice service table_version` changes it; or set table_version to {found}, or leave it out"
    elif found < NEWEST_VERSION and needs_newest_version(writer.options, writer.ordering_fields):
        problem = "has neither partial updates, for changes.format debezium, nor more than one ordering field"
        next_step = f"set table_version to {NEWEST_VERSION}, and run `sluice service table_version`"
    else:
        return
    raise ActionRequiredError(
        f"The table has version {found}, which {problem}.",
        next_step=f"{next_step}; or write to another path. Nothing was changed.",
        table=writer.path,
    )


def _check_change(meta: Any, writer: TableSpec, wanted: int) -> None:
    """Refuse a change of the table's version that Hudi can't make, or after which readers would misread the table."""
    found = version_of(meta)
    properties = meta.getTableConfig().getProps()
    settings = [*writer.options, *(name for name in (PARTIAL_UPDATES,) if properties.getProperty(name) is not None)]
    ordering = {*writer.ordering_fields, *map(str, meta.getTableConfig().getOrderingFields())}
    if found not in VERSIONS:
        problem, next_step = f"has version {found}, which isn't known here", f"use Hudi's command line, to {VERSIONS}"
    elif wanted < FIRST_OF_UPSERTS and writer.operation == "upsert":
        problem = f"is for upserts, which version {wanted} isn't: in it a log file's name doesn't say its instant"
        next_step = f"set table_version to {FIRST_OF_UPSERTS} or {NEWEST_VERSION}"
    elif wanted < NEWEST_VERSION and needs_newest_version(settings, ordering):
        problem = f"has partial updates or more than one ordering field, which readers of version {wanted} misread"
        next_step = f"set table_version to {NEWEST_VERSION}, or leave it out"
    else:
        return
    raise ActionRequiredError(
        f"The table {problem}.", next_step=f"{next_step}. Nothing was changed.", table=writer.path
    )


def _check_configuration(meta: Any, writer: TableSpec) -> None:
    config = meta.getTableConfig()

    def fields(option: Any) -> tuple[str, ...]:
        return tuple(str(f) for f in option.get()) if option.isPresent() else ()

    pairs = {
        "table type": (str(config.getTableType().name()), writer.table_type),
        "record key": (fields(config.getRecordKeyFields()), writer.record_key),
        "partition fields": (fields(config.getPartitionFields()), writer.partition_fields),
    }
    if writer.operation == "upsert":
        pairs["ordering fields"] = (tuple(map(str, config.getOrderingFields())), writer.ordering_fields)
    for name, (in_table, in_pipeline) in pairs.items():
        if in_table != in_pipeline:
            raise ActionRequiredError(
                f"The table's {name} differs from the pipeline's.",
                next_step="correct the pipeline file, or write to another path: a table keeps these for life.",
                table=writer.path,
                in_table=in_table,
                in_pipeline=in_pipeline,
            )


def _committed_columns(jvm: HudiJvm, meta: Any, writer: TableSpec) -> Type | None:
    resolver = jvm.jvm.org.apache.hudi.common.table.TableSchemaResolver(meta)
    with hudi_errors("reading the table's schema", table=writer.path):
        found = resolver.getTableSchemaIfPresent(False)
    if not found.isPresent():
        return None
    try:
        return struct_of_hoodie(jvm, found.get())
    except Py4JJavaError as error:
        raise ActionRequiredError(
            "The table's own schema can't be read.", next_step="look at the table's last commit.", table=writer.path
        ) from error
