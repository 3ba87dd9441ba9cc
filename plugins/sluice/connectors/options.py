"""The common base of the sections of sources and sinks in a pipeline file. Pure.

A connector's section is a subclass, named by an entry point (`connectors.registry`). It states what the connector
can do and names its code, which is imported only when the pipeline runs, not when its file is read.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, ByteSize, Field, field_validator

from sluice.connectors.capabilities import SinkCapabilities, SourceCapabilities
from sluice.protocol.losses import OnOffsetLoss
from sluice.protocol.messages import TableSpec
from sluice.protocol.placement import KeyPlacement
from sluice.protocol.streams import OnRemoved
from sluice.records.settings import Changes, Converter, Part, Transform
from sluice.records.transforms import refuse_reserved
from sluice.sections import Duration, OneOrMore, Section, is_pattern

_NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class StreamsSettings:
    """A source's settings of logical streams, if it reads any.

    Attributes:
        streams: ids of the streams; none where a pattern names them.
        pattern: a regular expression that matches whole ids.
        service: the name of the metadata service (`sluice.connectors.metadata`).
        service_options: the service's options.
        on_removed: what to do with unread records of a topic that was removed from the mapping.
        failures: for how many consecutive intervals the last answer may be reused.
        skips_unreachable: whether an interval proceeds without a cluster that doesn't answer.
        connections: Airflow connections that a mapping may name besides the pipeline's own.
        watched_every: how often the service is asked between intervals, too; None if it isn't.
    """

    streams: tuple[str, ...]
    pattern: str | None
    service: str
    service_options: Mapping[str, Any]
    on_removed: OnRemoved
    failures: int
    skips_unreachable: bool = False
    connections: frozenset[str] = frozenset()
    watched_every: timedelta | None = None


@dataclass(frozen=True)
class FurtherTableOptions:
    """A table that a sink's section has beside its own one, loaded and committed with it.

    Attributes:
        topics: whose records are its rows; those of no further table are the section's own.
        section: its section as if it were the only table.
        transforms: its own steps in place of the pipeline's; None where it has none.
    """

    topics: tuple[str, ...]
    section: SinkOptions
    transforms: tuple[Transform, ...] | None = None


Positions = Literal["offsets", "times", "numbers", "snapshots"]
"""What offsets are: numbers of records; microseconds since 1970; numbers of a column; or numbers of snapshots."""


class SourceOptions(Section):
    """The source: logs with partitions, whose records have offsets."""

    connector: ClassVar[str] = ""
    """The factory of the source, as `module:name`; see `sluice.connectors.source.MakesSource`."""
    reader: ClassVar[str] = ""
    """The factory of the reader that a write job uses, as `module:name`; see `sluice.connectors.data.MakesReader`."""

    row_schema: ClassVar[str] = ""
    """For a source whose values are rows: a function that returns their columns, as `module:name`; see
    `sluice.connectors.source.TellsRows`."""

    connection: str = ""
    """Id of the source's Airflow connection, if it needs one."""
    topics: OneOrMore = ()
    """The topics. All are loaded into one table."""
    topics_pattern: Annotated[str, AfterValidator(is_pattern)] | None = None
    """Instead of `topics`: a regular expression that matches whole topic names. New ones join at the next interval."""
    starting_offsets: Literal["earliest", "latest"] | dict[str, dict[int, int]] = "earliest"
    """Where the first interval starts: earliest, latest, or offsets given as {topic: {partition: offset}}."""
    until: Literal["latest", "data_interval_end"] = "latest"
    """Where an interval ends. latest: the log end at its start. data_interval_end: the first record of that time on."""
    max_future: Duration = timedelta(hours=1)
    """Records dated further in the future don't bound a window by time: they are read by offset."""
    max_records: Annotated[int, Field(gt=0)] = 5_000_000
    """The maximum number of records per interval, divided among the partitions by their backlog."""
    max_bytes: ByteSize | None = None
    """The approximate maximum size of an interval, such as `2 GiB`, from the last interval's average record size."""
    on_offset_loss: OnOffsetLoss = "fail"
    """What to do when committed offsets are no longer readable: fail, or continue at earliest or latest."""
    value: Converter = Converter()
    """How record values are decoded."""
    key: Converter | None = None
    """How record keys are decoded. By default they aren't."""
    columns: dict[str, Part] = Field(default_factory=dict)
    """Additional columns, each filled from a part of the record, such as `arrived_at: timestamp`."""

    @field_validator("columns")
    @classmethod
    def _names_are_free(cls, columns: dict[str, Part]) -> dict[str, Part]:
        refuse_reserved(columns)
        return columns

    @property
    def capabilities(self) -> SourceCapabilities:
        """The source's capabilities."""
        return SourceCapabilities()

    @property
    def connections(self) -> tuple[str, ...]:
        """Ids of further Airflow connections that the source and its reader need.

        They get them from `sluice.connectors.connections`, in tasks and in Spark drivers. The one of `connection` is
        Kafka's, and isn't among them; nor are those of `bucket_logins`, which Hadoop gets as settings.
        """
        return ()

    @property
    def bucket_logins(self) -> Mapping[str, str]:
        """The Airflow connections of type `aws` by which buckets are read, by the buckets' names."""
        return _NOTHING

    @property
    def streams_settings(self) -> StreamsSettings | None:
        """Its settings of logical streams; None where it names its topics itself."""
        return None

    @property
    def positions(self) -> Positions:
        """The meaning of its offsets, for people."""
        return "offsets"

    @property
    def topics_in_words(self) -> str:
        """The topics' names, or their pattern."""
        return ", ".join(self.topics) or f"topics like {self.topics_pattern}"

    @property
    def read_isolation(self) -> str:
        """The isolation level for every reader: read_committed skips records of open and aborted transactions."""
        return "read_committed"

    def group(self, pipeline: str) -> str:
        """The consumer group that receives a copy of committed offsets for monitoring, if the source has groups."""
        return f"sluice.{pipeline}"

    @classmethod
    def for_route(cls, section: dict[str, Any], table: str) -> None:
        """Turn the file's section for all tables of its `routes` into one table's, in place."""


