"""Offsets have gaps, of transactions and of compaction: a range ends at its planned end, not at a count of records.

So does each stretch of a range that several Spark tasks read.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Consumer, TopicPartition

from sluice.errors import ActionRequiredError
from sluice.local.broker import LocalBroker
from sluice.protocol.messages import WriteStatus

from .harness import Flow, wait_for
from .harness import drivers as harness_drivers
from .harness.jdbc import UPSERT, jdbc_table, keyed

CORES = 4


@pytest.fixture(scope="module")
def drivers(tmp_path_factory):
    """Drivers of which Spark says that they have several cores, so that ranges are divided."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(harness_drivers._WARM, "spark.default.parallelism", str(CORES))
        pool = harness_drivers.Drivers(tmp_path_factory.mktemp("drivers"))
        yield pool
        pool.close()


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


def _tasks(flow: Flow) -> dict[int, set[int]]:
    """By Spark task of the last range that was written, the partitions of the records in its files.

    Its file groups are those that the participant has reported for just these partitions.
    """
    status = [m for m in flow.messages() if isinstance(m, WriteStatus)][-1]
    of_group = {group: p.partition for p in status.partitions for group in p.file_groups}
    partition_of = {sent.id: sent.partition for sent in flow.sent}
    found: dict[int, set[int]] = {}
    for stat in status.stats:
        path = flow.path / stat.path
        ids = pq.read_table(path, partitioning=None, columns=["id"]).column("id").to_pylist()
        partitions = {partition_of[i] for i in ids}
        assert partitions == {of_group[Path(path).name.split("_")[0]]}
        task = re.search(r"_(\d+)-\d+-\d+_", stat.path)
        assert task is not None
        found.setdefault(int(task[1]), set()).update(partitions)
    return found


def test_a_hot_partition_is_read_by_several_tasks_and_each_record_is_a_row_once(make_flow):
    """Transactions, committed and aborted, lie across the tasks' borders; the last stretch has no record at all."""
    flow = make_flow(partitions=2, write__records_per_task=4)
    flow.produce_in_transactions([(30, True), (18, False), (20, True), (31, False)], partitions=[0])
    flow.produce(5, partitions=[1])
    outcome = flow.interval()
    assert outcome.records == 55
    flow.check()
    assert _gaps(flow) == 49 + 4
    tasks = _tasks(flow)
    assert list(tasks.values()).count({0}) == CORES - 1
    assert list(tasks.values()).count({1}) == 1
    loaded = flow.rows(metadata=True)
    flow.interval(kind="replay", instant=str(outcome.instant))
    assert flow.rows(metadata=True) == flow.rows(metadata=False) == loaded


def test_an_upsert_into_hudi_keeps_one_task_for_a_partition(make_flow):
    """Of two versions with the same value of the ordering field, the later record wins."""
    upsert = {"sink__hudi__operation": "upsert", "sink__hudi__record_key": "id"}
    flow = make_flow(partitions=1, write__records_per_task=4, **upsert)
    for version in range(4):
        flow.produce(0, partitions=(0,), ids=range(10), values=f"v{version}-")
    flow.interval()
    flow.check()


@pytest.mark.parametrize("upserts", [True, False], ids=["upsert", "append"])
def test_a_hot_partition_in_a_database(make_flow, postgresql, monkeypatch, upserts):
    """Whichever task stages a version, the last one by its offset is the row."""
    for variable, value in postgresql.environment().items():
        monkeypatch.setenv(variable, value)
    settings = {"source__kafka__key": {"converter": "json"}} if upserts else {}
    flow = make_flow(partitions=1, write__records_per_task=4, **settings)
    section = {**UPSERT, "delete_enabled": False} if upserts else {}
    table = jdbc_table(flow, postgresql, section)
    versions = [(number, f"v{version}") for version in range(8) for number in range(10)]
    flow.produce_keyed([keyed(*one) for one in versions], partition=0)
    assert flow.interval().records == 80
    assert sorted(table.rows()) == sorted(dict(versions).items() if upserts else versions)
    assert table.position() == {0: 80}
    assert table.staging() == set()
    postgresql.drop_staging()


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


@pytest.mark.parametrize("records_per_task", [5, 1000], ids=["divided", "whole"])
def test_a_compacted_topic(compacted_flow, records_per_task):
    flow = compacted_flow.set(write__records_per_task=records_per_task)
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
    assert (len(_tasks(flow)) > 1) == (records_per_task < end)
    flow.produce(5, partitions=(0,))
    flow.interval()
    assert flow.offsets() == flow.log_ends()
