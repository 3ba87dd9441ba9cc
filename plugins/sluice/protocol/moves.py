"""A topic's move to another log: the last offset of the old log, and the first one of the new log.

An interval reads both logs in one commit, the old one up to the cut and the new one from there on. With a mirror the
cut is a pair of corresponding offsets, as recorded by the mirror. MirrorMaker 2 translates a consumer's offset down to
the last pair before it, so that records are read twice; here the old log is read up to the next pair instead. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from itertools import pairwise

from sluice.errors import ActionRequiredError, RetryableError
from sluice.protocol.known_streams import KnownMove
from sluice.protocol.mapping import Log, Move
from sluice.protocol.offsets import Checkpoint, OffsetSync
from sluice.protocol.state import ClusterState, PartitionBounds
from sluice.protocol.streams import Followed, Told

_Bounds = Mapping[Log, Mapping[int, PartitionBounds]]


def exact_cut(told: Told, position: int) -> OffsetSync | None:
    """The first pair of offsets from a position on at which no record is read twice or skipped.

    The record at a pair's upstream offset has its copy at the downstream one. So reading may switch to the copy before
    that record, and after it as well. Pairs that run backwards, or are further apart in the copy, mean that the mirror
    has copied records again: the copy's earlier records are not the predecessors of its later ones.

    A transaction's marker after the last record has no copy. So the last pair goes for each offset up to the next
    record, or else a table that has read the marker, too, would wait for ever.

    Args:
        told: the mirror's offsets of one partition.
        position: the first offset of the old log that isn't read yet.
    """
    sound: list[OffsetSync] = []
    for sync in told.pairs:
        if sound and not _follows(sound[-1], sync):
            sound = []
        sound.append(sync)
    cuts = [OffsetSync(sync.upstream + more, sync.downstream + more) for sync in sound for more in (0, 1)]
    if sound and sound[-1].upstream < position <= told.next_record:
        cuts.append(OffsetSync(position, sound[-1].downstream + 1))
    return min((cut for cut in cuts if cut.upstream >= position), default=None)


def _follows(before: OffsetSync, sync: OffsetSync) -> bool:
    """Whether all between two pairs may be copies, each of one record: else others are there, or copies made again."""
    records, copies = sync.upstream - before.upstream, sync.downstream - before.downstream
    return records >= copies > 0 or sync == before


def settle_moves(
    followed: Followed, state: ClusterState, checkpoint: Checkpoint, now: datetime, table: str
) -> tuple[Followed, ClusterState]:
    """An interval's reads, with the cuts of moved topics decided.

    Cuts are decided for all partitions of a topic at once, by the first interval that can; its commit records them.

    Args:
        followed: the interval's reads, with unsettled moves.
        state: the clusters' present state.
        checkpoint: the table's checkpoint, with each cluster under its present name.
        now: the time.
        table: the table's name, for errors.

    Returns:
        The reads with all moves settled; and the state without topics that can't be started yet.

    Raises:
        RetryableError: the mirror hasn't recorded an offset yet at which a partition can be continued.
        ActionRequiredError: a topic can't be moved this way; nothing was started.
    """
    partitions: dict[Log, dict[int, PartitionBounds]] = {}
    for bounds in state.partitions:
        tp = bounds.topic_partition
        partitions.setdefault((tp.cluster, tp.topic), {})[tp.partition] = bounds
    unknown = {(tp.cluster, tp.topic) for tp in state.leaderless}
    waiting: set[Log] = set()
    for new, move in sorted(followed.moves.items()):
        _refuse_second_mirror(followed, new, move, table)
        if followed.known.logs.get(move.old[0], {}).get(move.old[1]) is None:
            followed = _never_read(followed, checkpoint, new, move, table)
        elif move.mirror == "none":
            followed = _drained(followed, new, move, now)
        elif {new, move.old} & unknown or {new[0], move.old[0]} & set(state.skipped):
            followed = _put_off(followed, new, move)
            waiting.add(new)
        else:
            followed = _cut(followed, partitions, checkpoint, new, move, table, state.topic_ids.get(new))
    if not waiting:
        return followed, state
    led = [b for b in state.partitions if b.topic_partition[:2] not in waiting]
    leaderless = [tp for tp in state.leaderless if tp[:2] not in waiting]
    topic_ids = {log: topic_id for log, topic_id in state.topic_ids.items() if log not in waiting}
    return followed, replace(state, partitions=led, leaderless=leaderless, topic_ids=topic_ids, waits=True)


def _in_words(log: Log) -> str:
    return f"{log[1]} of cluster {log[0]}"


def _never_read(followed: Followed, checkpoint: Checkpoint, new: Log, move: Move, table: str) -> Followed:
    """A new table has no position to continue from. A loaded one may have that log's rows, under an unknown name."""
    if checkpoint.is_known:
        raise ActionRequiredError(
            "The mapping moves a topic from one that the table doesn't know, so it can't continue from there.",
            next_step="map it where it was for one interval, and move it then; or take `moved_from` out if the table "
            "has never read it there.",
            table=table,
            cluster=move.old[0],
            topic=move.old[1],
            moved_to=_in_words(new),
        )
    remark = f"{_in_words(new)} was {_in_words(move.old)}, of which the table has no position to continue from"
    known = followed.known.with_move(
        new, KnownMove(cluster=move.old[0], topic=move.old[1], mirrored=move.mirror != "none")
    )
    return replace(followed, known=known, remarks=(*followed.remarks, remark))


