"""Which readers see which tables: the table of docs/how-to/read-the-tables.md, read by each of them.

A reader either has all rows or refuses the table. The exception is hudi-rs, which sees no file group without a base
file.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sluice.errors import ActionRequiredError, IntervalError
from sluice.sinks.hudi.options import TABLE_VERSION
from sluice.sinks.hudi.readers import verdicts
from sluice.sinks.hudi.sink import HudiSink

from ..readers.bundles import RELEASES, bundle, read
from .harness import Flow
from .harness.readers import rust_rows

VERSIONS = (6, 8, 9)
UPSERT = {"sink__hudi__operation": "upsert", "sink__hudi__record_key": "id"}
COMPACTED = {"table_services": {"compaction": {"after_delta_commits": 2}}}
DELETES = {
    **UPSERT,
    "sink__hudi__schema": "id BIGINT, v STRING",
    "sink__hudi__partition_fields": None,
    "source__kafka__key": {"converter": "json"},
    "changes": {"format": "tombstones"},
}

Rows = Counter[tuple[int, str]]
State = tuple[Path, Rows]


class States:
    """Copies of tables, each as it was at a moment, with the rows that it had."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.kept: dict[tuple[str, int, str], State] = {}

    def keep(self, table: str, version: int, state: str, flow: Flow, rows: Rows | None = None) -> None:
        if rows is None:
            flow.check()
        path = self._folder / f"{table}-{version}-{state}"
        shutil.copytree(flow.path, path)
        self.kept[table, version, state] = (path, flow.expected() if rows is None else rows)


@pytest.fixture(scope="module")
def states(make_flow_of_module: Callable[..., Flow], tmp_path_factory: pytest.TempPathFactory) -> States:
    """An append and upserts in each version: first written, with a further column, with deletes, compacted."""
    states = States(tmp_path_factory.mktemp("tables"))
    for version in VERSIONS:
        _append(make_flow_of_module(sink__hudi__table_version=version), version, states)
    for version in VERSIONS[1:]:
        given = {"sink__hudi__table_version": version, **COMPACTED}
        _upsert(make_flow_of_module(**UPSERT, **given), version, states)
        _ordered(make_flow_of_module(1, **UPSERT, **given, sink__hudi__ordering_field="w"), version, states)
        _deleted(make_flow_of_module(1, **DELETES, **given), version, states)
    return states


def _append(flow: Flow, version: int, states: States) -> None:
    flow.produce(20)
    flow.interval()
    states.keep("append", version, "first", flow)
    flow.set(sink__hudi__schema="id BIGINT, v STRING, p STRING, w INT")
    flow.produce(20)
    flow.interval()
    states.keep("append", version, "evolved", flow)


def _upsert(flow: Flow, version: int, states: States) -> None:
    flow.produce(20)
    flow.interval()
    flow.produce(10, ids=range(10), values="b")
    flow.interval()
    states.keep("upsert", version, "log files", flow)
    flow.serve("compaction")
    states.keep("upsert", version, "compacted", flow)
    flow.produce(10, ids=range(5, 15), values="c")
    flow.interval()
    states.keep("upsert", version, "compacted, log files", flow)


def _ordered(flow: Flow, version: int, states: States) -> None:
    """An older version of a key comes later, within an interval and in the next one."""
    flow.set(sink__hudi__schema="id BIGINT, v STRING, p STRING, w INT")
    for ids, values, w in ((range(10), "new", 10), (range(5), "old", 5)):
        flow.produce(10, partitions=[0], ids=ids, values=values, fields={"w": w})
    flow.interval()
    flow.produce(10, partitions=[0], ids=range(3, 8), values="older", fields={"w": 3})
    flow.produce(10, partitions=[0], ids=range(8, 10), values="newer", fields={"w": 11})
    flow.interval()
    rows = Counter([(i, f"new{i}") for i in range(8)] + [(i, f"newer{i}") for i in (8, 9)])
    states.keep("ordered", version, "log files", flow, rows)
    flow.serve("compaction")
    states.keep("ordered", version, "compacted", flow, rows)


