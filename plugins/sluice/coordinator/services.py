"""Table services beside the intervals: each is a separate transaction, which holds the table as an interval does.

`begin` waits until no interval holds the table, then sends a START-COMMIT without ranges. Cleaning, archiving and the
metadata table's own services are done here. A compaction or clustering is planned here and carried out by a Spark job,
which sends END-COMMIT before it completes. Whatever dies in between leaves a plan on the timeline at most: that of a
compaction is carried out by the service's next run, that of a clustering is taken off by it and made anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

from sluice.connectors.sink import Table, VersionChange, VersionChangingError, shared_timeline_of, version_changer_of
from sluice.control.service_lease import ServiceLease
from sluice.coordinator.commit import Committer
from sluice.coordinator.parts import Parts, parts_of
from sluice.coordinator.session import Outcome, Run, Session
from sluice.coordinator.start import Starter
from sluice.coordinator.turns import IsRunning, Turns
from sluice.coordinator.version_change import VersionChanges
from sluice.errors import ActionRequiredError, RetryableError, SluiceError
from sluice.failpoints import reach
from sluice.jvm.gateway import Jvm
from sluice.kafka.config import KafkaSettings
from sluice.logs import log
from sluice.pipeline.model import Pipeline
from sluice.pipeline.services import TableServices
from sluice.protocol.confine import start_digest
from sluice.protocol.messages import StartCommit
from sluice.protocol.services import BY_HAND, Service
from sluice.protocol.transaction import State, Transaction
from sluice.protocol.version_change import BegunChange

_LONGEST_REASON = 2000  # characters of an ABORT-COMMIT
_Opened = TypeVar("_Opened")


@dataclass(frozen=True)
class Planned:
    """A compaction or clustering that a Spark job is to carry out under the transaction at `control_offset`."""

    service: Service
    instants: tuple[str, ...]
    control_offset: int
    digest: str | None = None


class Services:
    """The table services of one pipeline.

    Args:
        pipeline: whose table it is.
        source: the cluster that is read.
        control: the cluster that holds the control topic; the source's by default.
        jvm: where Hudi runs; a lean JVM for each step by default.
        is_running: whether a DAG run, by its DAG's and its own id, still runs. A service waits for an interval whose
            run does, and takes the table over from one whose run doesn't; by default each is taken to run.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        source: KafkaSettings,
        control: KafkaSettings | None = None,
        jvm: Jvm | None = None,
        is_running: IsRunning = lambda _dag_id, _run_id: True,
    ) -> None:
        self._set_up(pipeline, parts_of(pipeline, source, control, jvm), is_running)

    @classmethod
    def with_parts(cls, pipeline: Pipeline, parts: Parts, is_running: IsRunning) -> Services:
        """Services with other parts than the pipeline file names."""
        self = cls.__new__(cls)
        self._set_up(pipeline, parts, is_running)
        return self

    def _set_up(self, pipeline: Pipeline, parts: Parts, is_running: IsRunning) -> None:
        self._session = Session(pipeline, parts)
        self._committer = Committer(self._session)
        self._starter = Starter(self._session, self._committer, is_running)
        self._settings = pipeline.table_services or TableServices()
        self._turns = Turns(self._session, is_running)

    def run(self, run: Run, service: Service) -> Outcome:
        """Carry out a service of one step, such as cleaning, from START-COMMIT to ACK-COMMIT.

        Raises:
            RetryableError: an interval holds the table for longer than `table_services.wait`, or Kafka or Hudi fail.
            IntervalError: another run took the table over, since this one ended or took longer than
                `table_services.timeout`; nothing is lost, and the next run does the work.
            ActionRequiredError: the sink has no such service.
        """
        if service in BY_HAND:
            return self._change_version(run, service)
        with self._leased(run, service) as (table, lease):
            client = shared_timeline_of(table).maintenance()
            every = self._session.pipeline.control.commit_timeout / 4
            with _worked(lease, table.process, every, self._settings.timeout):
                summary = client.carry_out(service)
        log.info("table service ended", service=service, table=self._session.table_id, summary=summary)
        return Outcome("committed", summary, lease.transaction.id)

    def _change_version(self, run: Run, service: Service) -> Outcome:
        """Bring the table to the pipeline's version; a change that was begun is completed first, whatever it leads to.

        Raises:
            RetryableError, IntervalError, ActionRequiredError: as `run`.
        """
        self._require(service)
        while True:
            outcome, is_done = self._change_once(run, service)
            if is_done:
                return outcome

    def _change_once(self, run: Run, service: Service) -> tuple[Outcome, bool]:
        """One change, and whether the table has the pipeline's version then."""
        changes = VersionChanges(self._session, self._turns, run)

        def begin(change: VersionChange) -> ServiceLease | Transaction | None:
            if change.table is None:
                return changes.try_continue(change)
            return self._try_begin(change.table, run, service)

        opened = version_changer_of(self._session.sink).open_to_change_version
        every = self._session.pipeline.control.commit_timeout / 4
        with self._held(run, service, opened, begin) as (change, lease):
            process, note = change.process, changes.note(change, lease)
            with _worked(lease, process, every, self._settings.timeout):
                summary = change.carry_out(note, lambda: lease.require_held(process))
            is_done = note.to == change.to
        log.info("table service ended", service=service, table=self._session.table_id, summary=summary)
        return Outcome("committed", summary, lease.transaction.id), is_done

    def plan(self, run: Run, service: Service) -> Planned | Outcome:
        """Plan a compaction or clustering, and hold the table for the Spark job that carries it out.

        Raises:
            RetryableError, IntervalError, ActionRequiredError: as `run`.
        """
        with self._leased(run, service) as (table, lease):
            client = shared_timeline_of(table).maintenance()
            left = client.pending(service)
            if service == "clustering":
                # Not carried out any more: an interval may have replaced the files that it would rewrite.
                for instant in left:
                    lease.require_open()
                    client.take_off(instant)
                left = []
            reach("service.before_plan")
            lease.require_open()
            planned = client.plan(service)
            reach("service.after_plan")
            instants = (*left, planned) if planned else tuple(left)
            if not instants:
                lease.decide(table.process)
                lease.acknowledge()
                return Outcome("empty", f"No {service} is due yet.", lease.transaction.id)
        log.info("planned a table service", service=service, table=self._session.table_id, instants=instants)
        transaction = lease.transaction
        return Planned(service, instants, transaction.start_offset, start_digest(transaction.start))

    def state(self, control_offset: int) -> State:
        """The present state of the transaction whose START-COMMIT has that control-topic offset."""
        return self._lease_at(control_offset).transaction.state

    def give_up(self, control_offset: int, reason: str) -> None:
        """End a service that its Spark job has left open; what was completed or superseded stays as it is."""
        lease = self._lease_at(control_offset)
        if lease.transaction.state in (State.OPEN, State.DECIDED):
            lease.give_up(reason)

    def _lease_at(self, control_offset: int) -> ServiceLease:
        session = self._session
        return ServiceLease.at(session.control, session.table_id, control_offset, session.machine.now)

    # The lease ---------------------------------------------------------------------------------------------------

    @contextmanager
    def _leased(self, run: Run, service: Service) -> Iterator[tuple[Table, ServiceLease]]:
        """The table, once no interval holds it any more, held for the service; given up where the block fails."""
        self._require(service)
        with self._held(run, service, self._session.table, lambda table: self._try_begin(table, run, service)) as held:
            yield held

    def _require(self, service: Service) -> None:
        sink = self._session.pipeline.sink
        if service not in sink.capabilities.services:
            raise ActionRequiredError(
                f"Tables of {sink.place} as this one have no {service}.",
                next_step=f"name one of these: {', '.join(sorted(sink.capabilities.services)) or 'there are none'}.",
                table=self._session.table_id,
            )

    @contextmanager
    def _held(
        self,
        run: Run,
        service: Service,
        opened: Callable[[], AbstractContextManager[_Opened]],
        begin: Callable[[_Opened], ServiceLease | Transaction | None],
    ) -> Iterator[tuple[_Opened, ServiceLease]]:
        """What is opened, with the lease that `begin` gives once no other transaction holds the table."""
        self._session.control.ensure()
        until = self._session.machine.steady() + self._settings.wait.total_seconds()
        left: BegunChange | None = None
        while True:
            with ExitStack() as stack:
                try:
                    one = stack.enter_context(opened())
                    found = begin(one)
                except VersionChangingError as error:
                    found = self._turns.changing_version(error, run)
                    if found is None and error.begun == left:
                        raise  # it is there though no transaction holds the table any more
                    left = error.begun
                if isinstance(found, ServiceLease):
                    with _given_up_on_error(found):
                        yield one, found
                    return
            if found is not None:
                self._turns.wait_for(found, until)
            if self._session.machine.steady() >= until:
                raise self._waited_too_long(service)

    def _try_begin(self, table: Table, run: Run, service: Service) -> ServiceLease | Transaction | None:
        """A lease on the table, or the transaction that holds it; None if the table moved meanwhile."""
        session = self._session
        read_position = session.control.end()  # before the timeline is read: see protocol/transaction.py
        committed = session.committed(table)
        if not self._starter.settle_elsewhere(table, run, committed):
            return None
        table_log = session.control.table_log(session.table_id, committed.recent_control_offsets[0])
        self._starter.require_here(table_log)
        holder = self._turns.held_by_another(table_log, run)
        if holder is not None:
            return holder
        if self._committer.fence.repair(table, table_log) or self._committer.resolve_unfinished(table, table_log):
            return None
        epoch = max(table_log.highest_epoch(), committed.note.epoch) + 1
        start = StartCommit(
            **session.envelope(table.new_instant(), epoch, run),
            kind="service",
            service=service,
            read_position=read_position,
            oldest_unsettled=table_log.oldest_unsettled(read_position),
            ranges=(),
            source=session.pipeline.source.name,
            sink=session.pipeline.sink.name,
            writer=shared_timeline_of(table).maintenance().writer,
            process=run.process,
        )
        reach("service.before_start_commit")
        offset = session.control.send(start)
        transaction = session.control.extend(table_log).get(start.transaction)
        if transaction is None or transaction.start_offset != offset or transaction.state is not State.OPEN:
            return None
        reach("service.after_start_commit")
        log.info("START-COMMIT", service=service, table=session.table_id, control_offset=offset)
        self._starter.end_superseded(table, table_log, committed, start.transaction)
        return ServiceLease(session.control, table_log, transaction, session.machine.now)

    def _waited_too_long(self, service: Service) -> RetryableError:
        return RetryableError(
            "Intervals held the table for longer than a table service may wait for it.",
            next_step="the service is tried again; if it comes back, look at the intervals' runs, or raise "
            "table_services.wait.",
            table=self._session.table_id,
            service=service,
            wait=str(self._settings.wait),
        )


@contextmanager
def _worked(lease: ServiceLease, process: str, every: timedelta, longest: timedelta) -> Iterator[None]:
    """END-COMMIT before the work of a service that holds the table, and ACK-COMMIT after it.

    Raises:
        IntervalError: another process has taken the table over.
    """
    reach("service.before_end_commit")
    lease.decide(process)
    reach("service.after_end_commit")
    with lease.renewed(process, every.total_seconds(), longest):
        reach("service.during_work")
        yield
    reach("service.before_ack_commit")
    lease.acknowledge()
    if lease.transaction.state is not State.COMMITTED:
        raise lease.lost()


@contextmanager
def _given_up_on_error(lease: ServiceLease) -> Iterator[None]:
    try:
        yield
    except SluiceError as error:
        if lease.transaction.state in (State.OPEN, State.DECIDED):
            lease.give_up(str(error)[:_LONGEST_REASON])
        raise
