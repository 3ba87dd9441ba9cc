"""Pending clusterings: which program planned them, and which file groups they will rewrite.

A clustering's job carries out its plan unchanged. It doesn't check whether another commit has replaced the plan's file
groups since, so that replaced rows would reappear in new file groups.
"""

from __future__ import annotations

from operator import itemgetter
from typing import Any

from sluice.connectors.sink import WrittenInterval
from sluice.jvm.gateway import HudiJvm

PLANNED_BY = "sluice.planned_by"
"""A key of a request's extra metadata: the release of Sluice that made the plan."""


def own_clusterings(jvm: HudiJvm, meta: Any) -> list[str]:
    """Instants of pending clusterings with Sluice's mark, oldest first."""
    return [instant for instant, _, is_own in _pending(jvm, meta) if is_own]


def planned_by_others(jvm: HudiJvm, meta: Any, written: WrittenInterval) -> dict[str, str]:
    """File groups of an interval in pending clusterings without Sluice's mark, each with the clustering's instant."""
    utilities = jvm.jvm.org.apache.hudi.common.util.ClusteringUtils
    collectors = jvm.jvm.java.util.stream.Collectors
    own = {(partition, group) for partition, groups in written.file_groups.items() for group in groups}
    found: dict[str, str] = {}
    for instant, plan, is_own in _pending(jvm, meta):
        if is_own:
            continue
        for group in utilities.getFileGroupsFromClusteringPlan(plan).collect(collectors.toList()):
            if (str(group.getPartitionPath()), str(group.getFileId())) in own:
                found[str(group.getFileId())] = instant
    return found


def _pending(jvm: HudiJvm, meta: Any) -> list[tuple[str, Any, bool]]:
    """Instants of pending clusterings with their plans and whether Sluice made them, oldest first."""
    timeline = meta.reloadActiveTimeline()
    plans = jvm.jvm.org.apache.hudi.common.util.ClusteringUtils.getAllPendingClusteringPlans(meta)
    requested = jvm.jvm.org.apache.hudi.common.table.timeline.HoodieInstant.State.REQUESTED
    found: dict[str, tuple[Any, bool]] = {}
    for pair in plans.collect(jvm.jvm.java.util.stream.Collectors.toList()):
        pending = pair.getLeft()
        instant, action = str(pending.requestedTime()), pending.getAction()
        # The extra metadata given to `scheduleTableService` is the request's. The plan in it has others.
        request = meta.getInstantGenerator().createNewInstant(requested, action, instant)
        extra = timeline.readRequestedReplaceMetadata(request).getExtraMetadata()
        found[instant] = pair.getRight(), extra is not None and bool(extra.containsKey(PLANNED_BY))
    return [(instant, *of) for instant, of in sorted(found.items(), key=itemgetter(0))]
