"""The section `source.kafka`: the topics to read and the format of their records."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

from pydantic import model_validator

from sluice.connectors.capabilities import SourceCapabilities
from sluice.connectors.options import SourceOptions

_CAPABILITIES = SourceCapabilities(
    replayable=True, ordered=True, windows_by_time=True, keyed=True, holds_control_log=True
)


class Kafka(SourceOptions):
    """The source: topics of one Kafka cluster."""

    connector: ClassVar[str] = "sluice.sources.kafka.cluster:source_of"
    reader: ClassVar[str] = "sluice.sources.kafka.reader:KafkaReader"

    connection: str = "kafka_default"
    """Id of the Airflow connection of type kafka."""
    isolation_level: Literal["read_committed", "read_uncommitted"] = "read_committed"
    """read_committed skips records of open and aborted Kafka transactions; read_uncommitted reads them."""
    consumer_group: str | None = None
    """The consumer group that receives committed offsets for lag monitoring. Default: `sluice.<pipeline>`."""

    @property
    def capabilities(self) -> SourceCapabilities:
        """What Kafka can do, for every pipeline."""
        return _CAPABILITIES

    @property
    def read_isolation(self) -> str:
        """Whether records of open and aborted Kafka transactions are left out."""
        return self.isolation_level

    def group(self, pipeline: str) -> str:
        """The consumer group that receives committed offsets."""
        return self.consumer_group or super().group(pipeline)

    @classmethod
    def for_route(cls, section: dict[str, Any], table: str) -> None:
        """Each table of `routes` has a consumer group of its own."""
        if section.get("consumer_group"):
            section["consumer_group"] = f"{section['consumer_group']}.{table}"

    @model_validator(mode="after")
    def _topics_are_named(self) -> Self:
        if bool(self.topics) == bool(self.topics_pattern):
            raise ValueError("name the `topics`, or give a `topics_pattern` for their names")
        return self
