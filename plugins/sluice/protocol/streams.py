"""How an interval follows streams whose mapping has changed since the last commit.

An interval is planned anew each time, so START fetches the mapping once, and START-COMMIT and the commit record it.
Changes are the difference from the mapping of the last commit. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal

from sluice.errors import ActionRequiredError, RetryableError
from sluice.protocol.identity import LogId
from sluice.protocol.known_streams import KnownLog, KnownStreams
from sluice.protocol.mapping import ClusterAddress, Log, MappedLog, Move, StreamMapping
from sluice.protocol.offsets import Checkpoint, OffsetSync, TopicPartition
from sluice.protocol.state import ClusterState, PartitionBounds

OnRemoved = Literal["drain", "fail", "drop"]


@dataclass(frozen=True)
class Told:
    """A mirror's offsets of a partition that it copies.

    Attributes:
        pairs: corresponding offsets, in the order of the mirror's records.
        next_record: the offset of the first record to copy after the last pair's; beyond all offsets if there was none.
    """

    pairs: Sequence[OffsetSync] = ()
    next_record: int = 0


@dataclass(frozen=True)
class Followed:
    """An interval's reads, by the mapping and the last commit.

    Attributes:
        known: the note for this interval's commit.
        starting: each topic's starting offsets if the table has never read it; without topics removed from the mapping.
        to_confirm: topics removed from the mapping, whose logs' ends `ends` has to find.
        moves: topics with an unsettled move from another log; see `protocol.moves`.
        syncs: the mirror's offsets, by mirrored topic and partition.
        remarks: one sentence for each change, for people.
    """

    known: KnownStreams
    starting: Mapping[Log, MappedLog]
    to_confirm: frozenset[Log] = frozenset()
    moves: Mapping[Log, Move] = field(default_factory=dict)
    syncs: Mapping[Log, Mapping[int, Told]] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()

    @property
    def clusters(self) -> Mapping[str, ClusterAddress]:
        """How each cluster is reached that has something to read."""
        return self.known.clusters

    @property
    def missed(self) -> frozenset[str]:
        """The clusters that this mapping is the first to leave without topics."""
        logs = self.known.logs.items()
        return frozenset(name for name, topics in logs if all(log.status == "missed" for log in topics.values()))

    def topics(self, cluster: str) -> tuple[str, ...]:
        """The topics that are read of a cluster."""
        return self.known.topics(cluster)

    def having_drained(self, logs: Iterable[Log]) -> Followed:
        """The same, with a remark on each topic that isn't read any more."""
        left = [log for log in logs if log[1] not in self.known.logs.get(log[0], {})]
        return replace(self, remarks=(*self.remarks, *map(_drained_in_words, left)))


def _drained_in_words(log: Log) -> str:
    return f"{log[1]} of cluster {log[0]} is drained, and is not read any more"


