"""The coordinator's three steps behind one door."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from sluice.connectors.sink import Pinned, Table
from sluice.coordinator.commit import Committer
from sluice.coordinator.parts import Parts, parts_of
from sluice.coordinator.planning import Position, Task
from sluice.coordinator.session import Outcome, Run, Session, Started
from sluice.coordinator.start import Starter
from sluice.coordinator.turns import IsRunning
from sluice.errors import ActionRequiredError, SluiceError
from sluice.jvm.gateway import Jvm
from sluice.kafka.config import Connections, KafkaSettings
from sluice.pipeline.model import Pipeline
from sluice.protocol.commit_note import read_note
from sluice.protocol.notes_topics import NotesTopics
from sluice.protocol.offsets import Checkpoint
from sluice.protocol.request import Request
from sluice.protocol.settlement import abort_reason, transaction_at
from sluice.protocol.streams import Followed
from sluice.protocol.transaction import State, TableLog, Transaction
from sluice.schemas.registry.config import Registries, registry_of_environment

P = ParamSpec("P")
R = TypeVar("R")


def _with_file_keys(step: Callable[Concatenate[Coordinator, P], R]) -> Callable[Concatenate[Coordinator, P], R]:
    """Have errors name keys of source and sink as the pipeline's file does."""

    @wraps(step)
    def wrapper(self: Coordinator, /, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return step(self, *args, **kwargs)
        except SluiceError as error:
            error.reword(self.pipeline.with_file_keys)
            raise

    return wrapper


class Coordinator:
    """Runs the steps of one pipeline.

    Args:
        pipeline: what to load, and how.
        source: the cluster that is read.
        control: the cluster that holds the control topic; the source's by default.
        jvm: where Hudi runs; a lean JVM for each step by default.
        is_running: whether a DAG run, by its DAG's and its own id, still runs. `start` waits for a transaction of a run
            that does, and takes over from one that doesn't; by default none does.
        registries: where a schema registry is, by its connection's id; by default the environment says so.
        connections: the settings of a Kafka connection by its id, for clusters of streams; likewise.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        source: KafkaSettings,
        control: KafkaSettings | None = None,
        jvm: Jvm | None = None,
        is_running: IsRunning = lambda _dag_id, _run_id: False,
        registries: Registries = registry_of_environment,
        connections: Connections | None = None,
    ) -> None:
        self._set_up(pipeline, parts_of(pipeline, source, control, jvm, registries, connections), is_running)

    @classmethod
    def with_parts(
        cls, pipeline: Pipeline, parts: Parts, is_running: IsRunning = lambda _dag_id, _run_id: False
    ) -> Coordinator:
        """A coordinator with other parts than the pipeline file names."""
        self = cls.__new__(cls)
        self._set_up(pipeline, parts, is_running)
        return self

    def _set_up(self, pipeline: Pipeline, parts: Parts, is_running: IsRunning) -> None:
        self.pipeline = pipeline
        self._session = Session(pipeline, parts)
        self._committer = Committer(self._session)
        self._starter = Starter(self._session, self._committer, is_running)

    @_with_file_keys
    def start(self, run: Run) -> Started | Outcome:
        """Plan the interval and open its transaction; an empty window opens nothing.

        Raises:
            RetryableError: another transaction of the table is about to commit, or Kafka or Hudi don't answer.
            ActionRequiredError: offsets are lost, or pipeline, table, topics and permissions don't fit.
        """
        self._session.parts.kafka.require_for_spark(self._session.pipeline.write.conf)
        return self._starter.start(run)

    @_with_file_keys
    def plan(self, request: Request) -> tuple[Task, Position]:
        """What a run would do, and the positions of the table and its topics; nothing is written anywhere.

        Raises:
            RetryableError, ActionRequiredError: as `start`.
        """
        return self._starter.plan(request)

    @_with_file_keys
    def position(self) -> Position:
        """The positions of the table and its topics.

        Raises:
            RetryableError, ActionRequiredError: Kafka or Hudi don't answer.
        """
        with self._session.existing_table() as table:
            committed = self._session.present(table)
        followed = self._session.followed
        streams = followed.known if followed is not None else None
        state, instant = self._session.sources.state(None), committed.note.instant
        return Position(committed.checkpoint, state, streams, instant)

    @_with_file_keys
    def streams(self) -> tuple[Followed, Position]:
        """What the next interval reads of streams, and the positions of the table and of its clusters' topics.

        Raises:
            RetryableError, ActionRequiredError: as `start`.
        """
        with self._session.existing_table() as table:
            committed = self._session.present(table)
        state = self._session.bound(self._session.sources.state(None), committed.checkpoint)
        followed = self._session.followed
        if followed is None:
            raise ValueError("the pipeline reads no streams")
        return followed, Position(committed.checkpoint, state, followed.known)

    @_with_file_keys
    def rows(self) -> Pinned:
        """How the next interval's records would become rows, and of which columns, of each table.

        Raises:
            ActionRequiredError: there is no table yet, or records and table don't fit.
            RetryableError: the registry or Hudi don't answer.
        """
        with self._session.existing_table() as table:
            if table is None:
                raise ActionRequiredError(
                    "There is no table yet.", next_step="run an interval first.", table=self._session.table_id
                )
            if not self._session.sources.names:  # streams, whose clusters weren't asked for yet
                self._session.present(table)
            return self._session.pin(table, None)

    def checkpoints(self, instants: Iterable[str]) -> dict[str, Checkpoint]:
        """What committed intervals say of the logs that they have read, by instant; unknown instants are left out.

        Raises:
            RetryableError, ActionRequiredError: Hudi doesn't answer, or the table can't be used.
        """
        with self._session.existing_table() as table:
            written = {instant: table.written_by(instant) for instant in instants} if table is not None else {}
        return {instant: interval.checkpoint for instant, interval in written.items() if interval is not None}

    def notes_topics(self) -> NotesTopics:
        """The topics with notes of the table's records that were sent again, as its last commit names them.

        Raises:
            RetryableError, ActionRequiredError: the table's storage doesn't answer, or the table can't be used.
        """
        with self._session.existing_table() as table:
            metadata = table.last_checkpoint() if table is not None else None
        return self._session.notes_topics(read_note(metadata or {}))

    @_with_file_keys
    def commit(self, control_offset: int, instant: str | None = None, digest: str | None = None) -> Outcome:
        """Commit the transaction whose START-COMMIT has the given control-topic offset.

        Args:
            control_offset: what `start` returned.
            instant: the instant expected at that offset, if known: a control topic can be recreated.
            digest: of the START-COMMIT expected at that offset, if known.

        Raises:
            RetryableError: Kafka or Hudi don't answer, or another process is committing; safe to run again.
            IntervalError, ActionRequiredError: a range is missing, the audit failed, or the transaction was superseded.
        """
        self._session.control.expect_to_send()
        return self._committer.commit(control_offset, instant, digest)

    def needs_abort(self, control_offset: int) -> bool:
        """Whether the transaction still has to be ended; asks the control topic only, so it costs no JVM."""
        session = self._session
        transaction = transaction_at(session.control.table_log(session.table_id, control_offset), control_offset)
        return transaction.state not in (State.COMMITTED, State.ABORTED)

    def abort(self, run: Run, reason: str | None = None) -> Outcome:
        """End whatever the DAG run has left open. A transaction that was committed is acknowledged, never undone.

        Raises:
            RetryableError: a process that carries the commit out may still be at it, or Kafka or Hudi don't answer.
        """
        session = self._session
        session.control.ensure()  # a run may have died before it made the topic
        with session.table() as table:
            committed = session.committed(table)
            table_log = session.control.table_log(session.table_id, committed.control_offset)
            of_run = table_log.of_run(run.dag_id, run.run_id)
            ended = [self._abort_one(table, table_log, transaction, reason) for transaction in of_run]
        none = "" if of_run else ": the control topic has no transaction of this run since the table's last commit"
        return next((o for o in reversed(ended) if o), Outcome("nothing", f"Nothing was left open{none}."))

    def _abort_one(
        self, table: Table, table_log: TableLog, transaction: Transaction, reason: str | None
    ) -> Outcome | None:
        if transaction.state is State.COMMITTED:
            return None
        if transaction.state is State.ABORTED:
            table.rollback(transaction.id)  # the process that aborted it may have died before this
            self._committer.fence.repair(table, table_log)
            return None
        completed = table.state_of(transaction.id) == "completed"
        if transaction.state is State.DECIDED and not completed:
            self._committer.take_lease(table, table_log, transaction)
            completed = completed_by_previous_holder(table, transaction)
        if completed:
            stands = self._committer.finish(table, table_log, transaction)
            return self._committer.outcome(transaction) if stands else None
        why = reason or abort_reason(transaction)
        if not self._committer.give_up(table, table_log, transaction, why):
            return self._abort_one(table, table_log, transaction, reason)  # END-COMMIT came before our ABORT-COMMIT
        return Outcome("aborted", f"Aborted instant {transaction.id}: {why}", transaction.id)


def completed_by_previous_holder(table: Table, transaction: Transaction) -> bool:
    """Whether the lease's previous holder completed the commit; asked by a process that has just taken the lease."""
    return table.state_of(transaction.id) == "completed"
