"""The section `sink.hudi`: a Hudi table."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sized
from dataclasses import replace
from types import MappingProxyType
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from sluice.connectors.aws import require_bucket
from sluice.connectors.capabilities import SinkCapabilities
from sluice.connectors.options import SinkOptions
from sluice.hoodie_options import by_present_names, refuse_others
from sluice.protocol.messages import TableSpec
from sluice.protocol.placement import KeyPlacement
from sluice.protocol.services import BY_HAND, IN_ONE_STEP
from sluice.records.changes import POSITION
from sluice.records.settings import Changes
from sluice.sections import PRIVATE_HUDI, Options, TablePath, refuse_secrets, require_hoodie_names

TABLE_TYPES = MappingProxyType({"append": "COPY_ON_WRITE", "upsert": "MERGE_ON_READ"})
"""The kind of Hudi table for each operation."""
_APPEND = SinkCapabilities(
    atomic_with_checkpoint=True,
    replaces_interval=True,
    quarantine=True,
    services=frozenset({"clustering", *IN_ONE_STEP, *BY_HAND}),
    catalogs=True,
)
_UPSERT = SinkCapabilities(
    atomic_with_checkpoint=True,
    upsert=True,
    delete=True,
    truncate=True,
    quarantine=True,
    services=frozenset({"compaction", *IN_ONE_STEP, *BY_HAND}),
    catalogs=True,
    keeps_newer=True,
    keeps_unavailable=True,
)
_UPSERT_BY_PARTITION = replace(_UPSERT, finds_keys_by_partition=True)
TABLE_VERSION = "hoodie.write.table.version"
"""Hudi's name for `table_version`, which START-COMMIT pins."""
VERSIONS = (6, 8, 9)
"""The table versions that Hudi 1.2 writes."""
DEFAULT_VERSION = 8
PARTIAL_UPDATES = "hoodie.table.partial.update.mode"
NEWEST_VERSION = 9
"""The table version since which readers know partial updates, and more than one ordering field."""
FIRST_OF_UPSERTS = 8
"""The table version since which a log file's name says its instant."""
_NOT_INLINE = {"hoodie.clean.automatic": "false", "hoodie.archive.automatic": "false"}  # the table services do both
_KEEPS_UNAVAILABLE = {PARTIAL_UPDATES: "FILL_UNAVAILABLE"}
_UNAVAILABLE = "hoodie.record.merge.property.hoodie.write.partial.update.unavailable.value"


