"""The sink's topics as the coordinator sees them: a log with the checkpoint, and two phases of a commit.

A commit is one Kafka transaction: the interval's records, and its entry in the log. Whatever changes the log takes the
table's one transactional id first (`init_transactions`), which makes the broker refuse everybody who had it before, and
reads the log after that. So of two processes that have looked at the same log one can write to it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Final

from sluice.connectors.sink import Completion, InstantState, Registered, WrittenInterval
from sluice.errors import ActionRequiredError, IntervalError, RetryableError
from sluice.failpoints import reach
from sluice.kafka.transactional import Record, TransactionalSender
from sluice.logs import log as story
from sluice.protocol.committable import Committable
from sluice.protocol.messages import TableSpec
from sluice.protocol.offsets import OFFSETS_KEY, TRANSACTION_KEY, Checkpoint
from sluice.sinks.clock import await_clock, instant_now
from sluice.sinks.files.storage import Storage
from sluice.sinks.kafka.cluster import Target
from sluice.sinks.kafka.log import NOTHING, Commit, TableLog
from sluice.sinks.kafka.names import staging_folder
from sluice.sinks.kafka.offsets import Spans
from sluice.sinks.kafka.staged import Staged
from sluice.sinks.kafka.takes import LARGEST

_RECENT: Final = 16  # whoever looks for a commit that was aborted finds none: the broker refuses it


class KafkaTable:
    """One pipeline's topics, opened by one process; see `sluice.connectors.sink.Table`.

    Args:
        target: the cluster.
        log: the log, which this process reads.
        storage: the staging path, asked for when it is needed: remote ones take a JVM.
        writer: how intervals are written.
        clock_wait: how long to wait for this machine's clock to pass the last interval's instant.
        process: the process that carries out commits.
        timeout: how long a transaction may take.
        writable: whether it was opened, rather than looked at.
        rests_on: of which commit the checkpoint was read last, as a list of one; empty before.
    """

    def __init__(
        self,
        target: Target,
        log: TableLog,
        storage: Callable[[], Storage],
        writer: TableSpec,
        clock_wait: timedelta,
        process: str,
        timeout: timedelta,
        *,
        writable: bool,
        rests_on: list[str | None] | None = None,
    ) -> None:
        self.target, self.writer, self.clock_wait, self.writable = target, writer, clock_wait, writable
        self._log, self._storage, self._process, self._timeout = log, storage, process, timeout
        self._rests_on: list[str | None] = [] if rests_on is None else rests_on

    @property
    def process(self) -> str:
        """See `Table`."""
        return self._process

    def written_as(self, writer: TableSpec) -> KafkaTable:
        """See `Table`."""
        return KafkaTable(
            self.target,
            self._log,
            self._storage,
            writer,
            self.clock_wait,
            self._process,
            self._timeout,
            writable=self.writable,
            rests_on=self._rests_on,
        )

    # What is committed

    def last_checkpoint(self) -> dict[str, str] | None:
        """Extra metadata of the last commit. An interval that is opened afterwards rests on that commit."""
        last = self._log.read().last
        self._rests_on[:] = [None if last is None else last.instant]
        return None if last is None else dict(last.extra)

    def is_empty(self) -> bool:
        """See `Table`."""
        return self._log.read().last is None

    def state_of(self, instant: str) -> InstantState:
        """See `Table`. A transaction that is not yet ended counts as none; whoever needs to be sure takes the id."""
        log = self._log.read()
        if log.find(instant) is not None:
            return "completed"
        return "pending" if log.is_open(instant) is not None else "absent"

    def written_by(self, instant: str) -> WrittenInterval | None:
        """See `Table`; of those that the log remembers."""
        found = self._log.read().find(instant)
        if found is None or OFFSETS_KEY not in found.extra:
            return None
        checkpoint = Checkpoint.model_validate_json(found.extra[OFFSETS_KEY])
        return WrittenInterval(instant, json.loads(found.extra[TRANSACTION_KEY]), {}, checkpoint)

    def replayed_by(self, instant: str) -> str | None:  # noqa: ARG002
        """None: nothing is replaced here."""
        return None

    def moved_file_groups(self, written: WrittenInterval) -> dict[str, str | None]:  # noqa: ARG002
        """None: records stay where they are."""
        return {}

    # The two phases of a commit

    def await_clock(self) -> None:
        """See `Table`."""
        log = self._log.read()
        done = [one for commit in log.commits[:1] for one in (commit.instant, commit.completed)]
        last = max([*done, *(one.instant for one in log.opened.values())], default="")
        await_clock(last, self.clock_wait, self.writer.path)

    def new_instant(self) -> str:
        """The time, in milliseconds."""
        self.await_clock()
        return instant_now()

    def open(self, instant: str, *, replaces: bool = False) -> None:
        """Say in the log that the interval is under way, and on which commit it rests.

        Raises:
            ActionRequiredError: it is to replace rows, and what is in a topic stays.
            RetryableError: another process has committed it.
        """
        if replaces:
            raise ActionRequiredError(
                "Records of an interval can't be replaced in a topic.",
                next_step="load the records into a new topic.",
                table=self.writer.path,
            )
        with self._taken() as sender:
            if self._log.find(instant) is not None:
                raise RetryableError(
                    "Another process has committed the interval meanwhile.",
                    next_step="the step is retried, and finds it.",
                    table=self.writer.path,
                    instant=instant,
                )
            last = self._log.last
            rests_on = self._rests_on[0] if self._rests_on else None if last is None else last.instant
            sender.send([self._log.record_of_open(instant, rests_on)])

    def commit(
        self,
        instant: str,
        committables: Iterable[Committable],
        extra: Mapping[str, str],
        replaced: Mapping[str, Iterable[str]] | None = None,  # noqa: ARG002 - `open` has refused it
    ) -> None:
        """Send what participants have staged, and the entry in the log, in one Kafka transaction.

        Raises:
            RetryableError: the interval isn't under way any more, another process has taken over, or Kafka doesn't
                answer: look at its state.
            IntervalError: another commit came since the interval was planned, or staged files are gone.
            ActionRequiredError: the cluster refuses records.
        """
        staged, spans = tuple(committables), Spans(self.target.offsets)
        records = Staged(self._storage(), instant, staged, self.log_topic, spans.begin)
        reach("sink.before_fencing")
        with self._taken(records.smallest) as sender:
            if self._log.find(instant) is not None:
                story.info(
                    "another process has committed the interval already", instant=instant, table=self.writer.path
                )
                return
            number = self._require_turn(instant)
            began = time.monotonic()
            try:
                sender.send(self._whole(sender, spans, number, instant, staged, extra, records))
            except RetryableError as error:
                if time.monotonic() - began < self._timeout.total_seconds():
                    raise
                raise ActionRequiredError(
                    "Sending the interval took longer than its Kafka transaction may last.",
                    next_step="raise the sink's transaction_timeout and the brokers' transaction.max.timeout.ms, or "
                    "lower the source's max_records. Nothing was committed.",
                    table=self.writer.path,
                    instant=instant,
                    transaction_timeout=str(self._timeout),
                ) from error
        reach("sink.after_commit_transaction")
        self._storage().delete(staging_folder(instant))

    def _require_turn(self, instant: str) -> int:
        """The number of this commit, if it is this interval's turn."""
        last, opened = self._log.last, self._log.is_open(instant)
        if opened is None:
            raise RetryableError(
                "The interval is not under way any more: it was rolled back.",
                next_step="nothing was committed; the step looks again.",
                table=self.writer.path,
                instant=instant,
            )
        stands_at = None if last is None else last.instant
        if opened.rests_on != stands_at:
            raise IntervalError(
                "Another interval was committed since this one was planned: committing it would double or lose "
                "records.",
                next_step="nothing was committed; the next interval starts from where the topics stand now.",
                table=self.writer.path,
                instant=instant,
                planned_on=opened.rests_on or "an empty log",
                stands_at=stands_at or "an empty log",
            )
        return 1 if last is None else last.number + 1

    def _whole(
        self,
        sender: TransactionalSender,
        spans: Spans,
        number: int,
        instant: str,
        staged: Sequence[Committable],
        extra: Mapping[str, str],
        records: Staged,
    ) -> Iterator[Record]:
        """All that the transaction has. The log comes last: till then nobody waits for it."""
        yield from records.records()
        sender.flush()  # all have their offsets then
        reach("sink.before_log_entry")
        last = self._log.last
        written = records.way if records.way is not None else last.written if last is not None else NOTHING
        done = Commit(
            number,
            instant,
            instant_now(),
            sum(one.rows for one in staged),
            sum(one.deletes for one in staged),
            records.bytes,
            dict(extra),
            dict(records.topics),
            spans.ended(),
            written,
            self._log.since(written),
        )
        yield self._log.record_of_commit(done)
        yield self._log.record_of_end(instant)

    def forbid_commit(self, instant: str) -> bool:
        """Take an interval's turn away; see `sluice.connectors.sink.ForbidsCommits`."""
        with self._taken() as sender:
            if self._log.find(instant) is not None:
                return False
            if self._log.is_open(instant) is not None:
                sender.send([self._log.record_of_end(instant)])
        return True

    def rollback(self, instant: str) -> bool:
        """Take its turn away first: whoever is about to commit it then can't. What is staged goes after that."""
        with self._taken() as sender:
            if self._log.find(instant) is not None:
                return False
            pending = self._log.is_open(instant) is not None
            if pending:
                sender.send([self._log.record_of_end(instant)])
        self._storage().delete(staging_folder(instant))
        return pending

    def finish_rollbacks(self) -> list[str]:
        """None: what one has left behind is swept up."""
        return []

    # What processes leave that stood still for too long

    def completions(self) -> dict[str, Completion]:
        """The last committed intervals. None of them was rolled back: the broker refuses such a commit."""
        return {
            one.instant: Completion("commit", [f"{one.instant}_{one.completed}.commit"], requested=True)
            for one in reversed(self._log.read().commits[:_RECENT])
        }

    def registered(self, completion: str) -> Registered:  # noqa: ARG002
        """A commit names no files: its records are in the topics."""
        return Registered(0, 0)

    def take_off(self, instant: str, files: list[str]) -> None:  # noqa: ARG002
        """Refuse: consumers may have read the records.

        Nobody asks for it, since the broker completes no interval twice, nor one whose turn was taken away.
        """
        raise ActionRequiredError(
            "A committed interval can't be taken out of topics.",
            next_step="find who else writes to the sink's log.",
            table=self.writer.path,
            instant=instant,
        )

    def marker_partitions(self, instant: str) -> set[str]:
        """The table itself, where anything is staged for the interval."""
        return {""} if self._storage().exists(staging_folder(instant)) else set()

    def partitions_on_storage(self) -> set[str]:
        """The table itself."""
        return {""}

    def sweep(self, committed: Mapping[str, set[str]], partitions: Iterable[str]) -> list[str]:  # noqa: ARG002
        """Delete what is staged for intervals that have ended. No reader sees any of it, at any time."""
        swept: list[str] = []
        for instant in committed:
            folder = staging_folder(instant)
            if self._storage().exists(folder) and self.state_of(instant) != "pending":
                swept += [f"{folder}/{name}" for name in self._storage().files(folder)]
                self._storage().delete(folder)
        return swept

    # How

    @property
    def log_topic(self) -> str:
        """The topic of the log."""
        return self.writer.path.rpartition("/")[2]

    def _taken(self, smallest: int = LARGEST) -> TransactionalSender:
        """The table's transactional id, and the log as it stands after that."""
        sender = self.target.sender(smallest)
        self._log.read()
        return sender
