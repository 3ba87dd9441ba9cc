"""Steps of the coordinator that simulated histories don't have: restored bad records, quarantines, false STARTs."""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import timedelta
from itertools import count, islice
from types import SimpleNamespace
from typing import Any

import pytest
from protocol_messages import INSTANT, TABLE, TIME, abort, ack, end, envelope, planned, start, status
from test_taken_back import LOG, _log, _plan, _start

from sluice.connectors.sink import Ended
from sluice.control.service_lease import ServiceLease
from sluice.coordinator import checks, dead_letters, services
from sluice.coordinator import move as moves
from sluice.coordinator import quarantine as quarantines
from sluice.coordinator.checks import audited
from sluice.coordinator.coordinator import Coordinator
from sluice.coordinator.fence import Fence
from sluice.coordinator.move import Mover
from sluice.coordinator.planning import Planner, Task
from sluice.coordinator.quarantine import Quarantine
from sluice.coordinator.session import Session
from sluice.coordinator.streams import Streams
from sluice.coordinator.turns import Turns
from sluice.errors import ActionRequiredError, IntervalError, RetryableError, SluiceError
from sluice.kafka.sent_letters import Sent
from sluice.pipeline.model import Write
from sluice.protocol.commit_note import NO_NOTE, CommitNote
from sluice.protocol.identity import LogId
from sluice.protocol.known_streams import KnownLog, KnownStreams
from sluice.protocol.mapping import ClusterAddress, Move
from sluice.protocol.moves import OffsetSync, refuse_unsettled_moves
from sluice.protocol.notes_topics import NotesTopics
from sluice.protocol.offsets import Checkpoint, ClusterCheckpoint, TopicCheckpoint, TopicPartition
from sluice.protocol.quarantine import why_not_again
from sluice.protocol.redriven import Places
from sluice.protocol.request import Request
from sluice.protocol.signing import Signed
from sluice.protocol.state import ClusterState, PartitionBounds
from sluice.protocol.streams import Followed
from sluice.protocol.taken_back import taken_back
from sluice.protocol.transaction import State, TableLog

# Bad records that were sent again, and whose interval was then restored away


def _after_a_restore(*, upsert: bool, quarantined: int, read_up_to: int) -> tuple[str, ...]:
    """What is said of an interval that reads on, where offset 12 of a lost interval was sent again."""
    log = _log(_start(0, 10, 20), quarantined=quarantined)
    topic = TopicCheckpoint(topic_id="id", partitions={0: 10})
    checkpoint = Checkpoint(clusters={"kafka": ClusterCheckpoint(cluster_id="K", topics={"t": topic})})
    state = ClusterState(partitions=(), cluster_ids={"kafka": "K"}, topic_ids={("kafka", "t"): "id"})
    session: Any = SimpleNamespace(
        table_id=TABLE,
        followed=None,
        pipeline=SimpleNamespace(
            sink=SimpleNamespace(capabilities=SimpleNamespace(upsert=upsert)),
            control=SimpleNamespace(topic="control"),
        ),
        sources=SimpleNamespace(sent_again=lambda topic, table: SENT_AGAIN, notes_there=lambda topics: {}),
        notes_topics=lambda note: NotesTopics.known_by((), (), "control.redriven"),
    )
    committed: Any = SimpleNamespace(checkpoint=checkpoint, control_offset=0, note=NO_NOTE)
    task = Task(_plan(10, read_up_to))
    return Planner(session).after_taken_back(taken_back(log, []), Request(), committed, task, state)


@pytest.mark.parametrize(
    ("case", "is_refused"),
    [
        ({"upsert": False, "quarantined": 1, "read_up_to": 13}, True),
        ({"upsert": False, "quarantined": 1, "read_up_to": 12}, False),
        ({"upsert": False, "quarantined": 0, "read_up_to": 13}, False),
        ({"upsert": True, "quarantined": 1, "read_up_to": 13}, False),
    ],
    ids=["read at both places", "short of it", "nothing was set aside", "an upsert has one row of it"],
)
def test_an_append_does_not_read_a_record_that_was_sent_again_at_its_first_place_too(case, is_refused):
    refused = pytest.raises(ActionRequiredError, match=r"t\[0\]:12-13") if is_refused else nullcontext()
    with refused:
        _after_a_restore(**case)


