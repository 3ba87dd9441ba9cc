"""From what a run is asked to do to what its transaction reads, passes over and replaces."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Literal

from sluice.connectors.sink import SharedTimeline, Table, TakesOver, WrittenInterval
from sluice.coordinator.checks import require_whole, truncated_since_read
from sluice.coordinator.session import Committed, Session
from sluice.errors import ActionRequiredError
from sluice.logs import log
from sluice.protocol import coverage
from sluice.protocol.commit_note import records_before
from sluice.protocol.held_back import refuse_held_back
from sluice.protocol.identity import (
    Topic,
    present_names,
    refuse_other_logs,
    refuse_truncated_logs,
    under_present_names,
)
from sluice.protocol.known_streams import KnownStreams
from sluice.protocol.messages import PlannedRange
from sluice.protocol.moves import refuse_keys_elsewhere, refuse_unsettled_moves
from sluice.protocol.notes_topics import refuse_lost
from sluice.protocol.offsets import Checkpoint, OffsetRange, TopicPartition, in_words
from sluice.protocol.plan import (
    Grouping,
    IntervalPlan,
    Limits,
    plan_again,
    plan_interval,
    plan_window,
    refuse_leaderless,
)
from sluice.protocol.policy import IntervalKind, policy_of
from sluice.protocol.redriven import Place, Places
from sluice.protocol.request import Request
from sluice.protocol.state import ClusterState
from sluice.protocol.taken_back import TakenBack
from sluice.protocol.transaction import Transaction

Start = int | Literal["earliest", "latest"]
"""Where a partition begins that was never read."""
_SHOWN = 20  # ranges of offsets in an error


@dataclass(frozen=True)
class Task:
    """What a transaction is to do.

    Attributes:
        plan: what it reads.
        passed_over: offsets that a correction leaves out.
        replaced_file_groups: by table partition, the file groups that its commit takes off the table.
        keep_newer: its records may be older than rows of the table.
        out_of_order: the partitions of which they may be; of all where none is named.
        records_before: how many records its ranges have held before, as START-COMMIT has it.
    """

    plan: IntervalPlan
    passed_over: tuple[PlannedRange, ...] = ()
    replaced_file_groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    keep_newer: bool = False
    out_of_order: frozenset[TopicPartition] = frozenset()
    records_before: tuple[int, ...] = ()

    @property
    def is_empty(self) -> bool:
        """There is nothing to read and nothing to record."""
        return self.plan.is_empty and not self.passed_over

    def in_words(self, *, by_cluster: bool = False) -> str:
        """What it would do, as one sentence for people, with clusters in any case or only where they differ."""
        ranges = sorted(self.plan.offset_ranges, key=attrgetter("topic_partition"))
        reads = in_words(ranges, by_cluster=by_cluster) or "nothing"
        words = [
            f"reads {reads}" + (f" ({self.plan.covered} offsets are in the table already)" * bool(self.plan.covered))
        ]
        if self.plan.behind:
            words.append(
                f"leaves records of {in_words(sorted(self.plan.behind), by_cluster=by_cluster)} for the next interval"
            )
        if self.passed_over:
            words.append(f"passes over {in_words(self.passed_over, by_cluster=by_cluster)}")
        if self.replaced_file_groups:
            number = sum(map(len, self.replaced_file_groups.values()))
            words.append(f"replaces {number} file groups in {len(self.replaced_file_groups)} table partitions")
        if self.keep_newer:
            of = f" of {', '.join(map(str, sorted(self.out_of_order)))}" if self.out_of_order else ""
            words.append(f"keeps every row of the table that is newer than its record{of}")
        return "; ".join(words)


@dataclass(frozen=True)
class Position:
    """A table's position, by its last commit, and what its clusters say at the same time.

    Attributes:
        checkpoint: the table's, with each cluster under its present name.
        state: of the clusters that answer.
        streams: where streams are now; None where the pipeline names its topics itself.
        instant: of the last commit; None where none is Sluice's.
    """

    checkpoint: Checkpoint
    state: ClusterState
    streams: KnownStreams | None = None
    instant: str | None = None


class Planner:
    """Plans one pipeline's transactions."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._table_id = session.table_id
        self._sink = session.pipeline.sink.capabilities

    def plan(self, request: Request, committed: Committed, table: Table | None) -> tuple[Task, ClusterState]:
        """What the run is to do, and what the cluster says now.

        Args:
            request: what it was asked.
            committed: the table's last commit.
            table: the table, None where there is none yet.

        Raises:
            ActionRequiredError: offsets are gone, or what was asked doesn't fit the table.
            RetryableError: Kafka or Hudi don't answer.
        """
        self._refuse_gone_topics(committed.checkpoint)
        followed = self._session.followed
        if followed is not None and self._sink.finds_keys_by_partition:
            refuse_keys_elsewhere(followed, self._table_id)
        if followed is not None and policy_of(request.kind).reads != "onward":
            refuse_unsettled_moves(followed, self._table_id)
        bounded = request if policy_of(request.kind).bounded_by_times else Request()
        self._refuse_unknown_times(bounded)
        state = self._session.sources.state(
            bounded.to_time,
            bounded.from_time,
            max_future=self._session.pipeline.source.options.max_future,
            checkpoint=committed.checkpoint,
        )
        state = self._session.bound(state, committed.checkpoint)
        refuse_other_logs(request.kind, committed.checkpoint, state.log_ids, self._table_id)
        refuse_truncated_logs(request.kind, state.truncated, self._table_id)
        if self._sink.finds_keys_by_partition:
            self._refuse_moved_keys(committed.checkpoint, state)
        return self._task(request, committed, state, table), state

    def _task(self, request: Request, committed: Committed, state: ClusterState, table: Table | None) -> Task:
        reads = policy_of(request.kind).reads
        if reads == "again":
            return self._replay(request, committed, state, table)
        if reads == "nothing":
            return self._correct(request, committed, state)
        if reads == "onward":
            return self._continue(committed, state)
        return self._window(request, committed, state)

    def _continue(self, committed: Committed, state: ClusterState) -> Task:
        source = self._session.pipeline.source.options
        plan = plan_interval(
            committed.checkpoint,
            state,
            starting=self._starting(committed.checkpoint, state),
            limits=self._limits(committed.note.average_record_bytes or None),
            grouping=self._grouping(committed),
            on_offset_loss=source.on_offset_loss,
            table=self._table_id,
        )
        followed = self._session.followed
        if followed is not None and followed.known.differs_from(committed.note.streams):
            plan = replace(plan, moves=True)
        return self._task_of(plan, "continue")

    def _grouping(self, committed: Committed) -> Grouping:
        return self._session.pipeline.write.grouping(committed.note.average_record_bytes or None)

    def _limits(self, average: float | None) -> Limits:
        """Of one interval; a source whose offsets don't count records has seen to it itself."""
        pipeline = self._session.pipeline
        return Limits(sys.maxsize) if pipeline.source.capabilities.sparse else pipeline.limits(average)

    def _starting(self, checkpoint: Checkpoint, state: ClusterState) -> dict[TopicPartition, Start]:
        followed = self._session.followed
        taken_over = self._taken_over(checkpoint, state)
        if followed is None:
            return {**_starting(self._starts_at(checkpoint), state), **taken_over}
        starting: dict[TopicPartition, Start] = {}
        for bounds in state.partitions:
            tp = bounds.topic_partition
            mapped = followed.starting.get((tp.cluster, tp.topic))
            known = followed.known.logs[tp.cluster][tp.topic]
            wanted = mapped.starting if mapped is not None else known.starting
            starting[tp] = wanted if isinstance(wanted, str) else wanted.get(tp.partition, "earliest")
        return starting

    def _taken_over(self, checkpoint: Checkpoint, state: ClusterState) -> dict[TopicPartition, Start]:
        """Where another loader has stopped, of topics that the table has never read.

        Raises:
            ActionRequiredError: the topic doesn't have the records that come next, or streams are read.
        """
        sink = self._session.sink
        if not isinstance(sink, TakesOver):
            return {}
        bounds = {b.topic_partition: b for b in state.partitions}
        known = {(tp.cluster, tp.topic): checkpoint.topic(tp.cluster, tp.topic) for tp in bounds}
        unread = {topic for (_, topic), read in known.items() if read is None or not read.partitions}
        positions = sink.taken_over(unread) if unread else {}
        if self._session.followed is not None and any(positions.values()):
            raise ActionRequiredError(
                "What another loader has written is of one cluster, and streams may be on several.",
                next_step="leave `takeover` out, and give the streams' starting_offsets.",
                table=self._table_id,
            )
        found: dict[TopicPartition, Start] = {}
        for tp, there in bounds.items():
            position = positions.get(tp.topic, {}).get(tp.partition)
            if position is None:
                continue
            if not there.log_start <= position <= there.log_end:
                raise ActionRequiredError(
                    "A partition can't be read from where another loader has stopped.",
                    next_step="if retention has removed records, they are lost to both; if the topic was made again, "
                    "its offsets are those of other records. Leave `takeover` out, and set starting_offsets to where "
                    "reading is to begin.",
                    table=self._table_id,
                    **tp._asdict(),
                    position=position,
                    log_start=there.log_start,
                    log_end=there.log_end,
                )
            found[tp] = position
        if found:
            where = ", ".join(f"{tp}@{position}" for tp, position in sorted(found.items()))
            log.info("continues where another loader has stopped", table=self._table_id, positions=where)
        return found

    def _starts_at(self, checkpoint: Checkpoint) -> Literal["earliest", "latest"] | Mapping[str, Mapping[int, int]]:
        """Where a topic begins that was never read.

        One that a pattern finds after the first interval was made since, or just not found before: all of it is new.
        """
        source = self._session.pipeline.source.options
        known = (checkpoint.clusters[name] for name in self._session.sources.names if name in checkpoint.clusters)
        has_begun = any(topic.partitions for cluster in known for topic in cluster.topics.values())
        return "earliest" if source.topics_pattern is not None and has_begun else source.starting_offsets

    def _task_of(self, plan: IntervalPlan, kind: IntervalKind) -> Task:
        """The plan with what an upsert has to look out for: later versions of the rows that it reads."""
        if not self._sink.upsert:
            return Task(plan)
        policy = policy_of(kind)
        always = policy.keeps_newer == "always"
        # A window ahead of the table would be in order, and what is before it never again.
        window = policy.reads == "window" and bool(plan.ranges)
        if (always or window or plan.out_of_order) and not self._sink.keeps_newer:
            raise ActionRequiredError(
                f"{self._session.pipeline.sink.place} can't tell records that are read out of their order from newer "
                "rows, and would put older versions in their place.",
                next_step="let runs read on from the table's position; load the records before it by loading "
                "the topic into a new table, from its earliest offset.",
                table=self._table_id,
                kind=kind,
            )
        if always:
            return Task(plan, keep_newer=True)
        return Task(plan, keep_newer=bool(plan.out_of_order), out_of_order=plan.out_of_order)

    def _window(self, request: Request, committed: Committed, state: ClusterState) -> Task:
        policy = policy_of(request.kind)
        refuse_leaderless((tp for tp in state.leaderless if request.wants(tp)), state, self._table_id)
        windows = self._asked_for(request, state)
        sparse = self._session.pipeline.source.capabilities.sparse  # behind its end are times, or numbers, without rows
        # Without an end, the window reaches to the log's present end.
        if (request.offsets or request.to_time is not None) and not sparse:
            by_times = not request.offsets
            refuse_held_back(windows, state.partitions, by_times=by_times, table=self._table_id)
        plan = plan_window(
            committed.checkpoint,
            state.partitions,
            windows,
            with_passed_over=policy.reads_passed_over and bool(request.offsets),
            grouping=self._grouping(committed),
            table=self._table_id,
        )
        ordered = bool(self._session.pipeline.writer().ordering_fields)
        if policy.needs_ordering and self._sink.upsert and plan.ranges and not ordered:
            raise ActionRequiredError(
                "An upsert without an ordering field takes the version that came last for the newest, so offsets can't "
                "be read out of their order.",
                next_step="load the topic into a new table path with the sink's `ordering_field`: a table keeps its "
                "own for life.",
                table=self._table_id,
                kind=request.kind,
            )
        return self._task_of(plan, request.kind)

    def _asked_for(self, request: Request, state: ClusterState) -> dict[TopicPartition, tuple[int, int]]:
        if request.offsets:
            return {
                TopicPartition(*self._log_named(name, state), partition): window
                for name, partitions in request.offsets.items()
                for partition, window in partitions.items()
            }
        known = state.all_partitions
        for name in request.partitions:
            if not any(Request(partitions=(name,)).wants(tp) for tp in known):
                raise ActionRequiredError(
                    f"The pipeline reads no partition {name}.",
                    next_step="write topic[number], or a topic's name for all of its partitions; cluster/topic where "
                    "several clusters have one.",
                    table=self._table_id,
                )
        return {
            b.topic_partition: (max(b.window_start, b.log_start), max(b.window_start, b.window_end))
            for b in state.partitions
            if request.wants(b.topic_partition)
        }

    def _log_named(self, name: str, state: ClusterState) -> Topic:
        """The topic of that name: `topic`, or `cluster/topic` where several clusters have one that is called so."""
        found = sorted({place for place in state.topic_ids if name in (place[1], "/".join(place))})
        if len(found) == 1:
            return found[0]
        if not found:  # reported with the partition
            return next(iter(self._session.sources.names), ""), name
        raise ActionRequiredError(
            f"Several clusters have a topic {name}.",
            next_step=f"name one of {', '.join('/'.join(place) for place in found)}.",
            table=self._table_id,
            topic=name,
        )

    def _replay(self, request: Request, committed: Committed, state: ClusterState, table: Table | None) -> Task:
        instant = str(request.instant)
        if not (self._sink.upsert or self._sink.replaces_interval):
            raise ActionRequiredError(
                "This table's sink can't put an interval's rows in the place of others, so nothing can be replayed.",
                next_step="load the topic into a new table.",
                table=self._table_id,
                instant=instant,
            )
        written = table.written_by(instant) if table else None
        if table is None or written is None:
            raise ActionRequiredError(
                "The instant is no committed interval of this table.",
                next_step="take an instant that `sluice transactions` or the page lists as committed.",
                table=self._table_id,
                instant=instant,
            )
        again = table.replayed_by(instant) if isinstance(table, SharedTimeline) else None
        if again is not None:
            raise ActionRequiredError(
                "The interval was read again since: its rows are those of the replay now.",
                next_step=f"replay {again} instead, which replaced it.",
                table=self._table_id,
                instant=instant,
                replayed_by=again,
            )
        one_place = self._session.followed is None
        read_by = under_present_names(written.checkpoint, state.cluster_ids, one_place=one_place)
        names = present_names(written.checkpoint.cluster_ids, state.cluster_ids, one_place=one_place)
        ranges = [
            OffsetRange(r.topic_partition._replace(cluster=names[r.cluster]), r.start, r.end)
            for r in written.note.ranges
        ]
        self._refuse_left_clusters(ranges, instant)
        refuse_leaderless((r.topic_partition for r in ranges), state, self._table_id)
        # The table may have read another log since then, whose offsets are the same numbers.
        topics = {(r.topic_partition.cluster, r.topic_partition.topic) for r in ranges}
        refuse_other_logs(request.kind, read_by, state.log_ids, self._table_id, topics)
        self._refuse_cut_off(ranges, read_by, instant)
        plan = plan_again(
            ranges,
            committed.checkpoint,
            state.partitions,
            grouping=self._grouping(committed),
            table=self._table_id,
        )
        task = replace(self._task_of(plan, request.kind), records_before=records_before(plan, written.note))
        if self._sink.upsert:
            return task
        require_whole(table, written.instant)
        self._refuse_sent_again(ranges, written, state, committed)
        return replace(task, replaced_file_groups=dict(written.file_groups))

    def _refuse_left_clusters(self, ranges: Sequence[OffsetRange], instant: str) -> None:
        left = sorted({r.topic_partition.cluster for r in ranges} - set(self._session.sources.names))
        if left:
            raise ActionRequiredError(
                f"The interval can't be read again: its records are on {', '.join(left)}, which isn't read any more.",
                next_step="leave the table's rows as they are; or map the stream there again, unless it has moved.",
                table=self._table_id,
                instant=instant,
            )

    def _refuse_cut_off(self, ranges: Sequence[OffsetRange], read_by: Checkpoint, instant: str) -> None:
        """Refuse a replay of records that an election has cut off since.

        The table may have read their replacements since: these offsets are then rows of a later interval.
        """
        for tp, at in truncated_since_read(self._session, [r for r in ranges if r.span], read_by.leader_epoch):
            raise ActionRequiredError(
                f"The interval can't be read again: the log was truncated at {at} since, by an election of a replica "
                "that lacked what came after it.",
                next_step="leave the table's rows as they are: the records that they came from are gone.",
                table=self._table_id,
                **tp._asdict(),
                instant=instant,
            )

    def after_taken_back(
        self, intervals: Sequence[Transaction], request: Request, committed: Committed, task: Task, state: ClusterState
    ) -> tuple[str, ...]:
        """Sentences for people on a plan after a restore, or a roll-back by others, took intervals off the table.

        Args:
            intervals: these intervals.
            request: what the run was asked.
            committed: where the table is now.
            task: what is to be read.
            state: of the clusters.

        Raises:
            ActionRequiredError: an append would read records twice that were set aside there and sent again.
            RetryableError: Kafka doesn't answer.
        """
        policy = policy_of(request.kind)
        if not intervals or policy.reads not in ("onward", "window"):
            return ()
        gone = TakenBack(intervals, committed.checkpoint, state, self._session.followed is None)
        if not self._sink.upsert and any(s.records_quarantined for t in intervals for s in t.statuses):
            set_aside = [t.id for t in intervals if any(s.records_quarantined for s in t.statuses)]
            self._refuse_both(gone.sent_again(task.plan, self._places_sent_again(committed, set_aside)))
        if policy.reads != "onward":
            return ()
        by_cluster = self._session.followed is not None
        return gone.remarks(task.plan, committed.control_offset, by_cluster=by_cluster)

    def _refuse_both(self, places: Sequence[Place]) -> None:
        if not places:
            return
        spans: dict[tuple[str, int], coverage.Coverage] = {}
        for topic, partition, offset in places:
            spans[topic, partition] = coverage.add(spans.get((topic, partition), ()), (offset, offset + 1))
        options = [f"--pass-over '{t}[{p}]:{start}-{end}'" for (t, p), of in spans.items() for start, end in of]
        more = f" … and {len(options) - _SHOWN:,} more" * (len(options) > _SHOWN)
        raise ActionRequiredError(
            f"The table was restored, or intervals were rolled back, and {len(places):,} records that were set aside "
            "in them were sent again since: this interval would read them at both places, and an append would have a "
            "row of each that its schema accepts now.",
            next_step="leave out the first of the two by `sluice offsets FILE "
            f'{" ".join(options[:_SHOWN])}{more} --reason "sent again"`, and clear the run.',
            table=self._table_id,
            first="{}[{}]@{}".format(*places[0]),
        )

    def _places_sent_again(self, committed: Committed, instants: Sequence[str]) -> Places:
        """Those of all topics that the table's commits name.

        Raises:
            ActionRequiredError: notes of these intervals, in which records were set aside, can't be read any more.
        """
        topics, sources = self._session.notes_topics(committed.note), self._session.sources
        sent = Places()
        for topic in topics.names:
            sent.add_all(sources.sent_again(topic, self._table_id))
        there = sources.notes_there(topics.names) if instants else {}
        refuse_lost(
            [one for cluster, names in there.items() for one in topics.lost(cluster, names, sent.given_up)],
            instants,
            "bring the topic back; or, if none of the interval's records were sent again, give its notes up by `sluice "
            "quarantine give-up FILE TOPIC --reason 'why'`. Nothing was started.",
            table=self._table_id,
        )
        return sent

    def _refuse_sent_again(
        self, ranges: Sequence[OffsetRange], written: WrittenInterval, state: ClusterState, committed: Committed
    ) -> None:
        """Records that were set aside and sent again are rows of a later interval: an append would have them twice."""
        instant = written.instant
        set_aside = [instant] if written.note.records_quarantined else []
        sent = self._places_sent_again(committed, set_aside).within(ranges, state.topic_ids)
        if sent:
            raise ActionRequiredError(
                f"Records of this interval were set aside and sent again ({len(sent):,}): its replay would make them "
                "rows a second time.",
                next_step="leave the interval as it is; `sluice quarantine redrive` sends what else of it is bad.",
                table=self._table_id,
                instant=instant,
                first="{}[{}]@{}".format(*sent[0]),
            )

    def _correct(self, request: Request, committed: Committed, state: ClusterState) -> Task:
        bounds = {b.topic_partition: b for b in state.partitions}
        passed_over = []
        for tp, (start, end) in self._asked_for(request, state).items():
            here = bounds.get(tp)
            position = committed.checkpoint.next_offset(tp)
            if here is None or start < (here.log_start if position is None else position) or end > here.end_of_records:
                raise ActionRequiredError(
                    "Only offsets that the table has not come to yet, and that are in the log, can be passed over.",
                    next_step="committed offsets never move backwards: to read them again, replay their interval.",
                    table=self._table_id,
                    **tp._asdict(),
                    wanted=f"[{start}, {end})",
                    committed_offset=position,
                    log_end=here.log_end if here else None,
                )
            missing = coverage.missing(committed.checkpoint.settled(tp), start, end)
            epoch = state.leader_epochs.get(tp)  # shows whether other records get these offsets
            passed_over += [
                PlannedRange.of(OffsetRange(tp, *piece), log_end=here.log_end, leader_epoch=epoch) for piece in missing
            ]
        return Task(IntervalPlan(ranges=()), passed_over=tuple(passed_over))

    def _refuse_unknown_times(self, bounded: Request) -> None:
        """A source that knows no times would take the window for one without bounds."""
        source = self._session.pipeline.source
        if (bounded.from_time or bounded.to_time) and not source.capabilities.windows_by_time:
            raise ActionRequiredError(
                f"Records are asked for by their times, which {source.place} doesn't know.",
                next_step="name a range of offsets, or run the pipeline without times.",
                table=self._table_id,
                kind=bounded.kind,
            )

    def _refuse_gone_topics(self, checkpoint: Checkpoint) -> None:
        """A pattern names no topic, so the deletion of one would go unnoticed, with the loss of its records."""
        source, sources = self._session.pipeline.source.options, self._session.sources
        if source.topics_pattern is None:
            return
        gone = [
            topic
            for name in sources.names
            for topic in (checkpoint.clusters[name].topics if name in checkpoint.clusters else ())
            if topic not in sources.topics_of(name) and re.fullmatch(source.topics_pattern, topic)
        ]
        if gone and source.on_offset_loss == "fail":
            raise ActionRequiredError(
                f"Topics that the table was loaded from are gone: {', '.join(sorted(gone))}.",
                next_step="if nothing is missing of them, narrow the source's `topics_pattern` so that it doesn't "
                "match them, or set the source's `on_offset_loss` to earliest.",
                table=self._table_id,
            )

    def _refuse_moved_keys(self, checkpoint: Checkpoint, state: ClusterState) -> None:
        """Upsert knows a key's file group from its Kafka partition: that ends when the partitions' number changes."""
        for (cluster, topic), _ in state.topic_ids.items():
            known = checkpoint.topic(cluster, topic)
            if self._is_apart_in_rows(cluster, checkpoint, state):
                continue
            now = {tp.partition for tp in state.all_partitions if (tp.cluster, tp.topic) == (cluster, topic)}
            if known and known.partitions and set(known.partitions) != now:
                raise ActionRequiredError(
                    "The topic's partitions changed, so keys may have moved to others, and an upsert by Kafka "
                    "partition would double their rows.",
                    next_step="load the topic into a new table path from the earliest offset, with key_placement "
                    "hashed if it may grow again.",
                    table=self._table_id,
                    cluster=cluster,
                    topic=topic,
                    partitions_in_table=len(known.partitions),
                    partitions_now=len(now),
                )

    def _is_apart_in_rows(self, cluster: str, checkpoint: Checkpoint, state: ClusterState) -> bool:
        """Whether another cluster of streams is under a known name: rows name its topics differently."""
        was, now = checkpoint.cluster_ids.get(cluster), state.cluster_ids.get(cluster)
        return self._session.followed is not None and was is not None and now is not None and was != now


def later_offsets(plan: IntervalPlan, checkpoint: Checkpoint) -> tuple[PlannedRange, ...]:
    """The offsets that the table has, and that come after what a plan reads of their partition."""
    first: dict[TopicPartition, int] = {}
    planned: dict[TopicPartition, list[tuple[int, int]]] = {}
    for r in plan.offset_ranges:
        first[r.topic_partition] = min(r.start, first.get(r.topic_partition, r.start))
        planned.setdefault(r.topic_partition, []).append((r.start, r.end))
    return tuple(
        PlannedRange.of(OffsetRange(tp, *piece))
        for tp, start in sorted(first.items())
        for span in checkpoint.covered(tp)
        for piece in coverage.missing(coverage.add((), *planned[tp]), max(span[0], start), max(span[1], start))
    )


def _starting(
    wanted: Literal["earliest", "latest"] | Mapping[str, Mapping[int, int]], state: ClusterState
) -> dict[TopicPartition, Start]:
    starting: dict[TopicPartition, Start] = {}
    for bounds in state.partitions:
        tp = bounds.topic_partition
        starting[tp] = wanted if isinstance(wanted, str) else wanted.get(tp.topic, {}).get(tp.partition, "earliest")
    return starting
