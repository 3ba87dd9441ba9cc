"""Airflow's triggerer starts a run when the metadata service has another answer, in Kafka."""

from __future__ import annotations

import json

import pytest
import yaml

from sluice.control.topic import ControlTopic
from sluice.kafka.config import KafkaSettings
from sluice.protocol.messages import AckCommit, MappingSeen

from .live import SECRETS, Live

pytestmark = [pytest.mark.airflow, pytest.mark.kafka, pytest.mark.spark]

PIPELINE = """
name: mapped
schedule: 30 days
source:
  kafka:
    streams: orders
    metadata: {{service: file, path: {mapping}}}
    metadata_interval: 2 seconds
sink: {{hudi: {{path: {path}, partition_fields: shop, schema: "id BIGINT, shop STRING, amount DOUBLE"}}}}
retry_delay: 1 second
"""


def test_a_changed_mapping_starts_a_run_which_reads_what_is_new(live: Live) -> None:
    """By the clock the DAG has its first run at once, and the next in a month."""
    first, second = live.create_topic("mapped", 1), live.create_topic("mapped-later", 1)
    mapping = live.dags.parent / "streams.yaml"

    def map_to(*topics: str) -> None:
        mapping.write_text(yaml.safe_dump({"streams": {"orders": {"clusters": {"here": {"topics": list(topics)}}}}}))

    def send(topic: str, count: int) -> None:
        live.send(topic, *(json.dumps({"id": n, "shop": "a", "amount": 1.5}).encode() for n in range(count)))

    map_to(first)
    send(first, 3)
    live.add({"mapped": PIPELINE.format(mapping=mapping, path=live.lake / "mapped")})
    by_clock = live.api.until("the first run", lambda: live.api.runs("mapped", "scheduled"))
    assert live.ended("mapped", by_clock[0]["dag_run_id"]).state == "success"
    assert live.api.runs("mapped", "asset_triggered") == []

    send(second, 5)
    map_to(first, second)
    (run,) = live.api.until("a run", lambda: live.api.runs("mapped", "asset_triggered"), 300)
    assert live.ended("mapped", run["dag_run_id"]).state == "success"
    settings = KafkaSettings("kafka_default", {"bootstrap.servers": live.environment.bootstrap})
    messages = [
        message
        for _, message in ControlTopic(settings, "sluice-control-mapped").recent(f"file://{live.lake / 'mapped'}", 100)
    ]
    assert [m.records_read for m in messages if isinstance(m, AckCommit)] == [3, 5]
    noted = [sorted(m.streams.logs["here"]) for m in messages if isinstance(m, MappingSeen)]
    assert noted[-1] == sorted([first, second])
    events = live.api.call("/api/v2/assets/events?order_by=-timestamp&limit=100")["asset_events"]
    (event,) = (e for e in events if e["name"] == "mapped.streams")
    assert event["extra"]["payload"] == {"came": [f"{second} of cluster here"], "went": []}
    assert not [path for path in live.written_down() if any(s.encode() in path.read_bytes() for s in SECRETS)]