SENT_AGAIN = Places()
SENT_AGAIN.add(("t", 0, 12), "id")

# The quarantine of intervals that have ended


class _Quarantine:
    """What is asked of a quarantine's table when it is cleared."""

    def __init__(self) -> None:
        self.writer = SimpleNamespace(path=f"{TABLE}_quarantine")
        self.swept: list[Ended] = []

    def state_of(self, instant: str) -> str:
        return "absent"

    def leftovers(self) -> set[str]:
        return set()

    def sweep(self, ended: Ended) -> list[str]:
        self.swept.append(ended)
        return ["left.parquet"]


@pytest.mark.parametrize(("at", "is_cleared"), [("quarantine", True), ("other", False), (None, False)])
def test_what_an_aborted_interval_left_in_the_pipeline_s_quarantine_is_deleted(at, is_cleared, monkeypatch):
    own = f"{TABLE}_quarantine"
    pinned = None if at is None else start(INSTANT).writer.model_copy(update={"path": f"{TABLE}_{at}"})
    log = TableLog(TABLE).extend(enumerate([start(INSTANT, quarantine=pinned), status(INSTANT), abort(INSTANT)]))
    kept: Any = _Quarantine()
    keeps = SimpleNamespace(pin_quarantine=lambda *_: kept.writer, open_quarantine=lambda *_: kept)
    monkeypatch.setattr(quarantines, "quarantine_of", lambda sink: keeps)
    monkeypatch.setattr(quarantines, "quarantine_path", lambda table, errors: own)
    pipeline = SimpleNamespace(errors=None)
    session: Any = SimpleNamespace(table_id=TABLE, pipeline=pipeline, sink=None)
    table: Any = SimpleNamespace(writer=None)
    left = Quarantine(session).clear(table, log.transactions.values())
    assert left == ([f"{own}/left.parquet"] if is_cleared else [])
    assert kept.swept == ([Ended({INSTANT: set()}, {"2026-01-01"})] if is_cleared else [])


# Waiting for the transaction that holds the table


class _Followed:
    """A control topic in which the next message comes only when the log is followed."""

    topic = "old"

    def __init__(self, *messages: Any) -> None:
        self._coming = [*messages]
        self.log = TableLog(TABLE).extend([(0, start(INSTANT))])
        self.log.position = 1

    def exists(self) -> bool:
        return True

    def end(self) -> int:
        return self.log.position

    def table_log(self, table: str, first: int) -> TableLog:
        return self.log

    def follow(self, log: TableLog, stop: threading.Event) -> Iterator[TableLog]:
        while True:
            if self._coming:
                log.extend([(log.position, self._coming.pop(0))])
                log.position += 1
            yield log

    def send(self, message: Any) -> int:
        raise AssertionError("the table isn't moved while another run has it")


def _waits(control: Any) -> Any:
    machine = SimpleNamespace(steady=count().__next__, now=lambda: TIME)
    pipeline = SimpleNamespace(table_services=None)
    return SimpleNamespace(control=control, table_id=TABLE, machine=machine, pipeline=pipeline)


@pytest.mark.parametrize("last", [abort(INSTANT), end(INSTANT)], ids=["aborted", "decided"])
def test_a_run_waits_until_the_transaction_before_it_has_ended_or_its_run_has(last):
    control, looks = _Followed(last), []
    session = _waits(control)

    def is_running(dag: str, run: str) -> bool:
        looks.append(run)
        return len(looks) < 3

    Turns(session, is_running).wait_for(control.log.transactions[INSTANT])
    is_open = control.log.transactions[INSTANT].state is not State.ABORTED
    assert looks == (["run", "run", "run"] if is_open else [])


def test_no_table_leaves_its_control_topic_while_another_run_has_it_there():
    """It waits, and then looks again: what that run has done decides what is to be moved."""
    control = _Followed(abort(INSTANT))
    old = _waits(control)
    new: Any = SimpleNamespace(control=SimpleNamespace(topic="new"))
    mover = Mover(new, lambda dag, run: True, None)
    table: Any = None
    run: Any = SimpleNamespace(dag_id="dag", run_id="another")
    assert mover._leave(table, run, old, control.log, 1) is False
    assert control.log.transactions[INSTANT].state is State.ABORTED


