"""Thin partitions that one client reads for few tasks come to the same as those that Spark reads by a task each.

The same records go both ways, into a table each.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from sluice.participant.parts import FEW, THIN
from sluice.protocol.messages import WriteStatus

from .harness import Flow
from .harness.files import FileFlow
from .quarantined import TOLERANT, quarantine, send
from .test_deletes import TOMBSTONES, Model, deleted, written
from .test_key_placement import CHECKED, MURMUR2, versions
from .test_width import OF_JAVA_S_CLIENT, tasks_of_jobs

UPSERT = {"sink__hudi__operation": "upsert", **TOLERANT}
HASHED = {**CHECKED, "sink__hudi__key_placement": "hashed", "sink__hudi__buckets": 3}


def both_ways(make_flow: Any, partitions: int, **settings: Any) -> tuple[Flow, Flow]:
    """Two pipelines of one topic's records, and what reads them: one client in the driver, and Spark's tasks."""
    flow = make_flow(partitions=partitions, **settings)
    return flow, make_flow(partitions=1, source__kafka__topics=flow.topic, **OF_JAVA_S_CLIENT, **settings)


def statuses(flow: Flow) -> list[WriteStatus]:
    return [m for m in flow.messages() if isinstance(m, WriteStatus)]


def told(flow: Flow) -> list[dict[str, Any]]:
    """What participants tell of the records: each partition's, in the order of their numbers."""
    found = []
    for status in statuses(flow):
        fields = status.model_dump(include=COUNTED, mode="json")
        found.append({**fields, "partitions": sorted(fields["partitions"], key=lambda one: one["partition"])})
    return found


COUNTED = {
    "records_read", "records_written", "records_deleted", "records_quarantined", "records_filtered", "records_skipped",
    "rows_moved", "keys", "partitions",
}  # fmt: skip


def files_by_task(status: WriteStatus) -> list[list[str]]:
    """For each Spark job the tasks that wrote its files, by the numbers in Spark's names of them."""
    found = []
    for stat in status.stats:
        files = stat.payload["files"]
        names = [one["staged"] if isinstance(one, dict) else one[0] for one in files]
        found.append(sorted({name.rpartition("/")[2].split("-")[1] for name in names}))
    return found


def rows(flow: Flow, *, metadata: bool = True) -> list[tuple[Any, ...]]:
    """All columns of all rows, with Hudi's file group, key and table partition."""
    hudi_s = ("_hoodie_file_name", "_hoodie_record_key", "_hoodie_partition_path")
    found = flow.read(*hudi_s, *sorted(flow.columns()), metadata=metadata)
    return sorted((str(file).split("_")[0], *row) for file, *row in found)


def set_aside(flow: Flow) -> list[dict[str, Any]]:
    own = ("dag_id", "run_id", "attempt", "table_name", "table_path", "instant", "day")
    return [{k: v for k, v in row.items() if k not in own and not k.startswith("_")} for row in quarantine(flow)]


def stands(flow: Flow, of: Flow) -> dict[int, int]:
    """The committed offsets of a topic's partitions."""
    topic = flow.checkpoint().topic(of.connection, of.topic)
    assert topic is not None
    return dict(topic.partitions)


def same(gathered: Flow, by_tasks: Flow) -> None:
    """An interval of each, and all that is told and found of it."""
    for flow in (gathered, by_tasks):
        flow.interval()
    assert told(gathered)[-1] == told(by_tasks)[-1]
    assert stands(gathered, gathered) == stands(by_tasks, gathered)
    assert rows(gathered) == rows(gathered, metadata=False) == rows(by_tasks)


