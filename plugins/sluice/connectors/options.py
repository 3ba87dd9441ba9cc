"""What the sections of sources and sinks in a pipeline file have in common. Pure.

A connector's section is a subclass, named by an entry point (`connectors.registry`). It says what the connector can do,
and where its code is, which is imported by whoever runs it and by nobody who reads a file.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, ByteSize, Field, field_validator

from sluice.connectors.capabilities import SinkCapabilities, SourceCapabilities
from sluice.protocol.losses import OnOffsetLoss
from sluice.protocol.messages import TableSpec
from sluice.protocol.placement import KeyPlacement
from sluice.records.settings import Changes, Converter, Part
from sluice.records.transforms import refuse_reserved
from sluice.sections import Duration, OneOrMore, Section, is_pattern

_NOTHING: Mapping[str, str] = MappingProxyType({})


class SourceOptions(Section):
    """What is read: logs, each of some partitions whose records have offsets."""

    connector: ClassVar[str] = ""
    """What makes the source, as `module:name`; see `sluice.connectors.source.MakesSource`."""
    reader: ClassVar[str] = ""
    """What reads its records in a write job, as `module:name`; see `sluice.connectors.data.MakesReader`."""

    connection: str = ""
    """Id of the Airflow connection, where the source has one."""
    topics: OneOrMore = ()
    """The topics, all loaded into the one table."""
    topics_pattern: Annotated[str, AfterValidator(is_pattern)] | None = None
    """Or a regular expression for their whole names; a topic that is made later is read from the next interval on."""
    starting_offsets: Literal["earliest", "latest"] | dict[str, dict[int, int]] = "earliest"
    """Where the first interval starts: earliest, latest, or offsets as {topic: {partition: offset}}."""
    until: Literal["latest", "data_interval_end"] = "latest"
    """Where an interval ends: at the log's end when it starts, or at the records of the data interval's end."""
    max_future: Duration = timedelta(hours=1)
    """Records that are dated further in the future bound no window by time: they are read by their offsets."""
    max_records: Annotated[int, Field(gt=0)] = 5_000_000
    """The most records of one interval, shared out over the partitions by their backlog."""
    max_bytes: ByteSize | None = None
    """About the most bytes of one interval, such as `2 GiB`, by the last interval's average record."""
    on_offset_loss: OnOffsetLoss = "fail"
    """What to do when committed offsets can't be read any more: fail, or go on at earliest or latest."""
    value: Converter = Converter()
    """How records' values are read."""
    key: Converter | None = None
    """How their keys are read; nobody looks at them by default."""
    columns: dict[str, Part] = Field(default_factory=dict)
    """Further columns by the part of the record that they hold: `arrived_at: timestamp`."""

    @field_validator("columns")
    @classmethod
    def _names_are_free(cls, columns: dict[str, Part]) -> dict[str, Part]:
        refuse_reserved(columns)
        return columns

    @property
    def capabilities(self) -> SourceCapabilities:
        """What the source can do."""
        return SourceCapabilities()

    @property
    def connections(self) -> tuple[str, ...]:
        """Ids of further Airflow connections that the source and its reader need.

        They get them from `sluice.connectors.connections`, in tasks and in Spark drivers. The one of `connection` is
        Kafka's, and isn't among them.
        """
        return ()

    @property
    def topics_in_words(self) -> str:
        """The topics' names, or their pattern."""
        return ", ".join(self.topics) or f"topics like {self.topics_pattern}"

    @property
    def read_isolation(self) -> str:
        """Whether records of open and aborted transactions are left out, as START-COMMIT says it to every reader."""
        return "read_committed"

    def group(self, pipeline: str) -> str:
        """The name under which committed offsets are copied for monitors, where the source has such."""
        return f"sluice.{pipeline}"

    @classmethod
    def for_route(cls, section: dict[str, Any], table: str) -> None:
        """Make what the file says for all tables of its `routes` into what it says for one, in place."""


class SinkOptions(Section):
    """What is written: one table of rows."""

    connector: ClassVar[str] = ""
    """What makes the sink, as `module:name`; see `sluice.connectors.sink.MakesSink`."""
    row_writer: ClassVar[str] = ""
    """What writes rows in a write job, as `module:name`; see `sluice.connectors.data.MakesWriter`."""
    service_job: ClassVar[str] = ""
    """What carries planned table services out in a Spark job; see `sluice.connectors.data.MakesServiceJob`."""
    commit_log: ClassVar[str] = ""
    """What shows its tables' commits on the page, as `module:name`; see `sluice.connectors.views.MakesCommitLog`."""
    table_rows: ClassVar[str] = ""
    """What reads its tables' rows for `sluice verify`, as `module:name`; see `sluice.connectors.data.ReadsRows`."""
    quarantine_reader: ClassVar[str] = ""
    """What reads bad records that were set aside; see `sluice.connectors.views.MakesQuarantineReader`."""
    needs: ClassVar[Mapping[str, str]] = _NOTHING
    """By capability or table service that not every section has: what it would have to say, `operation upsert`."""

    table: str | None = None
    """The table's name; the pipeline's by default."""
    record_key: OneOrMore = ()
    """The record key's columns; needed for upsert."""
    partition_fields: OneOrMore = ()
    """The columns by whose values the table is partitioned."""
    ordering_field: OneOrMore = ()
    """The columns by which the larger version of a key wins; without it the one that came last."""
    schema_: Annotated[str | None, Field(alias="schema")] = None
    """The columns as Spark DDL: `id BIGINT NOT NULL, name STRING`; needed unless the records have a schema of their own
    and become rows as they are."""
    schema_file: Path | None = None
    """Or a file with an Avro schema (.avsc), relative to the pipeline file."""

    @property
    def capabilities(self) -> SinkCapabilities:
        """What the sink can do for this pipeline."""
        return SinkCapabilities()

    @property
    @abstractmethod
    def table_id(self) -> str:
        """What tells this table from all others, for as long as it exists: the key of its control messages."""

    @property
    def columns_are_given(self) -> bool:
        """Whether the section names the table's columns."""
        return self.schema_ is not None or self.schema_file is not None

    def require(self, changes: Changes | None, ranges: int) -> None:
        """Check what else of the pipeline the section depends on.

        Args:
            changes: the pipeline's, if it has any.
            ranges: how many Spark jobs at most write an interval.

        Raises:
            ValueError: they don't fit.
        """

    def placement(self, partitions: Mapping[str, int]) -> KeyPlacement | None:  # noqa: ARG002 - for sinks that find keys by partition
        """How an upsert finds a key's row, given each topic's number of partitions; None where nobody has to know."""
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
        """Make what the file says for all tables of its `routes` into what it says for one, in place."""
        section.setdefault("table", f"{pipeline}_{table}")
