"""The rules of the protocol, each taken out in turn: a campaign that finds nothing then would prove nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from types import MappingProxyType
from typing import Any
from unittest.mock import patch

from confluent_kafka import IsolationLevel

from sluice.connectors.intervals import Turn
from sluice.control.service_lease import ServiceLease
from sluice.coordinator import checks, commit, coordinator, planning, session, start, streams
from sluice.coordinator.commit import Committer
from sluice.coordinator.fence import Fence
from sluice.coordinator.lease import Leases
from sluice.coordinator.session import Committed
from sluice.coordinator.start import Starter
from sluice.errors import RetryableError
from sluice.kafka.list_offsets import Question
from sluice.kafka.transactional import Record as Entry
from sluice.kafka.transactional import TransactionalSender
from sluice.participant import claiming
from sluice.participant.participant import Watch
from sluice.protocol import claims, identity, known_streams, plan, policy
from sluice.protocol import streams as protocol_streams
from sluice.protocol.claims import Claims, Verdict, Waiting
from sluice.protocol.known_streams import KnownStreams
from sluice.protocol.losses import Lost
from sluice.protocol.messages import NO_LEASE, AckCommit, Claim, EndCommit, StartCommit
from sluice.protocol.offsets import Checkpoint, ClusterCheckpoint, TopicPartition
from sluice.protocol.policy import POLICIES
from sluice.protocol.settlement import leader_epochs, moved_offsets
from sluice.protocol.state import ClusterState, PartitionBounds
from sluice.protocol.streams import Followed
from sluice.protocol.taken_back import TakenBack
from sluice.protocol.transaction import State, TableLog, Transaction
from sluice.sinks.kafka.options.takes import LARGEST
from sluice.sinks.kafka.table import KafkaTable
from sluice.sources.kafka.cluster import KafkaCluster

from .broker import SimKafka
from .kafka_sink import Brokers, SimSender
from .other_sinks import SimDatabase, SimFiles
from .rows import Shop
from .table import SimHudi, SimTable

Mutant = Callable[[], AbstractContextManager[Any]]


def _replaced(target: Any, name: str, by: Any) -> Mutant:
    return lambda: patch.object(target, name, by)


def _together(*mutants: Mutant) -> Mutant:
    @contextmanager
    def all_of_them() -> Iterator[None]:
        with ExitStack() as stack:
            for mutant in mutants:
                stack.enter_context(mutant())
            yield

    return all_of_them


def _policies(**changed: Any) -> Mutant:
    wrong = {kind: replace(found, **changed) if kind != "service" else found for kind, found in POLICIES.items()}
    return _replaced(policy, "POLICIES", MappingProxyType(wrong))


def _retention_alone(
    bounds: PartitionBounds, committed: int, checkpoint: Checkpoint, state: ClusterState
) -> Lost | None:
    """Where records before the log's start are lost, nobody looks what was truncated at its end."""
    found = _FIND_LOST(bounds, committed, checkpoint, state)
    return found._replace(truncated_at=None) if found and committed < bounds.log_start else found


def _moved_positions(start: StartCommit, committed: Committed) -> list[str]:
    """Nobody looks whether what an interval goes round is still in the table, nor on which commit it was planned."""
    bare = {"rests_on": None}
    ranges = tuple(tuple(r.model_copy(update=bare) for r in group) for group in start.ranges)
    idle = tuple(r.model_copy(update=bare) for r in start.idle)
    return moved_offsets(start.model_copy(update={"ranges": ranges, "idle": idle}), committed.checkpoint)


def _epochs_of_what_was_read(start: StartCommit) -> dict[TopicPartition, int]:
    """Nobody can see any more that other records came to stand at offsets that were passed over."""
    return leader_epochs(start.model_copy(update={"passed_over": ()}))


def _apply_any_end(self: TableLog, offset: int, message: Any) -> None:
    """Every END-COMMIT counts, whichever lease it takes over."""
    if isinstance(message, EndCommit):
        found = self.transactions.get(message.transaction)
        message = message.model_copy(update={"takes_over": found.lease_offset if found else NO_LEASE})
    _APPLY(self, offset, message)


def _apply_ack_of_aborted(self: TableLog, offset: int, message: Any) -> None:
    found = self.transactions.get(message.transaction)
    if isinstance(message, AckCommit) and found is not None:
        found.state = State.COMMITTED
    _APPLY(self, offset, message)


def _apply_late_end(self: TableLog, offset: int, message: Any) -> None:
    """An END-COMMIT counts for what is superseded, too."""
    found = self.transactions.get(message.transaction)
    if isinstance(message, EndCommit) and found is not None and found.state is State.SUPERSEDED:
        found.state = State.OPEN
    _APPLY(self, offset, message)


