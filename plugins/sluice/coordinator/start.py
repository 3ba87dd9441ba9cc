"""START-COMMIT: plans the interval, opens its transaction, and clears up after those before it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from sluice import __version__
from sluice.connectors.sink import (
    Ended,
    LooksAhead,
    SharedTimeline,
    Table,
    VersionChangingError,
    shared_timeline_of,
)
from sluice.coordinator.commit import Committer
from sluice.coordinator.mending import finish_rollbacks, mend, opened_in, warn_of_pending
from sluice.coordinator.move import Mover
from sluice.coordinator.planning import Planner, Position, Task, later_offsets
from sluice.coordinator.quarantine import Quarantine
from sluice.coordinator.session import Committed, Outcome, Run, Session, Started
from sluice.coordinator.turns import IsRunning, Turns
from sluice.errors import ActionRequiredError, RetryableError
from sluice.failpoints import reach
from sluice.logs import log
from sluice.pipeline.model import Pipeline
from sluice.protocol.commit_note import read_note
from sluice.protocol.confine import start_digest
from sluice.protocol.identity import Topic, renamed
from sluice.protocol.messages import LostOffsets, PlannedRange, StartCommit
from sluice.protocol.offsets import TopicPartition, in_words
from sluice.protocol.placement import KeyPlacement, refuse_other_placement
from sluice.protocol.policy import policy_of
from sluice.protocol.request import Request
from sluice.protocol.settlement import may_have_written_anywhere, registered_paths, table_partitions
from sluice.protocol.standing import Standing, standing_after
from sluice.protocol.state import ClusterState, summarize
from sluice.protocol.taken_back import taken_back
from sluice.protocol.transaction import State, TableLog, Transaction
from sluice.protocol.version_change import BegunChange
from sluice.records.plan import RecordPlan

_ATTEMPTS_TO_START = 5
_OWN_NAMES: Mapping[Topic, str] = MappingProxyType({})
_WIDE_JOB = 256
"""Partitions of one Spark job: each of its tasks carries the counts of all of them, a millisecond or so for each."""


class Starter:
    """The `start_commit` step."""

    def __init__(self, session: Session, committer: Committer, is_running: IsRunning) -> None:
        self._session = session
        self._committer = committer
        self._turns = Turns(session, is_running)
        self._planner = Planner(session)
        self._quarantine = Quarantine(session)
        self._mover = Mover(session, is_running, _end_superseded_on)

    def start(self, run: Run) -> Started | Outcome:
        """Plan the interval and open its transaction; an empty window opens nothing.

        Raises:
            RetryableError: another transaction of the table is about to commit, or Kafka or Hudi don't answer.
            ActionRequiredError: offsets are lost, or pipeline, table, topics and permissions don't fit.
        """
        if run.request.dry_run:
            return self._only_plan(run)
        self._session.control.ensure()
        left: BegunChange | None = None
        while True:
            try:
                started = self._start_unless_held(run)
            except VersionChangingError as error:
                holder = self._turns.changing_version(error, run)
                if holder is None and error.begun == left:
                    raise  # it is there though no transaction holds the table any more
                left = error.begun
                if holder is not None:
                    self._turns.wait_for(holder)
                continue
            if not isinstance(started, Transaction):
                return started
            self._turns.wait_for(started)

    def _only_plan(self, run: Run) -> Outcome:
        """Say what the run would do."""
        task, _ = self.plan(run.request)
        return Outcome("planned", f"Dry run, nothing opened: {self._in_words(run, task)}.")

    def _in_words(self, run: Run, task: Task) -> str:
        return f"{run.request.kind} {task.in_words(by_cluster=self._by_cluster)}"

    @property
    def _by_cluster(self) -> bool:
        """Whether several clusters may be read, so that a topic is named with its own."""
        return self._session.followed is not None

    def plan(self, request: Request) -> tuple[Task, Position]:
        """What a run would do, and where it would start from; the control topic and the table stay untouched."""
        with self._session.existing_table() as table:
            committed = self._session.present(table)
            task, state = self._planner.plan(request, committed, table)
            if table is not None:  # whether records and table still fit is part of what would happen
                self._session.pin(table, None)
        return task, Position(committed.checkpoint, state)

    def _start_unless_held(self, run: Run) -> Started | Outcome | Transaction:
        """Start, or name the transaction of another run that is still running and holds the table."""
        with self._session.table() as table:
            for _ in range(_ATTEMPTS_TO_START):
                started = self._try_start(table, run)
                if started is not None:
                    return started
        raise RetryableError(
            "Other runs of this table started again and again while this one was planning.",
            next_step="run one interval of a table at a time; this one is retried.",
            table=self._session.table_id,
            run=run.run_id,
        )

    def _try_start(self, table: Table, run: Run) -> Started | Outcome | Transaction | None:
        read_position = self._session.control.end()  # before the timeline is read: see protocol/transaction.py
        committed = self._session.present(table)
        if not self.settle_elsewhere(table, run, committed):
            return None
        # Some intervals further back than the verdict needs: a zombie may sleep for longer than one.
        table_log = self._session.control.table_log(self._session.table_id, committed.recent_control_offsets[0])
        self.require_here(table_log)
        self._refuse_unknown_secret(committed)
        held = self._turns.held_by_another(table_log, run)
        if held is not None:
            return held
        if self._committer.fence.repair(table, table_log) or self._committer.resolve_unfinished(table, table_log):
            return None
        self._refuse_foreign_rows(table, committed)
        placement = key_placement(self._session.pipeline)
        if placement is not None and committed.note.is_ours:
            refuse_other_placement(placement, committed.note.placement, self._session.table_id)
        task, state = self._planner.plan(run.request, committed, table)
        said = self._after_taken_back(table, table_log, run, committed, task, state)
        if said is None:
            return None
        said = (*self._of_another_log(committed), *said)
        self._warn(task, said)
        if task.is_empty:
            return self._nothing_to_do(run, task, state, committed, said)
        self._look_ahead(table, committed)
        self._tell_of_wide_jobs(task)
        epoch = max(table_log.highest_epoch(), committed.note.epoch) + 1
        start = self._start_message(table, run, task, state, committed, epoch, read_position, table_log, said)
        reach("coordinator.before_start_commit")
        offset = self._session.control.send(start)
        reach("coordinator.after_start_commit")
        transaction = self._session.control.extend(table_log).get(start.transaction)
        if transaction is None or transaction.start_offset != offset or transaction.state is not State.OPEN:
            log.info(
                "another run moved the table while this one was planning; planning again", instant=start.transaction
            )
            return None
        self.end_superseded(table, table_log, committed, start.transaction)
        self._take_off_clusterings(table, table_log, start)
        warn_of_pending(table, table_log.transactions)
        reach("coordinator.before_open_instant")
        if start.replaces_files:
            shared_timeline_of(table).open_replacing(start.transaction)
        else:
            table.open(start.transaction)
        if self._session.control.extend(table_log).transactions[start.transaction].state is not State.OPEN:
            # The run that superseded this START may have looked for its instant before it was there.
            table.rollback(start.transaction)
            log.info("another run took over while this one was starting; planning again", instant=start.transaction)
            return None
        reach("coordinator.after_open_instant")
        log.info(
            "START-COMMIT",
            instant=start.transaction,
            kind=start.kind,
            epoch=epoch,
            control_offset=offset,
            ranges=[in_words(group, by_cluster=self._by_cluster) for group in start.ranges],
            **_non_empty(
                behind=in_words(sorted(task.plan.behind), by_cluster=self._by_cluster),
                passed_over=in_words(start.passed_over, by_cluster=self._by_cluster),
            ),
        )
        addresses = start.streams.clusters.values() if start.streams is not None else ()
        return Started(
            start.transaction,
            offset,
            start.ranges,
            self._session.control.topic,
            start_digest(start),
            tuple(sorted({address.connection for address in addresses})),
            self._standing({r.topic_partition: r.end for r in (*start.offset_ranges, *start.idle)}, state)
            if start.policy.reads == "onward"
            else None,
        )

    def _take_off_clusterings(self, table: Table, table_log: TableLog, start: StartCommit) -> None:
        """Take off what a decided clustering has left before a replay replaces the files that it was to rewrite.

        Its job may be suspended inside Hudi's commit, and complete it when it wakes up. Without its files that commit
        is void, and the fence takes it off. With them, the rows that the replay replaced would be rows again.
        """
        if not start.replaces_files:
            return
        left = [
            t
            for t in table_log.transactions.values()
            if t.start.service == "clustering" and t.state is State.ABORTED and t.end is not None
        ]
        if not left:
            return
        services = shared_timeline_of(table).maintenance()
        for instant in services.pending("clustering", own=True):
            log.warning("a clustering's plan that was left is taken off before a replay", instant=instant)
            services.take_off(instant)

    def settle_elsewhere(self, table: Table, run: Run, committed: Committed) -> bool:
        """Settle the table on another control topic, if its last commit was there; False to look at it all again."""
        return self._mover.settle(table, run, committed)

    def require_here(self, table_log: TableLog) -> None:
        """Check that the table hasn't left this control topic; raises ActionRequiredError where it has."""
        self._mover.require_here(table_log)

    def _after_taken_back(
        self, table: Table, table_log: TableLog, run: Run, committed: Committed, task: Task, state: ClusterState
    ) -> tuple[str, ...] | None:
        """Sentences for people where a restore took intervals off the table; None where all has to be looked at again.

        The topic was read later than the timeline: an interval of which only the topic was known may be committed now.
        """
        gone = taken_back(table_log, committed.recent_control_offsets)
        now = read_note(table.last_checkpoint() or {}) if gone else committed.note
        if now.instant != committed.note.instant:
            return None
        return self._planner.after_taken_back(gone, run.request, committed, task, state)

    def _of_another_log(self, committed: Committed) -> tuple[str, ...]:
        """Sentences for people where the table's last commit was under another name, or on a topic that is gone."""
        lost = (
            f"the control topic {self._session.control.topic} was deleted and made again since the table's last "
            "commit: intervals that were open in it aren't known any more",
        )
        return (*renamed(committed.note.known_as, self._session.table_id), *(lost if committed.is_lost else ()))

    def _warn(self, task: Task, said: tuple[str, ...]) -> None:
        for loss in task.plan.losses:
            log.warning("offsets were lost; continuing by on_offset_loss", loss=str(loss), table=self._session.table_id)
        for remark in (*said, *summarize(task.plan.remarks, by_cluster=self._by_cluster)):
            log.warning(remark, table=self._session.table_id)

    def _nothing_to_do(
        self, run: Run, task: Task, state: ClusterState, committed: Committed, said: tuple[str, ...]
    ) -> Outcome:
        if policy_of(run.request.kind).reads != "onward":
            log.info("nothing to read, no transaction opened", table=self._session.table_id, kind=run.request.kind)
            return Outcome("empty", f"Nothing to do, nothing opened: {self._in_words(run, task)}.")
        of = [f"{r.topic_partition.cluster}/" if self._by_cluster else "" for r in task.plan.idle]
        positions = in_words([f"{c}{r.topic_partition}@{r.end}" for c, r in zip(of, task.plan.idle, strict=True)])
        log.info(
            "empty window: nothing to read, no transaction opened", table=self._session.table_id, positions=positions
        )
        remarks = (*said, *summarize(task.plan.remarks, by_cluster=self._by_cluster))
        remarks_text = "".join(f" {remark}." for remark in remarks)
        summary = f"Empty window: no new records, nothing opened ({positions}).{remarks_text}"
        positions_left = {r.topic_partition: r.end for r in task.plan.idle}
        return Outcome(
            "empty",
            summary,
            remarks=remarks,
            lag_records=state.unread_after(positions_left),
            valid_through=state.valid_through(committed.valid_through),
            standing=self._standing(positions_left, state),
        )

    def _standing(self, positions: Mapping[TopicPartition, int], state: ClusterState) -> Standing:
        followed = self._session.followed
        return standing_after(positions, state, followed.known if followed is not None else None)

    def _refuse_unknown_secret(self, committed: Committed) -> None:
        """The last commit's own START can't be forged: if it doesn't count, the secret isn't the one that it had."""
        control, offset = self._session.control, committed.control_offset
        if self._session.is_made_again(committed.note):
            return
        if committed.elsewhere is None and committed.note.is_ours and offset in control.signatures.refused:
            raise ActionRequiredError(
                "The control messages of this table's last commit are signed with another secret than this one.",
                next_step="put the secret that was there before into sluice.control.secret.previous of the Kafka "
                "connection until each pipeline has committed once.",
                table=self._session.table_id,
                control_topic=control.topic,
                offset=offset,
            )

    def _refuse_foreign_rows(self, table: Table, committed: Committed) -> None:
        """An upsert finds a key's row only where Sluice wrote it: other writers' file groups are not looked up."""
        if not self._session.pipeline.sink.capabilities.upsert or committed.note.is_ours:
            return
        if isinstance(table, SharedTimeline) and not table.is_empty():
            raise ActionRequiredError(
                "Another writer has loaded this table, so an upsert by Kafka partition would not find its rows.",
                next_step="load the topic into a new table path from the earliest offset, or keep that writer.",
                table=self._session.table_id,
            )

    def _look_ahead(self, table: Table, committed: Committed) -> None:
        if isinstance(self._session.sink, LooksAhead):
            self._session.sink.look_ahead(table, first=not committed.note.is_ours)

    def _start_message(
        self,
        table: Table,
        run: Run,
        task: Task,
        state: ClusterState,
        committed: Committed,
        epoch: int,
        read_position: int,
        table_log: TableLog,
        said: tuple[str, ...],
    ) -> StartCommit:
        topic_ids: dict[str, dict[str, str | None]] = {}
        for (cluster, topic), topic_id in state.topic_ids.items():
            if self._session.followed is None or topic in self._session.followed.topics(cluster):  # else it is drained
                topic_ids.setdefault(cluster, {})[topic] = topic_id
        plan, request, followed = task.plan, run.request, self._session.followed
        policy = policy_of(request.kind)
        log_ends = {b.topic_partition: b.end_of_records for b in state.partitions}
        last = table_log.newest_interval()
        pinned = self._session.pin(table, last.start if last is not None else None)
        records = pinned.records.reading(state.reading)
        tables = tuple(one.model_copy(update={"records": one.records.reading(state.reading)}) for one in pinned.further)
        gone = [loss.topic_partition for loss in plan.losses if loss.another_log or loss.truncated_at is not None]
        row_topics = self._row_topics(state)
        known_eras = committed.checkpoint.eras(state.topic_ids, gone)
        eras = {row_topics.get(log, log[1]): era for log, era in known_eras.items() if era}
        if records.changes is not None:
            records = records.model_copy(update={"eras": eras})
            with_eras = [(one, one.records.model_copy(update={"eras": eras})) for one in tables]
            tables = tuple(one.model_copy(update={"records": plan_of}) for one, plan_of in with_eras)
        instant, notes = table.new_instant(), self._session.notes_topics(committed.note)
        tolerant = self._session.pipeline.errors.tolerance == "all"
        there = self._session.sources.notes_there(notes.names) if tolerant else {}
        return StartCommit(
            **self._session.envelope(instant, epoch, run),
            release=__version__,
            records_per_task=self._session.pipeline.write.records_per_task,
            kind=request.kind,
            reason=request.reason,
            replays=request.instant,
            replaced_file_groups=dict(task.replaced_file_groups),
            keep_newer=task.keep_newer,
            out_of_order=_by_topic(task.out_of_order, row_topics),
            records_before=task.records_before,
            passed_over=task.passed_over,
            read_position=read_position,
            planned_on=committed.note.instant,
            # Before a table's first commit all count: whatever file their zombies make is older than the timeline, and
            # Hudi takes the file of such an instant for one whose commit was archived.
            oldest_unsettled=table_log.oldest_unsettled(read_position)
            if committed.note.is_ours
            else table_log.oldest(read_position),
            ranges=tuple(
                tuple(_named(r, row_topics) for r in group)
                for group in StartCommit.ranges_of(plan, log_ends, state.leader_epochs)
            ),
            idle=StartCommit.as_planned(plan.idle, plan, log_ends, state.leader_epochs),
            cluster_ids=dict(state.cluster_ids),
            topic_ids=topic_ids,
            losses=tuple(LostOffsets.of(loss) for loss in plan.losses),
            valid_through=state.valid_through(committed.valid_through),
            remarks=(
                *(followed.remarks if followed is not None else ()),
                *said,
                *summarize(plan.remarks, by_cluster=self._by_cluster),
            ),
            streams=followed.known if followed is not None else None,
            source=self._session.pipeline.source.name,
            sink=self._session.pipeline.sink.name,
            isolation_level=self._session.pipeline.source.options.read_isolation,
            on_missing_range=self._session.pipeline.on_missing_range if policy.commits_in_part else "abort",
            writer=pinned.writer,
            records=records,
            placement=key_placement(self._session.pipeline, state, row_topics),
            emptied_at=committed.note.emptied_at,
            later=tuple(_named(r, row_topics) for r in later_offsets(plan, committed.checkpoint))
            if task.keep_newer and _forgets(records)
            else (),
            quarantine=self._quarantine.prepare(table, pinned.writer),
            tables=tables,
            notes_topics=notes.of_interval(instant, there),
        )

    def _row_topics(self, state: ClusterState) -> dict[Topic, str]:
        """By topics of streams their names in rows, where these aren't their own."""
        followed = self._session.followed
        if followed is None:
            return {}
        named = {
            (cluster, topic): followed.known.row_topic(topic, cluster, state.cluster_ids.get(cluster))
            for cluster, topic in state.topic_ids
        }
        return {log: name for log, name in named.items() if name != log[1]}

    def _tell_of_wide_jobs(self, task: Task) -> None:
        """Of ranges that have to be one job each: their records go to any file group, or are compared with rows."""
        sink = self._session.pipeline.sink.capabilities
        widest = max(map(len, task.plan.ranges), default=0)
        if widest > _WIDE_JOB and sink.upsert and (task.keep_newer or not sink.finds_keys_by_partition):
            log.warning(
                "one Spark job is to read very many partitions that have records: what each of its tasks costs grows "
                "with their number; raise write.ranges where keys are not hashed",
                table=self._session.table_id,
                partitions=widest,
                ranges=len(task.plan.ranges),
            )

    def end_superseded(self, table: Table, table_log: TableLog, committed: Committed, own: str) -> None:
        """Roll back what earlier intervals left open, and sweep up files that their zombies finished late."""
        ended: dict[str, set[str]] = {}
        partitions: set[str] = set()
        anywhere = False
        mend(table)
        finished = finish_rollbacks(table)
        for instant in finished:
            log.info("finished a roll-back that a process had left", instant=instant)
        left = table.leftovers()  # one look: while nothing commits, the intervals that have ended grow in number
        for transaction in table_log.transactions.values():
            if transaction.id == own:
                continue
            if not transaction.start.policy.has_instant:  # and so no files
                if transaction.state is State.SUPERSEDED:
                    self._committer.send_abort(transaction, f"superseded by {own}")
                continue
            committed_here = transaction.state is State.COMMITTED
            if not committed_here and (transaction.id in left or transaction.id in finished):
                # What was aborted has said so in its ABORT-COMMIT.
                is_aborted = transaction.state is State.ABORTED
                partitions_opened = set() if is_aborted else opened_in(table, transaction.id)
                if transaction.id in finished or table.rollback(transaction.id):
                    log.info("rolled back an interval that was never committed", instant=transaction.id)
                    self._committer.send_abort(transaction, f"superseded by {own}", partitions_opened)
                committed_here = table.state_of(transaction.id) == "completed"
            ended[transaction.id] = registered_paths(transaction) if committed_here else set()
            partitions |= table_partitions(transaction)
            anywhere |= may_have_written_anywhere(transaction, committed=committed_here)
        swept = table.sweep(Ended(ended, partitions | set(committed.note.table_partitions), anywhere))
        swept += self._quarantine.clear(table, [t for t in table_log.transactions.values() if t.id != own])
        for path in swept:
            log.warning("swept up a file that a participant finished after its interval was over", path=path)


