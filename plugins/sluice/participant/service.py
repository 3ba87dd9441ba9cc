"""Carries out a planned compaction or clustering in Spark, completing it only while its transaction holds the table.

The work is done while the transaction is open, so that an interval may supersede an abandoned job. What readers see
changes only after END-COMMIT: the files are written first, and committed last.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import SparkSession

from sluice.connectors.data import service_of
from sluice.control.service_lease import ServiceLease
from sluice.control.topic import ControlTopic
from sluice.errors import RetryableError, SluiceError
from sluice.failpoints import reach
from sluice.kafka.config import KafkaSettings
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


class ServiceJob:
    """One attempt at the table's pending compactions or clusterings."""

    def __init__(self, assignment: ServiceAssignment, control: KafkaSettings) -> None:
        self._assignment = assignment
        self._control = ControlTopic(control, assignment.control_topic)

    def run(self) -> None:
        """Carry the plans out, and send END-COMMIT and ACK-COMMIT.

        Raises:
            IntervalError: the transaction no longer holds the table; nothing was completed.
            RetryableError: the Spark job failed.
        """
        self._control.expect_to_send()
        lease = ServiceLease.at(self._control, self._assignment.table, self._assignment.control_offset)
        start = lease.transaction.start
        require_digest(start, self._assignment.digest)
        if lease.transaction.state is State.COMMITTED:
            log.info("an earlier attempt has done this service", service=start.service)
            return
        spark = spark_session(f"sluice {start.service} {start.transaction}")
        try:
            self._serve(spark, lease)
        except SluiceError:
            raise
        except Exception as error:
            raise _failed(error, start) from error
        finally:
            spark.stop()

    def _serve(self, spark: SparkSession, lease: ServiceLease) -> None:
        start = lease.transaction.start
        client = service_of(start.sink)(spark, start)
        try:
            with Watch(self._control, lease.table_log, lease.transaction, spark.sparkContext.cancelAllJobs) as watch:
                reach("service.before_work")
                complete = [client.write(instant) for instant in client.pending()]
                reach("service.after_work")
                watch.check()
            client.await_clock()
            lease.decide(identity(client.process))
            reach("service.after_end_commit")
            for finish in complete:
                finish()
            reach("service.before_ack_commit")
            lease.acknowledge()
            log.info("table service ended", service=start.service, table=start.table)
        finally:
            client.close()


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
