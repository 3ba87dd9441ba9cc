"""Followers of control topics, told record by record: a worker's, and that of tasks that wait for workers."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Uuid
from protocol_messages import INSTANT, TABLE, abort, claim, end, start, status

from sluice.control import clients, waiting
from sluice.control import followed as follows
from sluice.control import reader as readers
from sluice.control import waiters as waits
from sluice.control.clients import Clients
from sluice.control.followed import Following
from sluice.control.reader import ControlReader
from sluice.control.topic import ControlTopic
from sluice.control.waiters import Awaited, Waiters, _Subscription, _Wait
from sluice.errors import ActionRequiredError, RetryableError
from sluice.kafka.config import KafkaSettings
from sluice.protocol.claims import Verdict
from sluice.protocol.transaction import TableLog

K = KafkaError
SETTINGS = KafkaSettings("k", {"bootstrap.servers": "nowhere:9"})
OTHER = "file:///lake/other"


class Record:
    """A record of a control topic, or an error in place of one."""

    def __init__(
        self, offset: int, message: Any = None, *, topic: str = "control", table: str = TABLE, error: Any = None
    ):
        self._topic, self._offset, self._table, self._error = topic, offset, table, error
        self.message = message

    def topic(self) -> str:
        return self._topic

    def key(self) -> bytes:
        return self._table.encode()

    def offset(self) -> int:
        return self._offset

    def error(self) -> KafkaError | None:
        return self._error


def at_end(offset: int, topic: str = "control") -> Record:
    return Record(offset, topic=topic, error=K(K._PARTITION_EOF))


class Topic:
    """A control topic that may not exist yet, and whose records may not be readable."""

    settings = SETTINGS

    def __init__(self, *, exists: bool = True) -> None:
        self.is_there = exists

    def exists(self) -> bool:
        return self.is_there

    def read(self, record: Record, table: str) -> Any:
        assert record.key() == table.encode()
        if isinstance(record.message, Exception):
            raise record.message
        return record.message


class Places:
    """In place of a consumer: what it reads, from where."""

    def __init__(self, records: list[Any] = []) -> None:  # noqa: B006
        self.reads: dict[str, int] = {}
        self._records = iter(records)
        self.is_closed = False

    def incremental_assign(self, partitions: list[Any]) -> None:
        for one in partitions:
            assert one.topic not in self.reads
            assert one.partition == 0
            self.reads[one.topic] = one.offset

    def incremental_unassign(self, partitions: list[Any]) -> None:
        for one in partitions:
            assert one.partition == 0
            del self.reads[one.topic]

    def poll(self, _seconds: float) -> Any:
        one = next(self._records)
        if callable(one):
            one()
            return None
        return one

    def close(self) -> None:
        self.is_closed = True


# A worker's follower


class Follower(Following):
    """Follows topics whose offsets a test says."""

    def __init__(self, bounds: dict[str, tuple[int, int]], **topics: Topic) -> None:
        self.found: list[tuple[str, list[int]]] = []
        self.began: list[tuple[str, int, int]] = []
        self.deaths = self.forgotten = 0
        self.bounds = bounds
        self.answers = True
        super().__init__(
            SETTINGS,
            topics,  # type: ignore[arg-type]
            dict.fromkeys(topics, frozenset([TABLE])),
            lambda topic, messages: self.found.append((topic, [offset for offset, _ in messages])),
            lambda *began: self.began.append(began),
            self._died,
        )
        self._clients: Any = SimpleNamespace(admin="admin", forget=self._forget)

    def _died(self) -> None:
        self.deaths += 1

    def _forget(self, admin: str) -> None:
        assert admin == "admin"
        self.forgotten += 1

    def _offsets(self, topics: list[str], spec: Any) -> dict[str, int]:
        if not self.answers:
            raise RetryableError("No broker answers.", next_step="-")
        latest = type(spec).__name__.lower().startswith("latest") or spec._value == -1
        return {topic: self.bounds[topic][latest] for topic in topics}


def test_a_topic_is_followed_from_a_stretch_before_its_end_once_it_is_there():
    follower = Follower({"long": (7, 2000), "short": (7, 90), "late": (0, 4)}, long=Topic(), short=Topic(),
                        late=Topic(exists=False))  # fmt: skip
    consumer: Any = Places()
    follower._look_for_missing(consumer)
    assert consumer.reads == {"long": 1500, "short": 7}
    assert follower.began == [("long", 1500, 2000), ("short", 7, 90)]
    assert follower._missing == {"late"}
    follower._topics["late"].is_there = True  # type: ignore[attr-defined]
    follower._look_for_missing(consumer)
    assert consumer.reads["late"] == 0
    assert follower.began[2:] == [("late", 0, 4)]
    assert follower._missing == set()


def test_topics_that_can_t_be_looked_for_are_looked_for_again_by_a_new_client():
    follower, consumer = Follower({"control": (0, 4)}, control=Topic()), Places()
    follower.answers = False
    follower._look_for_missing(consumer)  # type: ignore[arg-type]
    assert (follower.forgotten, follower._missing, consumer.reads) == (1, {"control"}, {})
    assert not follower.is_current


def _followed(**topics: Topic) -> tuple[Follower, Any]:
    topics = topics or {"control": Topic()}
    follower, consumer = Follower(dict.fromkeys(topics, (0, 3)), **topics), Places()
    follower._look_for_missing(consumer)  # type: ignore[arg-type]
    return follower, consumer


def test_the_present_messages_of_a_topic_are_passed_on_at_once_and_later_ones_as_they_come():
    """The first alone would show intervals as open that later ones have ended."""
    follower, consumer = _followed(control=Topic(), another=Topic())
    for record in (
        Record(0, start(INSTANT)),
        Record(1, start(INSTANT), table=OTHER),  # not one of the worker's
        Record(2, None),  # a part, or one that doesn't count
        Record(3, abort(INSTANT)),
    ):
        follower._take(consumer, record)  # type: ignore[arg-type]
    assert follower.found == []
    follower._take(consumer, at_end(0, "another"))  # type: ignore[arg-type]
    assert follower.found == []
    assert not follower.is_current
    follower._take(consumer, at_end(4))  # type: ignore[arg-type]
    assert follower.is_current
    assert follower.found == [("control", [0, 3])]
    follower._take(consumer, Record(4, start(INSTANT)))  # type: ignore[arg-type]
    follower._take(consumer, Record(5, None))  # type: ignore[arg-type]
    follower._take(consumer, at_end(6))  # type: ignore[arg-type]
    assert follower.found[1:] == [("control", [4])]


def test_after_a_message_that_can_t_be_read_it_is_as_if_reading_began_behind_it():
    follower, consumer = _followed()
    follower._take(consumer, Record(8, ValueError("of another release")))  # type: ignore[arg-type]
    assert follower.began[1:] == [("control", 9, 3)]
    follower._take(consumer, Record(9, start(INSTANT)))  # type: ignore[arg-type]
    follower._take(consumer, at_end(10))  # type: ignore[arg-type]
    assert follower.found == [("control", [9])]


@pytest.mark.parametrize(
    ("code", "is_gone"),
    [
        (K.UNKNOWN_TOPIC_OR_PART, True),
        (K.OFFSET_OUT_OF_RANGE, True),
        (K._AUTO_OFFSET_RESET, True),
        (K._TRANSPORT, False),
        (K.TOPIC_AUTHORIZATION_FAILED, False),
    ],
)
def test_a_topic_that_is_not_what_it_was_is_looked_for_again_and_no_other_error_ends_reading(code, is_gone):
    follower, consumer = _followed(control=Topic(), another=Topic())
    for _ in range(2):  # the second has come meanwhile
        follower._take(consumer, Record(0, error=K(code)))  # type: ignore[arg-type]
        follower._take(consumer, Record(0, error=K(code), topic="nowhere"))  # type: ignore[arg-type]
    assert follower._missing == ({"control"} if is_gone else set())
    assert consumer.reads == ({"another": 0} if is_gone else {"another": 0, "control": 0})
    follower._look_for_missing(consumer)
    assert consumer.reads == {"another": 0, "control": 0}
    assert follower.began.count(("control", 0, 3)) == (2 if is_gone else 1)


def test_a_follower_that_breaks_says_so_and_one_that_is_stopped_does_not(monkeypatch):
    for records, deaths in (([RuntimeError], 1), ([], 1), (["stop"], 0)):
        follower = Follower({"control": (0, 3)}, control=Topic())

        def stop(follower=follower):
            follower._stop.set()

        def fail():
            raise RuntimeError("any")

        consumer = Places([stop if one == "stop" else fail for one in records])
        monkeypatch.setattr(follows, "AssignedConsumer", lambda _, consumer=consumer: consumer)
        follower._run()
        assert (follower.deaths, consumer.is_closed, consumer.reads) == (deaths, True, {"control": 0})


def test_missing_topics_are_looked_for_every_five_seconds_and_records_are_taken_in_between(monkeypatch):
    now, looks = [1000.0], []
    monkeypatch.setattr(follows.time, "monotonic", lambda: now[0])
    follower = Follower({"control": (0, 3), "late": (0, 0)}, control=Topic(), late=Topic(exists=False))
    late: Any = follower._topics["late"]
    late.exists = lambda: bool(looks.append(now[0])) or late.is_there

    def passes(seconds: float, *, there: bool = False) -> Any:
        def pass_() -> None:
            now[0] += seconds
            late.is_there = there

        return pass_

    records = [passes(4.9), Record(0, start(INSTANT)), passes(0.1), at_end(1), passes(5.0, there=True), passes(99)]
    consumer = Places([*records, follower._stop.set])
    monkeypatch.setattr(follows, "AssignedConsumer", lambda _: consumer)
    follower._run()
    assert looks == [1000.0, 1005.0, 1010.0]
    assert follower.found == [("control", [0])]
    assert follower.deaths == 0


# Those who wait for workers


def _wait(start_at: int = 0, *, number: int = 0, table: str = TABLE) -> tuple[_Wait, list[Any]]:
    verdicts: list[Any] = []
    return _Wait(Awaited(table, "control", start_at, number, "workers", 5.0), verdicts.append), verdicts


def _subscribed(*ones: _Wait) -> dict[str, _Subscription]:
    return {"control": _Subscription(Topic(), 0, list(ones))}  # type: ignore[arg-type]


def _take(record: Record, followed: dict[str, _Subscription]) -> bool:
    return waits._take(record, followed, SETTINGS)  # type: ignore[arg-type]


_NO_WORKERS: Any = SimpleNamespace(has_workers=lambda group: group != "workers")
_WORKERS: Any = SimpleNamespace(has_workers=lambda group: group == "workers")


def test_nothing_is_judged_before_the_log_is_read_to_its_end():
    (one, verdicts), (later, _) = _wait(), _wait(start_at=2)
    followed = _subscribed(later, one)
    assert not _take(Record(0, start(INSTANT)), followed)
    assert not _take(Record(1, status(INSTANT)), followed)
    waits._judge(followed, _NO_WORKERS)
    assert verdicts == []
    assert _take(at_end(2), followed)
    waits._judge(followed, _NO_WORKERS)
    assert (verdicts, followed["control"].waiting) == ([Verdict.WRITTEN], [later])


def test_an_end_before_the_start_that_is_awaited_is_that_of_a_broker_that_lags_behind():
    one, _ = _wait(start_at=2)
    followed = _subscribed(one)
    _take(at_end(2), followed)
    assert not one.has_read_to_end
    _take(at_end(3), followed)
    assert one.has_read_to_end
    _take(at_end(1), followed)
    assert one.has_read_to_end


def test_each_wait_has_a_verdict_of_its_own_and_takes_each_message_once():
    (first, of_first), (second, of_second) = _wait(), _wait(number=1)
    (other, of_other), (late, _) = _wait(table=OTHER), _wait(start_at=9)
    followed = _subscribed(first, second, other, late)
    _take(Record(0, start(INSTANT, ranges=2)), followed)
    _take(at_end(1), followed)
    assert _take(Record(1, claim()), followed)
    assert not _take(Record(1, claim()), _subscribed(late))
    assert _take(Record(2, status(INSTANT, 0)), followed)
    assert not _take(Record(2, status(INSTANT, 0)), {})
    assert [len(one.log.transactions) for one in (first, second, other, late)] == [1, 1, 0, 0]
    assert followed["control"].position == 3
    followed["control"].waiting.remove(other)
    waits._judge(followed, _WORKERS)
    assert (of_first, of_second, of_other) == ([Verdict.WRITTEN], [], [])


def test_a_message_that_can_t_be_read_is_the_end_of_the_waits_for_its_table_alone():
    (mine, of_mine), (other, of_other) = _wait(), _wait(table=OTHER)
    followed = _subscribed(mine, other)
    known = ActionRequiredError("It can't be read.", next_step="-")
    assert not _take(Record(0, known), followed)
    assert (of_mine, of_other, followed["control"].waiting) == ([known], [], [other])
    assert not _take(Record(1, ValueError("any"), table=OTHER), followed)
    assert isinstance(of_other[0], RetryableError)
    assert "any" in str(of_other[0])


@pytest.mark.parametrize(
    ("error", "is_answered"),
    [
        (K(K._FATAL, fatal=True, retriable=True), True),
        (K(K.TOPIC_AUTHORIZATION_FAILED), True),
        (K(K._TRANSPORT, retriable=True), False),
    ],
    ids=["fatal", "for good", "to be tried again"],
)
def test_only_an_error_that_stays_ends_the_waits(error, is_answered):
    (one, of_one), (two, of_two) = _wait(), _wait(table=OTHER)
    assert not _take(Record(0, error=error), followed := _subscribed(one, two))
    assert ([len(of_one), len(of_two)], bool(followed["control"].waiting)) == (
        ([1, 1], False) if is_answered else ([0, 0], True)
    )


def test_a_log_that_is_not_read_to_its_end_in_time_and_one_without_the_start_are_lost(monkeypatch):
    (one, of_one), (without, of_without) = _wait(), _wait()
    followed = _subscribed(one, without)
    without.has_read_to_end = True
    waits._judge(followed, _WORKERS)
    assert "it holds no such START-COMMIT" in str(of_without[0])
    assert of_one == []
    for past, answers in ((59.9, 0), (60.0, 1)):
        monkeypatch.setattr(waits.time, "monotonic", lambda past=past: one.began + past)
        waits._judge(followed, _WORKERS)
        assert len(of_one) == answers
    assert "its end was not reached" in str(of_one[0])


def test_an_interval_that_has_ended_is_waited_for_no_longer():
    one, verdicts = _wait()
    followed = _subscribed(one)
    for offset, message in enumerate((start(INSTANT), end(INSTANT))):
        _take(Record(offset, message), followed)
    _take(at_end(2), followed)
    waits._judge(followed, _WORKERS)
    assert len(verdicts) == 1
    assert verdicts[0] is not Verdict.WAIT


def test_a_topic_is_left_when_its_last_wait_is_gone():
    waiters, consumer = Waiters(SETTINGS), Places()
    (one, _), (two, _), (new, _) = _wait(), _wait(), _wait()
    waiters._new += [one, two]
    followed: dict[str, _Subscription] = {}
    waiters._take_in(consumer, followed)  # type: ignore[arg-type]
    waiters._gone.append(one)
    waiters._let_go(consumer, followed)  # type: ignore[arg-type]
    assert (consumer.reads, followed["control"].waiting) == ({"control": 0}, [two])
    waiters._new.append(new)
    waiters._gone += [new, one, two]  # the first before it was taken in, the second twice
    waiters._let_go(consumer, followed)  # type: ignore[arg-type]
    assert (consumer.reads, followed, list(waiters._new)) == ({}, {}, [])


class _Thread:
    """In place of the thread of the waits: the test runs it."""

    def __init__(self, target: Any, **_: Any) -> None:
        self.target = target

    def start(self) -> None:
        pass


def test_an_error_ends_all_waits_and_the_next_one_begins_anew(monkeypatch):
    monkeypatch.setattr(waits.threading, "Thread", _Thread)
    known = RetryableError("Known.", next_step="-")
    waiters, verdicts = Waiters(SETTINGS), []
    for error in (known, ValueError("any")):
        taken, new = _wait()[0].awaited, _wait()[0].awaited
        with waiters.waiting(taken, verdicts.append), waiters.waiting(new, verdicts.append):
            thread: Any = waiters._thread

            def fail(followed: dict[str, _Subscription], error=error) -> None:
                followed.update(_subscribed(waiters._new.popleft()))
                raise error

            waiters._follow = fail  # type: ignore[method-assign]
            thread.target()
            assert waiters._thread is None
            assert len(waiters._new) == 0
    assert verdicts[:2] == [known, known]
    assert ["any" in str(one) for one in verdicts[2:]] == [True, True]


def test_the_thread_of_the_waits_ends_a_minute_after_the_last_unless_another_has_come(monkeypatch):
    waiters, now, verdicts = Waiters(SETTINGS), [1000.0], []
    monkeypatch.setattr(waits.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(waits, "Presence", lambda _: _NO_WORKERS)
    monkeypatch.setattr(waits, "ControlTopic", lambda *_: Topic())
    waiting = _Wait(Awaited(TABLE, "control", 0, 0, "workers", 5.0), verdicts.append)

    def passes(seconds: float, *new: _Wait) -> Any:
        def pass_() -> None:
            now[0] += seconds
            waiters._new += new

        return pass_

    records = [
        passes(59.9),
        passes(0.1, waiting),  # has come when it was about to end
        Record(0, start(INSTANT)),
        Record(1, status(INSTANT)),
        at_end(2),
        passes(0.0),  # the topic is left: idle since the look before
        passes(59.9),
        passes(0.1),
    ]
    consumer = Places(records)
    monkeypatch.setattr(waits, "AssignedConsumer", lambda _: consumer)
    waiters._thread = "itself"  # type: ignore[assignment]
    waiters._follow({})
    assert verdicts == [Verdict.WRITTEN]
    assert (waiters._thread, consumer.is_closed, consumer.reads) == (None, True, {})


class _Followed:
    """A control topic whose messages come one by one when it is followed."""

    settings = SETTINGS

    def __init__(self, *messages: Any, before: int) -> None:
        self._messages = list(enumerate(messages))
        self._before = before
        self.followed = 0

    def table_log(self, table: str, first: int) -> TableLog:
        assert (table, first) == (TABLE, 0)
        return TableLog(TABLE).extend(self._messages[: self._before])

    def follow(self, log: TableLog, stop: Any) -> Any:
        for message in self._messages[self._before :]:
            if stop.is_set():
                return
            self.followed += 1
            yield log.extend([message])
        assert stop.is_set()


@pytest.mark.parametrize(
    ("messages", "before", "expected", "followed"),
    [
        ([status(INSTANT, 0), status(INSTANT, 2)], 3, {0: Verdict.WRITTEN, 2: Verdict.WRITTEN}, 0),
        ([status(INSTANT, 2), status(INSTANT, 1), status(INSTANT, 0), abort(INSTANT)], 1,
         {0: Verdict.WRITTEN, 2: Verdict.WRITTEN}, 3),
        ([status(INSTANT, 0, error="no"), abort(INSTANT)], 1, {0: Verdict.FAILED, 2: Verdict.ENDED}, 2),
    ],
    ids=["written before", "written meanwhile", "one fails, and the interval is aborted"],
)  # fmt: skip
def test_several_ranges_are_waited_for_until_each_has_a_verdict(messages, before, expected, followed, monkeypatch):
    monkeypatch.setattr(waiting, "Presence", lambda _: _WORKERS)
    control: Any = _Followed(start(INSTANT, ranges=3), *messages, before=before)
    assert waiting.wait_for_workers(control, TABLE, 0, (0, 2), "workers", 5.0) == expected
    assert control.followed == followed


# Clients


class _Answers:
    """A future of an admin client."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def result(self) -> Any:
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