def test_an_upsert_by_few_tasks_is_the_same_as_one_by_a_task_for_each_partition(make_flow):
    """Of versions of one key with nothing else to order them, the last one of its partition is the row."""
    partitions, fat = FEW + 3, 7
    gathered, by_tasks = both_ways(make_flow, partitions, **UPSERT)
    gathered.produce(2 * partitions, partitions=range(partitions))
    gathered.produce(2 * partitions, partitions=range(partitions), ids=range(2 * partitions), values="b")
    gathered.produce_in_transactions([(3, True), (2, False)], partitions=[5])
    gathered.produce(THIN + 1, partitions=[fat])
    bad = (0, fat, FEW, partitions - 1)
    for partition in bad:
        send(gathered, b"{no json", partition=partition, headers=[("h", b"%d" % partition)])
    same(gathered, by_tasks)
    gathered.check(complete=False)
    assert gathered.offsets() == gathered.log_ends()
    assert set_aside(gathered) == set_aside(by_tasks)
    assert [row["kafka_partition"] for row in set_aside(gathered)] == list(bad)
    [status], [other] = statuses(gathered), statuses(by_tasks)
    groups = {p.partition: p.file_groups for p in status.partitions}
    assert {len(of) for of in groups.values()} == {2}  # table partitions
    assert len({group for of in groups.values() for group in of}) == len(status.stats) == 2 * partitions
    assert tasks_of_jobs(status) == [1, 2]  # a job of the fat partition, and one of all others
    assert tasks_of_jobs(other) == [2 * partitions]
    gathered.produce(partitions, partitions=range(partitions), ids=range(0, 2 * partitions, 2), values="c")
    same(gathered, by_tasks)
    gathered.check(complete=False)


def test_keys_are_checked_and_counted_in_what_was_gathered(make_flow):
    gathered, by_tasks = both_ways(make_flow, FEW + 2, **CHECKED)
    gathered.produce_keyed(versions(range(200), 1), **MURMUR2)
    same(gathered, by_tasks)
    assert gathered.note()["placement"]["partitioners"] == {gathered.topic: ["murmur2"]}
    assert tasks_of_jobs(statuses(gathered)[-1]) == [1]


def test_hashed_keys_of_thin_partitions_are_one_job_of_few_tasks(make_flow):
    gathered, by_tasks = both_ways(make_flow, FEW + 2, **HASHED)
    for partition in range(FEW + 1):
        gathered.produce_keyed(versions(range(10 * partition, 10 * partition + 15), partition), partition=partition)
    gathered.produce_keyed(versions(range(THIN + 1), 99), partition=FEW + 1)
    same(gathered, by_tasks)
    assert len(statuses(gathered)[-1].stats) == 3 * 2  # buckets and table partitions


def test_deletes_of_thin_partitions(make_flow):
    gathered, by_tasks = both_ways(make_flow, 2 * FEW, **TOMBSTONES)
    model = Model(gathered)
    model.send(*(written(number, "a") for number in range(300)))
    model.send(*map(deleted, range(0, 300, 3)), *(written(number, "b") for number in range(0, 300, 6)))
    same(gathered, by_tasks)
    model.check()
    model.send(*map(deleted, range(1, 300, 3)))
    same(gathered, by_tasks)
    model.check()
    assert told(gathered)[-1]["records_deleted"] == 100
    gathered.interval(kind="replay", instant=gathered.commits()[0]["instant"])
    model.check()


def test_a_replay_of_thin_partitions_leaves_newer_rows(make_flow):
    gathered, by_tasks = both_ways(make_flow, FEW + 2, **UPSERT)
    gathered.produce(60, partitions=range(FEW + 2))
    first = [flow.interval() for flow in (gathered, by_tasks)]
    gathered.produce(30, partitions=range(FEW + 2), ids=range(0, 60, 2), values="b")
    same(gathered, by_tasks)
    loaded = rows(gathered)
    for flow, outcome in zip((gathered, by_tasks), first, strict=True):
        flow.interval(kind="replay", instant=str(outcome.instant))
    assert told(gathered)[-1] == told(by_tasks)[-1]
    assert told(gathered)[-1]["records_skipped"] == 30
    assert rows(gathered) == rows(by_tasks) == loaded
    gathered.check()