@pytest.mark.parametrize("is_unfinished", [True, False], ids=["a commit to finish", "nothing is open"])
def test_a_table_leaves_its_control_topic_when_nothing_is_unfinished_there_and_is_looked_at_again(
    is_unfinished, monkeypatch
):
    sent: list[Any] = []

    def send(message: Any) -> int:
        sent.append(message)
        control.log.extend([(control.log.position, message)])
        return control.log.position

    control: Any = _Followed()
    control.log.extend([(1, abort(INSTANT))])
    control.send, control.extend = send, lambda log: log
    old = _waits(control)
    old.envelope = lambda instant, epoch, run: envelope(instant)
    committer = SimpleNamespace(resolve_unfinished=lambda *_: is_unfinished)
    monkeypatch.setattr(moves, "Committer", lambda _: committer)
    mover = Mover(SimpleNamespace(control=SimpleNamespace(topic="new")), lambda dag, run: False, None)  # type: ignore[arg-type]
    table: Any = SimpleNamespace(new_instant=lambda: "20260101000000001")
    run: Any = SimpleNamespace(dag_id="dag", run_id="another")
    assert mover._leave(table, run, old, control.log, 2) is False
    assert [(one.to, one.read_position) for one in sent] == ([] if is_unfinished else [("new", 2)])
    assert (control.log.moved is None) is is_unfinished


# A START-COMMIT that names the instant of another interval's commit


class _Table:
    """A table with one commit, completed although its transaction is aborted."""

    def __init__(self, of_topic: str | None, of_start: int) -> None:
        self._written = SimpleNamespace(note=SimpleNamespace(control_topic=of_topic, control_offset=of_start))
        self.writer = SimpleNamespace(path=TABLE)
        self.undone: list[str] = []

    def completions(self) -> dict[str, Any]:
        return {INSTANT: SimpleNamespace(requested=True, files=["one"], is_after=lambda _: False)}

    def written_by(self, instant: str) -> Any:
        return self._written

    def take_off(self, instant: str, files: Any) -> None:
        self.undone.append("taken off")

    def rollback(self, instant: str) -> None:
        self.undone.append("rolled back")


@pytest.mark.parametrize(
    ("of_topic", "of_start", "made_again", "is_undone"),
    [
        ("control", 0, False, True),
        (None, 0, False, True),
        ("control", 7, False, False),
        ("elsewhere", 0, False, False),
        ("control", 0, True, False),
    ],
    ids=["its own", "of an earlier release", "another START", "another topic", "another topic of the name"],
)
def test_only_the_commit_of_an_aborted_interval_itself_is_taken_off(of_topic, of_start, made_again, is_undone):
    """Any process that may write to the topic could name a committed instant in a START and an ABORT."""
    log = TableLog(TABLE).extend(enumerate([start(INSTANT), abort(INSTANT)]))
    control = SimpleNamespace(topic="control")
    session: Any = SimpleNamespace(control=control, is_made_again=lambda note: made_again)
    table: Any = _Table(of_topic, of_start)
    assert Fence(session).repair(table, log) is is_undone
    assert table.undone == (["taken off", "rolled back"] if is_undone else [])


# A service's lease


class _Control:
    """A control topic whose first renewals don't get through."""

    def __init__(self, failures: int) -> None:
        self._failures = failures
        self._sent: list[Any] = []
        self.renewed = threading.Event()

    def send(self, message: Any) -> int:
        if self._failures:
            self._failures -= 1
            raise RetryableError("No broker answers.", next_step="none.")
        self._sent.append(message)
        self.renewed.set()
        return len(self._sent)

    def extend(self, log: TableLog) -> TableLog:
        log.extend(enumerate(self._sent[log.position - 1 :], log.position))
        return log


def test_a_lease_is_renewed_again_after_a_renewal_that_did_not_get_through():
    log = TableLog(TABLE).extend([(0, start(INSTANT, ranges=0, service="clustering"))])
    log.position = 1
    control: Any = _Control(failures=2)
    lease = ServiceLease(control, log, log.transactions[INSTANT], lambda: TIME)
    with lease.renewed("me", every=0.01, longest=timedelta(hours=1)):
        assert control.renewed.wait(30)
    assert log.transactions[INSTANT].lease_offset >= 1


