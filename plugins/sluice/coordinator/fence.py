"""Takes commits off the timeline that the control topic says are none: the fence behind the lease.

A process that carries out a commit may be suspended inside Hudi for longer than its lease, and complete the commit when
it wakes up, though the transaction was rolled back meanwhile, or completed by another process. No storage that Hudi
works on refuses that file. But the control topic decides which commits count. So each following step, and first of all
that process itself, checks completed commits before it relies on them:

- a commit whose transaction was aborted is taken off the timeline, and rolled back where it was not yet;
- of a commit that was completed twice the first completion stays: both hold the same rows and offsets;
- a compaction or clustering names its own instant, and its repetition first deletes the files of the one before. The
  completion whose files exist stays, and none that names only deleted files.
"""

from __future__ import annotations

from typing import Protocol

from sluice.connectors.sink import Completion, ForbidsCommits, SharedTimeline, Table, TakesOff
from sluice.coordinator.session import Session
from sluice.errors import ActionRequiredError
from sluice.logs import log
from sluice.protocol.services import PLANNED
from sluice.protocol.transaction import State, TableLog, Transaction

_NOT_BY_ITSELF = (State.ABORTED, State.SUPERSEDED)


class _Fenced(Table, TakesOff, Protocol):
    """A table whose storage accepts late commits."""


class _Refusing(Table, ForbidsCommits, Protocol):
    """A table whose storage refuses late commits."""


class _Shared(_Fenced, SharedTimeline, Protocol):
    """A table of which a service's commits are others' as well."""


class Fence:
    """One pipeline's fence."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def repair(self, table: Table, table_log: TableLog) -> bool:
        """Bring the timeline into accord with the control topic; whether anything had to be done.

        Args:
            table: the table.
            table_log: what the topic tells. A commit from before it that has a sign of a roll-back is looked up.

        Raises:
            RetryableError: Kafka or the storage don't answer.
            ActionRequiredError: an aborted interval is committed in a table whose storage should have refused that.
        """
        if isinstance(table, ForbidsCommits):
            self._require_none_aborted(table, table_log)
        if not isinstance(table, TakesOff):
            return False
        repaired = False
        shared = table if isinstance(table, SharedTimeline) else None
        doubtful = _service_left(table_log)
        for instant, completion in table.completions().items():
            transaction = table_log.get(instant)
            if transaction is None and not completion.requested:
                transaction = self._look_back(table, instant)
            if transaction is not None and transaction.state is State.ABORTED and self._is_of(table, transaction):
                self._take_off(table, transaction, completion)
                repaired = True
            elif transaction is not None and len(completion.files) > 1:
                _keep_first(table, instant, completion)
                repaired = True
            elif transaction is None and shared and doubtful and completion.is_after(doubtful):
                repaired |= _settle_service(shared, instant, completion)
        return repaired

    def _require_none_aborted(self, table: _Refusing, table_log: TableLog) -> None:
        for instant in table.last_commits():
            transaction = table_log.get(instant)
            if transaction is not None and transaction.state is State.ABORTED and self._is_of(table, transaction):
                raise ActionRequiredError(
                    "An interval is committed in the table that was aborted by the control topic. The storage refuses "
                    "such commits, so another program has written to one of the two.",
                    next_step="nothing was read. Find out which program writes to the sink's own log of intervals, or "
                    "to the control topic.",
                    table=table.writer.path,
                    instant=instant,
                    control_topic=self._session.control.topic,
                    reason=transaction.reason,
                )

    def _take_off(self, table: _Fenced, transaction: Transaction, completion: Completion) -> None:
        log.warning(
            "an interval was completed after it had been aborted, by a process that had been suspended: it is taken "
            "off the timeline again",
            table=table.writer.path,
            instant=transaction.id,
            files=completion.files,
            reason=transaction.reason,
        )
        table.take_off(transaction.id, completion.files)
        table.rollback(transaction.id)

    def _is_of(self, table: Table, transaction: Transaction) -> bool:
        """Whether a commit is that of the transaction: its note has the offset of its START.

        Any process that may write to the topic could name a committed instant in a START and an ABORT.
        """
        written = table.written_by(transaction.id)
        if written is None:
            return False
        here = self._session.control.topic
        standing = (written.note.control_topic or here, written.note.control_offset)
        if standing == (here, transaction.start_offset) and not self._session.is_made_again(written.note):
            return True
        log.error("an aborted START-COMMIT names a committed instant that isn't its own", instant=transaction.id)
        return False

    def _look_back(self, table: Table, instant: str) -> Transaction | None:
        """The transaction of a commit of ours that began before the log that is at hand."""
        written = table.written_by(instant)
        if written is None or written.note.control_offset is None:
            return None
        start = written.note.control_offset
        topic = written.note.control_topic or self._session.control.topic
        if topic != self._session.control.topic or self._session.is_made_again(written.note):
            return None  # the table has moved since, and what was left there was settled then
        found = self._session.control.table_log(self._session.table_id, start).get(instant)
        return found if found is not None and found.start_offset == start else None


def keep_first_completions(table: Table) -> None:
    """Of each commit of a table that is never rolled back, such as a quarantine, leave the first completion alone.

    Raises:
        RetryableError: Hudi doesn't answer.
    """
    if not isinstance(table, TakesOff):
        return
    for instant, completion in table.completions().items():
        if len(completion.files) > 1:
            _keep_first(table, instant, completion)


def _keep_first(table: _Fenced, instant: str, completion: Completion) -> None:
    log.warning(
        "two processes have completed a commit; the first completion stays",
        table=table.writer.path,
        instant=instant,
        files=completion.files,
    )
    table.take_off(instant, completion.files[1:])


def _settle_service(table: _Shared, instant: str, completion: Completion) -> bool:
    """Leave one completion of an instant that the topic doesn't name, and none where all its files are gone."""
    found = {name: table.registered(name) for name in completion.files}
    best = min(found, key=lambda name: found[name].lost)  # a cleaner may have taken some of it since
    void = [name for name in found if name != best or found[name].is_void]
    if not void:
        return False
    log.warning(
        "a table service was completed by a process that had been suspended while another did its work again: a "
        "completion that names deleted files is taken off the timeline",
        table=table.writer.path,
        instant=instant,
        files=void,
    )
    table.take_off(instant, void)
    return True


def _service_left(table_log: TableLog) -> str | None:
    """The oldest START-COMMIT, by its instant, of a compaction or clustering that another process has ended, if any.

    Only then can there be two jobs that carried out the same plan.
    """
    left = (t for t in table_log.transactions.values() if t.start.service in PLANNED and t.state in _NOT_BY_ITSELF)
    return min((t.id for t in left), default=None)