def follow(known: KnownStreams | None, mapping: StreamMapping, on_removed: OnRemoved, table: str) -> Followed:
    """An interval's reads under this mapping.

    A topic removed from the mapping is still read until a second interval's answer confirms it: services may lose
    streams for a moment (FLINK-39837). Then it is drained up to its log's end at that time, or dropped, or the run
    fails, by `on_removed`. Its log ends after the last record, committed or not: a transaction that is open then may
    commit later. Its position stays in the table's checkpoint in any case, so that reading continues there if it is
    mapped again.

    Args:
        known: the mapping of the last commit; None before the first.
        mapping: the metadata service's answer.
        on_removed: what to do with unread records of removed topics.
        table: the table's name, for errors.

    A topic that was moved away is drained at once: the mapping states the move, it isn't inferred from a missing topic.

    Raises:
        ActionRequiredError: a topic was removed, and `on_removed` is `fail`; or it was moved away with a mirror, and is
            mapped again.
    """
    before = known or KnownStreams()
    _refuse_mirrored(before, mapping, table)
    logs: dict[str, dict[str, KnownLog]] = {}
    said = {log: mapped.move for log, mapped in mapping.logs.items() if mapped.move is not None}
    moved_away = {move.old for move in said.values()}
    moves = {log: move for log, move in said.items() if not _is_settled(before, log, move)}
    remarks = []
    for (cluster, topic), mapped in sorted(mapping.logs.items(), key=lambda item: item[0]):
        seen = before.logs.get(cluster, {}).get(topic)
        stays = seen is not None and seen.status != "draining" and mapped.stopping == "latest"
        logs.setdefault(cluster, {})[topic] = KnownLog(
            streams=mapped.streams,
            ends=seen.ends if seen is not None and stays else mapped.ends,
            starting=mapped.starting,
        )
    clusters = dict(mapping.clusters)
    to_confirm = set()
    for (cluster, topic), was in sorted(before.items(), key=lambda item: item[0]):
        if (cluster, topic) in mapping.logs:
            continue
        name = f"{topic} of cluster {cluster}"
        if was.status == "draining" and (on_removed != "drop" or (cluster, topic) in moved_away):
            now = was
        elif (cluster, topic) in moved_away:
            now = was.model_copy(update={"status": "draining"})
            to_confirm.add((cluster, topic))
        elif was.status == "active":
            now = was.model_copy(update={"status": "missed"})
            remarks.append(f"{name} isn't in the mapping any more; it is read on until the next answer says so, too")
        elif on_removed == "fail":
            raise ActionRequiredError(
                "A topic was removed from the mapping, and on_removed is fail.",
                next_step="map it again, or set the source's `on_removed` to drain or drop.",
                table=table,
                cluster=cluster,
                topic=topic,
            )
        elif on_removed == "drop":
            remarks.append(f"{name} was removed from the mapping; its unread records are skipped (on_removed: drop)")
            continue
        else:
            now = was.model_copy(update={"status": "draining"})
            to_confirm.add((cluster, topic))
            remarks.append(f"{name} was removed from the mapping; it is read up to where its log ends now")
        logs.setdefault(cluster, {})[topic] = now
        clusters.setdefault(cluster, before.clusters[cluster])
    return Followed(
        before.model_copy(update={"digest": mapping.digest, "clusters": clusters, "logs": logs, "failures": 0}),
        mapping.logs,
        frozenset(to_confirm),
        moves,
        remarks=tuple(remarks),
    )


def _is_settled(before: KnownStreams, log: Log, move: Move) -> bool:
    """Whether the move is in the last commit. One without a mirror is made anew if its old topic was mapped since."""
    known, old = before.move_of(log), before.logs.get(move.old[0], {}).get(move.old[1])
    if known is None or known.old != move.old:
        return False
    return known.mirrored or old is None or old.status == "draining"


def _refuse_mirrored(before: KnownStreams, mapping: StreamMapping, table: str) -> None:
    for log in sorted(mapping.logs):
        copies = before.mirrored_in(log)
        if copies is not None:
            raise ActionRequiredError(
                "A topic that was moved away is mapped again, but its records are copied to where it was moved to, "
                "and are read there.",
                next_step="take it out of what the metadata service says; a stream is moved back as a topic of another "
                "name.",
                table=table,
                cluster=log[0],
                topic=log[1],
                moved_to=" of cluster ".join(reversed(copies)),
            )


def doubtful(known: KnownStreams, before: KnownStreams | None) -> frozenset[str]:
    """The skipped clusters that the last commit's time of completeness doesn't cover.

    A name means the last commit's cluster only as long as its address is the same; the cluster at another address is
    identified when it answers. And a topic that wasn't read then, or only up to a stopping offset, may have records of
    any time.

    Args:
        known: the interval's mapping.
        before: the mapping of the last commit, with each cluster under its present name; None before the first.
    """
    was = before or KnownStreams()
    return frozenset(
        name
        for name in known.skipped
        if not _is_at(known.clusters[name], was.clusters.get(name))
        or any(_may_have_more(log, was.logs.get(name, {}).get(topic)) for topic, log in known.logs[name].items())
    )