def test_a_service_that_takes_too_long_is_not_renewed():
    log = TableLog(TABLE).extend([(0, start(INSTANT, ranges=0, service="clustering")), (1, end(INSTANT, reported=()))])
    log.position = 2
    control: Any = _Control(failures=0)
    lease = ServiceLease(control, log, log.transactions[INSTANT], lambda: TIME + timedelta(hours=1))
    stop = threading.Event()
    lease._renew("me", 0.001, timedelta(hours=1), stop)  # returns by itself
    assert not control.renewed.is_set()


# Windows, while a transaction is open in the source


@pytest.mark.parametrize(
    ("sparse", "request_", "is_refused"),
    [
        (False, {"offsets": {"t": {0: (0, 8)}}}, True),
        (False, {"offsets": {"t": {0: (0, 5)}}}, False),
        (True, {"offsets": {"t": {0: (0, 8)}}}, False),
    ],
    ids=["past its first record", "before it", "a source without rows at every number"],
)
def test_a_window_past_an_open_transaction_is_tried_again(sparse, request_, is_refused):
    bounds = PartitionBounds(LOG, 0, 5, 5, TIME, high_watermark=9)
    state = ClusterState(partitions=(bounds,), cluster_ids={"kafka": "K"}, topic_ids={("kafka", "t"): "id"})
    session: Any = SimpleNamespace(
        table_id=TABLE,
        followed=None,
        pipeline=SimpleNamespace(
            sink=SimpleNamespace(capabilities=SimpleNamespace(upsert=False)),
            source=SimpleNamespace(capabilities=SimpleNamespace(sparse=sparse)),
            write=Write(),
            writer=lambda: SimpleNamespace(ordering_fields=()),
        ),
    )
    committed: Any = SimpleNamespace(checkpoint=Checkpoint(), note=NO_NOTE)
    request = Request(kind="range", **request_)
    refused = pytest.raises(RetryableError, match="open Kafka transaction") if is_refused else nullcontext()
    with refused:
        Planner(session)._window(request, committed, state)


# Pairs of offsets that a mirror tells


class _Mirrored:
    """A cluster whose record after the last pair is some offsets further on."""

    def __init__(self, pairs: Any) -> None:
        self._pairs = pairs
        self.asked: dict[Any, int] = {}

    def offset_syncs(self, topic: str) -> Any:
        return {"t": self._pairs}

    def next_records(self, offsets: Any) -> Any:
        self.asked |= offsets
        return {tp: at + 3 for tp, at in offsets.items() if tp.partition == 0}


def test_the_record_that_follows_a_mirror_s_last_pair_is_asked_for():
    old = _Mirrored({0: [OffsetSync(4, 2), OffsetSync(9, 7)], 1: [OffsetSync(5, 5)]})
    move = Move(old=("old", "t"), mirror="mirror_maker", syncs=("old", "syncs"))
    followed: Any = SimpleNamespace(moves={("new", "t"): move})
    clusters: Any = {"old": old}
    streams: Any = None
    told = Streams._syncs(streams, followed, clusters)["old", "t"]
    assert old.asked == {TopicPartition("old", "t", 0): 10, TopicPartition("old", "t", 1): 6}
    assert (told[0].next_record, told[1].next_record) == (13, sys.maxsize)
    assert told[0].pairs == [OffsetSync(4, 2), OffsetSync(9, 7)]
    assert Streams._syncs(streams, followed, {}) == {}


# Dead letters, by what a note or an earlier release says was sent


