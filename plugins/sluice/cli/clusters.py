"""The clusters of a pipeline as commands see them: where their topics are, and what these are called in rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from sluice.cli.places import connections, coordinator, settings
from sluice.pipeline import Pipeline
from sluice.protocol.identity import LogIds

if TYPE_CHECKING:
    from sluice.kafka.config import KafkaSettings
    from sluice.protocol.known_streams import KnownStreams
    from sluice.protocol.mapping import Log
    from sluice.protocol.quarantine import Quarantined


@dataclass(frozen=True)
class Clusters:
    """The clusters that the records are from.

    Attributes:
        settings: of each that is read, by its present name.
        streams: where streams are; None where the pipeline names topics of one cluster.
    """

    settings: Mapping[str, KafkaSettings]
    streams: KnownStreams | None = None

    @classmethod
    def read_by(cls, file: Path, pipeline: Pipeline) -> Clusters:
        """The clusters that a pipeline reads now; for streams the metadata service is queried."""
        if pipeline.source.options.streams_settings is None:
            kafka = settings(pipeline)[0]
            return cls({kafka.name: kafka})
        streams = coordinator(file).position().streams
        assert streams is not None
        of = connections(pipeline)
        return cls(
            {name: of(there.connection).at(name, there.bootstrap_servers) for name, there in streams.clusters.items()},
            streams,
        )

    @property
    def shown(self) -> list[str]:
        """The column of the cluster, where there may be several."""
        return ["cluster"] if self.streams is not None else []

    @property
    def ids(self) -> Mapping[str, str | None]:
        """Kafka's own ids of the clusters by their names, as far as they are known without asking."""
        return self.streams.ids if self.streams is not None else {}

    def of(self, record: Quarantined) -> str:
        """The present name of a record's cluster; its id, or nothing, for a cluster that is no longer known."""
        if self.streams is None:
            return next(iter(self.settings))
        log = self.log(record.topic)
        if log is not None:
            return log[0]
        names = {cluster_id: name for name, cluster_id in self.ids.items() if cluster_id}
        return names.get(record.log.cluster or "", record.log.cluster or "")

    def log(self, row_topic: str) -> Log | None:
        """The topic that has a name in rows; None if it isn't read any more."""
        if self.streams is None:
            return next(iter(self.settings)), row_topic
        return self._logs.get(row_topic)

    @cached_property
    def _logs(self) -> Mapping[str, Log]:
        return self.streams.logs_in_rows() if self.streams is not None else {}

    def row_topic(self, cluster: str, topic: str) -> str:
        """A topic's name in rows."""
        return topic if self.streams is None else self.streams.row_topic(topic, cluster, self.ids.get(cluster))

    def row_topic_of(self, text: str) -> str:
        """The same, of a topic as people write it: by its name in rows, or as cluster/topic."""
        if self.log(text) is not None:
            return text
        cluster, _, topic = text.partition("/")
        return self.row_topic(cluster, topic) if topic and cluster in self.settings else text

    def log_ids(self, logs: Iterable[Log]) -> LogIds:
        """Kafka's own ids of these logs as they are now."""
        from sluice.sources.kafka.cluster import KafkaCluster

        topics: dict[str, list[str]] = {}
        for cluster, topic in logs:
            topics.setdefault(cluster, []).append(topic)
        found = [KafkaCluster(self.settings[name]).log_ids(of) for name, of in sorted(topics.items())]
        return LogIds(
            {name: cluster_id for one in found for name, cluster_id in one.clusters.items()},
            {log: topic_id for one in found for log, topic_id in one.topics.items()},
        )
