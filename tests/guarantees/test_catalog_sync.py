"""A catalog is told of each commit, and never part of it: while it is down commits go on, and then it catches up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sluice.coordinator.catalog import sync
from sluice.errors import ActionRequiredError, RetryableError

from .harness import Flow
from .hive_metastore import HiveMetastore


@pytest.fixture
def metastore(tmp_path: Path) -> Iterator[HiveMetastore]:
    running = HiveMetastore(tmp_path / "metastore").start()
    yield running
    running.stop()


def test_the_hive_metastore_knows_table_and_partitions_and_catches_up(
    make_flow: Callable[..., Flow], metastore: HiveMetastore
) -> None:
    hive = {"uris": metastore.uris, "database": "lake", "table": "orders"}
    flow = make_flow(catalog_sync={"hive": hive})
    flow.produce(20)
    flow.interval()
    assert sync(flow.pipeline, flow.jvm) == ["hive lake.orders"]
    with flow.jvm() as jvm:
        columns, partitions = metastore.look(jvm, "lake", "orders")
    assert (columns["id"], columns["v"]) == ("bigint", "string")
    assert partitions == ["p=p0", "p=p1"]

    metastore.stop()
    flow.produce(30, table_partitions=3)
    flow.interval()
    offsets = flow.offsets()
    with pytest.raises(RetryableError, match="the commit remains"):
        sync(flow.pipeline, flow.jvm)
    assert flow.offsets() == offsets == flow.log_ends()
    flow.check()
    flow.produce(10)
    flow.interval()  # the next one is not held up

    metastore.start()
    sync(flow.pipeline, flow.jvm)
    with flow.jvm() as jvm:
        _, partitions = metastore.look(jvm, "lake", "orders")
    assert partitions == ["p=p0", "p=p1", "p=p2"]
    flow.check()


def test_glue_without_its_jar_says_which(make_flow: Callable[..., Flow]) -> None:
    """Before a table's first interval; later ones are not held up."""
    flow = make_flow()
    glue = {"glue": {"database": "lake", "region": "eu-central-1"}}
    flow.set(catalog_sync=glue)
    flow.produce(10)
    with pytest.raises(ActionRequiredError, match="hudi-aws-bundle"):
        flow.start()
    flow.set(catalog_sync=None)
    flow.interval()
    flow.set(catalog_sync=glue)
    flow.produce(10)
    flow.interval()
    with pytest.raises(ActionRequiredError, match="hudi-aws-bundle"):
        sync(flow.pipeline, flow.jvm)
    flow.check()
