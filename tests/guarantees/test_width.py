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

from sluice.participant.parts import AT_ONCE
from sluice.protocol.messages import WriteStatus

from .harness import Flow
from .quarantined import TOLERANT, places, quarantine, send
from .test_key_placement import CHECKED, refused, versions

PARTITIONS = 120


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
    of_group = {group: p.partition for p in results for group in p.file_groups}
    partition_of = {sent.id: sent.partition for sent in flow.sent}
    for file in flow.jvm.files(str(flow.path), metadata=True):
        group = Path(file.removeprefix("file:")).name.split("_")[0]
        ids = pq.read_table(file, partitioning=None, columns=["id"]).column("id").to_pylist()
        assert {partition_of[i] for i in ids} == {of_group[group]}


def test_keys_that_are_not_where_they_belong_are_counted_over_all_reads(make_flow):
    flow = make_flow(partitions=18, **CHECKED)  # of which 16 are read together
    for partition in range(18):
        flow.produce_keyed(versions(range(2 * (partition == 17) + 1), 1), partition=partition)
    keyless = [(None, value) for _, value in versions(range(3), 2)]
    flow.produce_keyed(keyless, partition=1)
    flow.produce_keyed(keyless[:2], partition=17)
    where = refused(flow, "Records have no key").where
    assert (where["partition"], where["offset"], where["records"]) == (1, 1, 5)


def test_a_job_has_the_counts_of_so_many_partitions_and_no_more(make_flow):
    """Each task carries the counts of its whole job there and back, so the number of a job's tasks is what it costs."""
    partitions = AT_ONCE + 3
    flow = make_flow(partitions=partitions, **TOLERANT)
    flow.produce(2 * partitions, partitions=range(partitions))
    bad = [(p, send(flow, b"{no json", partition=p)) for p in (0, AT_ONCE - 1, AT_ONCE, partitions - 1)]
    outcome = flow.interval()
    assert outcome.records == 2 * partitions
    flow.check(complete=False)
    assert flow.offsets() == flow.log_ends()
    assert places(quarantine(flow)) == bad
    status = next(m for m in flow.messages() if isinstance(m, WriteStatus))
    assert [p.partition for p in status.partitions] == list(range(partitions))
    assert all(len(p.file_groups) == 2 for p in status.partitions)
    names = [re.search(r"_(\d+)-(\d+)-\d+_", stat.path) for stat in status.stats]
    tasks_of_jobs = Counter(name[2] for name in {(n[1], n[2]): n for n in names if n}.values())
    assert sorted(tasks_of_jobs.values()) == [3, AT_ONCE]


@pytest.mark.thorough
def test_an_upsert_whose_partitions_are_several_jobs(make_flow):
    partitions = AT_ONCE + 3
    flow = make_flow(partitions=partitions, sink__hudi__operation="upsert", sink__hudi__record_key="id")
    flow.produce(partitions, partitions=range(partitions))
    flow.interval()
    again = (0, AT_ONCE - 1, AT_ONCE, partitions - 1)
    flow.produce(len(again), partitions=range(partitions), ids=again, values="b")
    flow.interval()
    flow.check()
