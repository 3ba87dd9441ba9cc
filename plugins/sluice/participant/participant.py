"""The transaction participant: one attempt at one range of an interval, which answers with WRITE-STATUS (RFC-32).

This module decides its reports and their time; its `RangeJob` reads and writes the rows.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from sluice.connectors.log import ControlLog
from sluice.errors import IntervalError, SluiceError
from sluice.failpoints import reach
from sluice.logs import log
from sluice.protocol.confine import require_digest
from sluice.protocol.messages import StartCommit, WriteStatus
from sluice.protocol.transaction import TableLog, Transaction
from sluice.redact import redact_text


@dataclass(frozen=True)
class Assignment:
    """A write job's command-line arguments; everything else is in the START-COMMIT at that offset."""

    table: str
    control_topic: str
    control_offset: int
    range: int
    digest: str | None = None


class NotHereError(Exception):
    """A range's source isn't reachable by this job's connections, and nothing was read; a job elsewhere may reach it.

    Attributes:
        error: why, as the range's own job reports it.
    """

    def __init__(self, error: SluiceError) -> None:
        self.error = error
        super().__init__(str(error))

    @property
    def is_for_a_person(self) -> bool:
        """Whether only a person can change that: the connection leads elsewhere, or the log-in is refused."""
        return self.error.recovery == "act"


class RunningJob(Protocol):
    """A started job, which reads and writes a range."""

    def write(self, start: StartCommit, number: int, attempt: str, check: Callable[[], None]) -> dict[str, Any]:
        """Write a range under the transaction's instant, and return the fields of WRITE-STATUS that report the result.

        Args:
            start: the plan.
            number: which of its ranges.
            attempt: this attempt's id.
            check: to be called when the last file is closed; raises if the transaction has ended meanwhile.

        Raises:
            NotHereError: the log that was planned on can't be read here.
        """
        ...

    def cancel(self) -> None:
        """Make `write` end soon; called from another thread."""
        ...

    def classified(self, error: Exception, start: StartCommit, number: int) -> SluiceError:
        """The error to report for an exception of `write`."""
        ...


class RangeJob(Protocol):
    """Starts jobs that read and write ranges."""

    def running(self, start: StartCommit) -> AbstractContextManager[RunningJob]:
        """The job, running for the length of the block."""
        ...


