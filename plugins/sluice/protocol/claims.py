"""The writer of a range: a worker that has claimed it, or a Spark job that its `write` task submits. Pure.

Workers are an optimization on which safety doesn't depend: the first complete WRITE-STATUS of a range counts, from any
process. These rules only decide which process begins, and how long others wait:

- a worker claims a range of an open transaction if the range has no WRITE-STATUS yet and its last claim was released or
  has expired. Of two concurrent claims the log's first one counts;
- a claim expires when a reader has seen no newer one for its `lease`, by that reader's own monotonic clock. A process
  that has just begun counts from when it first reads the claim, so it may only wait longer;
- a range that workers have claimed three times and not written is left to its `write` task: it may be the range that
  kills them;
- the `write` task waits while a claim lasts. It submits a separate Spark job if no worker is present, if none claims
  the range in time, if the claim expires, and if the range has failed in an earlier try.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable
from enum import StrEnum

from sluice.protocol.messages import NO_LEASE, Claim, StartCommit
from sluice.protocol.transaction import Transaction

Steady = Callable[[], float]
"""A monotonic clock, in seconds."""
MOST_TAKERS = 3
"""How often workers claim a range; a renewed claim counts once."""


class Claims:
    """The claims of workers, as one process has seen them.

    Args:
        steady: its monotonic clock.
    """

    def __init__(self, steady: Steady) -> None:
        self._steady = steady
        # The last claim of each range, by table and transaction, and when it was seen. Two tables may share an instant.
        self._seen: dict[tuple[str, str, int], tuple[int, float]] = {}

    def standing(self, transaction: Transaction, number: int) -> Claim | None:
        """The present claim on a range; None if none was made, or it was released or has expired."""
        offset, claim = transaction.claims.get(number, (0, None))
        if claim is None or claim.released:
            return None
        now, place = self._steady(), (transaction.start.table, transaction.id, number)
        known, seen = self._seen.get(place, (NO_LEASE, now))
        if known != offset:
            seen = now
            self._seen[place] = (offset, now)
        return claim if now - seen < claim.lease else None

    def may_claim(self, transaction: Transaction, number: int) -> bool:
        """Whether a worker may claim a range."""
        if not is_unwritten(transaction, number) or is_left_by_workers(transaction, number):
            return False
        return self.standing(transaction, number) is None

    def forget(self, transactions: Collection[str]) -> None:
        """Drop all claims, except on ranges of some transactions."""
        self._seen = {place: seen for place, seen in self._seen.items() if place[1] in transactions}


def is_unwritten(transaction: Transaction, number: int) -> bool:
    """Whether a range is still to be written for the first time.

    A failed one is tried again by its `write` task, in a separate Spark job: the worker itself may be at fault.
    """
    open_ = transaction.is_open and number < len(transaction.start.ranges)
    return open_ and transaction.status_of(number) is None and transaction.failure_of(number) is None


def is_left_by_workers(transaction: Transaction, number: int) -> bool:
    """Whether workers have claimed a range too often for another claim: its `write` task submits a Spark job."""
    return transaction.takers.get(number, 0) >= MOST_TAKERS


def is_known_from(position: int, start: StartCommit) -> bool:
    """Whether a reader that began at `position` can tell if this START-COMMIT counts.

    It depends on the messages after the START's own `read_position`. A START that doesn't count is no interval: its
    instant is never opened, and no roll-back would ever find files written for it. Coordinators have Spark jobs write
    the intervals that they know to count, so every range is written though a worker skips it.
    """
    return start.read_position >= position


def first_choice(workers: Iterable[str], topic: str, transaction: str, number: int) -> str | None:
    """The worker that should claim a range before the others; None if there are none.

    A transaction's ranges go to the workers in turn, and its id determines the first one: each worker computes the same
    order by itself, and none has two ranges more than another.

    Args:
        workers: the names of the present workers.
        topic: the control topic.
        transaction: the transaction's id.
        number: the range's number in the plan.
    """
    names = sorted(set(workers))
    if not names:
        return None
    first = int.from_bytes(hashlib.sha256(f"{topic}/{transaction}".encode()).digest()[:8])
    return names[(first + number) % len(names)]


class Verdict(StrEnum):
    """The next step of a range's `write` task."""

    WAIT = "wait"
    WRITTEN = "written"
    FAILED = "failed"
    ENDED = "ended"
    SUBMIT = "submit"


class Waiting:
    """A `write` task's waiting for workers to write its range.

    Args:
        number: the range's number in the plan.
        claim_within: seconds within which a worker has to claim it.
        steady: the process's steady clock.
    """

    def __init__(self, number: int, claim_within: float, steady: Steady) -> None:
        self._number = number
        self._within = claim_within
        self._steady = steady
        self._claims = Claims(steady)
        self._unclaimed_since: float | None = None
        self._failed_before: bool | None = None

    def judge(self, transaction: Transaction | None, workers: Callable[[], bool]) -> Verdict:
        """The next step, by the transaction's present state.

        Args:
            transaction: the transaction, None where the log holds none.
            workers: returns whether a worker is present; called only if the range is unclaimed.
        """
        if transaction is None or not transaction.is_open:
            return self._of_ended(transaction)
        if transaction.status_of(self._number) is not None:
            return Verdict.WRITTEN
        failed = transaction.failure_of(self._number) is not None
        if self._failed_before is None:
            self._failed_before = failed  # then it is another try's, and this one submits its own job
        if failed:
            return Verdict.SUBMIT if self._failed_before else Verdict.FAILED
        if self._claims.standing(transaction, self._number) is not None:
            self._unclaimed_since = None
            return Verdict.WAIT
        return self._unclaimed(transaction, workers)

    def _of_ended(self, transaction: Transaction | None) -> Verdict:
        written = transaction is not None and transaction.status_of(self._number) is not None
        return Verdict.WRITTEN if written else Verdict.ENDED

    def _unclaimed(self, transaction: Transaction, workers: Callable[[], bool]) -> Verdict:
        now = self._steady()
        if self._unclaimed_since is None:
            self._unclaimed_since = now
        late = now - self._unclaimed_since >= self._within or is_left_by_workers(transaction, self._number)
        return Verdict.SUBMIT if late or not workers() else Verdict.WAIT
