"""Tables of which each commit is an interval of Sluice's: what is the same for files, databases and topics.

Such a table has a log, in which an interval is pending, then committed or taken back, and a place where participants
stage what no reader sees. By which step of the storage a commit wins over a roll-back, or loses, is each sink's own.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Self

from sluice.connectors.clock import TimedByMachine
from sluice.connectors.sink import Ended, InstantState, WrittenInterval
from sluice.errors import IntervalError, RetryableError
from sluice.logs import log
from sluice.protocol.commit_note import read_note
from sluice.protocol.messages import TableSpec
from sluice.protocol.offsets import OFFSETS_KEY, read_checkpoint


@dataclass(frozen=True)
class LoggedCommit:
    """A committed interval, as a log has it.

    Attributes:
        instant: the transaction.
        extra: the coordinator's metadata: offsets and its note.
        file_groups: see `WrittenInterval`.
    """

    instant: str
    extra: Mapping[str, str]
    file_groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Turn:
    """What a log says of an interval that is to be committed, while no other process can change the log.

    Attributes:
        state: the interval's.
        planned_on: the instant of the last commit when it was planned; None if there was none.
        last: the instant of the last commit now; None if there is none.
    """

    state: InstantState
    planned_on: str | None
    last: str | None


class IntervalTable(TimedByMachine):
    """A table with a log of its intervals and a place for staging; see `sluice.connectors.sink.Table`.

    Attributes:
        process: the process that carries out its commits, as returned by `sluice.process.identity`.
        further: how the sink's further tables are written, if the interval has any.
    """

    process: str
    further: tuple[TableSpec, ...] = ()

    def written_as(self, writer: TableSpec, further: Sequence[TableSpec] = ()) -> Self:
        """See `Table`. The same table, by the same connection."""
        other = copy(self)
        other.writer, other.further = writer, tuple(further)
        return other

    def written_by(self, instant: str) -> WrittenInterval | None:
        """See `Table`. None for an interval that the log no longer keeps."""
        found = self._committed(instant)
        if found is None or OFFSETS_KEY not in found.extra:
            return None
        checkpoint = read_checkpoint(found.extra, "", ())
        return WrittenInterval(instant, read_note(found.extra), found.file_groups, checkpoint)

    def leftovers(self) -> set[str]:
        """See `Table`. Intervals that are pending in the log, and those for which something is staged."""
        return self._pending() | self._staged()

    def sweep(self, ended: Ended) -> list[str]:
        """Delete what is staged for ended intervals, whether or not they were committed; readers never see it."""
        swept: list[str] = []
        there = self._staged() if ended.registered else set()
        for instant in sorted(there & ended.registered.keys()):
            if self._is_over(instant):
                swept += self._delete_staged(instant)
        return swept

    def _is_over(self, instant: str) -> bool:
        """Whether nothing that is staged for an interval is needed any more, whatever a message says."""
        return self.state_of(instant) != "pending"

    # The storage's part

    @abstractmethod
    def state_of(self, instant: str) -> InstantState:
        """See `Table`."""

    @abstractmethod
    def _committed(self, instant: str) -> LoggedCommit | None:
        """A committed interval, if the log still has it."""

    @abstractmethod
    def _pending(self) -> set[str]:
        """The intervals that are pending, or half taken back."""

    @abstractmethod
    def _staged(self) -> set[str]:
        """The intervals for which something is staged."""

    @abstractmethod
    def _delete_staged(self, instant: str) -> list[str]:
        """Delete what is staged for an interval; returns what was deleted."""


class TransactionalTable(IntervalTable):
    """An interval table whose storage commits rows and the log's entry in one transaction, one process at a time.

    So the storage compares: a pending interval has in the log the commit that it was planned on, and is committed only
    while that one is the last. Once it is taken out of the log, no process can commit it (`ForbidsCommits`).
    """

    _planned_on: tuple[str | None] | None = None  # the last commit, when its checkpoint was read

    def last_checkpoint(self) -> dict[str, str] | None:
        """Extra metadata of the last commit, on which the intervals opened afterwards are planned."""
        last = self._last()
        self._planned_on = (None if last is None else last.instant,)
        return None if last is None else dict(last.extra)

    def _plan_base(self) -> str | None:
        """The commit on which an interval is planned that is opened now; the last one, if no checkpoint was read."""
        if self._planned_on is not None:
            return self._planned_on[0]
        last = self._last()
        return None if last is None else last.instant

    def _may_commit(self, instant: str) -> bool:
        """Whether the interval is to be committed now, in the storage's transaction; False if it is committed already.

        Raises:
            RetryableError: it was rolled back.
            IntervalError: another interval was committed since this one was planned.
        """
        turn = self._turn(instant)
        if turn.state == "completed":
            log.info("another process has committed the interval already", instant=instant, table=self.writer.path)
            return False
        if turn.state == "absent":
            raise self._rolled_back(instant)
        if turn.planned_on != turn.last:
            raise IntervalError(
                "Another interval was committed since this one was planned: committing it would double or lose rows.",
                next_step="nothing was committed; the next interval starts from the offsets that the table has now.",
                table=self.writer.path,
                instant=instant,
                planned_on=turn.planned_on or "an empty table",
                last_commit=turn.last or "an empty table",
            )
        return True

    def _rolled_back(self, instant: str) -> RetryableError:
        """The refusal of a commit whose interval has been taken back."""
        return RetryableError(
            "The interval is not under way any more: it was rolled back.",
            next_step="nothing was committed; the step looks again.",
            table=self.writer.path,
            instant=instant,
        )

    def forbid_commit(self, instant: str) -> bool:
        """Take a pending interval out of the log; see `sluice.connectors.sink.ForbidsCommits`."""
        return self._take_back(instant) != "completed"

    def rollback(self, instant: str) -> bool:
        """See `Table`. First takes the interval out of the log, so that it can't be committed, then what is staged."""
        found = self._take_back(instant)
        if found != "completed":
            self._delete_staged(instant)
        return found == "pending"

    @abstractmethod
    def last_commits(self) -> Collection[str]:
        """See `sluice.connectors.sink.ForbidsCommits`."""

    @abstractmethod
    def _last(self) -> LoggedCommit | None:
        """The last commit."""

    @abstractmethod
    def _turn(self, instant: str) -> Turn:
        """What the log says of an interval; called in the transaction that is to commit it, after its lock is held."""

    @abstractmethod
    def _take_back(self, instant: str) -> InstantState:
        """Take an interval out of the log if it is pending; returns the state that it had."""