def _refuse_second_mirror(followed: Followed, new: Log, move: Move, table: str) -> None:
    """Check that a topic's copies aren't forgotten."""
    known = followed.known.move_of(new)
    if known is not None and known.mirrored and known.old != move.old:
        raise ActionRequiredError(
            f"The topic continues from its mirror {_in_words(known.old)} already; the mapping moves it from another "
            "one now.",
            next_step="move it to a topic of another name.",
            table=table,
            cluster=new[0],
            topic=new[1],
            moved_from=_in_words(move.old),
        )


def _drained(followed: Followed, new: Log, move: Move, now: datetime) -> Followed:
    """Without a mirror each record is in one of the logs, and both are read."""
    known = followed.known.with_move(new, KnownMove(cluster=move.old[0], topic=move.old[1]))
    until = "where its log ends now"
    if move.drain_for is not None:
        old = followed.known.logs[move.old[0]][move.old[1]]
        ends = now + move.drain_for
        known = known.with_log(move.old, old.model_copy(update={"drains_until": ends}))
        until = f"where its log ends at {ends:%Y-%m-%d %H:%M} UTC"
    remark = f"{_in_words(new)} continues from {_in_words(move.old)}, which is read up to {until}"
    return replace(followed, known=known, remarks=(*followed.remarks, remark))


def _put_off(followed: Followed, new: Log, move: Move) -> Followed:
    old = followed.known.logs[move.old[0]][move.old[1]]
    known = followed.known.with_log(new, None).with_log(move.old, old.model_copy(update={"status": "missed"}))
    remark = f"{_in_words(new)} is taken up once all of it and of {_in_words(move.old)} can be asked"
    return replace(
        followed,
        known=known,
        to_confirm=followed.to_confirm - {move.old},
        remarks=(*followed.remarks, remark),
    )