def _deleted(flow: Flow, version: int, states: States) -> None:
    def send(ids: range, value: str | None) -> None:
        flow.produce_keyed(
            [
                (json.dumps({"id": i}).encode(), None if value is None else json.dumps({"v": value}).encode())
                for i in ids
            ]
        )

    send(range(10), "a")
    flow.interval()
    send(range(3), None)
    send(range(1), "b")
    flow.interval()
    rows = Counter([(0, "b"), *((i, "a") for i in range(3, 10))])
    states.keep("deleted", version, "log files", flow, rows)
    flow.serve("compaction")
    states.keep("deleted", version, "compacted", flow, rows)


def said(reader: str, path: Path) -> str:
    """What `sluice doctor` says that a reader sees."""
    return next(one.sees for one in verdicts(str(path)) if one.reader == reader)


@pytest.mark.thorough
@pytest.mark.parametrize("release", [*RELEASES, "1.2"])
def test_spark_reads_all_rows_of_the_versions_that_it_knows_and_refuses_others(states, home, release):
    found = read(bundle(home, release), [path for path, _ in states.kept.values()], "id,v")
    name = f"spark-hudi-{release if release == '1.2' else release.rpartition('.')[0]}"
    for (table, version, state), (path, rows) in states.kept.items():
        seen = found[str(path)]
        if said(name, path) == "all rows":
            assert not isinstance(seen, str), (table, version, state, seen)
            assert Counter(tuple(row) for row in seen) == rows, (table, version, state)
        else:
            assert isinstance(seen, str), (table, version, state)


@pytest.mark.thorough
def test_hudi_rs_reads_file_groups_with_a_base_file_in_each_version(states):
    for (table, version, state), (path, rows) in states.kept.items():
        seen = Counter((row["id"], row["v"]) for row in rust_rows(path))
        if said("hudi-rs", path) == "all rows":
            assert seen == rows, (table, version, state)
        elif state == "log files":
            assert not seen, (table, version, state)


def test_a_table_keeps_its_version_and_another_one_is_refused(make_flow):
    flow = make_flow(sink__hudi__table_version=9)
    flow.produce(10)
    flow.interval()
    flow.set(sink__hudi__table_version=None)  # the default is another one, and for new tables
    flow.produce(10)
    flow.interval()
    flow.check()
    assert _version(flow) == "9"
    flow.set(sink__hudi__table_version=8)
    with pytest.raises(ActionRequiredError, match=r"version 9, which isn't the pipeline's.*set table_version to 9"):
        flow.start()
    assert _version(flow) == "9"


def test_an_interval_is_not_committed_to_a_table_that_another_program_has_upgraded_meanwhile(make_flow):
    flow = make_flow(sink__hudi__record_key="id")
    flow.produce(10)
    flow.interval()
    flow.produce(10)
    started = flow.start()
    flow.write_all(started)
    flow.append_by_spark(range(100, 104))  # with Hudi's defaults
    assert _version(flow) == "9"
    with pytest.raises(IntervalError, match="something rolled it back"):  # as Hudi's upgrade does
        flow.commit(started)
    flow.check(complete=False)
    flow.interval()
    flow.check()
    assert _version(flow) == "9"
    with HudiSink(flow.pipeline, flow.jvm).open() as table:
        planned = {**table.writer.options, TABLE_VERSION: "8"}
        with pytest.raises(IntervalError, match=r"changed the table's version.*planned_for=8, now=9"):
            table.written_as(table.writer.model_copy(update={"options": planned}))


@pytest.mark.parametrize(
    ("settings", "version"),
    [
        ({}, "8"),
        ({**UPSERT, "changes": {"format": "debezium"}, "sink__hudi__partition_fields": None}, "9"),
        ({**UPSERT, "sink__hudi__ordering_field": ["v", "p"]}, "9"),
    ],
)
def test_a_new_table_has_the_oldest_version_that_reads_it_right(make_flow, settings, version):
    flow = make_flow(**settings)
    with HudiSink(flow.pipeline, flow.jvm).open():
        assert _version(flow) == version


def _version(flow: Flow) -> str:
    lines = (flow.path / ".hoodie" / "hoodie.properties").read_text().splitlines()
    found: dict[str, Any] = dict(line.split("=", 1) for line in lines if "=" in line)
    return str(found["hoodie.table.version"])