def _lost_but_for_truncations(bounds: Any, committed: int, *rest: Any) -> Any:
    found = _FIND_LOST(bounds, committed, *rest)
    return None if found is not None and found.truncated_at is not None else found


def _through_what_is_read(self: ClusterState, _before: Any) -> Any:
    return min((b.valid_through for b in self.partitions), default=None)


def _same_names(known: Mapping[str, str | None], *_: Any, **__: Any) -> dict[str, str]:
    return {name: name for name in known}


def _decide_and_go_on(self: ServiceLease, holder: str) -> None:
    """END-COMMIT is sent, and nobody looks whether it counts."""
    self._send_lease(holder)


def _last_status(self: Transaction, number: int) -> Any:
    found = [s for s in self.statuses if s.range == number and s.error is None]
    return found[-1] if found else None


@contextmanager
def _abort_after_the_roll_back() -> Iterator[None]:
    """The instant is rolled back first, and ABORT-COMMIT sent second."""

    def give_up(self: Committer, table: Any, table_log: Any, transaction: Any, reason: str) -> bool:
        table.rollback(transaction.id)
        return bool(_GIVE_UP(self, table, table_log, transaction, reason))

    with patch.object(Committer, "give_up", give_up):
        yield


@contextmanager
def _instant_before_start() -> Iterator[None]:
    """The instant is on the timeline before START-COMMIT stands."""

    def message(self: Starter, table: Any, *rest: Any) -> Any:
        made = _START_MESSAGE(self, table, *rest)
        table.open_replacing(made.transaction) if made.replaces_files else table.open(made.transaction)
        return made

    with patch.object(Starter, "_start_message", message):
        yield


def _read_after(self: Starter, *arguments: Any) -> Any:
    made = _START_MESSAGE(self, *arguments)
    return made.model_copy(update={"read_position": self._session.control.end()})


def _uncommitted(self: Starter, *arguments: Any) -> Any:
    """Write jobs read what is in the log, of whatever transaction."""
    return _START_MESSAGE(self, *arguments).model_copy(update={"isolation_level": "read_uncommitted"})


def _all_there_is(self: SimKafka, partitions: Any, *questions: Question) -> Any:
    """Where a partition ends is asked without a word of transactions."""
    return _LIST(self, partitions, *(q._replace(isolation=IsolationLevel.READ_UNCOMMITTED) for q in questions))


def _past_the_stable_one(bounds: PartitionBounds, *rest: Any) -> Lost | None:
    """Offsets that a person has passed over in an open transaction are taken for those of a truncated log."""
    return _FIND_LOST(replace(bounds, high_watermark=-1), *rest)


def _after_one_look(
    self: Starter, _table: Any, table_log: TableLog, run: Any, committed: Committed, task: Any, state: Any
) -> Any:
    """The table isn't looked at again, though the topic was read later."""
    gone = start.taken_back(table_log, committed.recent_control_offsets)
    return self._planner.after_taken_back(gone, run.request, committed, task, state)


def _note_any_claim(self: Transaction, offset: int, message: Any) -> None:
    """No compare-and-set."""
    if isinstance(message, Claim):
        last, _ = self.claims.get(message.range, (NO_LEASE, None))
        message = message.model_copy(update={"takes_over": last})
    _NOTE(self, offset, message)


def _standing_for_ever(_self: Claims, transaction: Transaction, number: int) -> Claim | None:
    _, claim = transaction.claims.get(number, (NO_LEASE, None))
    return None if claim is None or claim.released else claim


def _wait_for_ever(_self: Waiting, _transaction: Transaction, workers: Callable[[], bool]) -> Verdict:
    return Verdict.WAIT if workers() else Verdict.SUBMIT


def _is_without_status(transaction: Transaction, number: int) -> bool:
    return transaction.is_open and transaction.status_of(number) is None


def _ended_and_forgotten(self: claiming.Claiming, range_id: Any, error: Exception | None) -> None:
    _ENDED(self, range_id, error)
    self._state.failed.clear()


_LIST = SimKafka._list_offsets
_SEND = TransactionalSender.send
_NOTE = Transaction.note
_ENDED = claiming.Claiming.ended
_FIND_LOST = plan.find_lost
_APPLY = TableLog._apply
_FIND_LOST = plan.find_lost
_GIVE_UP = Committer.give_up
_START_MESSAGE = Starter._start_message
_END_SUPERSEDED = Starter.end_superseded
_COMMIT_FILES = SimFiles.commit
_WHOLE = KafkaTable._whole
_TURN = KafkaTable._turn