@pytest.mark.parametrize(
    ("last", "remembered", "expected"),
    [
        (None, None, "abcde"),
        (None, "20250101000000000", "abcde"),
        (None, INSTANT, ""),
        (None, "20270101000000000", ""),
        (Sent(INSTANT, 2, ("kafka",)), None, "cde"),
        (Sent(INSTANT, 5, ("kafka",)), None, ""),
        (Sent(INSTANT, 2, ("other",)), None, "abcde"),
        (Sent("20270101000000000", 1, ("kafka",)), None, ""),
        (Sent("20250101000000000", 4, ("kafka",)), None, "abcde"),
    ],
)
def test_dead_letters_are_sent_from_where_an_earlier_attempt_has_ended(last, remembered, expected, monkeypatch):
    sent: list[str] = []
    notes: Any = SimpleNamespace(last=lambda: last, note=lambda one: one)

    def send(records: Any) -> None:
        *letters, notes_to = records
        assert len(letters) <= 2
        sent.extend(letters)
        notes.last = lambda: notes_to

    sender = SimpleNamespace(remembered=lambda topic: remembered, take_anew=lambda: None, send=send)
    monkeypatch.setattr(dead_letters, "TransactionalSender", lambda *_: nullcontext(sender))
    monkeypatch.setattr(dead_letters, "SentLetters", lambda *_, **__: notes)
    monkeypatch.setattr(dead_letters, "_ensure", lambda *_: 1000)
    monkeypatch.setattr(dead_letters, "_letters", lambda *given: given[-1])
    monkeypatch.setattr(dead_letters, "chunks", lambda letters: iter(lambda: list(islice(letters, 2)), []))
    log = TableLog(TABLE).extend(
        enumerate([start(INSTANT), status(INSTANT, records_quarantined=5), end(INSTANT), ack(INSTANT)])
    )
    session: Any = SimpleNamespace(pipeline=SimpleNamespace(name="p"), table_id=TABLE)
    there: Any = SimpleNamespace(kafka=SimpleNamespace(name="k", control_secrets=None), of=frozenset({"kafka"}))
    letters: Any = iter("abcde")
    dead_letters._send(session, log.transactions[INSTANT], "dead", there, letters)
    assert "".join(sent) == expected


# What the last commit's note says of the control topic, and of streams


@pytest.mark.parametrize(
    ("noted", "present", "is_another"),
    [("id", "id", False), ("id", "new", True), (None, "new", False), ("id", None, False), (None, None, False)],
)
def test_a_control_topic_was_made_again_where_both_ids_are_known_and_differ(noted, present, is_another):
    session: Any = SimpleNamespace(control=SimpleNamespace(topic_id=present))
    assert Session.is_made_again(session, CommitNote(control_topic_id=noted)) is is_another


@pytest.mark.parametrize(
    ("noted", "expected"),
    [
        ({}, {}),
        ({"signed_from": 3}, {Signed.BY_NAME: 3}),
        ({"signed_from": 3, "signed_by_log_from": 5}, {Signed.BY_NAME: 3, Signed.BY_LOG: 5}),
        ({"signed_from": 0, "signed_by_log_from": 0}, {Signed.BY_NAME: 0, Signed.BY_LOG: 0}),
    ],
)
def test_messages_are_signed_from_where_the_last_commit_says_and_all_of_a_topic_that_was_made_again(noted, expected):
    session: Any = SimpleNamespace(is_made_again=lambda _: False)
    assert Session.signed_from(session, CommitNote(**noted)) == expected
    session.is_made_again = lambda _: True
    assert Session.signed_from(session, CommitNote(**noted)) == dict.fromkeys(expected, -1)


@pytest.mark.parametrize("of_both", [True, False])
def test_streams_are_not_followed_by_a_table_that_has_rows_of_a_topic_from_two_of_their_clusters(of_both):
    address = ClusterAddress(connection="kafka")
    names = ("east", "west")
    known = KnownStreams(clusters=dict.fromkeys(names, address), logs={name: {"t": KnownLog()} for name in names})
    topics = {"t": TopicCheckpoint(partitions={0: 4})}
    loaded = ("east", "west") if of_both else ("east",)
    checkpoint = Checkpoint(clusters={name: ClusterCheckpoint(topics=topics) for name in loaded})
    sources = SimpleNamespace(cluster_ids=lambda: {"east": "E", "west": "W"})
    session: Any = SimpleNamespace(
        _streams=SimpleNamespace(follow=lambda *_: (Followed(known, {}), sources)),
        _seen=lambda _: (),
        _committed=lambda *_: SimpleNamespace(checkpoint=checkpoint),
        table_id=TABLE,
    )
    refused = pytest.raises(ActionRequiredError, match="from two clusters, east and west") if of_both else nullcontext()
    with refused:
        Session.present(session, None)
        assert session.followed.known.prefixes == {"E": "", "W": "west/"}


# Which ranges a commit has


