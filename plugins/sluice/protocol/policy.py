"""What each kind of request may do about identity, coverage, order and partial commits, decided in one place.

Planning, commit and history ask a kind's policy instead of comparing its name, so a new kind is complete once it has a
policy; a test checks that each has one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

IntervalKind = Literal["continue", "backfill", "range", "replay", "correction", "service"]
"""A transaction's purpose.

`continue` reads on from the committed offsets, as the schedule does. `backfill` reads the records of its run's data
interval, `range` offsets or times that a person requested, both without offsets that are covered already. `replay`
reads a committed interval again and replaces the rows that it wrote. `correction` passes over offsets that a person
named, and reads nothing. `service` holds the table for a table service.

Sending quarantined records to their topic again is not a kind: it opens no transaction, and the next interval reads
what it sends.
"""

Reads = Literal["onward", "window", "again", "nothing"]
"""Which offsets: on from the table's position; those of a window that the table doesn't have; those of an interval that
the table has, unless a replay has read them since, which is the interval that has the rows then; none."""


@dataclass(frozen=True)
class RequestPolicy:
    """What one kind of request may do.

    Attributes:
        reads: which offsets it reads.
        rests_on_offsets: it names offsets of the log that the table was loaded from, whether to read them or not. If
            topic or cluster is another one now, they refer to other records.
        may_resume_losses: it may continue if offsets are lost or the log is another one, as `on_offset_loss` says.
            Every other kind that rests on offsets is refused then, with `instead` as the advice.
        bounded_by_times: its request may have bounds by record time.
        reads_passed_over: it reads passed-over offsets if a person names them. No other kind reads them, nor does a
            window by times.
        needs_ordering: not allowed for an upsert without an ordering field, because it reads versions of rows of which
            the table may have later ones.
        commits_in_part: under `on_missing_range: commit` it may leave ranges out. Only for requests whose left-out
            offsets the next run reads.
        moves_positions: where the schedule continues after it: at the planned ends, wherever its offsets adjoin the
            position, or as before.
        claims_completeness: its commit says up to which time the table is complete.
        keeps_newer: an upsert keeps the table's rows that are as new as a record: in the partitions with later
            *covered* offsets, or in all. Passed-over offsets put nothing out of order.
        records_as_before: it must read as many records as the interval that it reads again, since its rows replace
            that interval's.
        instead: what to do if it is refused because the log is another one.
    """

    reads: Reads
    rests_on_offsets: bool = True
    may_resume_losses: bool = False
    bounded_by_times: bool = False
    reads_passed_over: bool = False
    needs_ordering: bool = False
    commits_in_part: bool = False
    moves_positions: Literal["planned", "adjoining", "never"] = "adjoining"
    claims_completeness: bool = False
    keeps_newer: Literal["where covered", "always"] = "where covered"
    records_as_before: bool = False
    instead: str = ""

    @property
    def has_instant(self) -> bool:
        """Whether it opens its own instant on the table's timeline."""
        return self.rests_on_offsets


_GO_ON_FIRST = (
    "let an interval of the schedule run first, which reports the loss and obeys the source's `on_offset_loss`; "
    "then name offsets of the log that is there now."
)

POLICIES: Final[Mapping[IntervalKind, RequestPolicy]] = MappingProxyType(
    {
        "continue": RequestPolicy(
            reads="onward",
            may_resume_losses=True,
            bounded_by_times=True,
            commits_in_part=True,
            moves_positions="planned",
            claims_completeness=True,
        ),
        "backfill": RequestPolicy(reads="window", bounded_by_times=True, needs_ordering=True, instead=_GO_ON_FIRST),
        "range": RequestPolicy(
            reads="window",
            bounded_by_times=True,
            reads_passed_over=True,
            needs_ordering=True,
            instead=_GO_ON_FIRST,
        ),
        "replay": RequestPolicy(
            reads="again",
            moves_positions="never",
            keeps_newer="always",
            records_as_before=True,
            instead="leave the table's rows as they are: the records that they came from are gone.",
        ),
        "correction": RequestPolicy(reads="nothing", instead=_GO_ON_FIRST),
        "service": RequestPolicy(reads="nothing", rests_on_offsets=False, moves_positions="never"),
    }
)


def policy_of(kind: IntervalKind) -> RequestPolicy:
    """The policy of a kind of request."""
    return POLICIES[kind]