# Files and topics


@pytest.fixture
def make_files(tmp_path, bootstrap, shared_jvm, drivers, topic_name):
    def make(partitions: int, **settings: Any) -> FileFlow:
        flow = FileFlow(tmp_path, bootstrap, shared_jvm, drivers, topic_name("t"), **settings)
        flow.create_topic(partitions)
        return flow

    return make


IN_FILES = {"sink__files__format": "json", "sink__files__codec": "none", "sink__files__layout": "connect"}


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"sink__files__partitioner": "field", "sink__files__partition_fields": ["p"]},
        {"sink__files__max_rows_per_file": 3},
    ],
    ids=["a file for each partition", "by a field", "of three rows at most"],
)
def test_files_of_few_tasks_are_the_same_as_those_of_a_task_for_each_partition(make_files, more):
    partitions = FEW + 2
    settings = {**IN_FILES, **more, "errors__tolerance": "all"}
    gathered, by_tasks = both_ways(make_files, partitions, **settings)
    gathered.produce(5 * partitions, partitions=range(partitions))
    gathered.produce(THIN + 1, partitions=[3])
    bad = [(p, send(gathered, b"{no json", partition=p)) for p in range(partitions)]
    gathered.produce(partitions, partitions=range(partitions), values="b")
    for flow in (gathered, by_tasks):
        flow.interval()
        assert flow.left() == []
    assert told(gathered) == told(by_tasks)
    assert gathered.offsets() == gathered.log_ends()
    found = {name: file.read_bytes() for name, file in gathered.files().items()}
    assert found == {name: file.read_bytes() for name, file in by_tasks.files().items()}
    loaded = [json.loads(line) for content in found.values() for line in content.splitlines()]
    assert Counter((row["id"], row["v"]) for row in loaded) == Counter((s.id, s.value) for s in gathered.sent)
    for flow in (gathered, by_tasks):
        assert places_in_files(flow) == bad
        first = statuses(flow)[0].first_bad
        assert first is not None
        assert (first.partition, first.offset) in bad  # of the partition whose records came first
    assert files_by_task(statuses(gathered)[0]) == [["00000"], ["00000"]]
    assert [len(tasks) for tasks in files_by_task(statuses(by_tasks)[0])] == [partitions]


def places_in_files(flow: FileFlow) -> list[tuple[int, int]]:
    quarantined = list(Path(f"{flow.path}_quarantine", "topics").rglob("*.parquet"))
    rows = [row for file in quarantined for row in pq.read_table(file, partitioning=None).to_pylist()]
    return sorted((row["kafka_partition"], row["kafka_offset"]) for row in rows)


def test_records_of_few_tasks_are_sent_in_the_order_of_each_partition(make_topics):
    partitions = FEW + 2
    settings: dict[str, Any] = {"section": {"partitioner": "same"}, "targets": partitions, "errors__tolerance": "all"}
    gathered = make_topics(partitions, **settings)
    by_tasks = make_topics(1, source__kafka__topics=gathered.flow.topic, **OF_JAVA_S_CLIENT, **settings)
    gathered.flow.produce(5 * partitions, partitions=range(partitions))
    gathered.flow.produce(THIN + 1, partitions=[3])
    for partition in range(partitions):
        send(gathered.flow, b"{no json", partition=partition)
    gathered.flow.produce(5 * partitions, partitions=range(partitions), values="b")
    found = []
    for topics in (gathered, by_tasks):
        topics.flow.interval()
        found.append(sorted(topics.found(), key=lambda one: (one.partition, one.offset)))
    assert told(gathered.flow) == told(by_tasks.flow)
    assert found[0] == found[1]
    assert files_by_task(statuses(gathered.flow)[0]) == [["00000"], ["00000"]]
    assert [len(tasks) for tasks in files_by_task(statuses(by_tasks.flow)[0])] == [partitions]
    gathered.check()
