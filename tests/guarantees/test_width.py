"""An interval may be as wide as its topics: no message, no step and no record costs more than its own part of that."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import NewTopic

from sluice.errors import ActionRequiredError
from sluice.participant.parts import AT_ONCE, FEW, THIN
from sluice.protocol.messages import WriteStatus

from .harness import Flow, Pause
from .harness.jdbc import UPSERT, jdbc_table, keyed
from .quarantined import TOLERANT, places, quarantine, send
from .test_key_placement import CHECKED, refused, versions

PARTITIONS = 120
OF_JAVA_S_CLIENT = {"write__kafka_options": {"max.poll.records": "100"}}
"""Settings of Java's client are obeyed by Spark's tasks alone, so partitions are read by one each."""


def _control_topic(flow: Flow, limit: int) -> None:
    new = NewTopic(flow.control_topic, 1, config={"max.message.bytes": str(limit)})
    flow.admin.create_topics([new])[flow.control_topic].result(30)


def _parts(flow: Flow) -> Counter[str]:
    """How many records of the control topic are parts of messages, by type."""
    consumer = Consumer({"bootstrap.servers": flow.bootstrap, "group.id": "parts", "log_level": 0})
    try:
        consumer.assign([TopicPartition(flow.control_topic, 0, 0)])
        _, end = consumer.get_watermark_offsets(TopicPartition(flow.control_topic, 0), 10)
        fields = [json.loads(record.value()) for record in consumer.consume(end, 30)]
    finally:
        consumer.close()
    return Counter(f["type"] for f in fields if f.get("packed", {}).get("parts", 1) > 1)


def test_a_wide_interval_where_messages_have_to_travel_in_parts(make_flow):
    flow = make_flow(partitions=PARTITIONS, **TOLERANT)
    _control_topic(flow, 3600)
    flow.produce(80, partitions=range(0, PARTITIONS, 6))
    bad = [(p, send(flow, b"{no json", partition=p)) for p in (0, 54, 54, 114)]
    flow.produce(20, partitions=range(0, PARTITIONS, 6))
    flow.interval()
    flow.check(complete=False)
    assert places(quarantine(flow)) == bad
    _every_partition_has_what_is_its_own(flow)
    run = flow.run()
    flow.produce(8, partitions=(3,))
    flow.start(run)
    assert flow.abort(run).state == "aborted"
    flow.interval()
    flow.check(complete=False)
    assert flow.offsets() == flow.log_ends()
    assert {"START-COMMIT", "WRITE-STATUS"} <= set(parts := _parts(flow)), parts


def _every_partition_has_what_is_its_own(flow: Flow) -> None:
    """Records, gaps and file groups of each Kafka partition, as the participants have told them."""
    results = [p for m in flow.messages() if isinstance(m, WriteStatus) for p in m.partitions]
    assert sorted(p.partition for p in results) == list(range(0, PARTITIONS, 6))
    ends = flow.log_ends()
    for p in results:
        assert (p.start, p.next_offset, p.records_read, p.gaps) == (0, ends[p.partition], ends[p.partition], 0)
        assert p.bytes_read > 0
        assert p.max_timestamp is not None
    files = flow.jvm.files(str(flow.path), metadata=True)
    assert len(files) <= len({file.rpartition("/")[0] for file in files})  # one for each table partition
    partition_of = {sent.id: sent.partition for sent in flow.sent}
    for file in files:
        group = Path(file.removeprefix("file:")).name.split("_")[0]
        ids = pq.read_table(file, partitioning=None, columns=["id"]).column("id").to_pylist()
        # A task's table partitions are those of all its Kafka partitions together.
        assert {partition_of[i] for i in ids} <= {p.partition for p in results if group in p.file_groups}


@pytest.mark.parametrize("more", [{}, OF_JAVA_S_CLIENT], ids=["by one client", "by tasks"])
def test_keys_that_are_not_where_they_belong_are_counted_over_all_reads(make_flow, more):
    flow = make_flow(partitions=18, **CHECKED, **more)  # of which tasks read 16 together
    for partition in range(18):
        flow.produce_keyed(versions(range(2 * (partition == 17) + 1), 1), partition=partition)
    keyless = [(None, value) for _, value in versions(range(3), 2)]
    flow.produce_keyed(keyless, partition=1)
    flow.produce_keyed(keyless[:2], partition=17)
    where = refused(flow, "Records have no key").where
    assert (where["partition"], where["offset"], where["records"]) == (1, 1, 5)


def status_of(flow: Flow) -> WriteStatus:
    return [m for m in flow.messages() if isinstance(m, WriteStatus)][-1]


def tasks_of_jobs(status: WriteStatus) -> list[int]:
    """The number of Spark tasks of each job, of those that wrote a file."""
    names = [re.search(r"_(\d+)-(\d+)-\d+(?:_|$)", stat.path) for stat in status.stats]
    return sorted(Counter(stage for _, stage in {(n[1], n[2]) for n in names if n}).values())


def test_few_records_in_each_of_many_partitions_are_few_files(make_flow):
    """One task reads them all, and the partition with more than the others has one of its own."""
    partitions, fat = AT_ONCE + 3, 7
    flow = make_flow(partitions=partitions, **TOLERANT)
    flow.produce(2 * partitions, partitions=range(partitions))
    flow.produce_in_transactions([(3, True), (2, False)], partitions=[5])
    flow.produce_in_transactions([(1, False)], partitions=[6])
    flow.produce(THIN, partitions=[fat])
    bad = [(p, send(flow, b"{no json", partition=p)) for p in (0, AT_ONCE - 1, AT_ONCE, partitions - 1)]
    outcome = flow.interval()
    assert outcome.records == 2 * partitions + 3 + THIN
    flow.check(complete=False)
    assert flow.offsets() == flow.log_ends()
    assert places(quarantine(flow)) == bad
    status = status_of(flow)
    assert tasks_of_jobs(status) == [1, 1]
    assert len(status.stats) == 4  # two table partitions each
    ends, gaps = flow.log_ends(), {5: 4, 6: 2}  # records of aborted transactions, and each transaction's end
    wrong = Counter(p for p, _ in bad)
    for p in status.partitions:
        assert (p.start, p.next_offset, p.gaps) == (0, ends[p.partition], gaps.get(p.partition, 0))
        assert p.records_read == ends[p.partition] - p.gaps
        assert p.bytes_read > 0
    assert sorted(p.partition for p in status.partitions) == list(range(partitions))
    assert status.records_read == status.records_written + sum(wrong.values())
    loaded = flow.rows(metadata=True)
    flow.interval(kind="replay", instant=str(outcome.instant))
    assert flow.rows(metadata=True) == flow.rows(metadata=False) == loaded


def test_a_writer_of_many_thin_partitions_that_is_killed_leaves_nothing(make_flow):
    flow = make_flow(partitions=FEW + 1)
    flow.produce(3 * FEW, partitions=range(FEW + 1))
    started = flow.start()
    pause = Pause("participant.after_write", flow.folder)
    job = flow.write(started, failpoint=pause.failpoint)
    pause.wait(job)
    job.kill()
    left = set(flow.data_files(started.instant))
    assert len(left) == 2  # table partitions
    flow.write(started).succeed()
    assert flow.commit(started).records == 3 * FEW
    flow.check()
    assert flow.offsets() == flow.log_ends()
    assert left.isdisjoint(flow.data_files(started.instant))


def test_bad_records_of_many_thin_partitions_are_set_aside_by_one_task_with_their_headers(make_flow):
    flow = make_flow(partitions=FEW + 1, **TOLERANT)
    flow.produce(2 * FEW, partitions=range(FEW + 1))
    bad = [(p, send(flow, b"{no json", partition=p, headers=[("h", b"%d" % p)])) for p in range(FEW + 1)]
    assert flow.interval().records == 2 * FEW
    flow.check(complete=False)
    rows = quarantine(flow)
    assert places(rows) == bad
    assert [row["kafka_headers"] for row in rows] == [[{"key": "h", "value": b"%d" % p}] for p, _ in bad]
    assert len({row["_hoodie_file_name"] for row in rows}) == 1


def test_thin_partitions_whose_records_are_gone_end_the_job_as_any_others(make_flow):
    flow = make_flow(partitions=FEW + 1)
    flow.produce(3 * FEW, partitions=range(FEW + 1))
    started = flow.start()
    flow.delete_records({3: 1})
    assert flow.write(started).wait() != 0
    with pytest.raises(ActionRequiredError, match="Planned offsets could not be read"):
        flow.commit(started)


def test_a_job_has_the_counts_of_so_many_partitions_and_no_more(make_flow):
    """Each task carries the counts of its whole job there and back, so the number of a job's tasks is what it costs."""
    partitions = AT_ONCE + 3
    flow = make_flow(partitions=partitions, **OF_JAVA_S_CLIENT, **TOLERANT)
    flow.produce(2 * partitions, partitions=range(partitions))
    bad = [(p, send(flow, b"{no json", partition=p)) for p in (0, AT_ONCE - 1, AT_ONCE, partitions - 1)]
    outcome = flow.interval()
    assert outcome.records == 2 * partitions
    flow.check(complete=False)
    assert flow.offsets() == flow.log_ends()
    assert places(quarantine(flow)) == bad
    status = status_of(flow)
    assert [p.partition for p in status.partitions] == list(range(partitions))
    assert all(len(p.file_groups) == 2 for p in status.partitions)
    assert tasks_of_jobs(status) == [3, AT_ONCE]