class Participant:
    """One attempt at one range.

    Args:
        assignment: which range.
        control: the control topic.
        job: starts what reads and writes it.
        leaves: whether a range whose source isn't reachable here is left to others. Else the range fails.
    """

    def __init__(self, assignment: Assignment, control: ControlLog, job: RangeJob, *, leaves: bool = False) -> None:
        self._leaves = leaves
        self._assignment = assignment
        self._control = control
        self._job = job
        self._attempt = str(uuid.uuid4())
        self._began = datetime.now(UTC)
        self._running: RunningJob | None = None
        self._is_cancelled = False

    def cancel(self) -> None:
        """Make `run` end soon, with a failed WRITE-STATUS; called from another thread."""
        self._is_cancelled = True
        if self._running is not None:
            self._running.cancel()

    def run(self) -> WriteStatus:
        """Write the range, report it, and return the report.

        Raises:
            SluiceError: the range could not be written; a failed WRITE-STATUS carries the reason.
            NotHereError: the range is left to others; nothing was reported.
        """
        self._control.expect_to_send()
        table_log = self._control.table_log(self._assignment.table, self._assignment.control_offset)
        transaction = self._transaction(table_log)
        try:
            status = self._write(transaction, table_log)
            self._control.send(status)  # inside: a status too large for any message must be reported, too
        except SluiceError as error:
            self._report_failure(transaction, error)
            raise
        reach("participant.after_write_status")
        log.info("WRITE-STATUS", **self._place(transaction), read=status.records_read, written=status.records_written)
        return status

    def _transaction(self, table_log: TableLog) -> Transaction:
        for transaction in table_log.transactions.values():
            if transaction.start_offset == self._assignment.control_offset:
                require_digest(transaction.start, self._assignment.digest)
                if not transaction.is_open:
                    raise ended(transaction)
                return transaction
        raise IntervalError(
            "The control topic holds no START-COMMIT of this table at that offset.",
            next_step="run the whole interval again, from start_commit.",
            table=self._assignment.table,
            control_offset=self._assignment.control_offset,
        )

    def _write(self, transaction: Transaction, table_log: TableLog) -> WriteStatus:
        start, number = transaction.start, self._assignment.range
        log.info("reading", **self._place(transaction), offsets=[str(r) for r in start.ranges[number]])
        reach("participant.before_write")
        with (
            self._job.running(start) as job,
            Watch(self._control, table_log, transaction, job.cancel) as watch,
        ):
            self._running = job
            try:
                if self._is_cancelled:  # before there was a job
                    raise RuntimeError("the range was cancelled")
                found = job.write(start, number, self._attempt, watch.check)
            except Exception as error:
                if watch.ended:
                    raise ended(transaction) from error
                if isinstance(error, NotHereError) and self._leaves:
                    raise
                raise job.classified(error, start, number) from error
        same: dict[str, Any] = {"range": number, "attempt": self._attempt, "began": self._began}
        return WriteStatus(**self._envelope(start), **same, **found)

    def _report_failure(self, transaction: Transaction, error: SluiceError) -> None:
        status = WriteStatus(
            **self._envelope(transaction.start),
            range=self._assignment.range,
            attempt=self._attempt,
            began=self._began,
            error=redact_text(str(error))[:20_000],
            recovery=error.recovery,
        )
        try:
            self._control.send(status)
        except SluiceError as unsent:  # raise the first error: this one only prevents reporting it
            log.warning("the failure could not be reported to the control topic", reason=str(unsent))

    def _envelope(self, start: StartCommit) -> dict[str, Any]:
        same = start.model_dump(include={"table", "transaction", "epoch", "dag_id", "run_id"})
        return {**same, "sender": f"participant {self._assignment.range}", "time": datetime.now(UTC)}

    def _place(self, transaction: Transaction) -> dict[str, Any]:
        return {"instant": transaction.id, "range": self._assignment.range, "attempt": self._attempt[:8]}


class Watch:
    """Follows the control topic while a job runs, and cancels it once the transaction has ended.

    A zombie that outlives its interval would close files under a committed instant. Following the topic stops it at
    once; files that it closes before that are swept up by the next START.
    """

    def __init__(
        self, control: ControlLog, table_log: TableLog, transaction: Transaction, cancel: Callable[[], None]
    ) -> None:
        self._control = control
        self._log = table_log
        self._transaction = transaction
        self._cancel = cancel
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="sluice-watch", daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def ended(self) -> bool:
        """Whether the transaction is no longer open."""
        return not self._transaction.is_open

    def check(self) -> None:
        """Read the control topic to its end, and raise if the transaction is no longer open."""
        self._stop.set()
        self._thread.join()
        self._control.extend(self._log)
        if self.ended:
            raise ended(self._transaction)

    def _follow(self) -> None:
        reach("participant.watch")
        try:
            for _ in self._control.follow(self._log, self._stop):
                if self.ended:
                    log.warning("the interval is over; stopping the write", instant=self._transaction.id)
                    self._cancel()
                    return
        except SluiceError as error:  # `check` reads the topic again before anything is reported
            log.warning("the control topic can't be followed while writing", reason=str(error))


def ended(transaction: Transaction) -> IntervalError:
    """The error of writing for a transaction that is no longer open."""
    return IntervalError(
        f"The transaction is not open any more: it is {transaction.state.value}. Nothing of this attempt will be seen.",
        next_step="none for this task; if rows are missing, run the next interval.",
        table=transaction.start.table,
        instant=transaction.id,
    )