@pytest.mark.parametrize(
    ("code", "is_forgotten"), [(K.FENCED_LEADER_EPOCH, True), (K._NOENT, True), (K._TIMED_OUT, False)]
)
def test_a_client_that_knows_an_old_leader_is_forgotten_and_each_is_connected_once(code, is_forgotten, monkeypatch):
    made: list[Any] = []
    described: list[Any] = []

    def admin(_: Any) -> Any:
        def list_topics(topic: str, **_: Any) -> None:
            described.append(topic)

        made.append(SimpleNamespace(list_topics=list_topics))
        return made[-1]

    monkeypatch.setattr(clients, "AdminClient", admin)
    ones = Clients(SETTINGS)
    assert ones.ask(lambda _: {"a": _Answers(1), "b": _Answers(2)}) == {"a": 1, "b": 2}
    assert described == []
    for _ in range(2):
        ones.ask(lambda _: {}, connected_by="c")
    assert (len(made), described) == (1, ["c"])
    with pytest.raises(KafkaException):
        ones.ask(lambda _: {"a": _Answers(KafkaException(K(code)))})
    ones.ask(lambda _: {}, connected_by="c")
    assert (len(made), len(described)) == ((2, 2) if is_forgotten else (1, 1))
    known = made[-1]
    ones.forget(made[0])
    assert (ones.admin is known) is is_forgotten  # only the present one is dropped


