"""Where a pipeline's streams are: asks the metadata service, and makes the sources of the clusters that it names."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from sluice.connectors.metadata import MetadataService, metadata_service
from sluice.connectors.options import StreamsSettings
from sluice.connectors.source import OffsetSyncs, Source, mirror_reader
from sluice.coordinator.parts import Parts
from sluice.coordinator.sources import AT_ONCE, Sources
from sluice.errors import RetryableError
from sluice.logs import log
from sluice.pipeline.model import Pipeline
from sluice.protocol.mapping import ClusterAddress, Log, Stream, StreamMapping, mapping_of, require_streams
from sluice.protocol.offsets import TopicPartition
from sluice.protocol.stream_identity import refuse_lost_address, refuse_two_names
from sluice.protocol.streams import Followed, KnownStreams, Told, follow, follow_without_answer


class Streams:
    """The streams of one pipeline.

    Args:
        pipeline: whose source names streams.
        settings: what it says of them.
        parts: makes the clusters' sources.
    """

    def __init__(self, pipeline: Pipeline, settings: StreamsSettings, parts: Parts) -> None:
        self._pipeline = pipeline
        self._settings = settings
        self._parts = parts

    def follow(self, known: KnownStreams | None) -> tuple[Followed, Sources]:
        """What to read by what the service says now, and by what the last commit knew; and the clusters that have it.

        Raises:
            RetryableError: the service doesn't answer, and has not for as many intervals as `metadata_failures` allows.
            ActionRequiredError: its answer can't be followed; see `sluice.protocol.streams`.
        """
        table = self._pipeline.table_id
        service = metadata_service(self._settings.service, self._settings.service_options)
        try:
            mapping = self._mapping(service)
        except RetryableError as error:
            followed = follow_without_answer(known, self._settings.failures, str(error), table)
            of = self._clusters(followed.clusters)
            present = self._ids(of, None)
        else:
            of = self._clusters(mapping.clusters)
            present = self._ids(of, service)
            refuse_two_names(present, table)
            before = known.renamed(present) if known is not None else None
            followed = follow(before, mapping, self._settings.on_removed, table)
            removed = {name: address for name, address in followed.clusters.items() if name not in of}
            of_removed = self._clusters(removed)
            of |= of_removed
            ids_of_removed = self._ids(of_removed, service)
            if before is not None:
                refuse_lost_address(before, ids_of_removed, table)
            present |= ids_of_removed
        skipped = sorted(of.keys() - present.keys())
        followed = _without(followed, skipped)
        for remark in followed.remarks:
            log.warning(remark, table=table)
        answering = {name: source for name, source in of.items() if name in present}
        followed = replace(followed, syncs=self._syncs(followed, answering))
        return followed, Sources(answering, followed.topics, skipped)

    def sources(self, known: KnownStreams) -> Sources:
        """The clusters that an interval reads as one source, by its START-COMMIT.

        Raises:
            ActionRequiredError: a cluster's connection is missing or wrong.
        """
        answered = {name: address for name, address in known.clusters.items() if name not in known.skipped}
        return Sources(self._clusters(answered), known.topics)

    def _syncs(self, followed: Followed, clusters: Mapping[str, Source]) -> dict[Log, Mapping[int, Told]]:
        """What mirrors tell of topics that are to be moved, as far as they answer; before their ends are asked for."""
        told: dict[Log, OffsetSyncs] = {}
        found: dict[Log, Mapping[int, Told]] = {}
        for move in followed.moves.values():
            if move.syncs is None or not {move.old[0], move.syncs[0]} <= clusters.keys():
                continue
            if move.syncs not in told:
                told[move.syncs] = mirror_reader(clusters[move.syncs[0]]).offset_syncs(move.syncs[1])
            pairs = told[move.syncs].get(move.old[1], {})
            after = {TopicPartition(*move.old, number): said[-1].upstream + 1 for number, said in pairs.items()}
            try:
                following = mirror_reader(clusters[move.old[0]]).next_records(after)
            except RetryableError as error:  # a partition without a leader, for which the move waits
                log.warning("it can't be said what follows the mirror's last offsets", reason=str(error))
                following = dict.fromkeys(after, 0)
            found[move.old] = {
                number: Told(said, following.get(TopicPartition(*move.old, number), sys.maxsize))
                for number, said in pairs.items()
            }
        return found

    def _ids(self, clusters: Mapping[str, Source], service: MetadataService | None) -> dict[str, str | None]:
        """The clusters' own ids, without those that can't be read now and may be skipped."""

        def ask(name: str) -> dict[str, str | None]:
            try:
                if service is not None and not service.is_cluster_active(name):
                    raise RetryableError(
                        "The metadata service says that a cluster isn't active.",
                        next_step="the step is retried; `on_unreachable: skip` goes on without the cluster.",
                        table=self._pipeline.table_id,
                        cluster=name,
                    )
                return Sources({name: clusters[name]}, lambda _name: ()).cluster_ids()
            except RetryableError as error:
                if not self._settings.skips_unreachable:
                    raise
                log.warning("a cluster can't be read, and is skipped", cluster=name, reason=str(error))
                return {}

        with ThreadPoolExecutor(AT_ONCE) as pool:
            return {name: cluster_id for found in pool.map(ask, clusters) for name, cluster_id in found.items()}

    def _clusters(self, addresses: Mapping[str, ClusterAddress]) -> dict[str, Source]:
        return {name: self._parts.cluster(name, address) for name, address in sorted(addresses.items())}

    def _mapping(self, service: MetadataService) -> StreamMapping:
        source = self._pipeline.source.options
        mapped = self._answer(service)
        return mapping_of(
            mapped,
            connection=self._pipeline.kafka_connection,
            starting=source.starting_offsets,
            table=self._pipeline.table_id,
        )

    def _answer(self, service: MetadataService) -> Mapping[str, Stream]:
        pattern = self._settings.pattern
        if pattern is not None:
            return {name: stream for name, stream in service.all_streams().items() if re.fullmatch(pattern, name)}
        found = service.describe_streams(self._settings.streams)
        require_streams(self._settings.streams, found, self._pipeline.table_id)
        return found


def _without(followed: Followed, skipped: Sequence[str]) -> Followed:
    known = followed.known.skipping(skipped)
    remarks = (
        f"cluster {name} can't be read, and is skipped (on_unreachable: skip), for {known.skipped[name]} intervals now"
        for name in skipped
    )
    return replace(followed, known=known, remarks=(*followed.remarks, *remarks))
