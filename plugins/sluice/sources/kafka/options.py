"""The section `source.kafka`: the topics to read and the format of their records."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from sluice.connectors.capabilities import SourceCapabilities
from sluice.connectors.options import SourceOptions, StreamsSettings
from sluice.protocol.streams import OnRemoved
from sluice.sections import AtLeastASecond, OneOrMore, Section, is_pattern

_CAPABILITIES = SourceCapabilities(
    replayable=True, ordered=True, windows_by_time=True, keyed=True, holds_control_log=True
)


class Metadata(Section):
    """The service that maps streams to clusters and topics. Further keys are the service's own options."""

    model_config = ConfigDict(extra="allow")

    service: str = "file"
    """`file`, the name of an installed service, or `module:Class`."""


class Kafka(SourceOptions):
    """The source: topics of one Kafka cluster, or streams over several."""

    connector: ClassVar[str] = "sluice.sources.kafka.cluster:source_of"
    reader: ClassVar[str] = "sluice.sources.kafka.reader:KafkaReader"

    connection: str = "kafka_default"
    """Id of the Airflow connection of type kafka."""
    isolation_level: Literal["read_committed", "read_uncommitted"] = "read_committed"
    """read_committed skips records of open and aborted Kafka transactions; read_uncommitted reads them."""
    streams: OneOrMore = ()
    """Instead of `topics`: logical streams. `metadata` says on which clusters their topics are, for each interval."""
    streams_pattern: Annotated[str, AfterValidator(is_pattern)] | None = None
    """Instead of `streams`: a regular expression that matches whole ids of streams."""
    metadata: Metadata | None = None
    """The metadata service of the streams. Required with them."""
    mapped_connections: OneOrMore = ()
    """Ids of the Airflow connections that the mapping may name, of clusters and of schema registries, besides those of
    this section. The right to change the mapping is no right to load a table from any cluster."""
    on_removed: OnRemoved = "drain"
    """What to do with a topic that is no longer mapped: drain (read it to its present end), fail, or drop."""
    on_unreachable: Literal["fail", "skip"] = "fail"
    """What to do with a cluster of streams that doesn't answer: fail, or skip it with a warning."""
    metadata_failures: Annotated[int, Field(ge=0)] = 3
    """How many intervals in a row may use the last mapping while the metadata service doesn't answer."""
    metadata_interval: AtLeastASecond | None = None
    """How often Airflow's triggerer asks the metadata service between runs, too, such as `1 minute`: what is mapped for
    a while is then read, and a change starts a run. By default only START asks."""
    consumer_group: str | None = None
    """The consumer group that receives committed offsets for lag monitoring. Default: `sluice.<pipeline>`."""

    @property
    def capabilities(self) -> SourceCapabilities:
        """Kafka's capabilities, for every pipeline."""
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
        """Each table of `routes` has its own consumer group."""
        if section.get("consumer_group"):
            section["consumer_group"] = f"{section['consumer_group']}.{table}"

    @property
    def streams_settings(self) -> StreamsSettings | None:
        """Its settings of logical streams."""
        if self.metadata is None:
            return None
        given = dict(self.metadata.model_extra or {})
        return StreamsSettings(
            self.streams,
            self.streams_pattern,
            self.metadata.service,
            given,
            self.on_removed,
            self.metadata_failures,
            self.on_unreachable == "skip",
            frozenset(self.mapped_connections),
            self.metadata_interval,
        )

    @property
    def topics_in_words(self) -> str:
        """The names of topics or streams, or their pattern."""
        if self.metadata is None:
            return super().topics_in_words
        return f"streams {', '.join(self.streams)}" if self.streams else f"streams like {self.streams_pattern}"

    @model_validator(mode="after")
    def _topics_are_named(self) -> Self:
        if sum(map(bool, (self.topics, self.topics_pattern, self.streams, self.streams_pattern))) != 1:
            raise ValueError(
                "name the `topics`, give a `topics_pattern` for their names, or name `streams` or a `streams_pattern`"
            )
        if bool(self.streams or self.streams_pattern) != (self.metadata is not None):
            raise ValueError(
                "`metadata` says where streams are: it belongs to `streams` or `streams_pattern`, and to them only"
            )
        if self.metadata_interval is not None and self.metadata is None:
            raise ValueError("`metadata_interval` is for streams: without them there is no metadata service to ask")
        if self.metadata_interval is not None and self.until == "data_interval_end":
            raise ValueError(
                "`metadata_interval` starts runs without a data interval, which `until: data_interval_end` needs"
            )
        return self