# Observers


@pytest.mark.parametrize(
    ("error", "ends", "is_raised"),
    [
        (K(K._PARTITION_EOF), [7], False),
        (K(K._TRANSPORT, retriable=True), [], False),
        (K(K._FATAL, fatal=True, retriable=True), [], True),
        (K(K.TOPIC_AUTHORIZATION_FAILED), [], True),
    ],
)
def test_an_end_that_is_reached_counts_and_an_error_that_stays_is_raised(error, ends, is_raised):
    reader = ControlReader(SETTINGS, "control")
    got: Any = [Record(5, start(INSTANT)), Record(7, error=error)]
    if is_raised:
        with pytest.raises((ActionRequiredError, RetryableError)):
            list(reader._ends(got))
    else:
        assert list(reader._ends(got)) == ends


def test_messages_far_apart_are_read_one_by_one(monkeypatch):
    monkeypatch.setattr(readers, "_BATCH", 10)
    assert readers._stretches([0, 10, 20, 31, 50, 60]) == [[0, 10, 20], [31], [50, 60]]
    assert readers._stretches([]) == []


def test_the_client_that_was_used_longest_ago_is_dropped_first():
    admins = readers._Admins(most=2)

    def of(number: int) -> Any:
        return admins.of(KafkaSettings("k", {"bootstrap.servers": f"localhost:{number}", "log_level": 0}))

    first, second = of(1), of(2)
    assert of(1) is first
    of(3)
    assert of(1) is first
    assert of(2) is not second


