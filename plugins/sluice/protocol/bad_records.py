"""How many bad records an interval may have. Pure.

The participants count. The rule is applied once the counts of all ranges are known, or earlier by a participant whose
own count already decides it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sluice.errors import ActionRequiredError
from sluice.protocol.messages import BadRecord, StartCommit, WriteStatus
from sluice.records.settings import Errors

_NEXT_STEP = (
    "nothing of this interval was committed; correct the producer or the pipeline, or raise errors.{limit} for as long "
    "as so many are to be set aside."
)


def limit_broken(errors: Errors, bad: int, read: int) -> str | None:
    """The limit of the pipeline's `errors` that is exceeded by `bad` of `read` records; None if none is."""
    if errors.max_records is not None and bad > errors.max_records:
        return "max_records"
    if errors.max_rate is not None and bad > errors.max_rate * read:
        return "max_rate"
    return None


def too_many(start: StartCommit, bad: int, read: int, first: BadRecord | None) -> ActionRequiredError | None:
    """The error of an interval with more bad records than the pipeline tolerates; None if it tolerates them.

    Args:
        start: the interval's START-COMMIT.
        bad: how many bad records are known.
        read: how many records were read, or the most that can have been read.
        first: the first bad record.
    """
    limit = limit_broken(start.records.errors, bad, read)
    if limit is None:
        return None
    where = first.model_dump() if first is not None else {}
    return ActionRequiredError(
        f"Too many records can't be loaded: {bad:,} of {read:,}, and errors.{limit} is "
        f"{getattr(start.records.errors, limit)}.",
        next_step=_NEXT_STEP.format(limit=limit),
        **({"first": f"{first.topic}[{first.partition}]@{first.offset}", "reason": where["reason"]} if first else {}),
        table=start.table,
        instant=start.transaction,
    )


def certainly_too_many(start: StartCommit, bad: int, first: BadRecord | None) -> ActionRequiredError | None:
    """The same for one range's count: the limit is exceeded whatever the other ranges find.

    At most, every planned offset is a good record.
    """
    return too_many(start, bad, sum(r.end - r.start for r in start.offset_ranges), first)


def first_bad(statuses: Iterable[WriteStatus]) -> BadRecord | None:
    """The first bad record of an interval, by topic, partition and offset; None if there is none."""
    found = [status.first_bad for status in statuses if status.first_bad is not None]
    return min(found, key=lambda bad: (bad.topic, bad.partition, bad.offset), default=None)


def audit_bad_records(start: StartCommit, reported: Mapping[int, WriteStatus]) -> None:
    """Check the bad records of all ranges that are about to be committed against the pipeline's limits.

    Raises:
        ActionRequiredError: there are too many.
    """
    statuses = reported.values()
    first = first_bad(statuses)
    bad = sum(status.records_quarantined for status in statuses)
    error = too_many(start, bad, sum(status.records_read for status in statuses), first)
    if error is not None:
        raise error