def _end_superseded_on(session: Session, table: Table, table_log: TableLog, committed: Committed, own: str) -> None:
    Starter(session, Committer(session), lambda _dag_id, _run_id: False).end_superseded(
        table, table_log, committed, own
    )


def key_placement(
    pipeline: Pipeline, state: ClusterState | None = None, row_topics: Mapping[Topic, str] = _OWN_NAMES
) -> KeyPlacement | None:
    """How the pipeline's upserts find their rows, None of an append."""
    known = state.all_partitions if state is not None else ()
    return pipeline.sink.options.placement(Counter(_name(tp, row_topics) for tp in known))


def _name(tp: TopicPartition | PlannedRange, row_topics: Mapping[Topic, str]) -> str:
    return row_topics.get((tp.cluster, tp.topic), tp.topic)


def _named(r: PlannedRange, row_topics: Mapping[Topic, str]) -> PlannedRange:
    return r.model_copy(update={"row_topic": row_topics.get((r.cluster, r.topic))})


def _by_topic(partitions: Iterable[TopicPartition], row_topics: Mapping[Topic, str]) -> dict[str, tuple[int, ...]]:
    found: dict[str, list[int]] = {}
    for tp in sorted(partitions):
        found.setdefault(_name(tp, row_topics), []).append(tp.partition)
    return {topic: tuple(numbers) for topic, numbers in found.items()}


def _forgets(records: RecordPlan) -> bool:
    """Whether deletes leave nothing behind once they are compacted."""
    return records.changes is not None and records.changes.delete == "hard"


def _non_empty(**words: str) -> dict[str, str]:
    """Without empty texts, so that a log line has no empty fields."""
    return {name: text for name, text in words.items() if text}
