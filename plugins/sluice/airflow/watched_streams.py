"""Asks a pipeline's metadata service between its runs: an asset that Airflow's triggerer watches.

Each new mapping is noted in the control topic, for the next START (`sluice.protocol.seen_streams`), and is an event of
the asset, which starts a run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from airflow.sdk import Asset
from pydantic import TypeAdapter

from sluice.airflow import metrics
from sluice.airflow.connections import kafka_settings
from sluice.airflow.polling import PollingTrigger, as_text, of_text, watched
from sluice.connectors.metadata import mapping_by, metadata_service
from sluice.connectors.options import StreamsSettings
from sluice.control.continued import ContinuedReader
from sluice.control.reader import log_ends
from sluice.control.topic import ControlTopic
from sluice.errors import SluiceError
from sluice.logs import log
from sluice.pipeline.model import Pipeline
from sluice.protocol.known_streams import KnownStreams
from sluice.protocol.mapping import ClusterAddress, Log, Offsets
from sluice.protocol.messages import MappingSeen
from sluice.protocol.seen_streams import (
    MappingChange,
    WatchedStreams,
    as_seen,
    change,
    starting_at,
    starting_latest,
)

_OFFSETS: TypeAdapter[Offsets] = TypeAdapter(Offsets)


def streams_asset(pipeline: Pipeline, settings: StreamsSettings) -> Asset:
    """An asset whose events are changes of where the pipeline's streams are; nothing else updates it.

    Args:
        pipeline: the pipeline.
        settings: of its streams, with `watched_every`.
    """
    if settings.watched_every is None:
        raise ValueError("these streams aren't watched")
    trigger = StreamsTrigger(
        pipeline=pipeline.name,
        table=pipeline.table_id,
        table_name=pipeline.table_name,
        service=settings.service,
        service_options=settings.service_options,
        streams=list(settings.streams),
        pattern=settings.pattern,
        connection=pipeline.kafka_connection,
        mapped_connections=sorted(settings.connections),
        isolation=pipeline.source.options.read_isolation,
        starting_offsets=pipeline.source.options.starting_offsets,
        control_connection=pipeline.control.connection or pipeline.kafka_connection,
        control_topic=pipeline.control_topic,
        interval=settings.watched_every.total_seconds(),
    )
    return watched(f"{pipeline.name}.streams", trigger)


class StreamsTrigger(PollingTrigger[MappingChange]):
    """Sends an event for each change of the mapping.

    Args:
        pipeline: the pipeline's name.
        table: the table's id.
        table_name: the table's name, for metrics.
        service: the metadata service; see `sluice.connectors.metadata`.
        service_options: its options, as they are or as text (`as_text`).
        streams: ids of the streams; none where a pattern names them.
        pattern: a regular expression for whole ids.
        connection: the pipeline's connection, for clusters that name none.
        mapped_connections: further connections for the mapping to name.
        isolation: the isolation level of the topics' readers.
        starting_offsets: the pipeline's.
        control_connection: of the control topic's cluster.
        control_topic: the control topic.
        interval: the time between two questions, in seconds.
    """

    failed = "where the streams are can't be looked at"

    def __init__(
        self,
        *,
        pipeline: str,
        table: str,
        table_name: str,
        service: str,
        service_options: Mapping[str, Any] | str,
        streams: list[str],
        pattern: str | None,
        connection: str,
        mapped_connections: list[str],
        isolation: str,
        starting_offsets: Any,
        control_connection: str,
        control_topic: str,
        interval: float,
    ) -> None:
        super().__init__()
        self._pipeline, self._table, self._table_name = pipeline, table, table_name
        self._settings = StreamsSettings(
            tuple(streams),
            pattern,
            service,
            dict(of_text(service_options)),
            "drain",
            0,
            connections=frozenset(mapped_connections),
        )
        self._connection, self._isolation = connection, isolation
        self._starting = _OFFSETS.validate_python(of_text(starting_offsets))  # JSON has no numbers for keys
        self._control_connection, self._control_topic = control_connection, control_topic
        self._interval = interval
        self._watched = WatchedStreams(table)
        self._continued = ContinuedReader(control_topic)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """See `PollingTrigger`."""
        return self.path(), {
            "pipeline": self._pipeline,
            "table": self._table,
            "table_name": self._table_name,
            "service": self._settings.service,
            "service_options": as_text(dict(self._settings.service_options)),
            "streams": list(self._settings.streams),
            "pattern": self._settings.pattern,
            "connection": self._connection,
            "mapped_connections": sorted(self._settings.connections),
            "isolation": self._isolation,
            "starting_offsets": as_text(_OFFSETS.dump_python(self._starting, mode="json")),
            "control_connection": self._control_connection,
            "control_topic": self._control_topic,
            "interval": self._interval,
        }

    @property
    def pause(self) -> float:
        """See `PollingTrigger`."""
        return self._interval

    @property
    def where(self) -> dict[str, Any]:
        """See `PollingTrigger`."""
        return {
            "pipeline": self._pipeline,
            "service": self._settings.service,
            "control_topic": self._control_topic,
        }

    def payload(self, found: MappingChange) -> dict[str, Any]:
        """What came and what went."""
        return {"came": list(found.came), "went": list(found.went)}

    def look(self) -> MappingChange | None:
        """Ask the service, and note a new mapping; how it differs from the one before, None for no change.

        It calls Airflow, Kafka and the service.

        Raises:
            RetryableError: the service or the control topic's cluster doesn't answer in time.
            ActionRequiredError: the service contradicts itself, or a connection is missing.
        """
        self._read_on()
        service = metadata_service(self._settings.service, self._settings.service_options)
        mapping = mapping_by(
            service, self._settings, connection=self._connection, starting=self._starting, table=self._table
        )
        before = self._watched.known
        if before is not None and before.digest == mapping.digest:
            return None
        now = as_seen(mapping)
        self._note(starting_at(now, self._ends(starting_latest(now, before), now.clusters)))
        if before is None:
            return None
        found = change(before, now)
        log.info("the streams' mapping has changed", table=self._table, came=found.came, went=found.went)
        metrics.mapping_changed(self._pipeline, self._table_name)
        return found

    def _read_on(self) -> None:
        if self._continued.look(kafka_settings(self._control_connection)):
            self._watched = WatchedStreams(self._table)
        for batch in self._continued.batches():
            self._watched.extend(batch)

    def _ends(self, logs: Iterable[Log], of: Mapping[str, ClusterAddress]) -> dict[Log, dict[int, int]]:
        """The present ends of these topics, as far as their clusters answer and may be asked."""
        found: dict[Log, dict[int, int]] = {}
        for cluster, topic in logs:
            address = of[cluster]
            try:
                if address.connection not in {self._connection, *self._settings.connections}:
                    continue  # START says so
                settings = kafka_settings(address.connection).at(cluster, address.bootstrap_servers)
                ends = log_ends(settings, [topic], self._isolation)
            except SluiceError as error:
                log.warning("the topic's present end can't be noted", cluster=cluster, topic=topic, reason=str(error))
            else:
                found[cluster, topic] = {tp.partition: end for tp, end in ends.items()}
        return found

    def _note(self, now: KnownStreams) -> None:
        control = ControlTopic(kafka_settings(self._control_connection), self._control_topic)
        control.ensure()
        at = datetime.now(UTC)
        note = MappingSeen(
            table=self._table,
            transaction=f"{at:%Y%m%d%H%M%S%f}"[:17],
            epoch=0,
            dag_id=self._pipeline,
            run_id="watcher",
            sender="watcher",
            time=at,
            streams=now,
        )
        control.send(note)
