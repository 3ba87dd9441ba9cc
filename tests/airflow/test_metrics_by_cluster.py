"""Figures of streams by cluster: with a tag of their own, beside those of the whole interval."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from sluice.airflow import metrics
from sluice.pipeline import Hudi, Kafka, Pipeline, Sink, Source
from sluice.protocol.interval_facts import IntervalFacts
from sluice.protocol.transaction import State


def test_lag_and_records_are_told_by_cluster(monkeypatch: Any) -> None:
    told: list[tuple[str, Any, str | None]] = []

    def tell(name: str, value: Any = 1, *, tags: dict[str, str]) -> None:
        told.append((name, value, tags.get("cluster")))

    monkeypatch.setattr(metrics, "stats", SimpleNamespace(incr=tell, gauge=tell, timing=tell))
    source, sink = Kafka(topics="orders"), Hudi(path="/lake/orders", schema="id INT")
    pipeline = Pipeline(name="orders", source=Source(kafka=source), sink=Sink(hudi=sink))
    figures = {"lag_records": 18, "cluster_lag": {"east": 15, "west": 3}, "cluster_records": {"east": 10}}
    metrics.committed(pipeline, IntervalFacts(instant="7", run_id="r", state=State.COMMITTED, **figures))
    assert [one for one in told if one[0].endswith("lag_records") or one[2]] == [
        ("sluice.lag_records", 18, None),
        ("sluice.cluster_lag_records", 15, "east"),
        ("sluice.cluster_lag_records", 3, "west"),
        ("sluice.cluster_records_read", 10, "east"),
    ]
