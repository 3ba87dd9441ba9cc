"""Reads the metadata of completed commits on a table's active and archived timelines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from sluice.protocol.offsets import holds_checkpoint

_LSM_LAYOUT = 2  # the timeline layout since table version 8
_END_OF_TIME = "9" * 17  # later than any instant


def last_checkpoint(hudi: Any, meta: Any) -> dict[str, str] | None:
    """Extra metadata of the newest commit with a checkpoint, walking back over other writers' commits.

    Searches the active timeline, then the archived one. None if no commit has a checkpoint.

    Args:
        hudi: the JVM's package `org.apache.hudi`.
        meta: the table's meta client.
    """
    found = _newest_checkpoint(hudi, meta.reloadActiveTimeline())
    if found is None:
        stretches = _archived_stretches(hudi, meta)
        found = next(filter(None, (_newest_checkpoint(hudi, stretch) for stretch in stretches)), None)
    return found


def _archived_stretches(hudi: Any, meta: Any) -> Iterator[Any]:
    """The archived timeline in stretches, newest first: it grows without limit, and the checkpoint is near its end.

    Hudi's limit on the number of instants selects the oldest instants of the newest file, so stretches are bounded by
    the times in the files' names instead. Tables before version 8 have another archive, which is read as a whole.
    """
    timelines = hudi.common.table.timeline
    if int(meta.getTimelineLayoutVersion().getVersion()) < _LSM_LAYOUT:
        whole = meta.getArchivedTimeline()
        whole.loadCompletedInstantDetailsInMemory()
        yield whole
        return
    lsm = timelines.LSMTimeline
    files = lsm.latestSnapshotManifest(meta, meta.getArchivePath()).getFiles()
    names = [str(file.getFileName()) for file in files]
    reached = _END_OF_TIME
    for name in sorted(names, key=lambda n: str(lsm.getMaxInstantTime(n)), reverse=True):
        first = str(lsm.getMinInstantTime(name))
        if first < reached:
            stretch = timelines.versioning.v2.ArchivedTimelineV2(meta, False)
            stretch.loadCompletedInstantDetailsInMemory(_just_before(first), reached)
            yield stretch
            reached = first


def _newest_checkpoint(hudi: Any, timeline: Any) -> dict[str, str] | None:
    instants = timeline.getCommitsTimeline().filterCompletedInstants().getInstants()
    text_of = hudi.common.util.JsonUtils.toString
    for i in range(instants.size() - 1, -1, -1):
        extra = timeline.readCommitMetadata(instants.get(i)).getExtraMetadata()
        found = json.loads(text_of(extra))  # one call over the bridge
        metadata = {str(k): str(v) for k, v in found.items() if v is not None}
        if holds_checkpoint(metadata):
            return metadata
    return None


def completed_commit(meta: Any, instant: str) -> Any | None:
    """A completed commit's metadata, from the active or the archived timeline."""
    archived = meta.getArchivedTimeline()
    if meta.reloadActiveTimeline().isBeforeTimelineStarts(instant):
        archived.loadCompletedInstantDetailsInMemory(_just_before(instant), instant)
        timeline = archived
    else:
        timeline = meta.getActiveTimeline()
    found = timeline.getCommitsTimeline().filterCompletedInstants()
    instants = [i for i in found.getInstants() if str(i.requestedTime()) == instant]
    return timeline.readCommitMetadata(instants[0]) if instants else None


def _just_before(instant: str) -> str:
    """The start of a range of the archived timeline that includes the instant: Hudi excludes the start."""
    return str(int(instant) - 1)
