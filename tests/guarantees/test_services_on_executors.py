"""Compaction and clustering on a Spark cluster: their tasks run in executors, JVMs that have done nothing else."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from sluice.participant.launch.submit import service_command

from ..cluster.servers import LOOPBACK, SparkCluster
from .harness import Flow
from .harness.processes import PATIENCE, environment

SETTINGS = {
    "compaction": {
        "sink__hudi__operation": "upsert",
        "sink__hudi__record_key": "id",
        "table_services": {"compaction": {"after_delta_commits": 2}, "metadata_after_delta_commits": 1},
    },
    "clustering": {"table_services": {"clustering": {"after_commits": 2}, "metadata_after_delta_commits": 1}},
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    cluster = SparkCluster(tmp_path_factory.mktemp("spark-cluster"))
    try:
        cluster.start()
        cluster.await_worker()
        yield cluster
    finally:
        cluster.stop()


@pytest.mark.thorough
@pytest.mark.parametrize("service", SETTINGS)
def test_a_service_is_carried_out_by_executors(make_flow, cluster, service):
    flow = make_flow(
        **SETTINGS[service],
        sink__hudi__options={"hoodie.metadata.index.column.stats.enable": "true"},
        write__conf={"spark.executor.memory": "512m"},
    )
    for value in "ab":
        flow.produce(40, ids=range(40), values=value)
        flow.interval()
    planned = flow.plan(service)
    done = _submit(flow, service_command(flow.pipeline, planned.control_offset, cluster.url))
    assert done.returncode == 0, done.stdout[-4000:]
    assert "Finished task" in _executors_log(cluster)
    flow.check()
    flow.produce(40, ids=range(40), values="c")
    flow.interval()
    flow.serve("metadata_compaction")
    flow.check()


def _submit(flow: Flow, command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, env=environment(flow.bootstrap, SPARK_LOCAL_IP=LOOPBACK), cwd=flow.folder, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=PATIENCE,
    )  # fmt: skip


def _executors_log(cluster: SparkCluster) -> str:
    """The log of the last application's executors."""
    applications = cluster.state()["completedapps"]
    return cluster.executor_log(applications[-1]["id"])
