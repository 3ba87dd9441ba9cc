"""The section `source.kafka`: what is read, and how its records are."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, ByteSize, Field, field_validator, model_validator

from sluice.protocol.losses import OnOffsetLoss
from sluice.records.settings import Converter, Part
from sluice.records.transforms import refuse_reserved
from sluice.sections import Duration, OneOrMore, Section


def _is_pattern(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"is no regular expression: {error}") from error
    return pattern


class Kafka(Section):
    """What is read: topics of one cluster."""

    connection: str = "kafka_default"
    """Id of the Airflow connection of type kafka."""
    topics: OneOrMore = ()
    """The topics, all loaded into the one table."""
    topics_pattern: Annotated[str | None, AfterValidator(_is_pattern)] = None
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

    @property
    def topics_in_words(self) -> str:
        """The topics' names, or their pattern."""
        return ", ".join(self.topics) or f"topics like {self.topics_pattern}"

    @model_validator(mode="after")
    def _topics_are_named(self) -> Self:
        if bool(self.topics) == bool(self.topics_pattern):
            raise ValueError("name the `topics`, or give a `topics_pattern` for their names")
        return self

    @field_validator("columns")
    @classmethod
    def _names_are_free(cls, columns: dict[str, Part]) -> dict[str, Part]:
        refuse_reserved(columns)
        return columns