@pytest.mark.parametrize(
    ("allows", "messages", "expected"),
    [
        ("abort", (status(INSTANT, 0), status(INSTANT, 1)), ([0, 1], ())),
        ("abort", (status(INSTANT, 0),), None),
        ("commit", (status(INSTANT, 0),), ([0], (1,))),
        ("commit", (), None),
        ("commit", (status(INSTANT, 1), end(INSTANT, reported=(1,), missing=(0,)), status(INSTANT, 0)), ([1], (0,))),
        ("abort", (status(INSTANT, 0), status(INSTANT, 1, records_written=9)), None),
    ],
    ids=["all", "none may be missing", "one may be missing", "not all may be", "late", "a count that is wrong"],
)
def test_a_commit_has_the_ranges_that_reported_before_it_was_decided_each_of_them_audited(allows, messages, expected):
    log = TableLog(TABLE).extend(enumerate([start(INSTANT, ranges=2, on_missing_range=allows), *messages]))
    if expected is None:
        with pytest.raises(SluiceError):
            audited(log.transactions[INSTANT])
    else:
        reported, missing = audited(log.transactions[INSTANT])
        assert (sorted(reported), missing) == expected


def test_a_replay_has_all_of_its_ranges():
    replay = start(INSTANT, ranges=2, on_missing_range="commit", kind="replay", replays="20250101000000000")
    log = TableLog(TABLE).extend(enumerate([replay, status(INSTANT, 0)]))
    with pytest.raises(SluiceError):
        audited(log.transactions[INSTANT])


def test_nothing_but_the_schedule_reads_while_a_topic_is_to_be_moved():
    known = KnownStreams(logs={"new": {"t": KnownLog()}})
    move = Move(old=("old", "t"), mirror="none", syncs=None)
    refuse_unsettled_moves(Followed(known, {}), TABLE)
    with pytest.raises(ActionRequiredError, match="to be moved first"):
        refuse_unsettled_moves(Followed(known, {}, moves={("new", "t"): move}), TABLE)


# Bad records that would be sent again


@pytest.mark.parametrize(
    ("log", "now", "why"),
    [
        (LogId("K", "id"), LogId("K", "id"), None),
        (LogId("K", None), LogId("K", None), None),
        (LogId("K", "id"), LogId("K", None), None),
        (LogId("K", None), LogId("K", "id"), "isn't known of which log"),
        (LogId("K", "id"), LogId("K", "new"), "deleted and created again"),
        (LogId("K", "id"), LogId("L", "id"), "another cluster"),
    ],
)
def test_a_record_is_sent_again_only_to_the_log_that_it_is_of(log, now, why):
    found = why_not_again(log, now)
    assert found is None if why is None else why in (found or "")


# Plans of table services


@pytest.mark.parametrize(
    ("service", "left", "due", "expected"),
    [
        ("clustering", ["1", "2"], "3", ["open", "off 1", "open", "off 2", "open", "plan", ("3",)]),
        ("clustering", ["1"], None, ["open", "off 1", "open", "plan", "decide", "ack", "empty"]),
        ("compaction", ["1", "2"], "3", ["open", "plan", ("1", "2", "3")]),
        ("compaction", ["1"], None, ["open", "plan", ("1",)]),
        ("compaction", [], None, ["open", "plan", "decide", "ack", "empty"]),
    ],
)
def test_a_compaction_that_was_left_is_carried_out_and_a_clustering_is_taken_off(
    service, left, due, expected, monkeypatch
):
    """An interval may have replaced the files that a clustering would rewrite."""
    did: list[Any] = []
    log = TableLog(TABLE).extend([(0, start(INSTANT, ranges=0, service=service))])
    lease = SimpleNamespace(
        require_open=lambda: did.append("open"),
        decide=lambda _: did.append("decide"),
        acknowledge=lambda: did.append("ack"),
        transaction=log.transactions[INSTANT],
    )
    client = SimpleNamespace(
        pending=lambda _: left,
        take_off=lambda instant: did.append(f"off {instant}"),
        plan=lambda _: did.append("plan") or due,
    )
    monkeypatch.setattr(services, "shared_timeline_of", lambda _: SimpleNamespace(maintenance=lambda: client))
    table = SimpleNamespace(process="me")
    held: Any = SimpleNamespace(
        _leased=lambda *_: nullcontext((table, lease)), _session=SimpleNamespace(sink=None, table_id=TABLE)
    )
    found: Any = services.Services.plan(held, None, service)  # type: ignore[arg-type]
    did.append(found.instants if isinstance(found, services.Planned) else found.state)
    assert did == expected


