"""Carries a planned compaction or clustering out in Spark, and completes it only while its transaction holds the table.

The work is done while the transaction is open, so that an interval may supersede a job that nobody looks after any
more. What readers see changes after END-COMMIT alone: the files are written first, and committed last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from sluice.control.hold import Hold
from sluice.control.topic import ControlTopic
from sluice.errors import RetryableError, SluiceError
from sluice.failpoints import reach
from sluice.kafka.config import KafkaSettings
from sluice.logs import log
from sluice.participant.participant import Watch
from sluice.participant.session import spark_session
from sluice.process import identity
from sluice.protocol.confine import require_digest
from sluice.protocol.messages import StartCommit
from sluice.protocol.transaction import State
from sluice.sinks.hudi.clock import TableClock, metadata_table
from sluice.sinks.hudi.write_config import write_config, write_options

_WRITE_CLIENT = "org.apache.hudi.client.BaseHoodieWriteClient"
_SERVICE_CLIENT = "org.apache.hudi.client.BaseHoodieTableServiceClient"


@dataclass(frozen=True)
class ServiceAssignment:
    """What the job is told on its command line; all else stands in the START-COMMIT at that offset, and the plan."""

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
            IntervalError: the transaction doesn't hold the table any more; nothing was completed.
            RetryableError: the Spark job failed.
        """
        self._control.expect_to_send()
        hold = Hold.at(self._control, self._assignment.table, self._assignment.control_offset)
        start = hold.transaction.start
        require_digest(start, self._assignment.digest)
        if hold.transaction.state is State.COMMITTED:
            log.info("an earlier attempt has done this service", service=start.service)
            return
        spark = spark_session(f"sluice {start.service} {start.transaction}")
        try:
            self._serve(spark, hold)
        except SluiceError:
            raise
        except Exception as error:
            raise _failed(error, start) from error
        finally:
            spark.stop()

    def _serve(self, spark: SparkSession, hold: Hold) -> None:
        start = hold.transaction.start
        client = _Client(spark, start)
        try:
            with Watch(self._control, hold.table_log, hold.transaction, spark.sparkContext.cancelAllJobs) as watch:
                reach("service.before_work")
                complete = [client.write(instant) for instant in client.pending()]
                reach("service.after_work")
                watch.check()
            client.await_clock()
            hold.decide(identity(client.process))
            reach("service.after_end_commit")
            for finish in complete:
                finish()
            reach("service.before_ack_commit")
            hold.acknowledge()
            log.info("table service ended", service=start.service, table=start.table)
        finally:
            client.close()


class _Client:
    """Hudi's Spark write client for one service."""

    def __init__(self, spark: SparkSession, start: StartCommit) -> None:
        jvm: Any = spark._jvm
        self._jvm = jvm
        self._hudi = jvm.org.apache.hudi
        self._service = start.service
        self._path = start.table
        self._storage = self._hudi.storage.hadoop.HadoopStorageConfiguration(spark._jsc.hadoopConfiguration())
        config = write_config(jvm, start.writer, write_options(start.writer))
        context = self._hudi.client.common.HoodieSparkEngineContext(spark._jsc)
        self._client = self._hudi.client.SparkRDDWriteClient(context, config)

    @property
    def process(self) -> int:
        """The driver's process number, in which the service is completed."""
        return int(self._jvm.java.lang.ProcessHandle.current().pid())

    def await_clock(self) -> None:
        """Wait until the driver's clock is later than all that stands on the table's timelines."""
        builder = self._hudi.common.table.HoodieTableMetaClient.builder()
        meta = builder.setConf(self._storage).setBasePath(self._path).build()
        metas = filter(None, (meta, metadata_table(self._jvm, self._storage, meta)))
        TableClock(self._jvm, metas, self._path).wait()

    def pending(self) -> Sequence[str]:
        """Instants of the service's plans, oldest first."""
        builder = self._hudi.common.table.HoodieTableMetaClient.builder()
        timeline = builder.setConf(self._storage).setBasePath(self._path).build().getActiveTimeline()
        if self._service == "compaction":
            found = timeline.filterPendingCompactionTimeline()
        else:
            found = timeline.filterPendingReplaceOrClusteringTimeline()
        return [str(instant.requestedTime()) for instant in found.getInstants()]

    def write(self, instant: str) -> Callable[[], None]:
        """Write the plan's files; what is returned commits them."""
        log.info("carrying out", service=self._service, instant=instant, table=self._path)
        if self._service == "compaction":
            metadata = self._client.compact(instant, False)
            metadata.getWriteStatuses().count()
            return lambda: self._client.commitCompaction(instant, metadata, self._hudi.common.util.Option.empty())
        metadata = self._client.cluster(instant, False)
        metadata.getWriteStatuses().count()
        return lambda: self._commit_clustering(instant, metadata)

    def _commit_clustering(self, instant: str, metadata: Any) -> None:
        """The second half of Hudi's `cluster`, for which 1.2 has no public method, as it has for compaction."""
        lang = self._jvm.java.lang
        base = lang.Class.forName(_SERVICE_CLIENT)
        field = lang.Class.forName(_WRITE_CLIENT).getDeclaredField("tableServiceClient")
        field.setAccessible(True)
        services = field.get(self._client)
        method = next(m for m in base.getDeclaredMethods() if str(m.getName()) == "commitClustering")
        method.setAccessible(True)
        table = self._hudi.table.HoodieSparkTable.create(self._client.getConfig(), self._client.getEngineContext())
        arguments = self._jvm.java.util.ArrayList()
        for argument in (metadata, table, instant):
            arguments.add(argument)
        method.invoke(services, arguments.toArray())

    def close(self) -> None:
        """Let go of what the client holds."""
        self._client.close()


def _failed(error: Exception, start: StartCommit) -> SluiceError:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    reason = next((line.strip() for line in lines if "Caused by" in line), lines[0])
    return RetryableError(
        "The Spark job of a table service failed.",
        next_step="the task is retried; if it comes back, read the Spark log above.",
        table=start.table,
        service=start.service,
        reason=reason[:1000],
    )
