"""Figures of streams by cluster: with a tag of their own, beside those of the whole interval."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from sluice.airflow import metrics
from sluice.pipeline import Hudi, Kafka, Pipeline, Sink, Source
from sluice.protocol.interval_facts import IntervalFacts
from sluice.protocol.transaction import State

PIPELINE = Pipeline(
    name="orders",
    source=Source(kafka=Kafka(topics="orders")),
    sink=Sink(hudi=Hudi(path="/lake/orders", schema="id INT")),
)


@pytest.fixture
def told(monkeypatch: Any) -> list[tuple[str, Any, str | None]]:
    found: list[tuple[str, Any, str | None]] = []

    def tell(name: str, value: Any = 1, *, tags: dict[str, str]) -> None:
        found.append((name, value, tags.get("cluster")))

    monkeypatch.setattr(metrics, "stats", SimpleNamespace(incr=tell, gauge=tell, timing=tell))
    return found


def test_an_empty_interval_tells_the_lag_that_there_is_and_none_where_it_is_unknown(told: Any) -> None:
    metrics.empty(PIPELINE, 7, datetime.now(UTC) - timedelta(hours=2))
    assert [name for name, *_ in told] == ["sluice.empty_intervals", "sluice.lag_records", "sluice.lag_seconds"]
    assert (told[1][1], round(told[2][1])) == (7, 7200)
    told.clear()
    metrics.empty(PIPELINE, None, None)
    assert [name for name, *_ in told] == ["sluice.empty_intervals"]


def test_lag_and_records_are_told_by_cluster(told: Any) -> None:
    figures = {"lag_records": 18, "cluster_lag": {"east": 15, "west": 3}, "cluster_records": {"east": 10}}
    facts = IntervalFacts(instant="7", run_id="r", state=State.COMMITTED, **figures)
    metrics.stands(PIPELINE, facts)
    metrics.committed(PIPELINE, facts)
    assert [one for one in told if one[0].endswith("lag_records") or one[2]] == [
        ("sluice.lag_records", 18, None),
        ("sluice.cluster_lag_records", 15, "east"),
        ("sluice.cluster_lag_records", 3, "west"),
        ("sluice.cluster_records_read", 10, "east"),
    ]
