"""Fixtures of the tests that run on what a production set-up has: PostgreSQL and a Spark cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .servers import CommandLines, PostgreSql, SparkCluster, missing, postgresql_programs


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All in one worker of xdist, with the markers of what they start; left out where that isn't there."""
    reason = missing()
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.xdist_group("cluster"))
            for marker in ("airflow", "cluster", "spark"):
                item.add_marker(marker)
            if reason is not None:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="module")
def postgresql() -> Iterator[PostgreSql]:
    programs = postgresql_programs()
    assert programs is not None
    server = PostgreSql(programs)
    try:
        server.start()
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="module")
def spark_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    cluster = SparkCluster(tmp_path_factory.mktemp("spark-cluster"))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture(scope="module")
def command_lines() -> Iterator[CommandLines]:
    watch = CommandLines()
    watch.start()
    yield watch
    watch.stop()
