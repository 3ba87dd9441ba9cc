"""The sink's topics as the coordinator sees them: a log with the checkpoint, and the two phases of a commit.

A commit is one Kafka transaction: the interval's records, and its entry in the log. Before each change of the log, a
process takes the table's transactional id (`init_transactions`), after which the broker refuses all earlier holders,
and then reads the log. So of two processes that read the same log, only one can write to it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from sluice.connectors.clock import instant_now
from sluice.connectors.intervals import LoggedCommit, TransactionalTable, Turn
from sluice.connectors.sink import InstantState
from sluice.errors import ActionRequiredError, RetryableError, SluiceError
from sluice.failpoints import reach
from sluice.kafka.transactional import Record, TransactionalSender
from sluice.logs import log as story
from sluice.protocol.committable import Committable
from sluice.protocol.messages import TableSpec
from sluice.sinks.files.storage import Storage, emptied
from sluice.sinks.kafka.cluster import Target
from sluice.sinks.kafka.identity import NotedLife, TopicLife
from sluice.sinks.kafka.log import NOTHING, Commit, TableLog
from sluice.sinks.kafka.offsets import Spans
from sluice.sinks.kafka.options.names import staging_folder
from sluice.sinks.kafka.options.pinned import PinnedTopic
from sluice.sinks.kafka.options.takes import LARGEST
from sluice.sinks.kafka.staged import Staged

_RECENT: Final = 16  # enough: no aborted interval is among them, since the broker refuses such a commit


class KafkaTable(TransactionalTable):
    """One pipeline's topics, opened by one process; see `sluice.connectors.sink.Table`.

    Args:
        target: the cluster.
        log: the log, which this process reads.
        storage: opens the staging path, when needed: a remote path needs a JVM.
        writer: the settings for writing intervals.
        clock_wait: how long to wait for this machine's clock to pass the last interval's instant.
        process: the identity of the process that carries out commits.
        timeout: how long a transaction may take.
        writable: whether the table is open for writing.
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
    ) -> None:
        self.target, self.writer, self.clock_wait, self.writable = target, writer, clock_wait, writable
        self.process = process
        self._log, self._storage, self._timeout = log, storage, timeout

    # What is committed

    def _last(self) -> LoggedCommit | None:
        last = self._log.read().last
        return None if last is None else LoggedCommit(last.instant, last.extra)

    def written_to(self) -> Mapping[str, NotedLife]:
        """The log's note of each topic that was ever written to: id and number of partitions."""
        last = self._log.read().last
        return {} if last is None else last.targets

    def state_of(self, instant: str) -> InstantState:
        """See `Table`. An open Kafka transaction doesn't count; only taking the transactional id settles its fate."""
        self._log.read()
        return self._state(instant)

    def _state(self, instant: str) -> InstantState:
        """An interval's state when the log was last read."""
        if self._log.find(instant) is not None:
            return "completed"
        return "pending" if self._log.is_open(instant) is not None else "absent"

    def _committed(self, instant: str) -> LoggedCommit | None:
        found = self._log.read().find(instant)
        return None if found is None else LoggedCommit(instant, found.extra)

    # The two phases of a commit

    def newest_time(self) -> str:
        """See `TimedByMachine`."""
        log = self._log.read()
        done = [one for commit in log.commits[:1] for one in (commit.instant, commit.completed)]
        return max([*done, *(one.instant for one in log.opened.values())], default="")

    def open(self, instant: str) -> None:
        """Enter the interval in the log as pending, with the commit on which it is based.

        Raises:
            RetryableError: another process has committed it.
        """
        with self._taken() as sender:
            if self._log.find(instant) is not None:
                raise RetryableError(
                    "Another process has committed the interval meanwhile.",
                    next_step="the step is retried, and finds it.",
                    table=self.writer.path,
                    instant=instant,
                )
            sender.send([self._log.record_of_open(instant, self._plan_base())])

    def commit(
        self,
        instant: str,
        committables: Iterable[Committable],
        extra: Mapping[str, str],
    ) -> list[str]:
        """Send the participants' staged records, and the entry in the log, in one Kafka transaction.

        Warns of records that are older than their topic keeps any.

        Raises:
            RetryableError: the interval is no longer pending, another process has taken over, or Kafka doesn't answer:
                its state has to be read again.
            IntervalError: another interval was committed since this one was planned, or staged files are gone.
            ActionRequiredError: the cluster refuses records.
        """
        staged, spans = tuple(committables), Spans(self.target.offsets)
        lives: dict[str, TopicLife] = {}
        by_key = self.writer.upserts and PinnedTopic.of(self.writer).partitioner != "same"

        def begins(topic: str) -> None:
            known = {} if self._log.last is None else self._log.last.targets
            lives.update(self.target.require_same(known, [topic], [topic] if by_key else []))
            spans.begin(topic)

        records = Staged(self._storage(), instant, staged, self.log_topic, begins)
        reach("sink.before_fencing")
        with self._taken(records.smallest) as sender:
            if not self._may_commit(instant):
                return []
            began = time.monotonic()
            try:
                sender.send(self._whole(sender, spans, instant, staged, extra, records, lives))
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
        self._delete_staged(instant)
        return self._remarks(records.oldest)

    def _remarks(self, oldest: Mapping[str, int]) -> list[str]:
        """A sentence if records are older than their topic keeps any.

        Args:
            oldest: the earliest timestamps, in milliseconds by topic, of the interval.
        """
        try:
            kept = self.target.offsets.kept_for(oldest) if oldest else {}
        except SluiceError as error:  # the interval is committed
            story.warning("the topics' retention isn't known", table=self.writer.path, reason=str(error))
            return []
        now = time.time() * 1000
        late = {topic: oldest[topic] for topic, age in kept.items() if oldest[topic] < now - age}
        if not late:
            return []
        first = min(late, key=lambda topic: late[topic])
        others = f" and {len(late) - 1} more topics" if len(late) > 1 else ""
        since = datetime.fromtimestamp(late[first] / 1000, UTC).isoformat(timespec="seconds")
        keeps = str(timedelta(milliseconds=kept[first])).removesuffix(", 0:00:00")
        return [
            f"Kafka may delete records of {first}{others} within minutes: the oldest has the time {since}, and the "
            f"topic's retention.ms is {kept[first]} ({keeps}). Raise it, or set the "
            "sink's `timestamp` to wallclock"
        ]

    def _turn(self, instant: str) -> Turn:
        """See `TransactionalTable`. The log was read after this process had taken the transactional id."""
        last, opened = self._log.last, self._log.is_open(instant)
        planned_on = None if opened is None else opened.rests_on
        return Turn(self._state(instant), planned_on, None if last is None else last.instant)

    def _whole(
        self,
        sender: TransactionalSender,
        spans: Spans,
        instant: str,
        staged: Sequence[Committable],
        extra: Mapping[str, str],
        records: Staged,
        lives: Mapping[str, TopicLife],
    ) -> Iterator[Record]:
        """All records of the transaction; the log's come last, so that the log's readers wait only briefly."""
        yield from records.records()
        sender.flush()  # afterwards all records have offsets
        reach("sink.before_log_entry")
        last = self._log.last
        written = records.way if records.way is not None else last.written if last is not None else NOTHING
        done = Commit(
            1 if last is None else last.number + 1,
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
            {**({} if last is None else last.targets), **{topic: one.noted for topic, one in lives.items()}},
        )
        yield self._log.record_of_commit(done)
        yield self._log.record_of_end(instant)

    def _take_back(self, instant: str) -> InstantState:
        """See `TransactionalTable`. Sends the record of the interval's end."""
        with self._taken() as sender:
            found = self._state(instant)
            if found == "pending":
                sender.send([self._log.record_of_end(instant)])
        return found

    def last_commits(self) -> list[str]:
        """See `sluice.connectors.sink.ForbidsCommits`."""
        return [one.instant for one in self._log.read().commits[:_RECENT]]

    # What processes leave behind that were suspended for too long

    def _pending(self) -> set[str]:
        """See `IntervalTable`. Who still tries to write to the log for another one is fenced by the next `open`."""
        return {one.instant for one in self._log.read().opened.values()}

    def _staged(self) -> set[str]:
        return set(self._storage().names(""))

    def _delete_staged(self, instant: str) -> list[str]:
        return emptied(self._storage(), staging_folder(instant))

    # How

    @property
    def log_topic(self) -> str:
        """The topic of the log."""
        return self.writer.path.rpartition("/")[2]

    def _taken(self, smallest: int = LARGEST) -> TransactionalSender:
        """A producer that has taken the table's transactional id; the log is read after that."""
        sender = self.target.sender(smallest)
        self._log.read()
        return sender
