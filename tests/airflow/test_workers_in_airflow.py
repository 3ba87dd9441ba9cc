"""Airflow keeps workers, and the `write` tasks whose ranges they write take no process."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from sluice.airflow.releases import BEGINS_IN_TRIGGERER
from sluice.control.presence import members
from sluice.control.topic import ControlTopic
from sluice.errors import RetryableError
from sluice.kafka.config import KafkaSettings
from sluice.protocol.messages import Claim, WriteStatus

from .live import Live, Run

pytestmark = pytest.mark.skipif(not BEGINS_IN_TRIGGERER, reason="before Airflow 3.3 workers are refused")

WORKERS = "trust_control_topic: true\nmemory: 1g\nlease: 6 seconds\nslots: 1\n"
DAG = "sluice_workers_live"
PROJECT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Story:
    """A run while no worker was there, one that a worker wrote, and what the control topic holds of both."""

    alone: Run
    helped: Run
    tasks: list[dict[str, Any]]
    messages: list[Any]


@pytest.fixture(scope="module")
def story(live: Live, pipeline_text: Callable[..., str]) -> Story:
    topic = live.create_topic("worked", 1)
    live.send(topic, *(json.dumps({"id": n, "shop": "a", "amount": 1.5}).encode() for n in range(10)))
    text = pipeline_text("worked", topic, str(live.lake / "worked")) + "write: {workers: live}\n"
    (live.dags / "workers").mkdir()
    (live.dags / "workers" / "live.yaml").write_text(WORKERS)
    live.add({"worked": text}, sluice_workers=(PROJECT / "dags" / "sluice_workers.py").read_text())
    alone = live.run("worked")
    settings = KafkaSettings("kafka_default", {"bootstrap.servers": live.environment.bootstrap})
    admin = AdminClient(settings.client())

    def is_there() -> bool:
        try:
            return bool(members(admin, settings, "live"))
        except RetryableError:  # the group was never asked for before
            return False

    live.api.until("the workers' DAG", lambda: live.api.call(f"/api/v2/dags/{DAG}", {"is_paused": False}, "PATCH"))
    live.api.until("a worker", is_there)
    live.send(topic, *(json.dumps({"id": n, "shop": "b", "amount": 2.5}).encode() for n in range(10)))
    helped = live.run("worked")
    tasks = live.api.tasks("worked", helped.run_id)
    log = ControlTopic(settings, "sluice-control-worked")
    messages = [message for _, message in log.recent(f"file://{live.lake / 'worked'}", 100)]
    live.api.call(f"/api/v2/dags/{DAG}", {"is_paused": True}, "PATCH")
    (run,) = (r for r in live.api.runs(DAG, "scheduled") if r["state"] == "running")
    live.api.call(f"/api/v2/dags/{DAG}/dagRuns/{run['dag_run_id']}", {"state": "failed"}, "PATCH")
    live.api.until("the worker has left", lambda: not is_there())
    return Story(alone, helped, tasks, messages)


def test_without_a_worker_a_range_is_written_by_its_own_job_at_once(story: Story) -> None:
    assert (story.alone.state, story.alone.tasks["write[0]"]) == ("success", "success")


def test_a_worker_that_airflow_keeps_writes_the_range(story: Story) -> None:
    assert (story.helped.state, story.helped.tasks["write[0]"]) == ("success", "success")
    claims = [m for m in story.messages if isinstance(m, Claim)]
    assert {claim.run_id for claim in claims} == {story.helped.run_id}
    assert all(claim.worker.startswith("live-0-") for claim in claims)
    assert len([m for m in story.messages if isinstance(m, WriteStatus)]) == 2


def test_its_task_took_no_process(story: Story) -> None:
    pids = {task["task_id"]: task["pid"] for task in story.tasks}
    assert pids["write"] is None
    assert pids["start_commit"] is not None
