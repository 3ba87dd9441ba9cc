"""Hudi's settings for a pipeline's table: requirements of the two-phase commit, defaults, and the user's options."""

from __future__ import annotations

import json
from typing import Any

from sluice.errors import ActionRequiredError
from sluice.hoodie_options import REQUIRED
from sluice.private import PrivateSettings
from sluice.protocol.messages import TableSpec
from sluice.sinks.hudi.options import FIRST_OF_UPSERTS, TABLE_VERSION

KEY_GENERATORS = {
    "simple": "org.apache.hudi.keygen.SimpleKeyGenerator",
    "complex": "org.apache.hudi.keygen.ComplexKeyGenerator",
    "nonpartitioned": "org.apache.hudi.keygen.NonpartitionedKeyGenerator",
}

ARCHIVES_ITSELF = "hoodie.archive.automatic"
COLUMN_STATS = "hoodie.metadata.index.column.stats.enable"
DEFAULTS = {
    "hoodie.parquet.compression.codec": "zstd",
    "hoodie.bulkinsert.sort.mode": "NONE",
    # Sluice's writes look nothing up by key, but the row writer always adds a bloom filter, by default with 431 KB per
    # file and 30 hashes per record. This one is as small and cheap as possible; an overfull filter only says "maybe".
    "hoodie.bloom.index.filter.type": "SIMPLE",
    "hoodie.index.bloom.num_entries": "1",
    "hoodie.index.bloom.fpp": "0.5",
    # With column statistics, Hudi also keeps statistics of each table partition, for which a commit reads those of all
    # its files: 40 % of a commit's time after 15 intervals, and growing. A table with statistics keeps them; see
    # `open_table`.
    COLUMN_STATS: "false",
    # A single record that can't be written fails the job. By default Hudi sends each tenth one to the driver, with its
    # error.
    "hoodie.memory.writestatus.failure.fraction": "0.0",
    # For pipelines without table services: each tenth commit plans a cleaning, which costs half as much as a commit.
    "hoodie.clean.automatic": "true",
    "hoodie.clean.trigger.max.commits": "10",
    ARCHIVES_ITSELF: "true",
}
UPSERT_DEFAULTS = {
    # Never used: the file group is known from the Kafka partition. But with an index outside of the files, such as
    # INMEMORY, each write status would bring every record's key and place to the driver: docs/performance.md.
    "hoodie.index.type": "SIMPLE",
    "hoodie.parquet.small.file.limit": "0",  # nor are small files filled up with new records
    # The position of a record's old version in its base file is unknown, so no positions can be written. But with this
    # setting, each log file's task would read the metadata table to find the base file: docs/performance.md.
    "hoodie.write.record.positions": "false",
    "hoodie.logfile.data.block.format": "parquet",
    # Hudi keeps the records between two passes over them, and a block's records until the block is full. On the heap,
    # both cost a third of the job's CPU time in garbage collection; see docs/performance.md.
    "hoodie.write.tagged.record.storage.level": "DISK_ONLY",
    "hoodie.logfile.data.block.max.size": str(32 * 1024 * 1024),
    "hoodie.write.record.merge.custom.implementation.classes": "org.apache.hudi.DefaultSparkRecordMerger",
    "hoodie.compact.inline": "false",
}


def write_options(writer: TableSpec) -> dict[str, str]:
    """All Hudi options for an interval's writers and its commit, the same in every process.

    Raises:
        ActionRequiredError: the pipeline sets an option that would break the two-phase commit.
    """
    for name, value in REQUIRED.items():
        wanted = writer.options.get(name)
        if wanted is not None and wanted.lower() != value.lower():
            raise ActionRequiredError(
                f"{name} must be {value} here: {wanted} would break exactly-once.",
                next_step=f"remove {name} from sink.hudi.options.",
                table=writer.name,
            )
    version = writer.options.get(TABLE_VERSION)
    if writer.operation == "upsert" and version is not None and int(version) < FIRST_OF_UPSERTS:
        raise ActionRequiredError(
            f"Upsert needs a table of version {FIRST_OF_UPSERTS} or later: before it a log file's name does not tell "
            "its instant.",
            next_step="write to another path, or use operation append.",
            table=writer.name,
            version=version,
        )
    options = {
        **DEFAULTS,
        **(UPSERT_DEFAULTS if writer.operation == "upsert" else {}),
        **writer.options,
        **PrivateSettings.from_environment().hudi,
        **REQUIRED,
        "hoodie.table.name": writer.name,
        "hoodie.table.type": writer.table_type,
        "hoodie.datasource.write.partitionpath.field": ",".join(writer.partition_fields),
        "hoodie.datasource.write.keygenerator.class": key_generator(writer),
        "hoodie.datasource.write.operation": "upsert_prepped" if writer.operation == "upsert" else "bulk_insert",
    }
    if writer.record_key:
        options["hoodie.datasource.write.recordkey.field"] = ",".join(writer.record_key)
    if writer.ordering_fields:
        options["hoodie.datasource.write.precombine.field"] = ",".join(writer.ordering_fields)
    return options


def key_generator(writer: TableSpec) -> str:
    """Hudi's key generator class for the pipeline's keys, which becomes part of the table's configuration."""
    if not writer.partition_fields:
        return KEY_GENERATORS["nonpartitioned"]
    simple = len(writer.partition_fields) == 1 and len(writer.record_key) <= 1
    return KEY_GENERATORS["simple" if simple else "complex"]


def write_config(jvm: Any, writer: TableSpec, options: dict[str, str], engine: Any = None) -> Any:
    """A `HoodieWriteConfig` in the JVM of the coordinator or of Spark."""
    # As JSON, in one call to the JVM instead of one per option.
    mapper = jvm.org.apache.hudi.common.util.JsonUtils.getObjectMapper()
    properties = mapper.readValue(json.dumps(options), jvm.java.util.Properties().getClass())
    builder = jvm.org.apache.hudi.config.HoodieWriteConfig.newBuilder()
    if engine is not None:
        builder = builder.withEngineType(engine)
    return (
        builder.withPath(writer.path).withSchema(writer.schema_avro).forTable(writer.name).withProps(properties).build()
    )
