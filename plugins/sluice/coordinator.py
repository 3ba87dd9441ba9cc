"""The transaction coordinator: start, commit and abort one transaction interval (RFC-32's TransactionCoordinator).

Each step is a process of its own, may die anywhere, and may run twice. The order of writes makes that safe:
START-COMMIT stands in the control topic before the instant stands on the timeline, and END-COMMIT before Hudi's commit,
so that whoever comes next knows of everything that may be half done.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from sluice.errors import IntervalError, RetryableError, SluiceError, from_report
from sluice.failpoints import reach
from sluice.hudi.jvm import HudiJvm, lean_jvm
from sluice.hudi.options import write_options
from sluice.hudi.schema import read_schema
from sluice.hudi.table import HudiTable, open_table
from sluice.kafka.cluster import KafkaCluster
from sluice.kafka.config import KafkaSettings
from sluice.kafka.control_topic import ControlTopic
from sluice.logs import log
from sluice.pipeline.model import Pipeline
from sluice.protocol.audit import audit
from sluice.protocol.messages import (
    AbortCommit,
    AckCommit,
    EndCommit,
    PlannedRange,
    StartCommit,
    TableWriter,
    WriteStatus,
)
from sluice.protocol.offsets import TRANSACTION_KEY, Checkpoint, TopicPartition, read_checkpoint
from sluice.protocol.plan import ClusterState, IntervalPlan, plan_interval
from sluice.protocol.settlement import (
    abort_reason,
    commit_note,
    committed_statuses,
    count_records,
    instant_gone,
    missing_error,
    moved_offsets,
    positions_after,
    registered_paths,
    require_ours,
    table_partitions,
    transaction_at,
    valid_through,
)
from sluice.protocol.transaction import State, TableLog, Transaction

_ATTEMPTS_TO_START = 5


@dataclass(frozen=True)
class Run:
    """The DAG run that is this interval. `window_end` bounds the records by time where the pipeline asks for it."""

    dag_id: str
    run_id: str
    window_end: datetime | None = None


@dataclass(frozen=True)
class Started:
    """An open transaction: where its START-COMMIT stands, and what its ranges are to read."""

    instant: str
    control_offset: int
    ranges: tuple[tuple[PlannedRange, ...], ...]


@dataclass(frozen=True)
class Outcome:
    """How a step left the interval, as one sentence for people and as counts for programs."""

    state: Literal["empty", "committed", "aborted", "nothing"]
    summary: str
    instant: str | None = None
    records: int = 0


@dataclass(frozen=True)
class _Committed:
    """What the timeline says: the last checkpoint, and our own note of the transaction that wrote it."""

    checkpoint: Checkpoint
    transaction: Mapping[str, Any]

    @property
    def control_offset(self) -> int:
        return int(self.transaction.get("control_offset", 0))

    @property
    def recent_control_offsets(self) -> list[int]:
        """Where the STARTs of the last commits stand, oldest first."""
        return [int(offset) for offset in self.transaction.get("recent_control_offsets", [self.control_offset])]


class Coordinator:
    """Runs the steps of one pipeline."""

    def __init__(
        self,
        pipeline: Pipeline,
        source: KafkaSettings,
        control: KafkaSettings | None = None,
        jvm: Callable[[], AbstractContextManager[HudiJvm]] = lean_jvm,
    ) -> None:
        self.pipeline = pipeline
        self._jvm = jvm
        self.cluster = KafkaCluster(source, isolation_level=pipeline.source.kafka.isolation_level)
        self.control = ControlTopic(control or source, pipeline.control.topic)
        self.table_id = pipeline.sink.hudi.path

    # START-COMMIT ------------------------------------------------------------------------------------------------

    def start(self, run: Run) -> Started | Outcome:
        """Plan the interval and open its transaction; an empty window opens nothing.

        Raises:
            RetryableError: another transaction of the table is about to commit, or Kafka or Hudi don't answer.
            ActionRequiredError: offsets are lost, or pipeline, table, topics and permissions don't fit.
        """
        self.control.ensure()
        with self._table() as table:
            for _ in range(_ATTEMPTS_TO_START):
                started = self._try_start(table, run)
                if started is not None:
                    return started
        raise RetryableError(
            "Other runs of this table started again and again while this one was planning.",
            next_step="run one interval of a table at a time; this one is retried.",
            table=self.table_id,
            run=run.run_id,
        )

    def _try_start(self, table: HudiTable, run: Run) -> Started | Outcome | None:
        read_position = self.control.end()  # before the timeline is read: see protocol/transaction.py
        committed = self._committed(table)
        # Some intervals further back than the verdict needs: a zombie may sleep for longer than one.
        table_log = self.control.table_log(self.table_id, committed.recent_control_offsets[0])
        if self._resolve_unfinished(table, table_log, run):
            return None
        state = self.cluster.state(self.pipeline.source.kafka.topics, run.window_end)
        plan = self._plan(committed, state)
        for loss in plan.losses:
            log.warning("offsets were lost; on_offset_loss says to go on", loss=str(loss), table=self.table_id)
        if plan.is_empty:
            positions = ", ".join(f"{r.topic_partition}@{r.end}" for r in plan.idle)
            log.info("empty window: nothing to read, no transaction opened", table=self.table_id, positions=positions)
            return Outcome("empty", f"Empty window: no new records, nothing opened ({positions}).")
        epoch = max(table_log.highest_epoch(), int(committed.transaction.get("epoch", 0))) + 1
        start = self._start_message(table, run, plan, state, epoch, read_position)
        reach("coordinator.before_start_commit")
        offset = self.control.send(start)
        reach("coordinator.after_start_commit")
        transaction = self.control.extend(table_log).get(start.transaction)
        if transaction is None or transaction.state is not State.OPEN:
            log.info(
                "another run moved the table while this one was planning; planning again", instant=start.transaction
            )
            return None
        self._end_superseded(table, table_log, committed, start.transaction)
        reach("coordinator.before_open_instant")
        table.open(start.transaction)
        if self.control.extend(table_log).transactions[start.transaction].state is not State.OPEN:
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
            truncated=plan.truncated or None,
        )
        return Started(start.transaction, offset, start.ranges)

    def _plan(self, committed: _Committed, state: ClusterState) -> IntervalPlan:
        kafka = self.pipeline.source.kafka
        self._refuse_moved_keys(committed.checkpoint, state)
        average = committed.transaction.get("average_record_bytes")
        return plan_interval(
            committed.checkpoint,
            state,
            starting=_starting(kafka.starting_offsets, state),
            limits=self.pipeline.limits(float(average) if average else None),
            number_of_ranges=self.pipeline.write.ranges,
            on_offset_loss=kafka.on_offset_loss,
            table=self.table_id,
        )

    def _refuse_moved_keys(self, checkpoint: Checkpoint, state: ClusterState) -> None:
        """Upsert knows a key's file group from its Kafka partition: that ends when the partitions' number changes."""
        if self.pipeline.sink.hudi.operation != "upsert":
            return
        for (cluster, topic), _ in state.topic_ids.items():
            known = checkpoint.topic(cluster, topic)
            now = {p.topic_partition.partition for p in state.partitions if p.topic_partition.topic == topic}
            if known and set(known.partitions) != now:
                raise from_report(
                    "act",
                    f"The topic's partitions changed, so keys may have moved to other partitions, and an upsert by "
                    f"Kafka partition would double their rows. [table={self.table_id}, topic={topic}, "
                    f"partitions_in_table={len(known.partitions)}, partitions_now={len(now)}] Next step: load the "
                    "topic into a new table path from the earliest offset, or go back to the old number of partitions.",
                )

    def _start_message(
        self, table: HudiTable, run: Run, plan: IntervalPlan, state: ClusterState, epoch: int, read_position: int
    ) -> StartCommit:
        topic_ids: dict[str, dict[str, str | None]] = {}
        for (cluster, topic), topic_id in state.topic_ids.items():
            topic_ids.setdefault(cluster, {})[topic] = topic_id
        return StartCommit(
            **self._envelope(table.new_instant(), epoch, run),
            read_position=read_position,
            ranges=StartCommit.ranges_of(plan),
            idle=tuple(PlannedRange.of(r) for r in plan.idle),
            cluster_ids=dict(state.cluster_ids),
            topic_ids=topic_ids,
            losses=tuple(map(str, plan.losses)),
            valid_through=min(p.valid_through for p in state.partitions),
            truncated=plan.truncated,
            isolation_level=self.pipeline.source.kafka.isolation_level,
            on_missing_range=self.pipeline.on_missing_range,
            writer=table.writer,
        )

    def _resolve_unfinished(self, table: HudiTable, table_log: TableLog, run: Run) -> bool:
        """Finish a commit that was decided by END-COMMIT but never acknowledged; True if one was finished here."""
        unfinished = table_log.unfinished()
        if unfinished is None or unfinished.lease is None:
            return False
        on_timeline = table.state_of(unfinished.id)
        if on_timeline == "absent":
            self._abort_message(unfinished, "its instant is not on the timeline any more")
            return True
        if on_timeline == "pending":
            age = datetime.now(UTC) - unfinished.lease.time
            if age < self.pipeline.control.commit_timeout:
                raise RetryableError(
                    "Another run of this table is committing just now.",
                    next_step="this start is retried; after control.commit_timeout it finishes that commit itself.",
                    table=self.table_id,
                    instant=unfinished.id,
                    run=unfinished.start.run_id,
                    decided_ago=str(age),
                )
            log.warning("finishing the commit that another coordinator decided and left", instant=unfinished.id)
            self._decide(unfinished, table_log, run.run_id)
            self._hudi_commit(table, unfinished)
        self._acknowledge(unfinished)
        return True

    def _end_superseded(self, table: HudiTable, table_log: TableLog, committed: _Committed, own: str) -> None:
        """Roll back what earlier intervals left open, and sweep up files that their zombies finished late."""
        ended: dict[str, set[str]] = {}
        partitions: set[str] = set()
        for transaction in table_log.transactions.values():
            if transaction.id == own:
                continue
            if transaction.state is not State.COMMITTED and table.rollback(transaction.id):
                log.info("rolled back an interval that was never committed", instant=transaction.id)
                self._abort_message(transaction, f"superseded by {own}")
            committed_here = transaction.state is State.COMMITTED or table.state_of(transaction.id) == "completed"
            ended[transaction.id] = registered_paths(transaction) if committed_here else set()
            partitions |= table_partitions(transaction)
        swept = table.sweep(ended, partitions | set(committed.transaction.get("table_partitions", [])))
        for path in swept:
            log.warning("swept up a file that a participant finished after its interval was over", path=path)

    # END-COMMIT, Hudi's commit, ACK-COMMIT -------------------------------------------------------------------------

    def commit(self, control_offset: int) -> Outcome:
        """Commit the transaction whose START-COMMIT stands at the given control-topic offset.

        Raises:
            RetryableError: Kafka or Hudi don't answer; safe to run again.
            IntervalError, ActionRequiredError: a range is missing, the audit failed, or the transaction was superseded.
        """
        table_log = self.control.table_log(self.table_id, control_offset)
        transaction = transaction_at(table_log, control_offset)
        if transaction.state is State.COMMITTED:
            log.info("already committed; ACK-COMMIT stands", instant=transaction.id)
            return self._outcome(transaction)
        require_ours(transaction)
        self._audited(transaction)
        with self._table() as table:
            on_timeline = table.state_of(transaction.id)
            if on_timeline != "completed":
                if on_timeline == "absent":
                    raise instant_gone(transaction)
                reach("coordinator.before_end_commit")
                self._decide(transaction, table_log, transaction.start.run_id)
                reach("coordinator.before_hudi_commit")
                self._hudi_commit(table, transaction)
                reach("coordinator.after_hudi_commit")
            else:
                log.info("the commit is on the timeline already; only ACK-COMMIT is sent", instant=transaction.id)
        self._acknowledge(transaction)
        reach("coordinator.after_ack_commit")
        return self._outcome(transaction)

    def _decide(self, transaction: Transaction, table_log: TableLog, run_id: str) -> None:
        """Send END-COMMIT, and check that it counts and that no other coordinator carries the decision out."""
        reported, missing = self._audited(transaction)
        envelope = self._envelope_of(transaction)
        offset = self.control.send(
            EndCommit(**envelope, reported=tuple(sorted(reported)), missing=missing, carried_out_by=run_id)
        )
        log.info("END-COMMIT", instant=transaction.id, reported=sorted(reported), missing=list(missing))
        self.control.extend(table_log)
        require_ours(transaction)
        if transaction.lease_offset != offset:
            raise RetryableError(
                "Another coordinator is carrying this commit out.",
                next_step="this step is retried; it then finds the commit done.",
                table=self.table_id,
                instant=transaction.id,
            )

    def _audited(self, transaction: Transaction) -> tuple[dict[int, WriteStatus], tuple[int, ...]]:
        """The statuses that count, each audited; raises what the missing ranges say unless they may be missing."""
        missing = transaction.end.missing if transaction.end else transaction.missing_ranges()
        if missing and transaction.start.on_missing_range == "abort":
            raise missing_error(transaction, missing)
        reported: dict[int, WriteStatus] = {}
        for number in range(len(transaction.start.ranges)):
            status = transaction.status_of(number)
            if number not in missing and status is not None:
                audit(transaction.start, number, status)
                reported[number] = status
        if missing and not reported:
            raise missing_error(transaction, missing)
        return reported, missing

    def _hudi_commit(self, table: HudiTable, transaction: Transaction) -> None:
        reported, _ = self._audited(transaction)
        start = transaction.start
        committed = self._committed(table)
        next_offsets, moved = positions_after(start, reported), moved_offsets(start, committed.checkpoint)
        if moved:
            raise IntervalError(
                "The table's offsets moved since this interval was planned: committing it would double or lose rows.",
                next_step="nothing was committed; the next interval starts from the table's present offsets.",
                table=self.table_id,
                instant=transaction.id,
                moved=moved,
            )
        topic_ids = {(c, t): i for c, topics in start.topic_ids.items() for t, i in topics.items()}
        checkpoint = committed.checkpoint.advance(next_offsets, start.cluster_ids, topic_ids)
        stats = [stat for _, status in sorted(reported.items()) for stat in status.stats]
        note = commit_note(transaction, reported, committed.recent_control_offsets if committed.transaction else ())
        table.commit(transaction.id, stats, {**checkpoint.to_metadata(), TRANSACTION_KEY: json.dumps(note)})

    def _acknowledge(self, transaction: Transaction) -> None:
        reported = committed_statuses(transaction)
        counts = count_records(reported)
        next_offsets = positions_after(transaction.start, reported)
        offsets = tuple(
            PlannedRange.of(r.offset_range()).model_copy(update={"end": next_offsets[r.topic_partition]})
            for r in (*transaction.start.offset_ranges, *transaction.start.idle)
        )
        through = valid_through(transaction.start, reported)
        reach("coordinator.before_ack_commit")
        envelope: dict[str, Any] = {**self._envelope_of(transaction), **counts}
        self.control.send(AckCommit(**envelope, offsets=offsets, valid_through=through))
        transaction.state = State.COMMITTED
        log.info(
            "ACK-COMMIT",
            instant=transaction.id,
            offsets=[str(o) for o in offsets],
            valid_through=str(through),
            **counts,
        )
        try:
            self.cluster.copy_to_group(self.pipeline.consumer_group, next_offsets)
        except SluiceError as error:  # a copy for lag monitors; the table and its offsets are committed
            log.warning(
                "offsets were not copied to the consumer group", group=self.pipeline.consumer_group, reason=str(error)
            )

    def _outcome(self, transaction: Transaction) -> Outcome:
        counts = count_records(committed_statuses(transaction))
        return Outcome(
            "committed",
            f"Committed instant {transaction.id}: {counts['records_written']} rows from "
            f"{', '.join(map(str, transaction.start.offset_ranges)) or 'no records'}.",
            transaction.id,
            counts["records_written"],
        )

    # ABORT-COMMIT --------------------------------------------------------------------------------------------------

    def abort(self, run: Run, reason: str | None = None) -> Outcome:
        """End whatever the DAG run has left open. A transaction that was committed is acknowledged, never undone."""
        with self._table() as table:
            committed = self._committed(table)
            table_log = self.control.table_log(self.table_id, committed.control_offset)
            ended = [self._abort_one(table, t, reason) for t in table_log.of_run(run.dag_id, run.run_id)]
        return next((o for o in reversed(ended) if o), Outcome("nothing", "Nothing was left open."))

    def needs_abort(self, control_offset: int) -> bool:
        """Whether the transaction still has to be ended; asks the control topic only, so it costs no JVM."""
        transaction = transaction_at(self.control.table_log(self.table_id, control_offset), control_offset)
        return transaction.state not in (State.COMMITTED, State.ABORTED)

    def _abort_one(self, table: HudiTable, transaction: Transaction, reason: str | None) -> Outcome | None:
        if transaction.state in (State.COMMITTED, State.ABORTED):
            return None
        if table.state_of(transaction.id) == "completed":
            self._acknowledge(transaction)
            return self._outcome(transaction)
        self._refuse_foreign_lease(transaction)
        why = reason or abort_reason(transaction)
        table.rollback(transaction.id)
        self._abort_message(transaction, why)
        log.warning("ABORT-COMMIT", instant=transaction.id, reason=why)
        return Outcome("aborted", f"Aborted instant {transaction.id}: {why}", transaction.id)

    def _refuse_foreign_lease(self, transaction: Transaction) -> None:
        """A decided commit that a later run's coordinator has taken over to finish is not rolled back under it."""
        lease = transaction.lease
        if lease is None or lease.carried_out_by == transaction.start.run_id:
            return
        if datetime.now(UTC) - lease.time < self.pipeline.control.commit_timeout:
            raise RetryableError(
                "A later run is finishing this commit.",
                next_step="this step is retried; it then finds the commit done.",
                table=self.table_id,
                instant=transaction.id,
                run=lease.carried_out_by,
            )

    def _abort_message(self, transaction: Transaction, reason: str) -> None:
        standing = tuple(
            r.model_copy(update={"end": r.start}) for r in (*transaction.start.offset_ranges, *transaction.start.idle)
        )
        self.control.send(AbortCommit(**self._envelope_of(transaction), reason=reason, standing_offsets=standing))

    # Parts that the steps share ------------------------------------------------------------------------------------

    @contextmanager
    def _table(self) -> Iterator[HudiTable]:
        with self._jvm() as jvm:
            writer, columns = self._writer(jvm)
            write_options(writer)  # refuses options that would break the commit, before anything is opened
            yield open_table(jvm, writer, columns)

    def _writer(self, jvm: HudiJvm) -> tuple[TableWriter, Mapping[str, str]]:
        hudi = self.pipeline.sink.hudi
        schema = read_schema(jvm, self.pipeline.table_name, ddl=hudi.schema_, avsc=hudi.schema_file)
        return self.pipeline.writer(schema.ddl, schema.avro), schema.columns

    def _committed(self, table: HudiTable) -> _Committed:
        metadata = table.last_checkpoint()
        if metadata is None:
            return _Committed(Checkpoint(), {})
        checkpoint = read_checkpoint(metadata, self.cluster.settings.name, self.pipeline.source.kafka.topics)
        return _Committed(checkpoint, json.loads(metadata.get(TRANSACTION_KEY, "{}")))

    def _envelope(self, transaction: str, epoch: int, run: Run) -> dict[str, Any]:
        return {
            "table": self.table_id,
            "transaction": transaction,
            "epoch": epoch,
            "dag_id": run.dag_id,
            "run_id": run.run_id,
            "sender": "coordinator",
            "time": datetime.now(UTC),
        }

    def _envelope_of(self, transaction: Transaction) -> dict[str, Any]:
        start = transaction.start
        return self._envelope(transaction.id, start.epoch, Run(start.dag_id, start.run_id))


def _starting(
    wanted: Literal["earliest", "latest"] | Mapping[str, Mapping[int, int]], state: ClusterState
) -> dict[TopicPartition, int | Literal["earliest", "latest"]]:
    starting: dict[TopicPartition, int | Literal["earliest", "latest"]] = {}
    for bounds in state.partitions:
        tp = bounds.topic_partition
        starting[tp] = wanted if isinstance(wanted, str) else wanted.get(tp.topic, {}).get(tp.partition, "earliest")
    return starting