@pytest.mark.thorough
def test_thin_partitions_of_a_table_in_a_database(make_flow, postgresql, monkeypatch):
    """Of a key's versions, all in one partition, the last one is the row, as ever."""
    for variable, value in postgresql.environment().items():
        monkeypatch.setenv(variable, value)
    flow = make_flow(partitions=FEW + 1, source__kafka__key={"converter": "json"})
    table = jdbc_table(flow, postgresql, {**UPSERT, "delete_enabled": False})
    last = {}
    for partition in range(FEW + 1):
        sent = [(100 * partition + number, f"v{version}") for version in range(3) for number in range(2)]
        flow.produce_keyed([keyed(*one) for one in sent], partition=partition)
        last |= dict(sent)
    assert flow.interval().records == 6 * (FEW + 1)
    assert sorted(table.rows()) == sorted(last.items())
    assert table.position() == dict.fromkeys(range(FEW + 1), 6)
    assert table.staging() == set()
    postgresql.drop_staging()


@pytest.mark.thorough
def test_an_upsert_of_three_thousand_thin_partitions_is_one_job_of_few_tasks(make_flow):
    partitions = 3000
    flow = make_flow(partitions=partitions, sink__hudi__operation="upsert", sink__hudi__record_key="id")
    flow.produce(2 * partitions, partitions=range(partitions))
    assert flow.interval().records == 2 * partitions
    status = status_of(flow)
    assert tasks_of_jobs(status) == [-(-partitions // 256)]
    groups = {p.partition: p.file_groups for p in status.partitions}
    assert {len(of) for of in groups.values()} == {1}
    assert len({group for of in groups.values() for group in of}) == len(status.stats) == partitions
    assert {(p.records_read, p.gaps) for p in status.partitions} == {(2, 0)}
    flow.check(listing=False)


@pytest.mark.thorough
def test_an_upsert_whose_partitions_are_several_jobs(make_flow):
    partitions = AT_ONCE + 3
    upsert = {"sink__hudi__operation": "upsert", "sink__hudi__record_key": "id"}
    flow = make_flow(partitions=partitions, **upsert, **OF_JAVA_S_CLIENT)
    flow.produce(partitions, partitions=range(partitions))
    flow.interval()
    again = (0, AT_ONCE - 1, AT_ONCE, partitions - 1)
    flow.produce(len(again), partitions=range(partitions), ids=again, values="b")
    flow.interval()
    flow.check()
