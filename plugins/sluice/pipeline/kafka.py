"""The section `source.kafka`: what is read, and how its records are."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ByteSize, Field

from sluice.protocol.plan import OnOffsetLoss
from sluice.records.settings import Converter, Part
from sluice.sections import OneOrMore, Section


class Kafka(Section):
    """What is read: topics of one cluster."""

    connection: str = "kafka_default"
    """Id of the Airflow connection of type kafka."""
    topics: Annotated[OneOrMore, Field(min_length=1)]
    """The topics, all loaded into the one table."""
    starting_offsets: Literal["earliest", "latest"] | dict[str, dict[int, int]] = "earliest"
    """Where the first interval starts: earliest, latest, or offsets as {topic: {partition: offset}}."""
    until: Literal["latest", "data_interval_end"] = "latest"
    """Where an interval ends: at the log's end when it starts, or at the records of the data interval's end."""
    max_records: Annotated[int, Field(gt=0)] = 5_000_000
    """The most records of one interval, shared out over the partitions by their backlog."""
    max_bytes: ByteSize | None = None
    """About the most bytes of one interval, such as `2 GiB`, by the last interval's average record."""
    isolation_level: Literal["read_committed", "read_uncommitted"] = "read_committed"
    """Whether records of open and aborted Kafka transactions are left out."""
    on_offset_loss: OnOffsetLoss = "fail"
    """What to do when committed offsets can't be read any more: fail, or go on at earliest or latest."""
    consumer_group: str | None = None
    """The group to which committed offsets are copied for lag monitors; `sluice.<pipeline>` by default."""
    value: Converter = Converter()
    """How records' values are read."""
    key: Converter | None = None
    """How their keys are read; nobody looks at them by default."""
    columns: dict[str, Part] = Field(default_factory=dict)
    """Further columns by the part of the record that they hold: `arrived_at: timestamp`."""
