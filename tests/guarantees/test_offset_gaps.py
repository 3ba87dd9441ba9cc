"""Offsets have gaps, of transactions and of compaction: a range ends at its planned end, not at a count of records."""

from __future__ import annotations

from collections import Counter

import pytest
from confluent_kafka import Consumer, TopicPartition

from sluice.errors import ActionRequiredError
from sluice.local.broker import LocalBroker
from sluice.protocol.messages import WriteStatus

from .harness import Flow, wait_for


def _gaps(flow: Flow) -> int:
    statuses = [m for m in flow.messages() if isinstance(m, WriteStatus)]
    return sum(p.gaps for p in statuses[-1].partitions)


def test_aborted_transactions_are_left_out(make_flow):
    flow = make_flow()
    flow.produce_in_transactions([(10, False), (30, True), (5, False), (4, True), (12, False)])
    flow.interval()
    flow.check()
    assert _gaps(flow) == 27 + 5 * 2  # aborted records, and a marker of each transaction in each partition
    flow.produce(10)
    flow.interval()
    flow.check()


def test_a_range_of_nothing_but_aborted_records_moves_the_offsets(make_flow):
    flow = make_flow()
    flow.produce(10)
    flow.interval()
    flow.produce_in_transactions([(10, False)])
    assert flow.interval().records == 0
    flow.check()
    flow.produce(10)
    flow.interval()
    flow.check()


@pytest.fixture(scope="module")
def compacting(home, tmp_path_factory):
    """A broker that compacts at once."""
    settings = {"log.cleaner.backoff.ms": "100", "log.retention.check.interval.ms": "500"}
    with LocalBroker(home, tmp_path_factory.mktemp("compacting"), settings=settings) as broker:
        yield broker


@pytest.fixture
def compacted_flow(compacting, tmp_path, shared_jvm, drivers, topic_name):
    flow = Flow(tmp_path, compacting.bootstrap, shared_jvm, drivers, topic_name("compacted"))
    flow.create_topic(
        1, cleanup_policy="compact", min_cleanable_dirty_ratio="0.01", segment_ms="100", max_compaction_lag_ms="200"
    )
    return flow


def _offsets(flow: Flow) -> list[int]:
    consumer = Consumer(
        {"bootstrap.servers": flow.bootstrap, "group.id": "g", "enable.partition.eof": True, "log_level": 0}
    )
    try:
        consumer.assign([TopicPartition(flow.topic, 0, 0)])
        found = []
        while (record := consumer.poll(30)) is not None and record.error() is None:
            found.append(record.offset())
        return found
    finally:
        consumer.close()


def test_what_compaction_has_taken_of_an_interval_keeps_its_rows(compacted_flow):
    """Its replay would put fewer rows in place of all: it is refused. A window takes what is left."""
    flow = compacted_flow
    flow.produce(20, partitions=(0,))
    instant = str(flow.interval().instant)
    loaded = flow.expected()
    flow.produce(0, partitions=(0,), ids=range(0, 20, 2), values="again-")

    def compacted() -> bool:
        flow.produce(1, partitions=(0,), values="roll-")
        return len([o for o in _offsets(flow) if o < 20]) == 10

    wait_for(compacted, "the cleaner", pause=0.3)
    run = flow.run(kind="replay", instant=instant)
    started = flow.start(run)
    flow.write_all(started)
    with pytest.raises(ActionRequiredError, match="not the records that the interval had"):
        flow.commit(started)
    flow.abort(run)
    assert flow.rows(metadata=True) == loaded
    flow.interval()
    flow.check()


def test_a_compacted_topic(compacted_flow):
    flow = compacted_flow
    flow.produce(20, partitions=(0,))
    for round_ in range(4):
        flow.produce(0, partitions=(0,), ids=range(0, 20, 2), values=f"r{round_}-")

    # Each append past segment.ms rolls the segment, and only closed segments are compacted.
    def compacted() -> bool:
        flow.produce(1, partitions=(0,), values="roll-")
        return len(_offsets(flow)) < len(flow.sent) - 20

    wait_for(compacted, "the cleaner", pause=0.3)
    flow.interval()
    end = flow.log_ends()[0]
    assert flow.offsets() == {0: end}
    kept = Counter((s.id, s.value) for s in flow.sent if s.offset in set(_offsets(flow)))
    seen = flow.rows(metadata=True)
    assert seen == flow.rows(metadata=False)
    # What the cleaner took between the write and this look was loaded, and rightly so.
    assert kept <= seen <= flow.expected()
    assert _gaps(flow) == end - seen.total() > 0
    flow.produce(5, partitions=(0,))
    flow.interval()
    assert flow.offsets() == flow.log_ends()
