"""Records dated in any year: none is lost, none stops its partition for good, and what waits is told."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from sluice.coordinator import Outcome
from sluice.errors import ActionRequiredError
from sluice.protocol.messages import StartCommit
from sluice.sources.kafka.cluster import KafkaCluster

from ..thorough import also
from .harness import Flow, kafka_settings, wait_for

_HOUR = 3_600_000
_YEAR_2099 = 4_070_908_800_000
_ANY = str(2**63 - 1)


def _ms(time: datetime) -> int:
    return int(time.timestamp() * 1000)


@pytest.fixture
def flow(make_flow) -> Flow:
    """A pipeline with a topic that takes records of any time, as brokers before Kafka 4 do."""
    flow = make_flow(partitions=0)
    flow.create_topic(2, message_timestamp_after_max_ms=_ANY, message_timestamp_before_max_ms=_ANY)
    return flow


def _told(flow: Flow) -> tuple[str, ...]:
    return next(m.remarks for m in reversed(flow.messages()) if isinstance(m, StartCommit))


def test_a_record_of_the_far_future_stops_nobody(flow):
    now = datetime.now(UTC)
    flow.produce(4, dated=_ms(now) - _HOUR)
    flow.produce(1, partitions=[0], dated=_YEAR_2099)
    flow.produce(8, dated=_ms(now) - _HOUR // 2)
    flow.produce(4, dated=_ms(now) + 1000)
    flow.interval(to_time=now)
    flow.check(complete=False)
    assert len(flow.covered()) == 13
    assert any("[0]: its record 2 is dated 2099-01-01" in remark for remark in _told(flow))
    flow.interval(to_time=now + timedelta(seconds=2))
    flow.check()
    assert _told(flow) == ()


def test_windows_past_it_are_read_and_lie_beside_each_other(flow):
    start = datetime.now(UTC) - timedelta(hours=3)
    flow.produce(1, partitions=[0], dated=_YEAR_2099)
    for hour in range(3):
        flow.produce(8, dated=_ms(start) + hour * _HOUR + 1000)
    flow.set(source__kafka__starting_offsets="latest")
    flow.commit(flow.start())
    for hour in (2, 0, 1):  # in any order
        begin = start + timedelta(hours=hour)
        flow.interval(kind="backfill", from_time=begin, to_time=begin + timedelta(hours=1))
        assert len([s for s in flow.covered() if s.id > 0]) % 8 == 0
    assert {s.id for s in flow.covered()} >= set(range(1, 25))
    flow.check(complete=False)


def test_what_is_dated_a_little_ahead_waits_and_is_told(flow):
    now = datetime.now(UTC)
    flow.produce(2, dated=_ms(now) - 1000)
    flow.produce(1, partitions=[0], dated=_ms(now) + _HOUR // 2)
    flow.produce(8, dated=_ms(now) - 500)
    flow.interval(to_time=now)
    assert {p: len([s for s in flow.covered() if s.partition == p]) for p in (0, 1)} == {0: 1, 1: 5}
    found = flow.coordinator().start(flow.run(to_time=now))
    assert isinstance(found, Outcome)
    assert "what comes after it waits until then" in found.summary
    flow.set(source__kafka__max_future="1 minute")
    flow.interval(to_time=now)
    flow.check()


@pytest.mark.parametrize("dated", [-62135596800000, *also(1, 253402300800000), 9223372036854774])
def test_any_year_is_loaded(flow, dated):
    """The year 1, 1970, 10000, and the last that Spark can hold."""
    flow.produce(2, dated=dated)
    flow.interval()
    flow.check()


def test_what_spark_cannot_hold_is_told_and_can_be_passed_over(flow):
    flow.produce(2)
    flow.produce(1, partitions=[0], dated=2**63 - 1)
    run = flow.run()
    started = flow.start(run)
    assert flow.write(started).wait() == 1
    with pytest.raises(ActionRequiredError, match="later than Spark holds"):
        flow.commit(started)
    flow.abort(run)
    flow.commit(flow.start(flow.run(kind="correction", offsets={flow.topic: {0: (1, 2)}}, reason="a broken clock")))
    flow.produce(2)
    flow.interval()
    flow.interval()
    flow.check(complete=False)
    assert len(flow.covered()) == 4


def test_a_window_that_ends_in_the_future_is_complete_up_to_now_at_most(flow):
    """A run's logical date may lie ahead, and records beyond it end the window before the log's end."""
    now = datetime.now(UTC)
    flow.produce(2, dated=_ms(now))
    flow.produce(2, dated=_ms(now) + 2 * _HOUR)
    cluster = KafkaCluster(kafka_settings(flow.bootstrap))
    for bounds in cluster.state((flow.topic,), now + timedelta(hours=1)).partitions:
        assert bounds.window_end == 1
        assert now <= bounds.valid_through <= datetime.now(UTC)


def test_an_open_kafka_transaction_bounds_what_is_complete(flow):
    from confluent_kafka import Producer

    flow.produce(2)
    producer = Producer({"bootstrap.servers": flow.bootstrap, "transactional.id": flow.topic, "log_level": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    opened = datetime.now(UTC) - timedelta(minutes=20)
    producer.produce(flow.topic, b"{}", partition=0, timestamp=_ms(opened))
    assert producer.flush(30) == 0
    flow.produce(2)
    flow.interval()
    note = flow.note()
    assert datetime.fromisoformat(note["valid_through"]) == opened.replace(
        microsecond=opened.microsecond // 1000 * 1000
    )
    assert any("[0]: a Kafka transaction that is open since" in remark for remark in note["remarks"])
    producer.abort_transaction(30)
    wait_for(lambda: flow.coordinator().plan(flow.run().request)[0].plan.ranges, "the last stable offset to move")
    flow.interval()
    assert datetime.fromisoformat(flow.note()["valid_through"]) > opened + timedelta(minutes=15)
    flow.check(complete=False)
    assert len(flow.covered()) == 4