def _cut(
    followed: Followed,
    partitions: _Bounds,
    checkpoint: Checkpoint,
    new: Log,
    move: Move,
    table: str,
    topic_id: str | None,
) -> Followed:
    """The old log to exact offsets, and the new one from there."""
    where = {"table": table, "cluster": new[0], "topic": new[1], "moved_from": _in_words(move.old)}
    topic = checkpoint.topic(*new)
    if topic is not None and topic.known:
        raise ActionRequiredError(
            "The table has already read the topic to which another is moved, so it has copies of that topic's records.",
            next_step="take `moved_from` out if it has no mirror; otherwise load the streams into a new table.",
            **where,
        )
    here, there = partitions.get(new, {}), partitions.get(move.old, {})
    if set(there) - set(here):
        raise ActionRequiredError(
            "The topic has fewer partitions than the one that it is moved from, so it can't be its mirror.",
            next_step="correct `moved_from`: MirrorMaker keeps partitions.",
            partitions=len(here),
            partitions_before=len(there),
            **where,
        )
    cuts: dict[int, OffsetSync] = {}
    for number, bounds in sorted(there.items()):
        told = followed.syncs.get(move.old, {}).get(number, Told())
        if not move.copies_only:
            _refuse_copied_again(told, number, where)
        position = max(checkpoint.end_of_settled(bounds.topic_partition), bounds.log_start)
        cut = exact_cut(told, position)
        if not told.pairs and position == bounds.log_start == bounds.end_of_records:
            cut = OffsetSync(position, here[number].log_start)  # there is nothing to copy; so it has no copies of it
        if cut is None:
            raise RetryableError(
                "The mirror hasn't recorded an offset yet at which the topic can be continued without reading a record "
                "twice.",
                next_step="let the mirror catch up; the step is retried. It records one for each hundred records and "
                "after the last; `sluice streams` shows how far it is.",
                partition=number,
                position=position,
                last_told=f"{told.pairs[-1].upstream} → {told.pairs[-1].downstream}" if told.pairs else None,
                **where,
            )
        _require_there(here[number], cut, where)
        cuts[number] = cut
    known = followed.known.logs[move.old[0]][move.old[1]]
    begins = {number: cut.downstream for number, cut in cuts.items()}
    settled = followed.known.with_move(
        new, KnownMove(cluster=move.old[0], topic=move.old[1], mirrored=True, begins=begins, topic_id=topic_id)
    ).with_log(
        move.old,
        known.model_copy(update={"status": "draining", "ends": {n: cut.upstream for n, cut in cuts.items()}}),
    )
    offsets = ", ".join(f"[{number}] {cut.upstream} → {cut.downstream}" for number, cut in cuts.items())
    remark = f"{_in_words(new)} continues from its mirror {_in_words(move.old)}, by offsets {offsets}"
    return replace(
        followed,
        known=settled,
        starting={**followed.starting, new: replace(followed.starting[new], starting=begins)},
        to_confirm=followed.to_confirm - {move.old},
        remarks=(*followed.remarks, remark),
    )


def _refuse_copied_again(told: Told, number: int, where: Mapping[str, object]) -> None:
    """Records that producers sent to the new topic may precede copies that were made again, and would be skipped."""
    for before, sync in pairwise(told.pairs):
        if not _follows(before, sync):
            raise ActionRequiredError(
                "The mirror has copied records again, or others have written to the new topic, so it isn't known what "
                "precedes the last copies.",
                next_step="set `moved_from.copies_only: true` if only the mirror has written to the new topic "
                "yet; else load the streams into a new table.",
                partition=number,
                told=f"{before.upstream} → {before.downstream}, then {sync.upstream} → {sync.downstream}",
                **where,
            )


def _require_there(bounds: PartitionBounds, cut: OffsetSync, where: Mapping[str, object]) -> None:
    """Check that the copies from the cut on are there."""
    if not bounds.log_start <= cut.downstream <= bounds.end_of_records:
        raise ActionRequiredError(
            "The offset recorded by the mirror isn't in the topic: its log was deleted from, or is another one.",
            next_step="move the stream to a new mirror, which begins at the table's position or before.",
            partition=bounds.topic_partition.partition,
            wanted=cut.downstream,
            log_start=bounds.log_start,
            log_end=bounds.log_end,
            **where,
        )


def refuse_unsettled_moves(followed: Followed, table: str) -> None:
    """Refuse a request that reads no interval onward while a topic is to be moved: only such a commit notes positions.

    Raises:
        ActionRequiredError: a topic is to be moved.
    """
    for new, move in followed.moves.items():
        raise ActionRequiredError(
            "A topic is to be moved first.",
            next_step="run one interval of the schedule; then make this request again.",
            table=table,
            cluster=new[0],
            topic=new[1],
            moved_from=_in_words(move.old),
        )


def refuse_keys_elsewhere(followed: Followed, table: str) -> None:
    """Refuse to move a topic under an upsert that finds keys by their partition: it would not find the old log's rows.

    Raises:
        ActionRequiredError: a topic is to be moved that the table has read.
    """
    for new, move in followed.moves.items():
        if move.old[1] in followed.known.logs.get(move.old[0], {}):
            raise ActionRequiredError(
                "An upsert finds a key's row by the log and the partition that it came from, so a topic can't be moved "
                "under it.",
                next_step="load the streams into a new table with the sink's `key_placement: hashed`, which finds keys "
                "wherever they come from; this table can be read until then.",
                table=table,
                cluster=new[0],
                topic=new[1],
                moved_from=_in_words(move.old),
            )