# Elections while an interval ran


@pytest.mark.parametrize(
    ("more", "truncated", "perhaps", "is_refused"),
    [
        ({}, [], [(LOG, 5)], False),
        ({}, [(LOG, 5)], [], True),
        ({"kind": "replay", "replays": "20250101000000000"}, [], [(LOG, 5)], True),
        ({"kind": "replay", "replays": "20250101000000000"}, [], [], False),
        ({"kind": "replay", "replays": "20250101000000000", "epoch": None}, [], [(LOG, 5)], False),
    ],
    ids=["nothing is left to compare", "another leader", "a replay of which nothing is left", "a replay", "no epochs"],
)
def test_only_a_replay_is_refused_where_nothing_is_left_by_which_to_know(
    more, truncated, perhaps, is_refused, monkeypatch
):
    """An interval that reads on was read from the log that is there; what retention takes since is in the table."""
    kind = {name: value for name, value in more.items() if name != "epoch"}
    read = planned(0).model_copy(update={"leader_epoch": more.get("epoch", 3)})
    made = start(INSTANT, ranges=0, **kind).model_copy(update={"ranges": ((read,),)})
    log = TableLog(TABLE).extend([(0, made)])
    monkeypatch.setattr(checks, "_refuse_other_logs", lambda *_: None)
    monkeypatch.setattr(checks, "truncated_since_read", lambda *_: truncated)
    monkeypatch.setattr(checks, "_perhaps_truncated", lambda *_: perhaps)
    session: Any = SimpleNamespace(table_id=TABLE, sources=SimpleNamespace(cluster_ids=lambda: {"kafka": "K"}))
    with pytest.raises(IntervalError, match="truncated at 5") if is_refused else nullcontext():
        checks.refuse_other_records(session, log.transactions[INSTANT])


@pytest.mark.parametrize("follows", [True, False])
def test_what_is_read_of_streams_is_told_of_pipelines_that_follow_some(follows):
    followed = Followed(KnownStreams(), {}) if follows else None
    committed = SimpleNamespace(checkpoint=Checkpoint())
    session = SimpleNamespace(
        existing_table=lambda: nullcontext(None),
        present=lambda _: committed,
        sources=SimpleNamespace(state=lambda _: "state"),
        bound=lambda state, _: f"bound {state}",
        followed=followed,
    )
    coordinator: Any = SimpleNamespace(_session=session)
    asked: Any = inspect.unwrap(Coordinator.streams)
    if follows:
        found, position = asked(coordinator)
        assert (found, position.state) == (followed, "bound state")
    else:
        with pytest.raises(ValueError, match="reads no streams"):
            asked(coordinator)


class _RefusingTable:
    """A table whose storage refuses late commits, with one commit that it should have refused."""

    def __init__(self, of_start: int) -> None:
        self._written = SimpleNamespace(note=SimpleNamespace(control_topic="control", control_offset=of_start))
        self.writer = SimpleNamespace(path=TABLE)

    def forbid_commit(self, instant: str) -> bool:
        raise AssertionError("nothing is aborted here")

    def last_commits(self) -> list[str]:
        return [INSTANT]

    def written_by(self, instant: str) -> Any:
        return self._written


@pytest.mark.parametrize(
    ("messages", "of_start", "stops"),
    [
        ((start(INSTANT), abort(INSTANT)), 0, True),
        ((start(INSTANT), abort(INSTANT)), 7, False),
        ((start(INSTANT),), 0, False),
        ((), 0, False),
    ],
    ids=["aborted", "another START", "open", "before the topic's first message"],
)
def test_an_aborted_interval_that_a_refusing_storage_has_committed_stops_the_run(messages, of_start, stops):
    """The database, the topic or the object store refuses it: another program must have written to one of the two."""
    log = TableLog(TABLE).extend(enumerate(messages))
    session: Any = SimpleNamespace(control=SimpleNamespace(topic="control"), is_made_again=lambda note: False)
    table: Any = _RefusingTable(of_start)
    with pytest.raises(ActionRequiredError, match=INSTANT) if stops else nullcontext():
        assert Fence(session).repair(table, log) is False
