"""Workers as seen on the control topic: the ranges that each holds, and its last claim's fields. Pure.

The topic doesn't show whether a worker is still present: its consumer group's members do.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime
from sys import intern

from sluice.protocol.messages import Claim, ControlMessage, WriteStatus
from sluice.protocol.transaction import Transaction

_REMEMBERED = 64  # workers of one table; idle ones are forgotten first


@dataclass(frozen=True, slots=True)
class Hold:
    """A range that a worker has claimed and not reported.

    Attributes:
        instant: the transaction.
        number: the range's number in its plan.
        since: when the worker claimed it, by its own clock.
    """

    instant: str
    number: int
    since: datetime


@dataclass(slots=True)
class WorkerSeen:
    """A worker, by its messages; times are by its own clock.

    Attributes:
        worker: its name.
        last: the time of its last message: its last claim, or the end of a range that it held.
        began: when it began; None where its release doesn't report it.
        memory: MiB of its processes at its last claim; None if unknown.
        holds: the ranges that it holds, by transaction and number.
    """

    worker: str
    last: datetime
    began: datetime | None = None
    memory: int | None = None
    holds: dict[tuple[str, int], Hold] = field(default_factory=dict)


class WorkersSeen:
    """The workers of one table's messages.

    Attributes:
        by_name: the workers, those first that were heard of longest ago.
    """

    def __init__(self) -> None:
        self.by_name: dict[str, WorkerSeen] = {}

    def fold(self, message: ControlMessage, transaction: Transaction) -> None:
        """Take a message in, after the verdict on it: `transaction` is its own."""
        if isinstance(message, Claim) and transaction.is_open:
            _, counts = transaction.claims.get(message.range, (0, None))
            if counts is message:
                self._claimed(message)
        elif isinstance(message, WriteStatus):
            self._drop({(message.transaction, message.range)}, message.time)

    def keep_open(self, open_: Collection[str], at: datetime) -> None:
        """Drop the ranges of transactions that are no longer open."""
        self._drop({key for seen in self.by_name.values() for key in seen.holds if key[0] not in open_}, at)

    def _claimed(self, claim: Claim) -> None:
        key = (claim.transaction, claim.range)
        name = intern(claim.worker)
        for other in self.by_name.values():
            if other.worker != name:
                other.holds.pop(key, None)
        seen = self.by_name.pop(name, None) or WorkerSeen(name, claim.time)
        self.by_name[name] = seen
        seen.last, seen.memory = claim.time, claim.memory
        seen.began = claim.began or seen.began
        if claim.released:
            seen.holds.pop(key, None)
        else:
            seen.holds.setdefault(key, Hold(claim.transaction, claim.range, claim.time))
        while len(self.by_name) > _REMEMBERED:
            idle = next((n for n, one in self.by_name.items() if not one.holds), next(iter(self.by_name)))
            del self.by_name[idle]

    def _drop(self, keys: Collection[tuple[str, int]], at: datetime) -> None:
        if not keys:
            return
        for seen in self.by_name.values():
            if not seen.holds.keys().isdisjoint(keys):
                seen.holds = {key: hold for key, hold in seen.holds.items() if key not in keys}
                seen.last = max(seen.last, at)
