"""Where a pipeline's streams are: asks the metadata service, and makes the sources of the clusters that it names."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from sluice.connectors.metadata import MetadataService, mapping_by, metadata_service
from sluice.connectors.options import StreamsSettings
from sluice.connectors.source import OffsetSyncs, Source, mirror_reader
from sluice.coordinator.parts import Parts
from sluice.coordinator.sources import AT_ONCE, Sources
from sluice.errors import ActionRequiredError, RetryableError
from sluice.logs import log
from sluice.pipeline.model import Pipeline
from sluice.protocol.known_streams import KnownStreams
from sluice.protocol.mapping import ClusterAddress, Log, StreamMapping
from sluice.protocol.offsets import TopicPartition
from sluice.protocol.seen_streams import having_seen
from sluice.protocol.stream_identity import refuse_copied_ids, refuse_lost_address, refuse_two_names
from sluice.protocol.streams import Followed, Told, doubtful, follow, follow_without_answer


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

    def follow(self, known: KnownStreams | None, seen: Sequence[KnownStreams] = ()) -> tuple[Followed, Sources]:
        """What to read by what the service says now, and by what the last commit knew; and the clusters that have it.

        Args:
            known: the mapping of the last commit; None before the first.
            seen: the mappings that a watcher has seen since, oldest first.

        Raises:
            RetryableError: the service doesn't answer, and has not for as many intervals as `metadata_failures` allows.
            ActionRequiredError: its answer can't be followed; see `sluice.protocol.streams`.
        """
        table = self._pipeline.table_id
        service = metadata_service(self._settings.service, self._settings.service_options)
        try:
            mapping = mapping_by(
                service,
                self._settings,
                connection=self._pipeline.kafka_connection,
                starting=self._pipeline.source.options.starting_offsets,
                table=table,
            )
        except RetryableError as error:
            last = known
            known, remarks = self._having_seen(known, seen, StreamMapping())
            followed = follow_without_answer(known, self._settings.failures, str(error), table)
            of = self._clusters(followed.clusters)
            present = self._ids(of, None)
        else:
            of = self._clusters(mapping.clusters)
            present = self._ids(of, service)
            refuse_two_names(present, table)
            last = before = known.renamed(present) if known is not None else None
            before, remarks = self._having_seen(before, seen, mapping)
            followed = follow(before, mapping, self._settings.on_removed, table)
            of_removed = self._removed(followed, of)
            ids_of_removed = self._ids(of_removed, service, followed.missed)
            if before is not None:
                if any(ids_of_removed[name] in present.values() for name in ids_of_removed if not before.ids.get(name)):
                    before = before.identified(ids_of_removed).renamed(present)
                    last = last.identified(ids_of_removed).renamed(present) if last is not None else None
                    followed = follow(before, mapping, self._settings.on_removed, table)
                    of_removed = self._removed(followed, of)
                lost = followed.missed & before.lost(ids_of_removed).keys()
                ids_of_removed = {
                    name: cluster_id
                    for name, cluster_id in ids_of_removed.items()
                    if name in of_removed and name not in lost
                }
                refuse_lost_address(before, ids_of_removed, table)
            of |= of_removed
            present |= ids_of_removed
        skipped = sorted(of.keys() - present.keys())
        followed = _without(replace(followed, remarks=(*remarks, *followed.remarks)), skipped)
        source = self._pipeline.source.options
        own = {one.registry for one in (source.value, source.key) if one is not None and one.registry is not None}
        refuse_copied_ids(followed, own, table)
        for remark in followed.remarks:
            log.warning(remark, table=table)
        answering = {name: source for name, source in of.items() if name in present}
        followed = replace(followed, syncs=self._syncs(followed, answering))
        return followed, Sources(answering, followed.topics, skipped, doubtful(followed.known, last))

    def sources(self, known: KnownStreams) -> Sources:
        """The clusters that an interval reads as one source, by its START-COMMIT.

        Raises:
            ActionRequiredError: a cluster's connection is missing or wrong.
        """
        answered = {name: address for name, address in known.clusters.items() if name not in known.skipped}
        return Sources(self._clusters(answered), known.topics)

    def _having_seen(
        self, known: KnownStreams | None, seen: Sequence[KnownStreams], mapping: StreamMapping
    ) -> tuple[KnownStreams | None, tuple[str, ...]]:
        """See `sluice.protocol.seen_streams`; without clusters that this pipeline may not reach, with a remark."""
        remarks: dict[str, None] = {}
        allowed = []
        for one in seen:
            logs = {**one.logs}
            for name, address in one.clusters.items():
                if mapping.clusters.get(name) == address:
                    continue
                try:
                    self._require_allowed(name, address)
                    self._parts.kafka_of(name, address)
                except ActionRequiredError as error:
                    remarks[f"cluster {name} was mapped for a while, and is left out: {error}"] = None
                    logs.pop(name, None)
            allowed.append(one.model_copy(update={"logs": logs}))
        found, of_topics = having_seen(known, allowed, mapping, self._settings.on_removed, self._pipeline.table_id)
        return found, (*remarks, *of_topics)

    def _removed(self, followed: Followed, mapped: Collection[str]) -> dict[str, Source]:
        """The clusters that are read on, though the mapping has ceased to name them."""
        return self._clusters({name: at for name, at in followed.clusters.items() if name not in mapped})

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

    def _ids(
        self, clusters: Mapping[str, Source], service: MetadataService | None, missed: Collection[str] = ()
    ) -> dict[str, str | None]:
        """The clusters' own ids, without clusters that can't be read now and may be skipped.

        Args:
            clusters: the clusters to ask.
            service: says which may be asked; None if it doesn't answer.
            missed: clusters that the mapping has just ceased to name, which may be gone with reason.
        """

        def ask(name: str) -> dict[str, str | None]:
            try:
                if service is not None and not service.is_cluster_active(name):
                    raise RetryableError(
                        "The metadata service says that a cluster isn't active.",
                        next_step="the step is retried; `on_unreachable: skip` continues without the cluster.",
                        table=self._pipeline.table_id,
                        cluster=name,
                    )
                return Sources({name: clusters[name]}, lambda _name: ()).cluster_ids()
            except RetryableError as error:
                if not self._settings.skips_unreachable and name not in missed:
                    raise
                log.warning("a cluster can't be read, and is skipped", cluster=name, reason=str(error))
                return {}

        with ThreadPoolExecutor(AT_ONCE) as pool:
            return {name: cluster_id for found in pool.map(ask, clusters) for name, cluster_id in found.items()}

    def _clusters(self, addresses: Mapping[str, ClusterAddress]) -> dict[str, Source]:
        for name, address in sorted(addresses.items()):
            self._require_allowed(name, address)
        return {name: self._parts.cluster(name, address) for name, address in sorted(addresses.items())}

    def _require_allowed(self, name: str, address: ClusterAddress) -> None:
        source = self._pipeline.source.options
        own = {one.registry for one in (source.value, source.key) if one is not None}
        named = {address.connection, address.registry} - {None, self._pipeline.kafka_connection, *own}
        refused = sorted(one for one in named if one is not None and one not in self._settings.connections)
        if refused:
            raise ActionRequiredError(
                f"The mapping names the connection {refused[0]}, which this pipeline doesn't allow it to use.",
                next_step=f"add {refused[0]} to `mapped_connections` of the source if it is one of its clusters or "
                "registries, or correct the mapping.",
                table=self._pipeline.table_id,
                cluster=name,
            )


def _without(followed: Followed, skipped: Sequence[str]) -> Followed:
    known = followed.known.skipping(skipped)
    remarks = (
        f"cluster {name} isn't where it was, and is left out, since the mapping has just ceased to name it"
        if name in followed.missed
        else f"cluster {name} can't be read, and is skipped (on_unreachable: skip), for {known.skipped[name]} "
        "intervals now"
        for name in skipped
    )
    return replace(followed, known=known, remarks=(*followed.remarks, *remarks))
