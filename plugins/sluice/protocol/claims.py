"""Who writes a range: a worker that has claimed it, or a Spark job that its `write` task submits. Pure.

Workers are a speed-up, and nothing that safety rests on: the first whole WRITE-STATUS of a range counts, whoever sent
it. What is decided here is only who begins, and how long others wait:

- a worker claims a range of an open transaction that nobody has reported or failed to write, and whose last claim was
  given back or has run out. Of two claims at once the log's first one counts;
- a claim runs out when a reader has seen no newer one for its `lease`, by that reader's own steady clock. A process
  that has just begun counts from when it first reads the claim, so it may only wait longer;
- a range that workers have taken three times and not written is left to its `write` task: it may be the range that
  kills them;
- the `write` task waits while a claim lasts. It submits a Spark job of its own where no worker is there, where none
  claims the range in time, where the claim runs out, and where the range has failed in an earlier try.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable
from enum import StrEnum

from sluice.protocol.messages import NO_LEASE, Claim, StartCommit
from sluice.protocol.transaction import Transaction

Steady = Callable[[], float]
"""Seconds on a clock that nobody sets."""
MOST_TAKERS = 3
"""How often workers take a range; a claim that is renewed counts once."""


class Claims:
    """What one process knows of the claims of workers.

    Args:
        steady: its steady clock.
    """

    def __init__(self, steady: Steady) -> None:
        self._steady = steady
        # The last claim of each range, by table and transaction, and when it was seen. Two tables may share an instant.
        self._seen: dict[tuple[str, str, int], tuple[int, float]] = {}

    def standing(self, transaction: Transaction, number: int) -> Claim | None:
        """The claim on a range that lasts; None where none was made, or it was given back or has run out."""
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
        """Drop what is known of claims, but for those of some transactions."""
        self._seen = {place: seen for place, seen in self._seen.items() if place[1] in transactions}


def is_unwritten(transaction: Transaction, number: int) -> bool:
    """Whether a range is still to be written for the first time.

    One that has failed is tried again by its `write` task, in a Spark job of its own: what fails in a worker may be the
    worker.
    """
    open_ = transaction.is_open and number < len(transaction.start.ranges)
    return open_ and transaction.status_of(number) is None and transaction.failure_of(number) is None


def is_left_by_workers(transaction: Transaction, number: int) -> bool:
    """Whether workers have taken a range so often that no other one may: its `write` task writes it by itself."""
    return transaction.takers.get(number, 0) >= MOST_TAKERS


def is_known_from(position: int, start: StartCommit) -> bool:
    """Whether who reads a control topic from a position on knows of an interval whether its START-COMMIT counts.

    That rests on what stands after the START's own `read_position`. One that doesn't count is no interval: nobody opens
    its instant, and no roll-back would ever find what was written for it. Coordinators have written by jobs what they
    know to count, so nothing is left undone where a worker leaves it alone.
    """
    return start.read_position >= position


def first_choice(workers: Iterable[str], topic: str, transaction: str, number: int) -> str | None:
    """The worker that should claim a range before others do; None where there is none.

    A transaction's ranges go to the workers in turn, and its id says who is the first: each worker finds the same one
    without asking, and none has two ranges more than another.

    Args:
        workers: the names of those that are there.
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
    """What the `write` task of a range does next."""

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
        """What to do, now that the log says this of the transaction.

        Args:
            transaction: the transaction, None where the log holds none.
            workers: asks whether a worker is there; called only where the range is unclaimed.
        """
        if transaction is None or not transaction.is_open:
            return self._of_ended(transaction)
        if transaction.status_of(self._number) is not None:
            return Verdict.WRITTEN
        failed = transaction.failure_of(self._number) is not None
        if self._failed_before is None:
            self._failed_before = failed  # then it is another try's, and this one has a job of its own
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
