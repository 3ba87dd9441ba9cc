"""Airflow's triggerer starts a pipeline's runs by the records that have arrived, in Kafka."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from sluice.control.topic import ControlTopic
from sluice.kafka.config import KafkaSettings
from sluice.protocol.messages import AckCommit

from .live import SECRETS, Live

pytestmark = [pytest.mark.airflow, pytest.mark.kafka, pytest.mark.spark]

SCHEDULE = "schedule: {records: 100, at_most_every: 2 seconds, at_least_every: 30 days}\n"


def _send(live: Live, topic: str, number: int) -> None:
    live.send(topic, *(json.dumps({"id": n, "shop": "a", "amount": 1.5}).encode() for n in range(number)))


def _started(live: Live) -> list[dict[str, Any]]:
    return live.api.runs("arriving", "asset_triggered")


def _wait_for_commit(live: Live, number: int) -> int:
    """The records that the last run has committed, once so many runs that records started have ended."""
    runs = live.api.until("a run", lambda: (found := _started(live)) and len(found) >= number and found, 300)
    ended = [live.ended("arriving", run["dag_run_id"]) for run in runs]
    assert {run.state for run in ended} == {"success"}
    settings = KafkaSettings("kafka_default", {"bootstrap.servers": live.environment.bootstrap})
    messages = ControlTopic(settings, "sluice-control-arriving").recent(f"file://{live.lake / 'arriving'}", 100)
    return [m.records_read for _, m in messages if isinstance(m, AckCommit)][-1]


def test_runs_start_by_the_records_that_have_arrived(live: Live, pipeline_text: Callable[..., str]) -> None:
    """By the clock the DAG has its first run at once, and the next in a month."""
    topic = live.create_topic("arriving", 1)
    live.add({"arriving": pipeline_text("arriving", topic, str(live.lake / "arriving")) + SCHEDULE})
    by_clock = live.api.until("the first run", lambda: live.api.runs("arriving", "scheduled"))
    live.ended("arriving", by_clock[0]["dag_run_id"])
    _send(live, topic, 120)
    assert _wait_for_commit(live, 1) == 120
    before = len(_started(live))

    _send(live, topic, 60)
    with pytest.raises(AssertionError, match="not within"):  # of some polls of the trigger
        live.api.until("a run", lambda: len(_started(live)) > before, 15)
    _send(live, topic, 60)
    assert _wait_for_commit(live, before + 1) == 120
    assert len(live.api.runs("arriving", "scheduled")) == 1
    assert not [path for path in live.written_down() if any(s.encode() in path.read_bytes() for s in SECRETS)]
