"""START-COMMIT: plans the interval, opens its transaction, and clears up after those before it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from sluice.coordinator.commit import Committer
from sluice.coordinator.session import Committed, Outcome, Run, Session, Started
from sluice.errors import ActionRequiredError, RetryableError
from sluice.failpoints import reach
from sluice.hudi.table import HudiTable
from sluice.logs import log
from sluice.protocol.messages import LostOffsets, PlannedRange, StartCommit
from sluice.protocol.offsets import Checkpoint, TopicPartition
from sluice.protocol.plan import ClusterState, IntervalPlan, plan_interval
from sluice.protocol.settlement import registered_paths, table_partitions
from sluice.protocol.transaction import State, TableLog

_ATTEMPTS_TO_START = 5


class Starter:
    """The `start_commit` step."""

    def __init__(self, session: Session, committer: Committer) -> None:
        self._session = session
        self._committer = committer

    def start(self, run: Run) -> Started | Outcome:
        """Plan the interval and open its transaction; an empty window opens nothing.

        Raises:
            RetryableError: another transaction of the table is about to commit, or Kafka or Hudi don't answer.
            ActionRequiredError: offsets are lost, or pipeline, table, topics and permissions don't fit.
        """
        self._session.control.ensure()
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

    def _try_start(self, table: HudiTable, run: Run) -> Started | Outcome | None:
        read_position = self._session.control.end()  # before the timeline is read: see protocol/transaction.py
        committed = self._session.committed(table)
        # Some intervals further back than the verdict needs: a zombie may sleep for longer than one.
        table_log = self._session.control.table_log(self._session.table_id, committed.recent_control_offsets[0])
        if self._committer.resolve_unfinished(table, table_log):
            return None
        self._refuse_foreign_rows(table, committed)
        state = self._session.cluster.state(self._session.pipeline.source.kafka.topics, run.window_end)
        plan = self._plan(committed, state)
        for loss in plan.losses:
            log.warning("offsets were lost; on_offset_loss says to go on", loss=str(loss), table=self._session.table_id)
        if plan.is_empty:
            positions = ", ".join(f"{r.topic_partition}@{r.end}" for r in plan.idle)
            log.info(
                "empty window: nothing to read, no transaction opened",
                table=self._session.table_id,
                positions=positions,
            )
            return Outcome("empty", f"Empty window: no new records, nothing opened ({positions}).")
        epoch = max(table_log.highest_epoch(), int(committed.transaction.get("epoch", 0))) + 1
        start = self._start_message(table, run, plan, state, epoch, read_position, table_log)
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
        reach("coordinator.before_open_instant")
        table.open(start.transaction)
        if self._session.control.extend(table_log).transactions[start.transaction].state is not State.OPEN:
            # Whoever superseded this START may have looked for its instant before it was there.
            table.rollback(start.transaction)
            log.info("another run took over while this one was starting; planning again", instant=start.transaction)
            return None
        reach("coordinator.after_open_instant")
        log.info(
            "START-COMMIT",
            instant=start.transaction,
            epoch=epoch,
            control_offset=offset,
            ranges=[", ".join(map(str, group)) for group in start.ranges],
            behind=sorted(map(str, plan.behind)) or None,
        )
        return Started(start.transaction, offset, start.ranges)

    def _plan(self, committed: Committed, state: ClusterState) -> IntervalPlan:
        kafka = self._session.pipeline.source.kafka
        if self._session.pipeline.sink.hudi.operation == "upsert":
            self._refuse_moved_keys(committed.checkpoint, state)
        average = committed.transaction.get("average_record_bytes")
        return plan_interval(
            committed.checkpoint,
            state,
            starting=_starting(kafka.starting_offsets, state),
            limits=self._session.pipeline.limits(float(average) if average else None),
            number_of_ranges=self._session.pipeline.write.ranges,
            on_offset_loss=kafka.on_offset_loss,
            table=self._session.table_id,
        )

    def _refuse_moved_keys(self, checkpoint: Checkpoint, state: ClusterState) -> None:
        """Upsert knows a key's file group from its Kafka partition: that ends when the partitions' number changes."""
        for (cluster, topic), _ in state.topic_ids.items():
            known = checkpoint.topic(cluster, topic)
            now = {p.topic_partition.partition for p in state.partitions if p.topic_partition.topic == topic}
            if known and set(known.partitions) != now:
                raise ActionRequiredError(
                    "The topic's partitions changed, so keys may have moved to others, and an upsert by Kafka "
                    "partition would double their rows.",
                    next_step="load the topic into a new table path from the earliest offset, or go back to the old "
                    "number of partitions.",
                    table=self._session.table_id,
                    topic=topic,
                    partitions_in_table=len(known.partitions),
                    partitions_now=len(now),
                )

    def _refuse_foreign_rows(self, table: HudiTable, committed: Committed) -> None:
        """An upsert finds a key's row only where Sluice wrote it: other writers' file groups are not looked up."""
        if (
            self._session.pipeline.sink.hudi.operation == "upsert"
            and not committed.transaction
            and not table.is_empty()
        ):
            raise ActionRequiredError(
                "Another writer has loaded this table, so an upsert by Kafka partition would not find its rows.",
                next_step="load the topic into a new table path from the earliest offset, or go on with that writer.",
                table=self._session.table_id,
            )

    def _start_message(
        self,
        table: HudiTable,
        run: Run,
        plan: IntervalPlan,
        state: ClusterState,
        epoch: int,
        read_position: int,
        table_log: TableLog,
    ) -> StartCommit:
        topic_ids: dict[str, dict[str, str | None]] = {}
        for (cluster, topic), topic_id in state.topic_ids.items():
            topic_ids.setdefault(cluster, {})[topic] = topic_id
        return StartCommit(
            **self._session.envelope(table.new_instant(), epoch, run),
            read_position=read_position,
            oldest_unsettled=table_log.oldest_unsettled(read_position),
            ranges=StartCommit.ranges_of(plan),
            idle=tuple(PlannedRange.of(r, r.topic_partition in plan.behind) for r in plan.idle),
            cluster_ids=dict(state.cluster_ids),
            topic_ids=topic_ids,
            losses=tuple(LostOffsets.of(loss) for loss in plan.losses),
            valid_through=min(p.valid_through for p in state.partitions),
            isolation_level=self._session.pipeline.source.kafka.isolation_level,
            on_missing_range=self._session.pipeline.on_missing_range,
            writer=table.writer,
        )

    def end_superseded(self, table: HudiTable, table_log: TableLog, committed: Committed, own: str) -> None:
        """Roll back what earlier intervals left open, and sweep up files that their zombies finished late."""
        ended: dict[str, set[str]] = {}
        partitions: set[str] = set()
        for transaction in table_log.transactions.values():
            if transaction.id == own:
                continue
            if transaction.start.kind == "service":  # it has no instant and no files of its own
                if transaction.state is State.SUPERSEDED:
                    self._committer.send_abort(transaction, f"superseded by {own}")
                continue
            if transaction.state is not State.COMMITTED and table.rollback(transaction.id):
                log.info("rolled back an interval that was never committed", instant=transaction.id)
                self._committer.send_abort(transaction, f"superseded by {own}")
            committed_here = transaction.state is State.COMMITTED or table.state_of(transaction.id) == "completed"
            ended[transaction.id] = registered_paths(transaction) if committed_here else set()
            partitions |= table_partitions(transaction)
        swept = table.sweep(ended, partitions | set(committed.transaction.get("table_partitions", [])))
        for path in swept:
            log.warning("swept up a file that a participant finished after its interval was over", path=path)


def _starting(
    wanted: Literal["earliest", "latest"] | Mapping[str, Mapping[int, int]], state: ClusterState
) -> dict[TopicPartition, int | Literal["earliest", "latest"]]:
    starting: dict[TopicPartition, int | Literal["earliest", "latest"]] = {}
    for bounds in state.partitions:
        tp = bounds.topic_partition
        starting[tp] = wanted if isinstance(wanted, str) else wanted.get(tp.topic, {}).get(tp.partition, "earliest")
    return starting
