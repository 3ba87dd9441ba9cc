"""The coordinator's sink of Kafka topics: opens the log, and pins the settings for writing records."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

from sluice.connectors.sink import Pinned
from sluice.errors import ActionRequiredError
from sluice.jvm.gateway import HudiJvm, Jvm, LateJvm
from sluice.jvm.kept import kept_jvm
from sluice.jvm.schema import struct_of_ddl
from sluice.pipeline.model import Pipeline
from sluice.private import hadoop_settings
from sluice.process import identity
from sluice.protocol.mapping import ClusterTopics, topics_of
from sluice.protocol.messages import TableSpec
from sluice.protocol.quarantine import Quarantined
from sluice.records.structs import Type
from sluice.schemas.pinner import RecordPinner
from sluice.schemas.registry.config import Registries, registry_of_environment
from sluice.sinks.files.remote import remote_storage
from sluice.sinks.files.storage import Storage, local_folder
from sluice.sinks.kafka.cluster import Target, target_settings
from sluice.sinks.kafka.log import TableLog
from sluice.sinks.kafka.options import Encoder, KafkaTopic
from sluice.sinks.kafka.options.names import topics_of as written_topics
from sluice.sinks.kafka.options.pinned import PinnedTopic
from sluice.sinks.kafka.options.takes import as_option
from sluice.sinks.kafka.pinning import pinned_schema
from sluice.sinks.kafka.quarantine import QuarantineTopic, quarantine_section
from sluice.sinks.kafka.shape import Shape, shape_of, struct_of
from sluice.sinks.kafka.staging import local_staging
from sluice.sinks.kafka.table import KafkaTable


@dataclass
class _Known:
    """See `sluice.schemas.pinner.PinnedTable`. No column is required because earlier records have it."""

    writer: TableSpec
    jvm: HudiJvm
    columns: Type | None = None


@dataclass(frozen=True)
class _Opened:
    """Resources while the table is open: a JVM, started when needed, and a stack that closes them with the table."""

    jvm: HudiJvm
    stack: ExitStack


class KafkaSink:
    """One pipeline's topics; see `sluice.connectors.sink.Sink`.

    Args:
        pipeline: the pipeline that writes the topics.
        jvm: opens a JVM for Spark's types and remote staging, when needed; by default one that is kept between uses.
        registries: returns a schema registry, given its connection's id.
    """

    def __init__(
        self, pipeline: Pipeline, jvm: Jvm | None = None, registries: Registries = registry_of_environment
    ) -> None:
        options = pipeline.sink.options
        if not isinstance(options, KafkaTopic):
            raise TypeError(f"{type(options).__name__} is no section of the Kafka sink's")
        self._pipeline, self._options = pipeline, options
        self._jvm = jvm or partial(kept_jvm, hadoop_settings(pipeline.write.conf))
        self._registries = registries
        self._opened: _Opened | None = None

    @contextmanager
    def open(self) -> Iterator[KafkaTable]:
        """The log, created on first use; see `sluice.connectors.sink`."""
        target = self._target(self._options)
        target.ensure_log()
        with self._table(target, writable=True) as table:
            yield table

    @contextmanager
    def look(self) -> Iterator[KafkaTable | None]:
        """The log for reading only; None if it doesn't exist."""
        target = self._target(self._options)
        if not target.has_log():
            yield None
            return
        with self._table(target, writable=False) as table:
            yield table

    @staticmethod
    def _target(options: KafkaTopic) -> Target:
        return Target(target_settings(options.connection), options)

    @contextmanager
    def _table(self, target: Target, *, writable: bool) -> Iterator[KafkaTable]:
        with ExitStack() as stack:
            before, self._opened = self._opened, _Opened(cast("HudiJvm", LateJvm(self._jvm, stack)), stack)
            try:
                yield self._opened_table(target, self._options, self._pipeline.writer(), writable=writable)
            finally:
                self._opened = before

    def _opened_table(self, target: Target, options: KafkaTopic, writer: TableSpec, *, writable: bool) -> KafkaTable:
        opened = self._while_open()
        log = TableLog(target.settings, options.log)
        opened.stack.callback(log.close)
        return KafkaTable(
            target,
            log,
            partial(self._storage, opened.jvm, options.staging),
            writer,
            self._pipeline.control.clock_wait,
            identity(os.getpid()),  # this process sends the records
            options.transaction_timeout,
            writable=writable,
        )

    def _while_open(self) -> _Opened:
        if self._opened is None:
            raise ValueError("the table has to be open for this")
        return self._opened

    @staticmethod
    def _storage(jvm: HudiJvm, staging: str) -> Storage:
        local = local_folder(staging)
        if local is not None:
            return local_staging(local)
        return remote_storage(jvm.jvm, jvm.storage.unwrap(), staging)

    def pin_quarantine(self, table: KafkaTable, writer: TableSpec) -> TableSpec:
        """The topic of bad records, as START-COMMIT names it; see `sluice.connectors.sink`.

        If the table is open for writing, this creates the topic.
        """
        section = self._quarantine(writer)
        takes = as_option(self._target(section).require((section.topic,), create=table.writable))
        pinned = section.writer(f"{writer.name}_quarantine", None, maintained=False, schema_ddl=str(section.schema_))
        return PinnedTopic.of(pinned).model_copy(update={"takes": takes, "shortened": True}).pinned_in(pinned)

    def open_quarantine(self, table: KafkaTable, pinned: TableSpec) -> KafkaTable:
        """The topic of bad records with its log, created on first use; see `sluice.connectors.sink`."""
        section = self._quarantine(table.writer)
        target = self._target(section)
        target.ensure_log()
        return self._opened_table(target, section, pinned, writable=True)

    def bad_records(self, paths: Sequence[str]) -> Iterator[Quarantined]:
        """The bad records that a commit names by their staging folders; see `sluice.connectors.sink`."""
        section = self._quarantine(self._pipeline.writer())
        return QuarantineTopic(section.table_id, target_settings(section.connection)).records(paths)

    def _quarantine(self, writer: TableSpec) -> KafkaTopic:
        return quarantine_section(writer, self._pipeline.errors, self._options)

    def pin(self, table: KafkaTable, last: Pinned | None, clusters: Sequence[ClusterTopics]) -> Pinned:
        """How the next interval's records become records of the target; see `sluice.connectors.sink`.

        If the table is open for writing, this creates topics and registers schemas, as far as the pipeline allows it.

        Raises:
            ActionRequiredError: as for `Sink.pin`; or target topics are missing, or a schema can't be registered.
        """
        pinner = RecordPinner(self._pipeline, clusters, self._registries)
        jvm, options = self._while_open().jvm, self._options
        pinned = pinner.pin(_Known(table.writer, jvm), last.records if last else None)
        writer = pinned.writer
        fields = struct_of_ddl(jvm, writer.schema_ddl)["fields"]
        shape = self._shape(writer, fields)
        targets = written_topics(options.topic, topics_of(clusters))
        counts = bool(shape.key) and options.partitioner != "same"  # whether a key determines its partition
        known = table.written_to()
        by_key = targets if counts and options.tombstones else ()
        table.target.require_same(known, targets, by_key)
        takes = table.target.require(targets, create=table.writable)
        if counts and not by_key:
            table.target.require_same(known, targets, [topic for topic, one in takes.items() if one.keyed])
        keyed = [topic for topic, one in takes.items() if one.keyed]
        if keyed and not shape.key:
            raise ActionRequiredError(
                "The topic is compacted, which takes no record without a key, and the pipeline gives them none.",
                next_step=f"name the columns of the key in {self._pipeline.sink.place}.key_fields, or change the "
                "topic's cleanup.policy. Nothing was read.",
                topic=keyed[0],
                table=self._pipeline.table_id,
            )
        more: dict[str, Any] = {"takes": as_option(takes)}
        for part, encoder, names in (("key", options.key, shape.key), ("value", options.value, shape.value)):
            if names:
                struct = struct_of(fields, names)
                more[f"{part}_schema"] = self._schema(part, encoder, struct, targets, jvm, write=table.writable) or None
        return replace(pinned, writer=PinnedTopic.of(writer).model_copy(update=more).pinned_in(writer))

    def _schema(
        self, part: str, encoder: Encoder, struct: Type, targets: tuple[str, ...], jvm: HudiJvm, *, write: bool
    ) -> dict[str, Any]:
        place = f"{self._pipeline.sink.place}.{part}"
        return pinned_schema(
            part,
            encoder,
            struct,
            place=place,
            name=self._pipeline.table_name,
            targets=targets,
            jvm=jvm,
            registries=self._registries,
            write=write,
        )

    def _shape(self, writer: TableSpec, fields: Sequence[dict[str, Any]]) -> Shape:
        place = self._pipeline.sink.place
        types = {str(one["name"]): one["type"] for one in fields}
        try:
            pinned = PinnedTopic.of(writer)
            shape = shape_of(pinned, list(types))
            for part, names, encoder in (
                ("key", shape.key, pinned.key_encoder), ("value", shape.value, pinned.value_encoder)
            ):  # fmt: skip
                if names and encoder == "bytes" and types[names[0]] not in ("binary", "string"):
                    raise ValueError(f"{part}.encoder bytes writes a BINARY column, and {names[0]} is none")
                if names and encoder == "string" and not isinstance(types[names[0]], str):
                    raise ValueError(f"{part}.encoder string can't write {names[0]}, which has values inside of it")
            if shape.timestamp and types[shape.timestamp] not in ("timestamp", "timestamp_ntz", "date"):
                raise ValueError(f"timestamp names {shape.timestamp}, which is no TIMESTAMP")
            carried = types[shape.headers_from] if shape.headers_from else None
            if carried is not None and not (isinstance(carried, dict) and carried["type"] == "array"):
                raise ValueError(f"headers_from names {shape.headers_from}, which are no headers")
            nested = [column for column in shape.headers.values() if not isinstance(types[column], str)]
            if nested:
                raise ValueError(f"headers have one value each, and not what is in {', '.join(nested)}")
        except ValueError as error:
            raise ActionRequiredError(
                f"{place}: {error}.",
                next_step=f"correct {place}; the rows have {', '.join(sorted(types))}.",
                table=self._pipeline.table_id,
            ) from error
        return shape
