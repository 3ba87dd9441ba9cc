"""The streams as of the last commit: clusters, topics, moves. Its note and START-COMMIT contain them. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from sluice.protocol.identity import present_names
from sluice.protocol.mapping import ClusterAddress, Log, OffsetsOfTopic
from sluice.protocol.offsets import Checkpoint, TopicPartition
from sluice.untrusted import Untrusted


class KnownLog(Untrusted):
    """A topic as the last commit knew it.

    Attributes:
        status: `active`: the mapping named it; `missed`: the mapping of that interval didn't name it any more, for the
            first time, and it was read on; `draining`: it is read to `ends`, and then left.
        ends: where reading each partition ends for good: after the last record of its log, committed or not, when the
            removal was confirmed, or what `stopping_offsets` came to in the interval that first read it.
        streams: the streams that it belonged to.
        drains_until: when its log's end is queried, if it was moved away and is drained for a limited time.
        starting: where it starts if the table has never read it.
    """

    status: Literal["active", "missed", "draining"] = "active"
    ends: dict[int, int] = Field(default_factory=dict)
    streams: tuple[str, ...] = ()
    drains_until: datetime | None = None
    starting: OffsetsOfTopic = "earliest"


class KnownMove(Untrusted):
    """A topic whose reading continues from another log.

    Attributes:
        cluster: the old log's cluster.
        topic: the old log's topic.
        mirrored: whether it has copies of the old log's records, so that `begins` limits the reading of both.
        begins: by partition, its starting offset with a mirror: at the copy of the first record that isn't read from
            the old log, or after the copy of the last record that is.
        topic_id: the id of the log to which `begins` refers.
    """

    cluster: str
    topic: str
    mirrored: bool = False
    begins: dict[int, int] = Field(default_factory=dict)
    topic_id: str | None = None

    @property
    def old(self) -> Log:
        """The old log."""
        return self.cluster, self.topic


class KnownStreams(Untrusted):
    """The mapping by which the last commit was planned, as recorded in the commit's note.

    Attributes:
        digest: of the mapping's answer.
        clusters: the addresses of clusters with topics to read.
        logs: the topics that were read, by cluster and topic.
        ids: the clusters' own ids by their names, as far as they have any.
        skipped: by cluster, how many consecutive intervals it has not answered, of those with anything to note.
        failures: how many consecutive intervals have reused this mapping because the service didn't answer.
        prefixes: by a cluster's own id, or by its name where it has none, the prefix of its topics' names in rows.
        They outlive names: keys of an upsert are found by them. Empty for a cluster that the table read before it
            followed streams.
        moves: by cluster and topic, its previous log. Kept for ever: mirrored records must not be read twice.
    """

    digest: str = ""
    clusters: dict[str, ClusterAddress] = Field(default_factory=dict)
    logs: dict[str, dict[str, KnownLog]] = Field(default_factory=dict)
    ids: dict[str, str | None] = Field(default_factory=dict)
    skipped: dict[str, int] = Field(default_factory=dict)
    failures: int = 0
    prefixes: dict[str, str] = Field(default_factory=dict)
    moves: dict[str, dict[str, KnownMove]] = Field(default_factory=dict)

    def renamed(self, present: Mapping[str, str | None]) -> KnownStreams:
        """The same, with each cluster under the name that it has now, by its own id.

        Args:
            present: the ids of the mapping's clusters by their names.
        """
        names = present_names(self.ids, present, one_place=False)

        def now(of: Mapping[str, Any]) -> dict[str, Any]:
            return {names.get(name, name): said for name, said in of.items()}

        def of_moves(name: str) -> str:
            """A name reused by another cluster doesn't refer to the old cluster, whose topics were moved away."""
            was, is_now = self.ids.get(name), present.get(names.get(name, name))
            return was if was and is_now and was != is_now else names.get(name, name)

        by_name = {what: now(getattr(self, what)) for what in ("clusters", "ids", "skipped")}
        by_name["logs"] = {}
        for name, topics in self.logs.items():  # two names may turn out to be one cluster's
            by_name["logs"].setdefault(names.get(name, name), {}).update(topics)
        by_name["moves"] = {
            of_moves(name): {
                topic: move.model_copy(update={"cluster": of_moves(move.cluster)}) for topic, move in moves.items()
            }
            for name, moves in self.moves.items()
        }
        return self.model_copy(update=by_name)

    def identified(self, ids: Mapping[str, str | None]) -> KnownStreams:
        """The same, with the ids of clusters without a known id, such as clusters skipped ever since they were mapped.

        Args:
            ids: the clusters' own ids by the names that they have here.
        """
        return self.model_copy(update={"ids": {**ids, **{name: of for name, of in self.ids.items() if of}}})

    def lost(self, present: Mapping[str, str | None]) -> dict[str, str]:
        """The clusters that were replaced: by their names the ids of the other clusters now at their addresses.

        Args:
            present: the ids of the present clusters, by their names here.
        """
        return {name: of for name, of in present.items() if of and self.ids.get(name) and self.ids[name] != of}

    def named(self, present: Mapping[str, str | None], before: Checkpoint) -> KnownStreams:
        """The same, with a prefix for each cluster that has none yet.

        Args:
            present: the clusters' own ids by their present names.
            before: the table's checkpoint, with each cluster under its present name. It is used only if no mapping was
            known: its positions then were read without streams.
        """
        prefixes = dict(self.prefixes)
        if not prefixes:
            loaded = {name: known for name, known in before.clusters.items() if known.is_known}
            prefixes = {present.get(name) or known.cluster_id or name: "" for name, known in loaded.items()}
        for name, cluster_id in sorted(present.items()):
            is_anothers = f"{name}/" in prefixes.values()
            prefixes.setdefault(cluster_id or name, f"{cluster_id}/" if is_anothers else f"{name}/")
        ids = {name: present.get(name, self.ids.get(name)) for name in (*self.logs, *self._moved)}
        return self.model_copy(update={"prefixes": prefixes, "ids": ids})

    @property
    def _moved(self) -> set[str]:
        """The clusters that topics were moved from or to, whose names may be others' some day."""
        return {*self.moves, *(move.cluster for moves in self.moves.values() for move in moves.values())}

    def row_topic(self, topic: str, cluster: str, cluster_id: str | None) -> str:
        """A topic's name in rows, which no other cluster's topic has."""
        return f"{self.prefixes[cluster_id or cluster]}{topic}"

    def logs_in_rows(self) -> dict[str, Log]:
        """The topics that are read without an end, by their names in rows."""
        return {
            self.row_topic(topic, cluster, self.ids.get(cluster)): (cluster, topic)
            for (cluster, topic), known in self.items()
            if known.status != "draining" and not known.ends and (self.ids.get(cluster) or cluster) in self.prefixes
        }

    def differs_from(self, before: KnownStreams | None) -> bool:
        """Whether there is something to note of it even where no record is read."""
        if before is None or set(self.skipped) != set(before.skipped):
            return True
        return self.model_copy(update={"failures": before.failures, "skipped": before.skipped}) != before

    def skipping(self, clusters: Collection[str]) -> KnownStreams:
        """The same, without clusters that don't answer in this interval."""
        return self.model_copy(update={"skipped": {name: self.skipped.get(name, 0) + 1 for name in sorted(clusters)}})

    def without_drained(self, checkpoint: Checkpoint) -> tuple[KnownStreams, tuple[Log, ...]]:
        """The same, without fully drained topics, whose clusters may have been shut down; and these topics.

        Args:
            checkpoint: the checkpoint of the commit that noted this, with each cluster under its name here.
        """
        drained = tuple(log for log, known in self.items() if _is_drained(log, known, checkpoint))
        left = self
        for log in drained:
            left = left.with_log(log, None)
        clusters = {name: address for name, address in self.clusters.items() if name in left.logs}
        return left.model_copy(update={"clusters": clusters}), drained

    def topics(self, cluster: str) -> tuple[str, ...]:
        """The topics that are read of a cluster."""
        return tuple(sorted(self.logs.get(cluster, {})))

    def move_of(self, log: Log) -> KnownMove | None:
        """Where a topic was before, if it was moved."""
        return self.moves.get(log[0], {}).get(log[1])

    def mirrored_in(self, log: Log) -> Log | None:
        """Where a topic's records are copied that was moved away; None if it wasn't, or has no mirror."""
        return next(
            (
                (cluster, topic)
                for cluster, moves in self.moves.items()
                for topic, move in moves.items()
                if move.mirrored and move.old == log
            ),
            None,
        )

    def with_move(self, new: Log, move: KnownMove) -> KnownStreams:
        """The same, with a topic that was moved."""
        moves = {**self.moves, new[0]: {**self.moves.get(new[0], {}), new[1]: move}}
        return self.model_copy(update={"moves": moves})

    def with_log(self, log: Log, known: KnownLog | None) -> KnownStreams:
        """The same, with a topic in this state; without it for None."""
        topics = {name: said for name, said in self.logs.get(log[0], {}).items() if name != log[1]}
        if known is not None:
            topics[log[1]] = known
        logs = {name: said for name, said in self.logs.items() if name != log[0]}
        return self.model_copy(update={"logs": {**logs, log[0]: topics} if topics else logs})

    def items(self) -> Iterable[tuple[Log, KnownLog]]:
        """Each topic with its cluster's name."""
        return (((cluster, topic), known) for cluster, topics in self.logs.items() for topic, known in topics.items())


def _is_drained(log: Log, known: KnownLog, checkpoint: Checkpoint) -> bool:
    ends = {TopicPartition(*log, partition): end for partition, end in known.ends.items()}
    decided = known.status == "draining" and known.drains_until is None and bool(ends)
    return decided and all((checkpoint.next_offset(tp) or 0) >= end for tp, end in ends.items())