def _supersede_without_roll_back(self: Starter, table: Any, *rest: Any) -> None:
    with patch.object(SimHudi, "rollback", lambda _self, _instant: False):
        _END_SUPERSEDED(self, table, *rest)


def _commit_and_show(self: SimFiles, instant: str, *rest: Any, **more: Any) -> list[str]:
    """Files are shown with the commit, and not when the control topic was read once more."""
    _COMMIT_FILES(self, instant, *rest, **more)
    self.publish(instant)
    return []


def _leave_the_turn(self: SimDatabase | KafkaTable, instant: str) -> bool:
    """Nobody sees to it that a commit that stands still can't go on."""
    return self.state_of(instant) != "completed"


def _apart(self: KafkaTable, sender: Any, *rest: Any) -> Iterator[Any]:
    """An interval's records are a transaction of their own, and its entry in the log is another."""
    whole = list(_WHOLE(self, sender, *rest))
    entries = [one for one in whole if isinstance(one, Entry)]
    sender.produce_all(one for one in whole if not isinstance(one, Entry))
    sender.flush()
    sender.commit()
    sender.begin()
    return iter(entries)


def _look_first(self: KafkaTable, smallest: int = LARGEST) -> TransactionalSender:
    """Who had the transactional id before may still commit after the look."""
    self._log.read()
    return self.target.sender(smallest)


def _send_again(self: SimSender, records: Iterable[Any]) -> None:
    """What Kafka didn't answer is taken for what it didn't do."""
    whole = list(records)
    try:
        _SEND(self, whole)
    except RetryableError:
        _SEND(SimSender(self._world, self._process), whole)


def _on_any_commit(self: KafkaTable, instant: str) -> Turn:
    """The log's entry of an interval is looked at, and not the commit that it rests on."""
    turn = _TURN(self, instant)
    return replace(turn, planned_on=turn.last)


def _last_number(self: Shop, partition: int) -> int:
    return self._world.logs[partition].end


def _any_order(self: planning.Planner, found: Any, _kind: Any) -> Any:
    """Windows are loaded into a table that can't tell older versions from newer ones."""
    return planning.Task(found)


