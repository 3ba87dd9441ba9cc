"""Carries out a planned compaction or clustering in Spark, completing it only while its transaction holds the table.

The work is done while the transaction is open, so that an interval may supersede an abandoned job. What readers see
changes only after END-COMMIT: the files are written first, and committed last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from sluice.connectors.data import ServiceJob as Client
from sluice.connectors.data import service_of
from sluice.connectors.log import ControlLog
from sluice.control.service_lease import ServiceLease
from sluice.errors import RetryableError, SluiceError
from sluice.failpoints import reach
from sluice.logs import log
from sluice.participant.participant import Watch
from sluice.participant.session import readable_error, spark_session
from sluice.process import identity
from sluice.protocol.confine import require_digest
from sluice.protocol.messages import StartCommit
from sluice.protocol.transaction import State


@dataclass(frozen=True)
class ServiceAssignment:
    """The job's command-line arguments; everything else is in the plan and in the START-COMMIT at that offset."""

    table: str
    control_topic: str
    control_offset: int
    digest: str | None = None


@dataclass(frozen=True)
class RunningService:
    """A service's client in a started job.

    Attributes:
        client: carries out the service.
        holder: the process in which the service is completed, as returned by `sluice.process.identity`.
        cancel: makes `client.write` end soon; called from another thread.
    """

    client: Client
    holder: str
    cancel: Callable[[], None]


Running = Callable[[StartCommit], AbstractContextManager[RunningService]]
"""Starts the job of a service, which runs for the length of the block. What fails in the block is a `SluiceError`."""


class ServiceJob:
    """One attempt at the table's pending compactions or clusterings.

    Args:
        assignment: which service.
        control: the control log.
        running: starts the job that does the work.
        now: the machine's time, with which messages are stamped.
    """

    def __init__(
        self,
        assignment: ServiceAssignment,
        control: ControlLog,
        running: Running,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._assignment = assignment
        self._control = control
        self._running = running
        self._now = now

    def run(self) -> None:
        """Carry the plans out, and send END-COMMIT and ACK-COMMIT.

        Raises:
            IntervalError: the transaction no longer holds the table; nothing was completed.
            RetryableError: the Spark job failed.
        """
        self._control.expect_to_send()
        lease = ServiceLease.at(self._control, self._assignment.table, self._assignment.control_offset, self._now)
        start = lease.transaction.start
        require_digest(start, self._assignment.digest)
        if lease.transaction.state is State.COMMITTED:
            log.info("an earlier attempt has done this service", service=start.service)
            return
        with self._running(start) as job:
            self._serve(job, lease)

    def _serve(self, job: RunningService, lease: ServiceLease) -> None:
        client, start = job.client, lease.transaction.start
        with Watch(self._control, lease.table_log, lease.transaction, job.cancel) as watch:
            reach("service.before_work")
            complete = []
            for instant in client.pending():
                lease.require_open()
                complete.append(client.write(instant))
            reach("service.after_work")
            watch.check()
        client.await_clock()
        lease.decide(job.holder)
        reach("service.after_end_commit")
        for finish in complete:
            finish()
        reach("service.before_ack_commit")
        lease.acknowledge()
        log.info("table service ended", service=start.service, table=start.table)


@contextmanager
def in_spark(start: StartCommit) -> Iterator[RunningService]:
    """The job of a service in this driver's Spark session.

    Raises:
        RetryableError: Spark or Hudi failed.
    """
    spark = spark_session(f"sluice {start.service} {start.transaction}")
    try:
        client = service_of(start.sink)(spark, start)
        try:
            yield RunningService(client, identity(client.process), spark.sparkContext.cancelAllJobs)
        finally:
            client.close()
    except SluiceError:
        raise
    except Exception as error:
        raise _failed(error, start) from error
    finally:
        spark.stop()


def _failed(error: Exception, start: StartCommit) -> SluiceError:
    lines = str(readable_error(error)).strip().splitlines() or [type(error).__name__]
    reason = next((line.strip() for line in lines if "Caused by" in line), lines[0])
    return RetryableError(
        "The Spark job of a table service failed.",
        next_step="the task is retried; if it comes back, read the Spark log above.",
        table=start.table,
        service=start.service,
        reason=reason[:1000],
    )
