"""Steps of table services that no Spark job carries out: the order of lease and work, waiting, and giving up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from protocol_messages import INSTANT, TABLE, TIME, WRITER, abort, ack, end, envelope, start

from sluice.connectors.sink import VersionChangingError
from sluice.control.service_lease import ServiceLease
from sluice.coordinator import services
from sluice.coordinator.services import Services
from sluice.coordinator.session import Committed, Run, Session
from sluice.coordinator.turns import Turns
from sluice.coordinator.version_change import VersionChanges
from sluice.errors import ActionRequiredError, IntervalError, RetryableError
from sluice.pipeline.services import TableServices
from sluice.protocol.commit_note import NO_NOTE
from sluice.protocol.offsets import Checkpoint
from sluice.protocol.services import IN_ONE_STEP
from sluice.protocol.transaction import State, TableLog
from sluice.protocol.version_change import BegunChange

SERVICE = start(INSTANT, ranges=0, service="cleaning")


class _Control:
    """A control topic in memory."""

    def __init__(self, *messages: Any) -> None:
        self.sent = [*messages]

    def ensure(self) -> None:
        pass

    def send(self, message: Any) -> int:
        self.sent.append(message)
        return len(self.sent) - 1

    def extend(self, log: TableLog) -> TableLog:
        return log.extend(enumerate(self.sent[log.position :], log.position))

    def table_log(self, table: str, first: int) -> TableLog:
        return self.extend(TableLog(table))

    def types(self) -> list[str]:
        return [message.type for message in self.sent]


def _lease(control: _Control) -> ServiceLease:
    return ServiceLease.at(control, TABLE, 0)  # type: ignore[arg-type]


def _client(did: list[Any]) -> Any:
    return SimpleNamespace(carry_out=lambda service: did.append(service) or f"Done: {service}.")


@pytest.mark.parametrize("service", IN_ONE_STEP)
def test_a_service_works_only_between_its_decision_and_its_end_and_holds_its_lease_meanwhile(service, monkeypatch):
    control = _Control(SERVICE)
    lease, did = _lease(control), []
    monkeypatch.setattr(services, "shared_timeline_of", lambda _: SimpleNamespace(maintenance=lambda: client))

    @contextmanager
    def renewed(_lease: ServiceLease, holder: str, every: float, longest: timedelta) -> Iterator[None]:
        did.append((holder, every, longest, control.types()[1:]))
        yield
        did.append(control.types()[1:])

    monkeypatch.setattr(ServiceLease, "renewed", renewed)
    client = _client(did)
    held: Any = SimpleNamespace(
        _leased=lambda *_: nullcontext((SimpleNamespace(process="me"), lease)),
        _session=SimpleNamespace(
            table_id=TABLE, pipeline=SimpleNamespace(control=SimpleNamespace(commit_timeout=timedelta(minutes=10)))
        ),
        _settings=TableServices(),
    )
    outcome = Services.run(held, None, service)  # type: ignore[arg-type]
    assert did == [("me", 150.0, TableServices().timeout, ["END-COMMIT"]), service, ["END-COMMIT"]]
    assert control.types()[1:] == ["END-COMMIT", "ACK-COMMIT"]
    assert (outcome.state, outcome.instant, outcome.summary) == ("committed", INSTANT, f"Done: {service}.")


def test_a_service_that_another_process_has_ended_does_not_say_that_it_is_done(monkeypatch):
    control = _Control(SERVICE)
    lease = _lease(control)
    monkeypatch.setattr(services, "shared_timeline_of", lambda _: SimpleNamespace(maintenance=lambda: client))

    def aborted(service: str) -> str:
        control.send(abort(INSTANT, lease_offset=lease.transaction.lease_offset))
        return f"Done: {service}."

    client = SimpleNamespace(carry_out=aborted)
    held: Any = SimpleNamespace(
        _leased=lambda *_: nullcontext((SimpleNamespace(process="me"), lease)),
        _session=SimpleNamespace(
            table_id=TABLE, pipeline=SimpleNamespace(control=SimpleNamespace(commit_timeout=timedelta(hours=1)))
        ),
        _settings=TableServices(),
    )
    with pytest.raises(IntervalError, match="lost its hold"):
        Services.run(held, None, "cleaning")  # type: ignore[arg-type]


def _services(begins: list[Any], *, control: _Control | None = None, waits: float = 0.0) -> Any:
    """Services of a table that lets a service begin as told, while each wait takes so many seconds."""
    clock = [1000.0]
    waited: list[Any] = []

    def wait_for(held: Any, until: float) -> None:
        waited.append((held, until))
        clock[0] += waits

    capabilities = SimpleNamespace(services=frozenset({"cleaning"}))
    session = SimpleNamespace(
        pipeline=SimpleNamespace(sink=SimpleNamespace(capabilities=capabilities, place="a lake")),
        table_id=TABLE,
        control=control or _Control(),
        table=lambda: nullcontext("table"),
        machine=SimpleNamespace(steady=lambda: clock[0], now=lambda: SERVICE.time),
    )
    made: Any = Services.__new__(Services)
    made._session = session
    made._settings = TableServices()
    made._turns = SimpleNamespace(wait_for=wait_for)
    made._try_begin = lambda *_: begins.pop(0)
    made.waited = waited
    return made


def test_a_service_waits_for_the_interval_that_holds_the_table_and_looks_again_where_it_moved():
    control = _Control(SERVICE)
    made = _services(["held", None, _lease(control)], waits=1.0)
    with made._leased(None, "cleaning") as (table, lease):
        assert (table, lease.transaction.state) == ("table", State.OPEN)
    wait = TableServices().wait.total_seconds()
    assert made.waited == [("held", 1000.0 + wait)]
    assert control.types() == ["START-COMMIT"]  # it isn't given up by this


def test_a_service_that_has_waited_for_long_enough_is_tried_again_by_its_scheduler():
    wait = TableServices().wait.total_seconds()
    made = _services(["held"] * 9, waits=wait / 2)
    with pytest.raises(RetryableError, match="longer than a table service may wait"), made._leased(None, "cleaning"):
        raise AssertionError("it has begun")
    assert len(made.waited) == 2


def test_a_service_that_tables_of_the_sink_do_not_have_is_refused_before_anything_is_sent():
    control = _Control()
    with (
        pytest.raises(ActionRequiredError, match=r"have no compaction.*one of these: cleaning"),
        _services([], control=control)._leased(None, "compaction"),
    ):
        raise AssertionError("it has begun")
    assert control.sent == []


@pytest.mark.parametrize(
    ("messages", "is_given_up"),
    [([], True), ([end(INSTANT, reported=())], True), ([ack(INSTANT)], False), ([abort(INSTANT)], False)],
    ids=["open", "decided", "done", "aborted"],
)
def test_a_service_that_fails_gives_the_table_up_unless_it_has_ended(messages, is_given_up):
    control = _Control(SERVICE, *messages)
    lease = _lease(control)
    error = RetryableError("Hudi fails " + "x" * 9000, next_step="-")
    with pytest.raises(RetryableError), _services([lease])._leased(None, "cleaning"):
        raise error
    given_up = control.sent[1 + len(messages) :]
    assert [message.type for message in given_up] == (["ABORT-COMMIT"] if is_given_up else [])
    assert all(message.reason == str(error)[:2000] for message in given_up)
    if is_given_up:
        assert lease.transaction.state is State.ABORTED


@pytest.mark.parametrize(
    ("messages", "state", "is_given_up"),
    [
        ([], State.OPEN, True),
        ([end(INSTANT, reported=())], State.DECIDED, True),
        ([end(INSTANT, reported=()), ack(INSTANT)], State.COMMITTED, False),
        ([abort(INSTANT)], State.ABORTED, False),
    ],
)
def test_what_a_job_has_left_open_is_given_up_and_what_it_has_ended_stays(messages, state, is_given_up):
    control = _Control(SERVICE, *messages)
    made = _services([], control=control)
    assert made.state(0) is state
    made.give_up(0, "its job has ended")
    assert control.types()[1 + len(messages) :] == (["ABORT-COMMIT"] if is_given_up else [])
    if is_given_up:
        assert made.state(0) is State.ABORTED


EARLIER = "20250101000000000"


class _Raced(_Control):
    """A control topic in which another process's messages come just before the service's START-COMMIT."""

    def __init__(self, *messages: Any, before: tuple[Any, ...] = ()) -> None:
        super().__init__(*messages)
        self._before = before

    def end(self) -> int:
        return len(self.sent)

    def send(self, message: Any) -> int:
        self.sent += self._before
        return super().send(message)


def _begun(control: _Raced, monkeypatch: Any, **parts: Any) -> tuple[Any, list[str]]:
    """What comes of one try to begin a service, and what was done to earlier intervals."""
    did: list[str] = []
    given = {"here": True, "held": None, "repairs": False, "finishes": False, **parts}

    def does(what: str, answer: Any = None) -> Any:
        return lambda *_: did.append(what) or answer

    monkeypatch.setattr(
        services, "shared_timeline_of", lambda _: SimpleNamespace(maintenance=lambda: SimpleNamespace(writer=WRITER))
    )
    made = _services([], control=control)
    del made._try_begin
    made._session.committed = lambda _: Committed(Checkpoint(), NO_NOTE)
    made._session.envelope = lambda instant, epoch, run: {**envelope(instant, run.run_id), "epoch": epoch}
    made._session.pipeline.source = SimpleNamespace(name="kafka")
    made._session.pipeline.sink.name = "hudi"
    made._starter = SimpleNamespace(
        settle_elsewhere=does("settled", given["here"]), require_here=does("here"), end_superseded=does("cleared up")
    )
    made._turns = SimpleNamespace(held_by_another=lambda *_: given["held"])
    made._committer = SimpleNamespace(
        fence=SimpleNamespace(repair=does("looked for late commits", given["repairs"])),
        resolve_unfinished=does("looked for unfinished ones", given["finishes"]),
    )
    table: Any = SimpleNamespace(new_instant=lambda: INSTANT)
    return made._try_begin(table, Run("dag", "service"), "cleaning"), did


def test_a_service_begins_with_a_start_of_its_own_and_clears_up_after_those_before_it(monkeypatch):
    control = _Raced(start(EARLIER).model_copy(update={"epoch": 6}))
    lease, did = _begun(control, monkeypatch)
    begun = control.sent[1]
    assert (begun.service, begun.epoch, begun.read_position, begun.oldest_unsettled) == ("cleaning", 7, 1, 0)
    assert lease.transaction.start == begun
    assert lease.transaction.state is State.OPEN
    assert did == ["settled", "here", "looked for late commits", "looked for unfinished ones", "cleared up"]


@pytest.mark.parametrize(
    "before",
    [(start(EARLIER, read_position=0),), (start(INSTANT, read_position=0),)],
    ids=["another interval", "one of the same instant"],
)
def test_a_service_before_which_another_has_begun_looks_again(before, monkeypatch):
    found, did = _begun(_Raced(before=before), monkeypatch)
    assert found is None
    assert "cleared up" not in did


@pytest.mark.parametrize(
    ("parts", "found"),
    [
        ({"here": False}, None),
        ({"held": "an interval"}, "an interval"),
        ({"repairs": True}, None),
        ({"finishes": True}, None),
    ],
    ids=["the table moved", "it is held", "a late commit was taken off", "a commit was finished"],
)
def test_a_service_sends_nothing_while_anything_else_is_to_be_done_first(parts, found, monkeypatch):
    control = _Raced()
    assert _begun(control, monkeypatch, **parts)[0] == found
    assert control.sent == []


# A service that was left -----------------------------------------------------------------------------------------


def _turns(gone: str, *, runs: bool = True) -> Turns:
    """Turns on a machine on which one process has ended."""
    machine = SimpleNamespace(
        steady=lambda: 0.0, now=lambda: TIME, seen={}, is_gone=lambda holder, _wait: holder == gone
    )
    control = SimpleNamespace(commit_timeout=timedelta(minutes=10), clock_wait=timedelta(minutes=5))
    pipeline = SimpleNamespace(table_services=None, control=control)
    session: Any = SimpleNamespace(machine=machine, pipeline=pipeline, table_id=TABLE)
    return Turns(session, lambda _dag, _run: runs)


OPEN = start(INSTANT, ranges=0, kind="service", service="cleaning", process="cli")
LEASE = end(INSTANT, holder="jvm")
LATE = LEASE.model_copy(update={"time": TIME - timedelta(minutes=16)})


@pytest.mark.parametrize(
    ("messages", "gone", "is_waited_for"),
    [
        ((OPEN,), "", True),
        ((OPEN,), "cli", False),
        ((OPEN.model_copy(update={"process": None}),), "cli", True),
        ((OPEN, LEASE), "cli", True),  # its JVM may still be at it
        ((OPEN, LEASE), "jvm", False),
        ((OPEN, LATE), "", False),
        ((OPEN.model_copy(update={"service": "compaction"}), LATE), "", True),  # its job renews no lease
        ((OPEN.model_copy(update={"service": "compaction"}), LEASE), "jvm", False),
        ((start(INSTANT, process="cli"),), "cli", True),
    ],
    ids=[
        "it runs", "it has ended", "it isn't named", "only the command has ended", "its JVM has ended",
        "it renews its lease no more", "a Spark job", "a Spark job that has ended", "an interval",
    ],
)  # fmt: skip
def test_a_service_whose_process_has_ended_is_not_waited_for(messages, gone, is_waited_for):
    log = TableLog(TABLE).extend(enumerate(messages))
    assert (_turns(gone).held_by_another(log, Run("dag", "another")) is not None) is is_waited_for
    assert _turns(gone, runs=False).held_by_another(log, Run("dag", "another")) is None


# A table that can't be read, since its version is being changed ----------------------------------------------------

BEGUN = BegunChange(
    to=6, schema_avro="{}", known_as=TABLE, control_topic="control", control_offset=1, epoch=8, signed_from={}
)
CHANGES = start(INSTANT, ranges=0, kind="service", service="table_version", process="cli", oldest_unsettled=0)
NEXT = "20260101000000009"


class _Changing(_Raced):
    """The control topic of a table whose change was begun at offset 1."""

    topic, topic_id = "control", None

    def table_log(self, table: str, first: int) -> TableLog:
        log = TableLog(table)
        return log.extend((i, m) for i, m in enumerate(self.sent) if i >= first)


def _continued(control: _Changing, begun: BegunChange | None = BEGUN, gone: str = "jvm") -> Any:
    """What comes of one try to complete a change."""
    session: Any = Session.__new__(Session)
    session.pipeline = SimpleNamespace(
        source=SimpleNamespace(name="kafka"),
        sink=SimpleNamespace(name="hudi"),
        control=SimpleNamespace(commit_timeout=timedelta(minutes=10), clock_wait=timedelta(minutes=5)),
        table_services=None,
    )
    session.control, session.table_id = control, TABLE
    session.machine = SimpleNamespace(
        steady=lambda: 0.0, now=lambda: TIME, seen={}, is_gone=lambda holder, _wait=0: holder == gone
    )
    run = Run("sluice", "by-hand-2", process="cli 2")
    change: Any = SimpleNamespace(begun=lambda: begun, process="jvm 2", writer=WRITER, new_instant=lambda: NEXT)
    return VersionChanges(session, Turns(session, lambda _dag, _run: True), run).try_continue(change)


EARLIER_INTERVAL = start("20250101000000000")


def test_an_interrupted_change_is_continued_by_the_control_topic_alone_from_where_it_began():
    control = _Changing(EARLIER_INTERVAL, CHANGES, LEASE)
    assert _continued(control) is None  # what was left is ended first
    assert control.types()[3:] == ["END-COMMIT", "ABORT-COMMIT"]
    lease = _continued(control)
    begun = control.sent[-1]
    assert lease.transaction.start == begun
    assert lease.transaction.state is State.OPEN
    assert (begun.service, begun.epoch, begun.process) == ("table_version", 9, "cli 2")
    assert begun.oldest_unsettled == 0, "what was open before the change is looked for by later intervals"


def test_a_change_that_is_under_way_is_waited_for_and_one_that_has_ended_is_looked_at_again():
    control = _Changing(EARLIER_INTERVAL, CHANGES, LEASE)
    assert _continued(control, gone="").id == INSTANT
    assert _continued(control, begun=None) is None
    assert control.types()[3:] == []


def test_a_change_of_another_topic_or_table_is_not_continued():
    control = _Changing(EARLIER_INTERVAL, CHANGES, LEASE)
    for other in ({"control_topic": "another"}, {"known_as": "file:///elsewhere"}):
        with pytest.raises(ActionRequiredError, match="was begun with another"):
            _continued(control, BEGUN.model_copy(update=other))


def test_a_topic_that_was_made_again_is_read_from_its_start():
    control = _Changing(EARLIER_INTERVAL, abort(EARLIER_INTERVAL.transaction))
    control.topic_id = "new"
    lease = _continued(control, BEGUN.model_copy(update={"control_topic_id": "old"}))
    assert [t.id for t in lease.table_log.transactions.values()] == [EARLIER_INTERVAL.transaction, NEXT]


def test_a_service_that_finds_a_change_waits_for_it_and_fails_where_it_was_left():
    error = VersionChangingError("It is being changed.", next_step="wait.")
    error.begun = BEGUN
    held = TableLog(TABLE).extend([(1, CHANGES)]).get(INSTANT)

    def refuse() -> Any:
        raise error

    made = _services([])
    holders: list[Any] = [held, None, None]
    made._session.table = refuse
    made._turns = SimpleNamespace(
        wait_for=lambda found, until: made.waited.append(found), changing_version=lambda *_: holders.pop(0)
    )
    with pytest.raises(VersionChangingError), made._leased(Run("dag", "run"), "cleaning"):
        raise AssertionError("it has begun")
    assert (made.waited, holders) == ([held], [None])


def test_what_was_overtaken_takes_no_further_step():
    control = _Control(CHANGES, LEASE)
    lease = _lease(control)
    lease.require_held("jvm")
    control.send(end(INSTANT, holder="jvm 2", takes_over=1))
    with pytest.raises(IntervalError, match="lost its hold"):
        lease.require_held("jvm")
    lease.require_held("jvm 2")
    assert lease._send_lease("jvm") is False, "nor does it take the lease back"
    assert control.types()[2:] == ["END-COMMIT"]
    control.send(abort(INSTANT, lease_offset=2))
    with pytest.raises(IntervalError, match="lost its hold"):
        lease.require_held("jvm 2")
