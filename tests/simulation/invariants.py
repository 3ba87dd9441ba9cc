"""What has to be true of a world: at each commit, at each report, and at the end."""

from __future__ import annotations

import json
import re
from collections import Counter
from datetime import datetime
from typing import Any

from sluice.coordinator import Started
from sluice.protocol.identity import under_present_names
from sluice.protocol.known_streams import KnownStreams
from sluice.protocol.messages import PlannedRange, StartCommit
from sluice.protocol.offsets import TRANSACTION_KEY, Checkpoint, holds_checkpoint, read_checkpoint
from sluice.protocol.request import Request
from sluice.protocol.services import PLANNED
from sluice.protocol.transaction import State, TableLog, Transaction

from .kafka import CLUSTER, TOPIC, Record, Where
from .lake import TABLE, File, Instant, rows
from .world import EPOCH, Process, ViolationError, World

_INSTANT = re.compile(r"\b\d{17}\b")


class Invariants:
    """What is looked at in one history, whose coordinators and participants know nothing of it.

    Args:
        world: what the history happens to.
        partitions: of the topic that is loaded.
        operation: of the pipeline, append or upsert.
        ordered: whether the table has an ordering field.
        table: its id.
    """

    def __init__(self, world: World, partitions: int, operation: str, *, ordered: bool, table: str = TABLE) -> None:
        self.world = world
        self.partitions = partitions
        self.operation = operation
        self.ordered = ordered
        self.came_before: set[str] = set()  # processes that began before the table was restored last
        self.told_committed: dict[str, str] = {}  # by instant: who was told
        self.told_done: dict[str, str] = {}  # by a service's plan: who was told
        self.table = table
        self.log = TableLog(table)
        world.on_change = self.check_rows
        world.is_void = self._is_void
        world.on_plan = self._check_turn
        world.has_turn = self._has_turn
        world.on_report = self._check_report
        world.on_start = self._check_start

    sink: str

    @property
    def control_topic(self) -> str:
        """Where the coordinators' messages are."""
        raise NotImplementedError

    def checkpoint(self) -> tuple[Checkpoint, dict[str, Any]]:
        """What the last commit says, with each cluster under its connection's name; and its note."""
        for name in sorted(self.world.timeline, reverse=True):
            for completed in self.world.timeline[name].completed[:1]:
                if not holds_checkpoint(completed.extra):
                    continue
                found = read_checkpoint(completed.extra, CLUSTER, [TOPIC])
                if len(self.world.clusters) > 1:
                    ids = {cluster.connection: cluster.id for cluster in self.world.clusters}
                    found = under_present_names(found, ids, one_place=False)
                return found, json.loads(completed.extra[TRANSACTION_KEY])
        return Checkpoint(), {}

    def _log_ids(self, checkpoint: Checkpoint) -> list[str | None]:
        """By partition the id of the topic that the table has read there."""
        found = (checkpoint.topic(*self.world.place_of(p)[:2]) for p in range(self.partitions))
        return [topic.topic_id if topic else None for topic in found]

    def check_rows(self, *, complete: bool = False) -> None:
        """Readers see the records of the committed offsets, each once."""
        if not complete and self._to_be_taken_off():
            return  # docs/guarantees/conditions.md: it may be seen until whoever comes next has looked
        checkpoint, note = self.checkpoint()
        log_ids = self._log_ids(checkpoint)
        places = [self.world.place_of(p) for p in range(self.partitions)]
        covered = [checkpoint.covered(place) for place in places]
        # What was read is of the leaders up to the one that START asked; what an election cut off may stay a row.
        epochs = [checkpoint.leader_epoch(place) or 0 for place in places]
        wanted = {
            r.where for r in self.world.produced.values()
            if r.log == log_ids[r.partition] and r.epoch <= epochs[r.partition] and r.where not in self.world.cut
            and any(a <= r.offset < b for a, b in covered[r.partition])
        }  # fmt: skip
        readers = {"a reader of the timeline": self.world.committed_files()}
        if self.sink == "kafka":
            readers = {"a consumer": self.world.listed_files()}
        elif complete:
            readers["a reader that lists files"] = self.world.listed_files()
        for who, found in readers.items():
            self._compare(who, found, wanted, log_ids)
        self._check_completeness(note, wanted)
        if not complete:
            return
        self._check_nothing_is_left()
        self._check_the_topic()
        for partition, (log, log_id) in enumerate(zip(self.world.logs, self.world.log_ids(), strict=True)):
            if log_ids[partition] != log_id and log.records:
                raise ViolationError("the table isn't of the log that is there now")
            settled = checkpoint.settled(places[partition])
            unread = [
                o for o, r in log.records.items()
                if r.epoch > epochs[partition] or not any(a <= o < b for a, b in settled)
            ]  # fmt: skip
            if unread:
                raise ViolationError(f"partition {partition} has records that the table hasn't, such as {unread[0]}")

    def _check_up_to_the_open_ones(self) -> None:
        """The table has what comes before the first record of an open transaction, in each partition."""
        checkpoint = self.checkpoint()[0]
        for partition, log in enumerate(self.world.logs):
            settled = checkpoint.settled(self.world.place_of(partition))
            unread = [o for o in log.records if o < log.stable and not any(a <= o < b for a, b in settled)]
            if unread:
                raise ViolationError(f"partition {partition} has records before any open transaction: {unread[0]}")

    def _to_be_taken_off(self) -> bool:
        """Whether a commit stands that was completed after its transaction had been aborted, or twice."""
        known = self._log().transactions
        completed = {name: i for name, i in self.world.timeline.items() if i.completed}
        return any(
            len(i.completed) > 1
            or (name in known and known[name].state is State.ABORTED)
            or (i.action in PLANNED and self._is_excused(name, i))
            for name, i in completed.items()
        )

    def _is_excused(self, name: str, service: Instant) -> bool:
        """Whether a service's completion names files that are gone, by the fault of who stood still."""
        late = service.completed[0].is_late or name in self.world.undone
        return late and not service.completed[0].paths <= set(self.world.files)

    def _log(self) -> TableLog:
        """What the control topic says by now."""
        messages = self.world.topics.get(self.control_topic, [])
        return self.log.extend((o, messages[o]) for o in range(self.log.position, len(messages)))

    def _is_void(self, instant: str) -> bool:
        known = self._log().get(instant)
        return known is not None and known.state is State.ABORTED

    def _has_turn(self, instant: str) -> bool:
        """Whether a transaction holds the table."""
        known = self._log().get(instant)
        return known is not None and known.state in (State.OPEN, State.DECIDED)

    def _check_turn(self, process: Process, what: str, decided: bool) -> None:
        """Who changes a plan had the table when it last looked, and has decided before readers see it."""
        messages = self.world.topics[self.control_topic][: process.knows]
        known = TableLog(self.table).extend(enumerate(messages)).get(process.turn)
        wanted = State.DECIDED if decided else State.OPEN
        if known is None or known.state is not wanted:
            is_now = "unknown" if known is None else known.state.value
            raise ViolationError(f"{process.name} {what}, and knows that its turn is {is_now}")

    def _check_start(self, process: Process, start: StartCommit) -> None:
        """What START-COMMIT tells people is true."""
        if self.sink == "hudi" and len(self.world.clusters) == 1 and start.kind == "continue":
            self._check_what_was_restored(process, start)
        cut_off = [loss for loss in start.losses if loss.truncated_at is not None]
        if cut_off and not self.world.elects:
            raise ViolationError(f"{process.name} says that a log was truncated at {cut_off[0].truncated_at}")

    def _check_what_was_restored(self, process: Process, start: StartCommit) -> None:
        """Intervals that a restore took off are named, none else is, and so are offsets that aren't read again."""
        said = next((remark for remark in start.remarks if "committed intervals (" in remark), "")
        strange = set(_INSTANT.findall(said)) - self.world.restored
        if strange:
            raise ViolationError(f"{process.name} says that {min(strange)} was taken off, and it wasn't")
        if process.name in self.came_before:
            return
        checkpoint, note = self.checkpoint()
        oldest = min(note.get("recent_control_offsets", [0]))  # further back no START looks
        gone = [
            t for name, t in self._log().transactions.items() if name in self.world.restored
            if t.state is State.COMMITTED and t.start.policy.has_instant and t.start_offset >= oldest
        ]  # fmt: skip
        if not said and any(t.start_offset > int(note["control_offset"]) for t in gone):
            raise ViolationError(f"{process.name} doesn't say that intervals were taken off, such as {gone[-1].id}")
        begins = {r.topic_partition: r.start for r in (*start.offset_ranges, *start.idle)}
        for t in gone:
            is_new = t.start_offset > int(note["control_offset"])
            for r in self._read_by(t):
                covered, settled = checkpoint.covered(r.topic_partition), checkpoint.settled(r.topic_partition)
                lacking = [o for o in range(r.start, r.end) if not any(a <= o < b for a, b in covered)]
                left_out = [o for o in lacking if any(a <= o < b for a, b in settled)]
                unread = [o for o in lacking if o < begins.get(r.topic_partition, 0) and o not in left_out]
                for words, wanted in (("does not read", unread), ("passed over again", left_out if is_new else [])):
                    if wanted and not any(words in remark for remark in start.remarks):
                        what = f"offset {wanted[0]} of {t.id} is left out"
                        raise ViolationError(f"{process.name} doesn't say that {what}")

    def _read_by(self, t: Transaction) -> list[PlannedRange]:
        """The ranges of a committed interval, if they are of the topic that is there now."""
        missing = t.end.missing if t.end is not None else ()
        ranges = (r for number, group in enumerate(t.start.ranges) if number not in missing for r in group)
        now = self.world.clusters[0].log_id
        return [r for r in ranges if t.start.topic_ids[r.cluster][r.topic] == now]

    def _check_report(self, process: Process, instant: str) -> None:
        """Who reports a range has closed its files while they could still be committed."""
        transaction = self._log().get(instant)
        if transaction is None or transaction.is_open:
            return
        messages = self.world.topics[self.control_topic][: process.closed_at]
        known = TableLog(self.table).extend(enumerate(messages)).get(instant)
        if known is not None and not known.is_open:
            raise ViolationError(f"{process.name} reports files for {instant} that it closed when that was over")

    def _check_request(self, request: Request, started: Started) -> None:
        """A window that was committed is in the table, all of it."""
        if self.world.target is not None:
            self.world.target.end()  # consumers see it a moment after it is committed
        checkpoint, start = self.checkpoint()[0], self._log().transactions[started.instant].start
        if request.kind != "range" or started.instant in self.world.restored:
            return
        for r in start.offset_ranges:
            number = self.world.number_of(start, r.topic_partition)
            place = self.world.place_of(number)
            topic = checkpoint.topic(*place[:2])
            if topic is None or topic.topic_id != start.topic_ids[r.cluster][r.topic]:
                continue
            planned_in = -1 if r.leader_epoch is None else r.leader_epoch
            if any(epoch > planned_in and at < r.end for epoch, at in self.world.logs[number].cuts.items()):
                continue  # an election since has cut off what was read
            settled = checkpoint.settled(place)
            lacking = [o for o in range(r.start, r.end) if not any(a <= o < b for a, b in settled)]
            if lacking:
                raise ViolationError(f"{started.instant} was committed, and lacks offset {lacking[0]} that it was for")

    def _check_the_topic(self) -> None:
        """Topic and timeline say the same, and who was told of a commit was told the truth."""
        completed = {name for name, instant in self.world.timeline.items() if instant.completed}
        for name, transaction in self._log().transactions.items():
            if name in self.world.restored:
                continue
            is_said = transaction.state is State.COMMITTED
            if transaction.start.policy.has_instant and is_said != (name in completed):
                where = "isn't on the timeline" if is_said else "is on the timeline"
                raise ViolationError(f"the topic says that {name} is {transaction.state.value}, and it {where}")
        for name, who in self.told_committed.items():
            if name not in completed | self.world.restored:
                raise ViolationError(f"{who} was told that {name} is committed, and it isn't on the timeline")

        for name, who in self.told_done.items():
            if name not in completed | self.world.undone | self.world.restored:
                raise ViolationError(f"{who} was told that the plan {name} is carried out, and it isn't")

    def _check_nothing_is_left(self) -> None:
        """No instant, no roll-back and no lease is left half done."""
        pending = [name for name, instant in self.world.timeline.items() if not instant.completed]
        if pending:
            raise ViolationError(f"instants are pending for good: {pending}")
        if self.sink != "hudi":
            named = {p for i in self.world.timeline.values() for c in i.completed for p in c.paths}
            left = sorted(self.world.files.keys() - named - self.world.shown)
            if left:
                raise ViolationError(f"{len(left)} files are left where participants write: {left[0]}")
        if self.world.rollbacks:
            raise ViolationError(f"roll-backs were begun and never finished: {sorted(self.world.rollbacks)}")

    def _compare(self, who: str, files: dict[str, File], wanted: set[Where], log_ids: list[str | None]) -> None:
        found = list(rows(files))
        if self.operation == "append":
            doubled = [where for where, number in Counter(r.where for r in found).items() if number > 1]
            if doubled:
                raise ViolationError(f"{who} sees {len(doubled)} records twice, such as {doubled[0]}")
        seen = {r.where for r in found}
        uncommitted = seen - self.world.produced.keys()
        if uncommitted:
            raise ViolationError(f"{who} sees {len(uncommitted)} records of transactions that were not committed")
        more = {where for where in seen if where[0] == log_ids[where[1]]} - wanted - self.world.cut
        # What came in the place of records that were planned, was read, and left the log before the commit looked.
        more = {where for where in more if self.world.holds(where) or not self._is_covered(where)}
        if more:
            raise ViolationError(f"{who} sees {len(more)} records of offsets that aren't committed: {min(more)}")
        if self.operation == "upsert":
            self._compare_keys(who, files, wanted)
            return
        missing = (wanted - seen - self.world.excused) | (self.world.kept - seen)
        if missing:
            raise ViolationError(f"{who} misses {len(missing)} records of committed offsets, such as {min(missing)}")

    def _is_covered(self, where: Where) -> bool:
        _, partition, offset, _ = where
        covered = self.checkpoint()[0].covered(self.world.place_of(partition))
        return any(a <= offset < b for a, b in covered)

    def _compare_keys(self, who: str, files: dict[str, File], wanted: set[Where]) -> None:
        """An upsert has of each key the version that was produced last among those that it has read."""
        last = self._merged(files)
        for where in wanted - self.world.excused:
            record = self.world.produced[where]
            if last.get(record.key, -1) < record.number:
                raise ViolationError(f"{who} has not the version {where} of a key, or a later one")

    def _merged(self, files: dict[str, File]) -> dict[int, int]:
        """Of each key the record that a reader takes: by the ordering field, or the one that was committed last."""
        last: dict[int, tuple[str, int]] = {}
        for file in files.values():
            for row in file.rows:
                rank = ("" if self.ordered else file.rank, row.number)
                last[row.key] = max(rank, last.get(row.key, rank))
        return {key: number for key, (_, number) in last.items()}

    def _check_completeness(self, note: dict[str, Any], wanted: set[Where]) -> None:
        through = note.get("valid_through")
        if through is None:
            return
        limit = datetime.fromisoformat(through)
        log_ids = self.world.log_ids()
        lacking = [
            r.where for r in self.world.produced.values()
            if r.log == log_ids[r.partition] and max(r.time, r.arrived) < limit and r.where not in wanted
            and r.where not in self.world.excused | self.world.cut and self._is_claimed(note, r)
            and not self._passed_over(r) and not self._is_blurred(r, limit)
        ]  # fmt: skip
        if lacking:
            raise ViolationError(f"the table says that it is complete to {limit - EPOCH}, and lacks {lacking[0]}")

    def _is_claimed(self, note: dict[str, Any], record: Record) -> bool:
        """Whether a commit says anything of the cluster that has the record: the mapping named it, up to an end."""
        if note["streams"] is None:
            return True
        known = KnownStreams.model_validate(note["streams"])
        place = self.world.place_of(record.partition)
        for (name, _), log in known.items():
            if known.clusters[name].connection == place.cluster:
                return record.offset < log.ends.get(place.partition, record.offset + 1)
        return False

    def _is_blurred(self, record: Record, limit: datetime) -> bool:
        """Whether a record stands behind one that is dated later than the limit: times say nothing of offsets there."""
        if self.world.dates is None:
            return False
        log = (r for r in self.world.taken if (r.log, r.partition) == (record.log, record.partition))
        return any(r.offset < record.offset and r.time >= limit for r in log)

    def _passed_over(self, record: Record) -> bool:
        place = self.world.place_of(record.partition)
        topic = self.checkpoint()[0].topic(*place[:2])
        spans = topic.passed_over.get(place.partition, ()) if topic else ()
        return any(a <= record.offset < b for a, b in spans)
