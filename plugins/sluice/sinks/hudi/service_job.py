"""Carries out planned compactions and clusterings with Hudi's Spark client: writes files, and commits when called."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pyspark.sql import SparkSession

from sluice.logs import log
from sluice.protocol.messages import StartCommit
from sluice.sinks.hudi.clock import TableClock
from sluice.sinks.hudi.metadata_table import meta_client, metadata_table
from sluice.sinks.hudi.schema_cache import hold_metadata_schema
from sluice.sinks.hudi.write_config import write_config, write_options

_WRITE_CLIENT = "org.apache.hudi.client.BaseHoodieWriteClient"
_SERVICE_CLIENT = "org.apache.hudi.client.BaseHoodieTableServiceClient"


class HudiServiceJob:
    """Hudi's Spark write client for one service; see `sluice.connectors.data.ServiceJob`."""

    def __init__(self, spark: SparkSession, start: StartCommit) -> None:
        jvm: Any = spark._jvm
        self._jvm = jvm
        self._hudi = jvm.org.apache.hudi
        self._service = start.service
        self._path = start.table
        self._storage = self._hudi.storage.hadoop.HadoopStorageConfiguration(spark._jsc.hadoopConfiguration())
        hold_metadata_schema(jvm)
        config = write_config(jvm, start.writer, write_options(start.writer))
        context = self._hudi.client.common.HoodieSparkEngineContext(spark._jsc)
        self._client = self._hudi.client.SparkRDDWriteClient(context, config)

    @property
    def process(self) -> int:
        """The process id of the driver, which completes the service."""
        return int(self._jvm.java.lang.ProcessHandle.current().pid())

    def await_clock(self) -> None:
        """Wait until the driver's clock is later than every instant on the table's timelines."""
        meta = meta_client(self._jvm, self._storage, self._path)
        metas = filter(None, (meta, metadata_table(self._jvm, self._storage, meta)))
        TableClock(self._jvm, metas, self._path).wait()

    def pending(self) -> Sequence[str]:
        """Instants of the service's plans, oldest first."""
        timeline = meta_client(self._jvm, self._storage, self._path).getActiveTimeline()
        if self._service == "compaction":
            found = timeline.filterPendingCompactionTimeline()
        else:
            found = timeline.filterPendingReplaceOrClusteringTimeline()
        return [str(instant.requestedTime()) for instant in found.getInstants()]

    def write(self, instant: str) -> Callable[[], None]:
        """Write the plan's files; returns a function that commits them."""
        log.info("carrying out", service=self._service, instant=instant, table=self._path)
        if self._service == "compaction":
            metadata = self._client.compact(instant, False)
            metadata.getWriteStatuses().count()
            return lambda: self._client.commitCompaction(instant, metadata, self._hudi.common.util.Option.empty())
        metadata = self._client.cluster(instant, False)
        metadata.getWriteStatuses().count()
        return lambda: self._commit_clustering(instant, metadata)

    def _commit_clustering(self, instant: str, metadata: Any) -> None:
        """The second half of Hudi's `cluster`; unlike for compaction, Hudi 1.2 has no public method for it."""
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
        """Close the client."""
        self._client.close()