class SinkOptions(Section):
    """The sink: one table."""

    connector: ClassVar[str] = ""
    """The factory of the sink, as `module:name`; see `sluice.connectors.sink.MakesSink`."""
    row_writer: ClassVar[str] = ""
    """The factory of the writer that a write job uses, as `module:name`; see `sluice.connectors.data.MakesWriter`."""
    service_job: ClassVar[str] = ""
    """The factory of the Spark job that runs planned table services; see `sluice.connectors.data.MakesServiceJob`."""
    commit_log: ClassVar[str] = ""
    """The factory of the commit log for the page, as `module:name`; see `sluice.connectors.views.MakesCommitLog`."""
    table_rows: ClassVar[str] = ""
    """Reads table rows for `sluice verify`, as `module:name`; see `sluice.connectors.data.ReadsRows`."""
    quarantine_reader: ClassVar[str] = ""
    """The factory of the quarantine's reader; see `sluice.connectors.views.MakesQuarantineReader`."""
    readers: ClassVar[str] = ""
    """Says which engines can read the table, as `module:name`; see `sluice.connectors.views.TellsReaders`."""
    needs: ClassVar[Mapping[str, str]] = _NOTHING
    """The setting that an optional capability or table service needs, such as `operation upsert`."""

    table: str | None = None
    """The table's name. Default: the pipeline's name."""
    record_key: OneOrMore = ()
    """The columns of the record key. Required for upsert."""
    partition_fields: OneOrMore = ()
    """The columns that partition the table."""
    ordering_field: OneOrMore = ()
    """The columns that order a key's versions: the largest wins. Without it, the last to arrive wins."""
    schema_: Annotated[str | None, Field(alias="schema")] = None
    """The columns as Spark DDL: `id BIGINT NOT NULL, name STRING`; required unless the records have their
    own schema and become rows unchanged."""
    schema_file: Path | None = None
    """Instead of `schema`: a file with an Avro schema (.avsc), relative to the pipeline file."""

    @property
    def capabilities(self) -> SinkCapabilities:
        """The sink's capabilities for this pipeline."""
        return SinkCapabilities()

    @property
    @abstractmethod
    def table_id(self) -> str:
        """A unique, permanent id of the table; it is the key of its control messages."""

    @property
    def further_tables(self) -> tuple[FurtherTableOptions, ...]:
        """Tables that an interval loads beside this one, in one commit; see `sluice.connectors.sink.Pinned`.

        They are in the list `tables` of the section, in its order.
        """
        return ()

    @property
    def columns_are_given(self) -> bool:
        """Whether the section names the table's columns."""
        return self.schema_ is not None or self.schema_file is not None

    @property
    def connections(self) -> tuple[str, ...]:
        """Ids of the Airflow connections that the sink and its writer need, as of `SourceOptions.connections`."""
        return () if self.storage_connection is None else (self.storage_connection,)

    @property
    def storage_connection(self) -> str | None:
        """Id of the Airflow connection of type `aws` by which the table's bucket is reached.

        None where Hadoop's own settings say how, or the table is elsewhere.
        """
        return None

    @property
    def names_version(self) -> bool:
        """Whether it says which version of its format the table is to have, for the service `table_version`."""
        return False

    @property
    def rows_are_told_apart(self) -> bool:
        """Whether `table_rows` gives each row's interval or record; else all are compared at once."""
        return not self.capabilities.upsert

    @property
    def not_comparable(self) -> str:
        """Why rows and records can't be compared though `table_rows` reads them, in words; empty where they can."""
        return ""

    def require(self, changes: Changes | None, ranges: int) -> None:
        """Check the section against the rest of the pipeline.

        Args:
            changes: the pipeline's, if it has any.
            ranges: how many Spark jobs at most write an interval.

        Raises:
            ValueError: they don't fit.
        """

    def written_topics(self, topics: Sequence[str]) -> Sequence[str]:  # noqa: ARG002 - for sinks that have any
        """The topics that the sink writes, given the topics that are read; none for a sink of tables."""
        return ()

    def placement(self, partitions: Mapping[str, int]) -> KeyPlacement | None:  # noqa: ARG002 - for sinks that find keys by partition
        """How an upsert finds a key's row, given each topic's number of partitions; None where it doesn't matter."""
        return None

    @abstractmethod
    def writer(
        self, name: str, changes: Changes | None, *, maintained: bool, schema_ddl: str = "", schema_avro: str = ""
    ) -> TableSpec:
        """How an interval's rows are written, as START-COMMIT pins it.

        Args:
            name: the table's name.
            changes: the pipeline's, if it has any.
            maintained: whether the pipeline has table services.
            schema_ddl: the table's columns as Spark DDL.
            schema_avro: the same as an Avro schema.
        """

    @classmethod
    def for_route(cls, section: dict[str, Any], pipeline: str, table: str) -> None:
        """Turn the file's section for all tables of its `routes` into one table's, in place."""
        section.setdefault("table", f"{pipeline}_{table}")