def _is_at(now: ClusterAddress, was: ClusterAddress | None) -> bool:
    return was is not None and (now.connection, now.bootstrap_servers) == (was.connection, was.bootstrap_servers)


def _may_have_more(now: KnownLog, was: KnownLog | None) -> bool:
    return was is None or now.ends != was.ends


def bounded(
    followed: Followed, state: ClusterState, checkpoint: Checkpoint, now: datetime, *, in_order: bool = False
) -> tuple[Followed, ClusterState]:
    """Clip each partition to its stopping offset, and to its start after a move.

    Args:
        followed: the interval's reads.
        state: the clusters' present state.
        checkpoint: the table's checkpoint, with each cluster under its present name.
        now: the time, for topics that are drained for a limited time.
        in_order: whether a moved topic is read only after all of its old log is in the table: a row deleted in one
            could otherwise come back by a record of the other.

    Returns:
        The reads with newly found ends and without drained topics; and each partition's window up to its end.
    """
    of_log: dict[Log, list[PartitionBounds]] = {}
    for bounds in state.partitions:
        of_log.setdefault((bounds.topic_partition.cluster, bounds.topic_partition.topic), []).append(bounds)
    unknown = {(tp.cluster, tp.topic) for tp in state.leaderless}
    unknown |= {log for log, _ in followed.known.items() if log[0] in state.skipped}
    logs: dict[str, dict[str, KnownLog]] = {}
    ends: dict[TopicPartition, int] = {}
    remarks = list(followed.remarks)
    for log, known in followed.known.items():
        here = of_log.get(log, [])
        mapped = followed.starting.get(log)
        waits = known.drains_until is not None and now < known.drains_until
        to_confirm = not waits and (log in followed.to_confirm or known.drains_until is not None)
        if to_confirm and log in unknown:  # confirmed once all of its partitions answer
            known = known.model_copy(update={} if known.drains_until else {"status": "missed"})
        elif to_confirm or (here and mapped and mapped.stopping == "latest" and not known.ends):
            ends_now = {b.topic_partition.partition: b.end_of_records for b in here}
            ends_now = {number: min(end, known.ends.get(number, end)) for number, end in ends_now.items()}
            known = known.model_copy(update={"ends": ends_now, "drains_until": None})
        found = {TopicPartition(*log, partition): end for partition, end in known.ends.items()}
        is_ending = known.status == "draining" and known.drains_until is None and log not in unknown
        held_back = sorted(b.topic_partition for b in here if _is_held_back(b, found))
        remarks += [f"{tp}: an open Kafka transaction holds back records before its end" for tp in held_back]
        is_copied = followed.known.mirrored_in(log) is not None
        to_read = [b for b in here if b.topic_partition in found or not is_copied]
        is_cut_off = not is_copied and _is_cut_off(to_read, state)
        if is_ending and not is_cut_off and all(_is_read(b, found, checkpoint) for b in to_read):
            remarks.append(_drained_in_words(log))
            continue
        ends |= found
        logs.setdefault(log[0], {})[log[1]] = known
    clusters = {name: address for name, address in followed.known.clusters.items() if name in logs}
    known_now = followed.known.model_copy(update={"logs": logs, "clusters": clusters})
    waiting = {log for log, _ in known_now.items() if in_order and _is_waiting(log, known_now)}
    read = [
        _within(b, known_now, state, ends.get(b.topic_partition), checkpoint.next_offset(b.topic_partition))
        for b in state.partitions
        if b.topic_partition.topic in logs.get(b.topic_partition.cluster, {}) and b.topic_partition[:2] not in waiting
    ]
    remarks += [f"{log[1]} of cluster {log[0]} waits until all of where it was is read" for log in sorted(waiting)]
    leaderless = [tp for tp in state.leaderless if tp[:2] not in waiting]
    waits = state.waits or bool(waiting)
    return (
        replace(followed, known=known_now, remarks=tuple(remarks)),
        replace(state, partitions=read, leaderless=leaderless, waits=waits),
    )


