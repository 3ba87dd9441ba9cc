"""The section `sink.kafka`: topics of a Kafka cluster."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType
from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from sluice.connectors.capabilities import SinkCapabilities
from sluice.connectors.options import SinkOptions
from sluice.identifiers import is_record_name
from sluice.protocol.messages import TableSpec
from sluice.records.changes import POSITION
from sluice.records.settings import Changes
from sluice.sections import Duration, OneOrMore, Options, Section, TablePath, refuse_secrets
from sluice.sinks.kafka.options.names import EACH, default_log, topics_of
from sluice.sinks.kafka.options.pinned import ENCODERS, Encoding, PinnedTopic

REGISTERED = ("avro", "protobuf", "json_schema")
"""Encoders whose schema is in a registry."""
CONNECTS = ("json_with_schema", "json_without_schema")
"""Encoders that write JSON as Kafka Connect's converter does."""
SINGLE = ("string", "bytes")
"""Encoders of a single column."""
# The producer's settings that a user may set: none of them affects the guarantee.
_PRODUCER = (
    "batch.size",
    "batch.num.messages",
    "client.id",
    "client.rack",
    "compression.level",
    "linger.ms",
    "queue.buffering.max.kbytes",
    "queue.buffering.max.messages",
    "request.timeout.ms",
    "socket.connection.setup.timeout.ms",
    "socket.keepalive.enable",
    "socket.receive.buffer.bytes",
    "socket.send.buffer.bytes",
    "socket.timeout.ms",
)
_NOT_HERE = ("record_key", "partition_fields", "ordering_field")


class Encoder(Section):
    """How keys or values are encoded."""

    encoder: Encoding = "json"
    """json: an object of the columns. json_with_schema: Connect's envelope of `schema` and `payload`.
    json_without_schema: the payload alone. avro, protobuf, json_schema: with the schema's id from a registry in front.
    string, bytes: one column as it is. Or a class of your own as `module:Class`."""
    registry: Annotated[str, Field(pattern=r"^[\w.\-]{0,200}$")] = ""
    """Id of the Airflow connection to the schema registry, for avro, protobuf and json_schema."""
    subject_name_strategy: Literal["topic", "record", "topic_record"] = "topic"
    """The schema's subject. topic: the topic's name with -key or -value. record: the record's name. topic_record:
    both."""
    subject: str | None = None
    """A fixed subject, instead of the strategy's."""
    record_name: str | None = None
    """The full name of the schema's record or message, such as `com.example.Flight`. Default: derived from the
    pipeline's name; for a Protobuf schema with auto_register false, its first message; none for json_with_schema."""
    decimal_format: Literal["base64", "numeric"] = "base64"
    """How json_with_schema and json_without_schema write a DECIMAL. base64: its unscaled value as bytes. numeric: a
    number."""
    auto_register: bool = True
    """Register the columns' schema if the subject doesn't have it. false: the schema must already be registered."""
    options: Options = Field(default_factory=dict)
    """Options of your own encoder."""

    @model_validator(mode="after")
    def _consistent(self) -> Encoder:
        registered = self.encoder in REGISTERED
        if registered != bool(self.registry):
            words = "needs `registry`, the connection to it" if registered else "has no schema in a `registry`"
            raise ValueError(f"encoder {self.encoder} {words}")
        if self.record_name is not None and not is_record_name(self.record_name):
            raise ValueError(f"record_name {self.record_name!r} is no name such as com.example.Flight")
        if self.decimal_format != "base64" and self.encoder not in CONNECTS:
            raise ValueError(f"decimal_format is for {' and '.join(CONNECTS)}, not for encoder {self.encoder}")
        if self.options and self.encoder in ENCODERS:
            raise ValueError(f"options are for an encoder of your own, not for encoder {self.encoder}")
        refuse_secrets(self.options, "an environment variable of the workers")
        return self


class TopicSettings(Section):
    """How missing topics are created. Existing topics are not changed."""

    create: bool = False
    """Create missing topics. false: if a topic is missing, the interval fails before anything is written."""
    partitions: Annotated[int, Field(gt=0)] | None = None
    """The number of partitions. Default: the brokers' num.partitions."""
    replication_factor: Annotated[int, Field(gt=0)] | None = None
    """The number of replicas. Default: the brokers' default.replication.factor."""
    config: Options = Field(default_factory=dict)
    """Kafka's topic settings, such as `cleanup.policy: compact`."""