@pytest.mark.parametrize(
    ("code", "expected"),
    [(None, ("id", 3, 9)), (K.UNKNOWN_TOPIC_OR_PART, ("", 0, 0)), (K.TOPIC_AUTHORIZATION_FAILED, ActionRequiredError)],
    ids=["there", "not yet", "not permitted"],
)
def test_the_bounds_of_a_topic_that_does_not_exist_yet_are_none(code, expected):
    given = Uuid(1, 2)

    def described() -> Any:
        if code is not None:
            raise KafkaException(K(code))
        return SimpleNamespace(topic_id=given)

    class Admin:
        def describe_topics(self, *_: Any, **__: Any) -> Any:
            return {"control": SimpleNamespace(result=described)}

        def list_offsets(self, wanted: Any, **_: Any) -> Any:
            ((partition, spec),) = wanted.items()
            offset = 9 if spec._value == -1 else 3
            return {partition: SimpleNamespace(result=lambda: SimpleNamespace(offset=offset))}

    reader = ControlReader(SETTINGS, "control")
    reader._admin = Admin()  # type: ignore[assignment]
    if isinstance(expected, tuple):
        assert reader.bounds() == (str(given) if expected[0] else "", *expected[1:])
    else:
        with pytest.raises(expected):
            reader.bounds()


