"""Finds an interval's file groups, the present place of its rows, and the replay that replaced them."""

from __future__ import annotations

from typing import Any

from sluice.connectors.sink import WrittenInterval
from sluice.jvm.gateway import HudiJvm
from sluice.protocol.commit_note import read_note
from sluice.protocol.messages import TableSpec
from sluice.protocol.offsets import OFFSETS_KEY, TRANSACTION_KEY, Checkpoint, read_checkpoint
from sluice.sinks.hudi.commits import completed_commit
from sluice.sinks.hudi.write_config import write_config, write_options


def last_replay(meta: Any, instant: str) -> str | None:
    """The last committed replay of an interval, or of its replays; None if there is none.

    Searches all commits since then, in the active and the archived timeline.

    Args:
        meta: the table's meta client.
        instant: the interval.
    """
    active = meta.reloadActiveTimeline()
    found: dict[str, str] = {}
    if active.isBeforeTimelineStarts(instant):
        archived = meta.getArchivedTimeline()
        archived.loadCompletedInstantDetailsInMemory(instant, str(active.firstInstant().get().requestedTime()))
        found |= _replays(archived, instant)
    found |= _replays(active, instant)
    last = None
    while instant in found:
        last = instant = found[instant]
    return last


def _replays(timeline: Any, since: str) -> dict[str, str]:
    """The last replay of each instant among a timeline's commits after `since`, by the replayed instant."""
    later = timeline.getCommitsTimeline().filterCompletedInstants().findInstantsAfter(since).getInstants()
    found = {}
    for instant in later:
        note = timeline.readCommitMetadata(instant).getExtraMetadata().get(TRANSACTION_KEY)
        replays = read_note({TRANSACTION_KEY: str(note)}).replays if note is not None else None
        if replays is not None:
            found[str(replays)] = str(instant.requestedTime())
    return found


def written_by(meta: Any, instant: str) -> WrittenInterval | None:
    """The result of a committed interval; None if the instant is not, or no longer, a commit of Sluice's.

    Searches the active timeline, then the archived one.
    """
    metadata = completed_commit(meta, instant)
    if metadata is None:
        return None
    note = metadata.getExtraMetadata().get(TRANSACTION_KEY)
    if note is None:
        return None
    groups: dict[str, tuple[str, ...]] = {}
    for partition, stats in dict(metadata.getPartitionToWriteStats()).items():
        groups[str(partition)] = tuple(sorted({str(stat.getFileId()) for stat in stats}))
    offsets = metadata.getExtraMetadata().get(OFFSETS_KEY)
    checkpoint = Checkpoint() if offsets is None else read_checkpoint({OFFSETS_KEY: str(offsets)}, "", ())
    return WrittenInterval(instant, read_note({TRANSACTION_KEY: str(note)}), groups, checkpoint)


def moved_file_groups(jvm: HudiJvm, meta: Any, writer: TableSpec, written: WrittenInterval) -> dict[str, str | None]:
    """File groups of an append interval that no longer hold its rows, each with the instant that moved these."""
    hudi = jvm.jvm.org.apache.hudi
    context = hudi.client.common.HoodieJavaEngineContext(jvm.storage)
    config = write_config(jvm.jvm, writer, write_options(writer), hudi.common.engine.EngineType.JAVA)
    meta.reloadActiveTimeline()
    view = hudi.table.HoodieJavaTable.create(config, context, meta).getFileSystemView()
    moved: dict[str, str | None] = {}
    for partition, ids in written.file_groups.items():
        for file_id in ids:
            latest = view.getLatestBaseFile(partition, file_id)
            if not latest.isPresent():
                moved[file_id] = _replaced_by(meta, file_id)
            elif str(latest.get().getCommitTime()) != written.instant:
                moved[file_id] = str(latest.get().getCommitTime())
    return moved


def _replaced_by(meta: Any, file_id: str) -> str | None:
    timeline = meta.getActiveTimeline()
    for instant in timeline.getCompletedReplaceTimeline().getInstants():
        replaced = dict(timeline.readReplaceCommitMetadata(instant).getPartitionToReplaceFileIds())
        if any(file_id in list(ids) for ids in replaced.values()):
            return str(instant.requestedTime())
    return None
