"""Intervals that a restore, or a roll-back by others, took off the table: what is read again, and what isn't. Pure.

The timeline is the truth about commits. The control topic still has the ACK-COMMIT of such an interval, and that is
how it is found.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sluice.protocol import coverage
from sluice.protocol.identity import Topic, present_names
from sluice.protocol.messages import PlannedRange
from sluice.protocol.offsets import Checkpoint, OffsetRange, TopicPartition, in_words
from sluice.protocol.plan import IntervalPlan
from sluice.protocol.redriven import Place, Places
from sluice.protocol.state import ClusterState
from sluice.protocol.transaction import State, TableLog, Transaction


def taken_back(table_log: TableLog, standing: Collection[int]) -> tuple[Transaction, ...]:
    """The intervals that the control topic calls committed, and of which the table has no commit.

    Args:
        table_log: the topic's messages, from the oldest of `standing` on.
        standing: the control-topic offsets of the STARTs of the table's last commits.
    """
    return tuple(
        t
        for t in table_log.transactions.values()
        if t.state is State.COMMITTED and t.start.policy.has_instant and t.start_offset not in standing
    )


@dataclass(frozen=True)
class TakenBack:
    """Such intervals, against the table as it is now.

    Attributes:
        intervals: the intervals.
        checkpoint: the table's, with each cluster under its present name.
        state: of the clusters.
        one_place: see `present_names`.
    """

    intervals: Sequence[Transaction]
    checkpoint: Checkpoint
    state: ClusterState
    one_place: bool

    def remarks(self, plan: IntervalPlan, since: int, *, by_cluster: bool) -> tuple[str, ...]:
        """Sentences for people on an interval that reads on.

        Args:
            plan: what it reads.
            since: the control-topic offset of the last commit's START: later intervals haven't been mentioned yet.
            by_cluster: see `in_words`.
        """
        new = [t for t in self.intervals if t.start_offset > since]
        said = []
        if new:
            said.append(
                f"{len(new):,} committed intervals ({new[0].id} to {new[-1].id}) are not in the table any more, by a "
                "restore or a roll-back: reading continues from the table's present offsets"
            )
            said += [
                f"with {t.id} the replay of {t.start.replays} is not in the table any more: if that interval is, its "
                "rows are those of the first reading again"
                for t in new
                if t.start.replays is not None
            ]
        left_out = self.passed_over_again(since)
        if left_out:
            said.append(
                "offsets that a run had loaded although they were passed over are passed over again: "
                f"{in_words(left_out, by_cluster=by_cluster)}: load them by a run for these offsets (`range`) if they "
                "are to be in the table"
            )
        unread = self.not_read_again(plan)
        if unread:
            said.append(
                f"of such intervals the schedule does not read {in_words(unread, by_cluster=by_cluster)} again: load "
                "them by a run for these offsets (`range`), or pass over them"
            )
        again = list(_both(self._pieces(p for t in self.intervals for p in self._named(t, t.start.passed_over)), plan))
        if again:
            said.append(
                f"offsets are read that had been passed over before the table was restored: "
                f"{in_words(again, by_cluster=by_cluster)}"
            )
        return tuple(said)

    def not_read_again(self, plan: IntervalPlan) -> list[OffsetRange]:
        """Offsets that the intervals had read, and that are before the positions from which the schedule reads on.

        A backfill's, for instance; or those of a topic that the restored table doesn't know, and that is read from
        its end on.
        """
        starts = {r.topic_partition: r.start for r in (*plan.offset_ranges, *plan.idle)}
        read = (p for t in self.intervals for p in self._named(t, _read_by(t)))
        found = []
        for piece in self._pieces(read):
            end = min(piece.end, starts.get(piece.topic_partition, piece.end))
            if piece.start < end:
                found.append(OffsetRange(piece.topic_partition, piece.start, end))
        return found

    def passed_over_again(self, since: int) -> list[OffsetRange]:
        """Offsets that intervals had loaded, and that the table, as it is now, passes over: nothing reads them again.

        Args:
            since: see `remarks`.
        """
        read = (p for t in self.intervals if t.start_offset > since for p in self._named(t, _read_by(t)))
        found = []
        for tp, spans in _whole(read):
            covered, settled = self.checkpoint.covered(tp), self.checkpoint.settled(tp)
            for span in spans:
                for start, end in coverage.missing(covered, *span):
                    in_neither = coverage.missing(settled, start, end)
                    found += [OffsetRange(tp, *piece) for piece in coverage.missing(in_neither, start, end)]
        return found

    def sent_again(self, plan: IntervalPlan, places: Places) -> list[Place]:
        """Records that these intervals set aside, that were sent again since, and that the plan reads at both places.

        Args:
            plan: what is read.
            places: the places of records that were sent again.
        """
        set_aside = [t for t in self.intervals if any(s.records_quarantined for s in t.statuses)]
        read = _both(self._pieces(p for t in set_aside for p in self._named(t, _read_by(t))), plan)
        return places.within(read, self.state.topic_ids)

    def _named(self, t: Transaction, ranges: Iterable[PlannedRange]) -> Iterator[OffsetRange]:
        """An interval's ranges under the clusters' present names, without those of topics that were made again."""
        names = present_names(t.start.cluster_ids, self.state.cluster_ids, one_place=self.one_place)
        ids: Mapping[Topic, str | None] = self.state.topic_ids
        for r in ranges:
            tp = TopicPartition(names.get(r.cluster, r.cluster), r.topic, r.partition)
            before, now = t.start.topic_ids.get(r.cluster, {}).get(r.topic), ids.get(tp[:2])
            if before is None or now is None or before == now:
                yield OffsetRange(tp, r.start, r.end)

    def _pieces(self, ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
        """The parts of ranges that the table neither has nor passes over, each offset once."""
        return [
            OffsetRange(tp, *piece)
            for tp, spans in _whole(ranges)
            for start, end in spans
            for piece in coverage.missing(self.checkpoint.settled(tp), start, end)
        ]


def _whole(ranges: Iterable[OffsetRange]) -> list[tuple[TopicPartition, coverage.Coverage]]:
    """The offsets of ranges, by partition, each offset once."""
    whole: dict[TopicPartition, coverage.Coverage] = {}
    for r in ranges:
        whole[r.topic_partition] = coverage.add(whole.get(r.topic_partition, ()), (r.start, r.end))
    return sorted(whole.items())


def _read_by(t: Transaction) -> Iterator[PlannedRange]:
    missing = t.end.missing if t.end is not None else ()
    return (r for number, group in enumerate(t.start.ranges) if number not in missing for r in group)


def _both(pieces: Iterable[OffsetRange], plan: IntervalPlan) -> Iterator[OffsetRange]:
    """The parts of pieces that a plan reads."""
    planned: dict[TopicPartition, list[OffsetRange]] = {}
    for r in plan.offset_ranges:
        planned.setdefault(r.topic_partition, []).append(r)
    for piece in pieces:
        for r in planned.get(piece.topic_partition, ()):
            start, end = max(piece.start, r.start), min(piece.end, r.end)
            if start < end:
                yield OffsetRange(piece.topic_partition, start, end)