_UNCOMPARED = _replaced(commit, "_moved_since", lambda *_: [])
# Of this rule alone the histories say nothing within thousands: it has a test of its own.
LOOKS_ONCE = _replaced(coordinator, "completed_by_previous_holder", lambda *_: False)
# Nor of this one, where the table is a database's, or a topic.
LEAVES_THE_TURN = _replaced(SimDatabase, "forbid_commit", _leave_the_turn)
LOOKS_AT_THE_TURN = _replaced(KafkaTable, "forbid_commit", _leave_the_turn)
# Nor of these, where it is files: the commit has to get into the log between ABORT-COMMIT and the roll-back.
SHOWS_AT_ONCE = _replaced(SimFiles, "commit", _commit_and_show)
LEAVES_IN_THE_LOG = _replaced(SimFiles, "completions", lambda _self: {})
_UNFENCED = _replaced(Fence, "repair", lambda *_: False)
# The comparison stands behind the first rules, which are taken out together with it.
MUTANTS: dict[str, Mutant] = {
    "a START counts though a turn stands between": _together(
        _UNCOMPARED, _replaced(TableLog, "_is_void", lambda _self, _message: False)
    ),
    "read_position is taken after the timeline was read": _together(
        _UNCOMPARED, _replaced(Starter, "_start_message", _read_after)
    ),
    "an older open transaction isn't superseded": _together(
        _UNCOMPARED, _replaced(TableLog, "_supersede", lambda _self: None)
    ),
    "END-COMMIT of a superseded transaction counts": _together(
        _UNCOMPARED, _replaced(TableLog, "_apply", _apply_late_end)
    ),
    "any END-COMMIT takes the lease": _replaced(TableLog, "_apply", _apply_any_end),
    "a lease is always free": _replaced(Leases, "is_free", lambda _self, _offset, _lease: True),
    "ABORT-COMMIT of a decided transaction counts from anybody": _replaced(
        Transaction, "may_be_aborted", lambda self, _lease: self.state is not State.COMMITTED
    ),
    "ACK-COMMIT of an aborted transaction counts": _together(
        LOOKS_ONCE, _replaced(TableLog, "_apply", _apply_ack_of_aborted)
    ),
    "the last status of a range counts": _replaced(Transaction, "status_of", _last_status),
    "a commit doesn't look whether it was superseded": _replaced(commit, "require_ours", lambda _transaction: None),
    "nothing is taken off the timeline again": _UNFENCED,
    "what is superseded isn't rolled back": _replaced(Starter, "end_superseded", _supersede_without_roll_back),
    "an interval that was aborted before its roll-back is left": _replaced(SimHudi, "leftovers", lambda _self: set()),
    "nothing is swept up": _replaced(SimHudi, "sweep", lambda *_: []),
    "partitions that nobody has named aren't looked in": _replaced(
        SimHudi, "partitions_on_storage", lambda _self: set()
    ),
    "START looks back one interval": _replaced(
        Committed, "recent_control_offsets", property(lambda self: [self.control_offset])
    ),
    "roll-backs that were begun aren't finished": _replaced(SimHudi, "finish_rollbacks", lambda _self: []),
    "a decided commit that was left isn't finished": _replaced(Committer, "resolve_unfinished", lambda *_: False),
    "nobody waits for a clock": _replaced(SimTable, "await_clock", lambda _self: None),
    "the audit is left out": _replaced(checks, "audit", lambda *_: None),
    "a replay may read fewer records": _replaced(checks, "audit_again", lambda *_: None),
    "topic ids aren't looked at again": _replaced(checks, "_refuse_other_logs", lambda *_: None),
    "topic ids aren't compared when it is planned": _replaced(planning, "refuse_other_logs", lambda *_: None),
    "another log is read on as the old one": _replaced(plan, "other_logs", lambda *_: {}),
    "a commit doesn't look whether its log was truncated": _together(
        _replaced(checks, "truncated_since_read", lambda *_: []), _replaced(checks, "_perhaps_truncated", lambda *_: [])
    ),
    "a replay is committed of whose log nothing is left": _replaced(checks, "_perhaps_truncated", lambda *_: []),
    "a truncated log is read on as if it weren't": _replaced(plan, "find_lost", _lost_but_for_truncations),
    "offsets of a truncated log stay covered": _replaced(commit, "truncated_partitions", lambda _start: {}),
    "a replay doesn't look whether its log was truncated": _replaced(
        planning.Planner, "_refuse_cut_off", lambda *_: None
    ),
    "every kind of request may commit in part": _policies(commits_in_part=True),
    "every kind moves the position to its planned ends": _policies(moves_positions="planned"),
    "every kind claims completeness": _policies(claims_completeness=True),
    "rows that are newer aren't kept": _replaced(
        planning, "policy_of", lambda kind: replace(POLICIES[kind], keeps_newer="where covered")
    ),
    "a second replay by the first instant": _together(
        _replaced(SimHudi, "replayed_by", lambda *_: None),
        _replaced(planning, "require_whole", lambda *_: None),
        _replaced(checks, "require_whole", lambda *_: None),
    ),
    "a replay doesn't look where its rows are": _replaced(checks, "require_whole", lambda *_: None),
    "START-COMMIT comes after the instant": _instant_before_start,
    "ABORT-COMMIT comes after the roll-back": _abort_after_the_roll_back,
    "a participant doesn't look before it reports": _replaced(Watch, "check", lambda _self: None),
    "a service doesn't look whether it still has the table before it begins a plan": _replaced(
        ServiceLease, "require_open", lambda _self: None
    ),
    "a replay leaves the plan of a clustering that was decided": _replaced(
        Starter, "_take_off_clusterings", lambda *_: None
    ),
    "a loss by retention hides a truncation": _replaced(plan, "find_lost", _retention_alone),
    "a service that lost the table completes its plan": _replaced(ServiceLease, "decide", _decide_and_go_on),
    "what an interval goes round isn't looked at again": _replaced(commit, "_moved_since", _moved_positions),
    "an interval is committed on another commit than it was planned on": _replaced(
        commit, "_moved_since", lambda start, committed: moved_offsets(start, committed.checkpoint)
    ),
    "a commit doesn't look at one that came since": _replaced(commit, "_came_since", lambda *_: False),
    "what is passed over has no leader epoch": _replaced(commit, "leader_epochs", _epochs_of_what_was_read),
    "the position forgets what was passed over": _replaced(Checkpoint, "settled", Checkpoint.covered),
    "a cluster is known by its name alone": _together(
        _replaced(identity, "present_names", _same_names), _replaced(known_streams, "present_names", _same_names)
    ),
    "what was read of another cluster under a name is forgotten": _replaced(ClusterCheckpoint, "is_known", False),
    "one cluster may have two names": _together(
        _replaced(streams, "refuse_two_names", lambda *_: None),
        _replaced(session, "refuse_shared_names", lambda *_: None),
    ),
    "a removed cluster is waited for from the first": _replaced(Followed, "missed", frozenset()),
    "a cluster that was skipped isn't known under another name": _replaced(
        KnownStreams, "identified", lambda self, _ids: self
    ),
    "a topic that was moved away is left at once": _replaced(protocol_streams, "_is_read", lambda *_: True),
    "a topic counts as drained though an election has cut it off": _replaced(
        protocol_streams, "_is_cut_off", lambda *_: False
    ),
    "a topic that is read to an end counts as drained": _replaced(known_streams, "_is_drained", lambda *_: True),
    "a cluster that is skipped is no word of completeness": _replaced(
        ClusterState, "valid_through", _through_what_is_read
    ),
    "a cluster at another address is taken for the one before it": _replaced(streams, "doubtful", lambda *_: ()),
    "another cluster's topic must have as many partitions": _replaced(
        planning.Planner, "_is_apart_in_rows", lambda *_: False
    ),
    "workers: the last claim on a range counts": _replaced(Transaction, "note", _note_any_claim),
    "workers: a claim never runs out": _replaced(Claims, "standing", _standing_for_ever),
    "workers: a task submits nothing once workers are there": _replaced(Waiting, "_unclaimed", _wait_for_ever),
    "workers: a range that failed is claimed again": _together(
        _replaced(claiming, "is_unwritten", _is_without_status),
        _replaced(claims, "is_unwritten", _is_without_status),
        _replaced(claiming.Claiming, "ended", _ended_and_forgotten),
    ),
    "workers: a range that kills them goes from one to the next": _replaced(
        claims, "is_left_by_workers", lambda *_: False
    ),
    "workers: an interval is written of which it isn't known whether it counts": _replaced(
        claiming, "is_known_from", lambda *_: True
    ),
    "files: a commit that was left isn't shown by who comes next": _replaced(SimFiles, "publish", lambda *_: None),
    "a database: versions are loaded out of their order": _replaced(planning.Planner, "_task_of", _any_order),
    "a database: an interval that was aborted before its roll-back is left": _replaced(
        SimDatabase, "leftovers", SimDatabase._all_staged
    ),
    "a database: staging tables of ended intervals aren't swept up": _replaced(SimDatabase, "sweep", lambda *_: []),
    "a topic: who had the transactional id before isn't refused": _replaced(Brokers, "fence", lambda *_: None),
    "a topic: records are sent apart from the log's entry": _replaced(KafkaTable, "_whole", _apart),
    "a topic: a commit doesn't look on which one it rests": _together(
        _UNCOMPARED, _replaced(KafkaTable, "_turn", _on_any_commit)
    ),
    "a topic: the log is read before the transactional id is taken": _replaced(KafkaTable, "_taken", _look_first),
    "a topic: a commit whose answer was lost is sent again": _replaced(TransactionalSender, "send", _send_again),
    "open transactions: an interval is planned up to the high watermark": _replaced(
        SimKafka, "_list_offsets", _all_there_is
    ),
    "open transactions: records are read before it is decided whether they count": _replaced(
        Starter, "_start_message", _uncommitted
    ),
    "open transactions: the time of their records limits no completeness": _replaced(
        KafkaCluster, "_open_since", lambda *_: {}
    ),
    "open transactions: offsets may be of another topic than the id": _replaced(
        KafkaCluster, "_require_still_there", lambda *_: None
    ),
    "open transactions: a log ends at its last stable offset": _replaced(plan, "find_lost", _past_the_stable_one),
    "a restore: the control topic isn't compared with the table": _replaced(start, "taken_back", lambda *_: ()),
    "a restore: an interval that was committed meanwhile counts as taken off": _replaced(
        Starter, "_after_taken_back", _after_one_look
    ),
    "a restore: offsets that are not read again aren't named": _replaced(TakenBack, "not_read_again", lambda *_: []),
    "a restore: offsets that are passed over again aren't named": _replaced(
        TakenBack, "passed_over_again", lambda *_: []
    ),
    "rows: who has taken a number isn't waited for": _replaced(Shop, "horizon", _last_number),
    "rows: those that wait are no word of completeness": _replaced(
        ClusterState, "valid_through", _through_what_is_read
    ),
}
"""By what is wrong."""

_ROW = re.compile(r"^\| (?P<name>[^|]+) \| (?P<seed>\d+) \|", re.MULTILINE)


def known_seeds(document: str) -> dict[str, int]:
    """Of each rule that is taken out the first seed that misses it, as docs/simulation.md has them."""
    return {row["name"]: int(row["seed"]) for row in _ROW.finditer(document)}