# A control topic to its end


def _read(start_at: int, end_at: int, *polled: Any) -> list[int]:
    control, consumer = ControlTopic(SETTINGS, "control"), Places(list(polled))
    control._consumer = lambda _start: consumer  # type: ignore[method-assign, assignment, return-value]
    try:
        return [record.offset() or 0 for record in control._records(start_at, end_at)]
    finally:
        assert consumer.is_closed


def test_a_control_topic_is_read_up_to_its_end_past_markers_and_by_brokers_that_lag_behind():
    assert _read(5, 8, Record(5), Record(6), at_end(8)) == [5, 6]  # the last offset is a broker's marker
    assert _read(5, 8, Record(5), at_end(6), Record(6), at_end(5), Record(7)) == [5, 6, 7]
    assert _read(5, 7, Record(5), Record(6)) == [5, 6]
    assert _read(5, 5) == []


@pytest.mark.parametrize(
    ("polled", "error"),
    [
        (Record(0, error=K(K._TRANSPORT, retriable=True)), None),
        (Record(0, error=K(K._FATAL, fatal=True, retriable=True)), RetryableError),
        (Record(0, error=K(K.TOPIC_AUTHORIZATION_FAILED)), ActionRequiredError),
        (None, RetryableError),
    ],
    ids=["to be tried again", "fatal", "for good", "nothing in time"],
)
def test_only_an_error_that_stays_ends_the_reading_of_a_control_topic(polled, error):
    with pytest.raises(error) if error is not None else nullcontext():
        assert _read(5, 7, Record(5), polled, Record(6)) == [5, 6]
