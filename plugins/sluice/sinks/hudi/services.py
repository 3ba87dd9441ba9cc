"""Hudi's table services, through Hudi's Java client: plans, cleaning, archiving, and the metadata table's compaction.

Compaction and clustering are only planned here; `sluice.sinks.hudi.service_job` carries the plans out in Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from sluice.hoodie_options import by_present_names
from sluice.pipeline.services import TableServices
from sluice.protocol.messages import TableSpec
from sluice.sinks.hudi.failures import hudi_errors
from sluice.sinks.hudi.write_config import write_options

if TYPE_CHECKING:
    from sluice.sinks.hudi.table import HudiTable

_JAVA_PLAN = "org.apache.hudi.client.clustering.plan.strategy.JavaSizeBasedClusteringPlanStrategy"
_SPARK_EXECUTION = "org.apache.hudi.client.clustering.run.strategy.SparkSortAndSizeExecutionStrategy"


def service_options(services: TableServices) -> dict[str, str]:
    """The services' settings as Hudi's options; `options` in the pipeline file take precedence."""
    options = {
        "hoodie.clean.policy": "KEEP_LATEST_COMMITS",
        "hoodie.clean.trigger.max.commits": "1",
        "hoodie.clean.commits.retained": str(services.keep_commits),
        "hoodie.keep.min.commits": str(services.keep_timeline),
        "hoodie.keep.max.commits": str(services.keep_timeline + 1),
        "hoodie.metadata.compact.max.delta.commits": str(services.metadata_after_delta_commits),
        "hoodie.compact.inline.max.delta.commits": str(services.compaction.after_delta_commits),
        # Else a compaction would start a second write to the metadata table, which would stay open during commits.
        "hoodie.metadata.streaming.write.enabled": "false",
    }
    clustering = services.clustering
    if clustering is not None:
        options |= {
            "hoodie.clustering.async.max.commits": str(clustering.after_commits),
            "hoodie.clustering.inline.max.commits": str(clustering.after_commits),
            "hoodie.clustering.plan.strategy.small.file.limit": str(int(clustering.small_file)),
            "hoodie.clustering.plan.strategy.target.file.max.bytes": str(int(clustering.target_file)),
            "hoodie.clustering.plan.strategy.class": _JAVA_PLAN,
            "hoodie.clustering.execution.strategy.class": _SPARK_EXECUTION,
        }
        if clustering.sort_by:
            options["hoodie.clustering.plan.strategy.sort.columns"] = ",".join(clustering.sort_by)
    return options | by_present_names(services.options)


class ServiceClient:
    """One table's services in the coordinator's JVM. The caller holds the table."""

    def __init__(self, table: HudiTable, services: TableServices) -> None:
        self._table = table
        self._services = service_options(services)
        self._options = {**write_options(table.writer), **self._services}

    @property
    def writer(self) -> TableSpec:
        """The table's settings, with the services' options added."""
        writer = self._table.writer
        return writer.model_copy(update={"options": {**writer.options, **self._services}})

    # Plans -------------------------------------------------------------------------------------------------------

    def pending(self, service: str, *, own: bool = False) -> list[str]:
        """Instants of plans that are not completed yet, oldest first; see `sluice.connectors.sink`."""
        if own:
            return self._table.own_clusterings()
        timeline = self._table.timeline()
        if service == "compaction":
            found = timeline.filterPendingCompactionTimeline()
        else:
            found = timeline.filterPendingReplaceOrClusteringTimeline()
        return [str(instant.requestedTime()) for instant in found.getInstants()]

    def plan(self, service: str) -> str | None:
        """Plan a compaction or a clustering; returns its instant, or None if nothing is due."""
        with self._client("planning a table service") as client:
            return self._table.schedule(client, "COMPACT" if service == "compaction" else "CLUSTER")

    def take_off(self, instant: str) -> None:
        """Remove a clustering's plan from the timeline, with everything that a dead attempt at it wrote."""
        with self._client("taking a plan off the timeline") as client:
            client.purgePendingClustering(instant)  # removes only plans that were started
            for pending in self._table.timeline().filterPendingReplaceOrClusteringTimeline().getInstants():
                if str(pending.requestedTime()) == instant and bool(pending.isRequested()):
                    self._table.timeline().deletePending(pending)

    # What needs no Spark -----------------------------------------------------------------------------------------

    def carry_out(self, service: str) -> str:
        """Do the work of a service that needs no plan; see `sluice.connectors.sink`."""
        return STEPS[service](self)

    def clean(self) -> str:
        """Delete file versions that no retained commit reads."""
        with self._client("cleaning") as client:
            done = client.clean()
            deleted = int(done.getTotalFilesDeleted()) if done is not None else 0
        return f"Cleaned: {deleted} files of versions that are no longer read are deleted."

    def archive(self) -> str:
        """Move old instants from the active timeline to the archive."""
        before = int(self._table.timeline().countInstants())
        with self._client("archiving the timeline") as client:
            client.archive()
        fewer = before - int(self._table.timeline().countInstants())
        return f"Archived: the active timeline has {fewer} instants fewer."

    def serve_metadata_table(self) -> str:
        """Compact, clean and archive the metadata table, each if it is due.

        Its compaction is also a condition for archiving the table's timeline: Hudi keeps instants that the metadata
        table's last compaction doesn't include yet. In a commit, a Java client never does this by itself.
        """
        with self._client("compacting the metadata table") as client:
            self._table.serve_metadata_table(client)
        return "The metadata table's own compaction, cleaning and archiving are up to date."

    @contextmanager
    def _client(self, doing: str) -> Iterator[Any]:
        with hudi_errors(doing, table=self._table.writer.path), self._table.service_client(self._options) as client:
            yield client


STEPS: Mapping[str, Callable[[ServiceClient], str]] = MappingProxyType(
    {
        "cleaning": ServiceClient.clean,
        "archiving": ServiceClient.archive,
        "metadata_compaction": ServiceClient.serve_metadata_table,
    }
)
"""The work of each service of `sluice.protocol.services.IN_ONE_STEP`."""
