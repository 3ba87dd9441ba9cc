"""Figures of streams by cluster: with a tag of their own, beside those of the whole interval."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
from airflow.sdk.execution_time.comms import ErrorResponse

from sluice.airflow import metrics
from sluice.airflow.assets import table_asset
from sluice.airflow.tasks import CommitOperator
from sluice.pipeline import Hudi, Kafka, Pipeline, Sink, Source
from sluice.protocol.interval_facts import IntervalFacts
from sluice.protocol.standing import ClusterStanding, Standing
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


def test_records_and_bytes_of_a_commit_are_told_by_cluster(told: Any) -> None:
    figures = {"lag_records": 18, "cluster_records": {"east": 10}, "cluster_bytes": {"east": 100}}
    facts = IntervalFacts(instant="7", run_id="r", state=State.COMMITTED, **figures)
    metrics.stands(PIPELINE, facts)
    metrics.committed(PIPELINE, facts)
    assert [one for one in told if one[0].endswith("lag_records") or one[2]] == [
        ("sluice.lag_records", 18, None),
        ("sluice.cluster_records_read", 10, "east"),
        ("sluice.cluster_bytes_read", 100, "east"),
    ]


class Store(dict[str, Any]):
    """A state store of Airflow's."""

    def get(self, key: str, default: Any = None) -> Any:
        return super().get(key, default)

    def set(self, key: str, value: Any) -> None:
        self[key] = value


class Interval:
    """The task `commit` of an empty interval, with what START has found, and what Airflow remembers of the table."""

    def __init__(self) -> None:
        self.store = Store()

    def commit(self, standing: Standing | None, *, run: str = "scheduled") -> None:
        operator = CommitOperator(task_id="commit", pipeline=PIPELINE)
        pulled = {"standing": standing and standing.model_dump(mode="json"), "transaction": {"empty": "-"}}
        task: Any = SimpleNamespace(
            xcom_pull=lambda *, task_ids, key: pulled[key] if task_ids == "start_commit" else None,
            xcom_push=lambda **_: None,
        )
        context: Any = {
            "ti": task,
            "run_id": run,
            "params": {},
            "dag_run": SimpleNamespace(conf={}, run_type=run),
            "task_state_store": Store(),
            "asset_state_store": {table_asset(PIPELINE): self.store},
        }
        operator._step(context)


def _of(partitions: int, lag: int | None, held_back: int | None) -> ClusterStanding:
    return ClusterStanding(partitions=partitions, lag_records=lag, held_back_records=held_back)


def test_an_empty_interval_tells_each_cluster_s_lag_and_sets_to_0_once_what_has_left(told: Any) -> None:
    interval = Interval()
    interval.commit(Standing(clusters={"east": _of(2, 0, 0), "west": _of(1, 7, 5)}, metadata_failures=0))
    assert [one for one in told if one[0] != "sluice.empty_intervals"] == [
        ("sluice.partitions", 3, None),
        ("sluice.held_back_records", 5, None),
        ("sluice.clusters", 2, None),
        ("sluice.metadata_failures", 0, None),
        ("sluice.cluster_partitions", 2, "east"),
        ("sluice.cluster_lag_records", 0, "east"),
        ("sluice.cluster_held_back_records", 0, "east"),
        ("sluice.cluster_unreachable", 0, "east"),
        ("sluice.cluster_partitions", 1, "west"),
        ("sluice.cluster_lag_records", 7, "west"),
        ("sluice.cluster_held_back_records", 5, "west"),
        ("sluice.cluster_unreachable", 0, "west"),
    ]
    told.clear()
    interval.commit(Standing(clusters={"east": _of(2, 0, 0)}, metadata_failures=2))
    assert [one for one in told if one[2] == "west"] == [
        ("sluice.cluster_partitions", 0, "west"),
        ("sluice.cluster_lag_records", 0, "west"),
        ("sluice.cluster_held_back_records", 0, "west"),
        ("sluice.cluster_unreachable", 0, "west"),
    ]
    assert ("sluice.clusters", 1, None) in told
    assert ("sluice.metadata_failures", 2, None) in told
    told.clear()
    interval.commit(Standing(clusters={"east": _of(2, 0, 0)}, metadata_failures=0))
    assert not [one for one in told if one[2] == "west"]


def test_a_cluster_that_does_not_answer_is_told_and_its_lag_is_not(told: Any) -> None:
    Interval().commit(Standing(clusters={"west": _of(1, None, None)}, unreachable=("west",), metadata_failures=0))
    assert [one for one in told if one[2]] == [
        ("sluice.cluster_partitions", 1, "west"),
        ("sluice.cluster_unreachable", 1, "west"),
    ]
    assert "sluice.held_back_records" not in [name for name, *_ in told]


def test_gauges_are_set_although_airflow_does_not_say_which_there_were(told: Any) -> None:
    interval = Interval()
    interval.store.get = _no_answer  # type: ignore[method-assign, assignment]
    interval.commit(Standing(clusters={"east": _of(2, 1, 0)}, metadata_failures=0))
    assert ("sluice.cluster_lag_records", 1, "east") in told


def _no_answer(*_: Any, **__: Any) -> Any:
    raise AirflowRuntimeError(ErrorResponse(error=ErrorType.GENERIC_ERROR))


def test_one_cluster_has_gauges_without_its_name(told: Any) -> None:
    Interval().commit(Standing(clusters={"kafka": _of(2, 9, 4)}))
    assert [one for one in told if one[0] != "sluice.empty_intervals"] == [
        ("sluice.partitions", 2, None),
        ("sluice.held_back_records", 4, None),
    ]


def test_an_interval_that_an_earlier_release_started_has_no_figures_of_clusters(told: Any) -> None:
    Interval().commit(None)
    assert [name for name, *_ in told] == ["sluice.empty_intervals"]