class KafkaTopic(SinkOptions):
    """The sink: topics of a Kafka cluster, each record once for consumers with isolation.level read_committed."""

    connector: ClassVar[str] = "sluice.sinks.kafka.sink:KafkaSink"
    row_writer: ClassVar[str] = "sluice.sinks.kafka.writer:KafkaWriter"
    commit_log: ClassVar[str] = "sluice.sinks.kafka.commits:TopicCommits"
    table_rows: ClassVar[str] = "sluice.sinks.kafka.rows:table_rows"
    quarantine_reader: ClassVar[str] = "sluice.sinks.kafka.quarantine:QuarantineTopic"
    needs: ClassVar[Mapping[str, str]] = MappingProxyType({"upsert": "tombstones true", "delete": "tombstones true"})

    connection: Annotated[str, Field(pattern=r"^[\w.\-]{1,200}$")]
    """Id of the Airflow connection of type kafka to the target cluster, which may differ from the source's."""
    topic: Annotated[str, Field(min_length=1)]
    """The topic to write to. `${topic}` is replaced by the name of the topic that a record came from."""
    staging: TablePath
    """A folder for this pipeline alone, on storage that the write jobs and Airflow's workers share: a path, or a URI
    such as hdfs://namenode/staging/flights or s3a://bucket/staging. It holds encoded records until they are sent."""
    log_topic: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,249}$")] | None = None
    """The topic on the same cluster that holds offsets and intervals, with one partition, for this pipeline alone.
    Default: `_sluice.` and `topic`."""
    value: Encoder = Encoder()
    """How values are encoded."""
    key: Encoder = Encoder()
    """How keys are encoded, if there are `key_fields`."""
    key_fields: OneOrMore = ()
    """The columns of the key. Without them records have no key."""
    value_fields: OneOrMore = ()
    """The columns of the value. Default: all columns that are neither a header nor the timestamp; with the encoders
    string and bytes, key columns are left out, too."""
    headers: dict[str, str] = Field(default_factory=dict)
    """Headers, each with the column that has its text: `{origin: airport}`."""
    headers_from: str | None = None
    """The column with the source records' headers, which are passed through: `columns: {headers: headers}` of a Kafka
    source."""
    timestamp: str = "record"
    """A record's timestamp. record: the source record's. wallclock: the time of sending. Else a column of type
    TIMESTAMP."""
    partitioner: Literal["murmur2", "crc32", "same"] = "murmur2"
    """How a record's partition is chosen. murmur2: by the key, like Java's clients. crc32: by the key, like librdkafka.
    same: the number of the source record's partition."""
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = "none"
    """How batches are compressed."""
    tombstones: bool = False
    """With `changes`: a delete becomes a record with the key and without a value. Requires key_fields."""
    topic_settings: TopicSettings = TopicSettings()
    """How topics are created."""
    on_topic_change: Literal["fail", "continue"] = "fail"
    """What to do if a topic was deleted since it was last written to, whether or not it was created again, or if its
    number of partitions changed while a key's last record counts (`tombstones`, or a compacted topic): fail the
    interval, or continue. Earlier records are then missing, or stay in their keys' earlier partitions."""
    transaction_timeout: Duration = timedelta(minutes=15)
    """How long sending an interval may take; at most the brokers' transaction.max.timeout.ms, 15 minutes by default.
    Consumers wait as long if the sending process dies."""
    producer: Options = Field(default_factory=dict)
    """Settings of librdkafka's producer that don't affect the guarantee, such as `linger.ms`."""

    @property
    def capabilities(self) -> SinkCapabilities:
        """A single Kafka transaction has records and checkpoint. Committed records are never taken back."""
        changes = self.tombstones
        return SinkCapabilities(
            atomic_with_checkpoint=True, upsert=changes, delete=changes, quarantine=True, keyless=changes
        )

    @property
    def log(self) -> str:
        """The topic of offsets and intervals."""
        return self.log_topic or default_log(self.topic)

    @property
    def table_id(self) -> str:
        """The connection and the log."""
        return f"kafka://{self.connection}/{self.log}"

    def written_topics(self, topics: Sequence[str]) -> Sequence[str]:
        """The target topic, or one for each source topic."""
        return topics_of(self.topic, tuple(topics))

    @property
    def connections(self) -> tuple[str, ...]:
        """The target cluster's connection."""
        return (self.connection,)

    def require(self, changes: Changes | None, ranges: int) -> None:  # noqa: ARG002 - any number of jobs may write
        """Check that `tombstones` is set only for pipelines with `changes`.

        Raises:
            ValueError: the pipeline has no deletes.
        """
        if self.tombstones and changes is None:
            raise ValueError("`tombstones` are deletes of `changes`, and the pipeline has none")

    def writer(
        self,
        name: str,
        changes: Changes | None,
        *,
        maintained: bool,  # noqa: ARG002 - the capabilities refuse table services
        schema_ddl: str = "",
        schema_avro: str = "",
    ) -> TableSpec:
        """The settings for writing an interval's rows; see `SinkOptions`."""
        debezium = changes is not None and changes.format == "debezium"
        level = self.producer.get("compression.level")
        return TableSpec(
            path=self.table_id,
            name=name,
            table_type="kafka",
            operation="upsert" if self.tombstones else "append",
            record_key=self.key_fields if self.tombstones else (),
            partition_fields=(),
            ordering_fields=(POSITION,) if debezium else (),
            schema_ddl=schema_ddl,
            schema_avro=schema_avro,
            options=PinnedTopic(
                topic=self.topic,
                staging=self.staging,
                key_fields=self.key_fields,
                value_fields=self.value_fields,
                key_encoder=self.key.encoder if self.key_fields else "",
                value_encoder=self.value.encoder,
                headers=dict(self.headers),
                headers_from=self.headers_from or "",
                timestamp=self.timestamp,
                partitioner=self.partitioner,
                compression=self.compression,
                compression_level=int(level) if level is not None else None,
                without=(POSITION,) if changes is not None else (),
            ).texts(),
        )

    @classmethod
    def for_route(cls, section: dict[str, object], pipeline: str, table: str) -> None:
        """Each table of `routes` gets a topic of its name, and a separate log."""
        section.setdefault("topic", table)
        section.setdefault("log_topic", f"_sluice.{pipeline}.{table}")
        if isinstance(section.get("staging"), str):
            section["staging"] = f"{section['staging']}/{table}"

    @field_validator("producer")
    @classmethod
    def _harmless(cls, producer: dict[str, str]) -> dict[str, str]:
        refuse_secrets(producer, "the Kafka connection's extra field")
        refused = sorted(set(producer) - set(_PRODUCER))
        if refused:
            raise ValueError(
                f"{', '.join(refused)}: not among the settings that a pipeline may change of a transactional producer, "
                f"which are {', '.join(_PRODUCER)}. How to reach the cluster, its connection says"
            )
        level = producer.get("compression.level", "0")
        if re.fullmatch(r"-?\d{1,9}", level) is None:
            raise ValueError(f"compression.level is a whole number, and {level[:100]!r} is none")
        return producer

    @model_validator(mode="after")
    def _consistent(self) -> KafkaTopic:
        if self.schema_ is not None and self.schema_file is not None:
            raise ValueError("give the columns either as `schema` (Spark DDL) or as `schema_file` (.avsc)")
        for name in _NOT_HERE:
            if getattr(self, name):
                raise ValueError(
                    f"`{name}` is for tables: a topic has `key_fields`, and a partition by its `partitioner`"
                )
        if self.tombstones and not self.key_fields:
            raise ValueError("tombstones are records of a key: name its columns in `key_fields`")
        for part, encoder, fields in (("key", self.key, self.key_fields), ("value", self.value, self.value_fields)):
            if encoder.encoder in SINGLE and len(fields) > 1:
                raise ValueError(f"{part}.encoder {encoder.encoder} writes one column; `{part}_fields` names several")
        if not self.key_fields and self.key != Encoder():
            raise ValueError("`key` says how keys are written, and no `key_fields` say what they are")
        self._require_topics()
        return self

    def _require_topics(self) -> None:
        if EACH not in self.topic and "$" in self.topic:
            raise ValueError(f"topic {self.topic!r}: of variables there is {EACH} alone")
        if self.log == self.topic:
            raise ValueError("log_topic and topic are two topics: name another one in log_topic")
        if not timedelta(seconds=1) <= self.transaction_timeout <= timedelta(hours=12):
            raise ValueError("transaction_timeout is from 1 second to 12 hours")
