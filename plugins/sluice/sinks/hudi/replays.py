"""Which replay has put its rows in place of an interval's, by the notes that our commits carry."""

from __future__ import annotations

import json
from typing import Any

from sluice.protocol.offsets import TRANSACTION_KEY


def last_replay(meta: Any, instant: str) -> str | None:
    """The last committed replay of an interval, or of what has replayed it; None where there is none.

    Looks through all commits since, as far back as the timeline, active and archived, has them.

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
    """By the instant that it has read again, the last replay of a timeline that was committed after `since`."""
    later = timeline.getCommitsTimeline().filterCompletedInstants().findInstantsAfter(since).getInstants()
    found = {}
    for instant in later:
        note = timeline.readCommitMetadata(instant).getExtraMetadata().get(TRANSACTION_KEY)
        replays = json.loads(str(note)).get("replays") if note is not None else None
        if replays is not None:
            found[str(replays)] = str(instant.requestedTime())
    return found