class Hudi(SinkOptions):
    """The sink: one Hudi table."""

    connector: ClassVar[str] = "sluice.sinks.hudi.sink:HudiSink"
    row_writer: ClassVar[str] = "sluice.sinks.hudi.writer:HudiWriter"
    service_job: ClassVar[str] = "sluice.sinks.hudi.service_job:HudiServiceJob"
    commit_log: ClassVar[str] = "sluice.sinks.hudi.timeline:TimelineFiles"
    table_rows: ClassVar[str] = "sluice.sinks.hudi.rows:table_rows"
    quarantine_reader: ClassVar[str] = "sluice.sinks.hudi.quarantine_files:QuarantineFiles"
    readers: ClassVar[str] = "sluice.sinks.hudi.readers:verdicts"
    needs: ClassVar[Mapping[str, str]] = MappingProxyType(
        {"upsert": "operation upsert", "clustering": "operation append; an upsert table is compacted"}
    )

    path: TablePath
    """The table's base path; `${SLUICE_NAME}` and `${SLUICE_NAME:-default}` are replaced."""
    connection: str | None = None
    """For a table on s3a://: an Airflow connection of type `aws`, with login, role, endpoint and region. Default:
    Hadoop's settings."""
    operation: Literal["append", "upsert"] = "append"
    """append: every record becomes a row (copy on write). upsert: one row per key, its last version (merge on read)."""
    key_placement: Literal["checked", "trusted", "hashed"] = "checked"
    """How an upsert finds a key's rows. checked: by Kafka partition; every key must be in the partition chosen by the
    default partitioner of Kafka or librdkafka. trusted: by Kafka partition, unchecked. hashed: by a hash of the key, so
    keys may move and topics may grow; requires `buckets` and `write.ranges: 1`."""
    buckets: Annotated[int, Field(gt=0, le=10_000)] | None = None
    """With key_placement hashed: the number of file groups per table partition. It can't change later."""
    table_version: Literal[6, 8, 9] | None = None
    """The version of a new table; docs/how-to/read-the-tables.md says which readers know which, and `sluice service
    table_version` brings an existing table to it. Default: 8; 9 for `changes.format: debezium` and more than one
    `ordering_field`. 6 is for append."""
    options: Options = Field(default_factory=dict)
    """Additional `hoodie.*` options, from the list in docs/hudi-options.md."""

    @property
    def capabilities(self) -> SinkCapabilities:
        """The Hudi table's capabilities, which depend on its operation."""
        if self.operation == "append":
            return _APPEND
        return _UPSERT if self.key_placement == "hashed" else _UPSERT_BY_PARTITION

    @property
    def storage_connection(self) -> str | None:
        """The section's `connection`."""
        return self.connection

    @property
    def table_id(self) -> str:
        """The table's base path."""
        return self.path

    @property
    def names_version(self) -> bool:
        """Whether it has `table_version`."""
        return self.table_version is not None

    def placement(self, partitions: Mapping[str, int]) -> KeyPlacement | None:
        """How an upsert finds a key's file group; None for append."""
        if self.operation == "append":
            return None
        return KeyPlacement(kind=self.key_placement, partitions=dict(partitions), buckets=self.buckets)

    def require(self, changes: Changes | None, ranges: int) -> None:
        """Check that key placement and ordering fit the rest of the pipeline.

        Raises:
            ValueError: `changes` or `write.ranges` of the pipeline don't fit.
        """
        if self.key_placement == "hashed" and ranges > 1:
            raise ValueError("key_placement hashed needs write.ranges 1: two Spark jobs must not write one file group")
        if self.key_placement == "hashed" and not self.ordering_field and changes is None:
            raise ValueError("key_placement hashed needs `ordering_field`: partitions have no order between them")
        if changes is not None and self.ordering_field:
            raise ValueError(
                f"`changes` are ordered by their position in the source, in the column {POSITION}: "
                "leave sink.hudi.ordering_field out"
            )
        older = self.table_version not in (None, NEWEST_VERSION)
        if changes is not None and changes.format == "debezium" and older:
            raise ValueError(
                "changes.format debezium needs table_version 9: a reader of an earlier one would show the placeholder "
                "of a value that the database didn't log; leave table_version out"
            )
        if changes is not None and changes.format == "tombstones" and self.key_placement == "hashed":
            raise ValueError("tombstones are ordered by offset, so a key must stay in its partition: not hashed")

    def writer(
        self, name: str, changes: Changes | None, *, maintained: bool, schema_ddl: str = "", schema_avro: str = ""
    ) -> TableSpec:
        """The settings for writing an interval's rows; see `SinkOptions`."""
        return TableSpec(
            path=self.path,
            name=name,
            table_type=TABLE_TYPES[self.operation],
            operation=self.operation,
            record_key=self.record_key,
            partition_fields=self.partition_fields,
            ordering_fields=self.ordering_field if changes is None else (POSITION,),
            schema_ddl=schema_ddl,
            schema_avro=schema_avro,
            options={
                **_merging(changes),
                **(_NOT_INLINE if maintained else {}),
                **({TABLE_VERSION: str(self.table_version)} if self.table_version is not None else {}),
                **by_present_names(self.options),
            },
        )

    @model_validator(mode="after")
    def _consistent(self) -> Hudi:
        if self.schema_ is not None and self.schema_file is not None:
            raise ValueError("give the columns either as `schema` (Spark DDL) or as `schema_file` (.avsc)")
        if self.operation == "upsert" and not self.record_key:
            raise ValueError("operation upsert needs `record_key`: the columns that tell one row from another")
        if (self.key_placement == "hashed") != (self.buckets is not None):
            raise ValueError("key_placement hashed and `buckets`, the number of file groups, go together")
        if self.operation == "upsert" and (self.table_version or DEFAULT_VERSION) < FIRST_OF_UPSERTS:
            raise ValueError(
                "operation upsert needs table_version 8 or 9: in 6 a log file's name doesn't say its instant"
            )
        if len(self.ordering_field) > 1 and self.table_version not in (None, NEWEST_VERSION):
            raise ValueError("more than one ordering_field needs table_version 9: earlier ones have a single one")
        if self.operation == "append" and self.key_placement == "hashed":
            raise ValueError("key_placement is for operation upsert; an append looks for no key")
        require_bucket(self.connection, self.path)
        require_hoodie_names(self.options)
        refuse_secrets(self.options, PRIVATE_HUDI)
        refuse_others(self.options)
        return self


def needs_newest_version(settings: Container[str], ordering_fields: Sized) -> bool:
    """Whether readers of earlier table versions would misread a table without noticing.

    They show a value's placeholder as the value, and order versions by one field at most.

    Args:
        settings: the names of the table's settings, or of the options that it is written with.
        ordering_fields: the columns that order a key's versions.
    """
    return PARTIAL_UPDATES in settings or len(ordering_fields) > 1


def hudi_options(options: SinkOptions) -> Hudi:
    """A pipeline's sink section, typed as Hudi's.

    Raises:
        TypeError: the section is another sink's.
    """
    if not isinstance(options, Hudi):
        raise TypeError(f"{type(options).__name__} is no section of Hudi's")
    return options


def _merging(changes: Changes | None) -> dict[str, str]:
    """How Hudi merges a change with the row before it: a placeholder in the change keeps the row's value."""
    if changes is None or changes.format != "debezium":
        return {}
    return {**_KEEPS_UNAVAILABLE, _UNAVAILABLE: changes.unavailable_value}