def _is_waiting(log: Log, known: KnownStreams) -> bool:
    """Whether a topic continues from one that is still being read."""
    move = known.move_of(log)
    return move is not None and move.topic in known.logs.get(move.cluster, {})


def _is_cut_off(partitions: Iterable[PartitionBounds], state: ClusterState) -> bool:
    """Whether an election has replaced records: the new ones are below the position, and yet not read."""
    return any(b.topic_partition in state.truncated for b in partitions)


def _is_held_back(bounds: PartitionBounds, ends: Mapping[TopicPartition, int]) -> bool:
    """Whether an open transaction has, or holds back, records before a partition's end."""
    return bounds.log_end < min(ends.get(bounds.topic_partition, -1), bounds.end_of_records)


def _is_read(bounds: PartitionBounds, ends: Mapping[TopicPartition, int], checkpoint: Checkpoint) -> bool:
    end = ends.get(bounds.topic_partition, bounds.end_of_records)
    position = checkpoint.next_offset(bounds.topic_partition)
    return max(bounds.log_start, bounds.log_start if position is None else position) >= end


def _within(
    bounds: PartitionBounds, known: KnownStreams, state: ClusterState, end: int | None, position: int | None
) -> PartitionBounds:
    """The partition's bounds, clipped to its stopping offset, and to its start after a move.

    With a mirror these are the log's bounds for every kind of request: a backfill beyond them would read copies of
    records that the table has.
    """
    tp = bounds.topic_partition
    log = tp.cluster, tp.topic
    move = known.move_of(log)
    is_another = move is not None and LogId(topic=move.topic_id).other_than(LogId(topic=state.topic_ids.get(log)))
    if move is not None and tp.partition in move.begins and not is_another:
        start = max(bounds.log_start, move.begins[tp.partition])
        bounds = replace(bounds, log_start=start, window_start=max(bounds.window_start, start))
    is_copied = known.mirrored_in(log) is not None
    if end is None and not is_copied:
        return bounds
    if end is not None and position is not None and position >= end:  # whatever retention takes now is in the table
        window_end = min(position, bounds.log_end)  # an election may have truncated the log below the position
        if is_copied:
            bounds = _cut_off_at(bounds, position)
        return replace(bounds, log_start=min(bounds.log_start, position), window_end=window_end)
    end = bounds.log_start if end is None else max(end, bounds.log_start)  # a partition that was added since is copied
    if is_copied:
        bounds = _cut_off_at(bounds, end)
    return replace(bounds, window_end=min(bounds.window_end, end))


def _cut_off_at(bounds: PartitionBounds, end: int) -> PartitionBounds:
    """The bounds of a log that ends here: later records, committed or not, are read as copies elsewhere."""
    return replace(bounds, log_end=min(bounds.log_end, end), high_watermark=min(bounds.high_watermark, end))


def follow_without_answer(known: KnownStreams | None, most: int, reason: str, table: str) -> Followed:
    """The reads while the metadata service doesn't answer: the last commit's, for a limited number of intervals.

    Args:
        known: the mapping of the last commit; None before the first.
        most: for how many intervals in a row that may be.
        reason: why there is no answer.
        table: the table's name, for errors.

    Raises:
        RetryableError: there is no such mapping, or it has served for as many intervals as it may.
    """
    if known is None or not known.digest or known.failures >= most:
        served = (
            f"; the last answer has served {known.failures} intervals" if known is not None and known.failures else ""
        )
        raise RetryableError(
            f"The metadata service didn't say where the streams are{served}.",
            next_step="look at the service; the step is retried. The source's `metadata_failures` says how many "
            "intervals may continue with the last answer.",
            table=table,
            reason=reason,
        )
    again = known.model_copy(update={"failures": known.failures + 1})
    remark = f"the metadata service doesn't answer ({reason}); this is interval {again.failures} with its last answer"
    starting = {log: MappedLog(known_log.starting, streams=known_log.streams) for log, known_log in again.items()}
    return Followed(again, starting, remarks=(remark,))
