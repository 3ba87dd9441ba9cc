"""What is told of a commit that is done again: no asset event that goes back, no count twice, no alert that dies."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import Asset
from airflow.sdk.execution_time import context as airflows

from sluice.airflow import alerting, metrics, tasks
from sluice.airflow.assets import table_asset
from sluice.airflow.notes import COMMIT
from sluice.airflow.tasks import CommitOperator
from sluice.pipeline import Hudi, Kafka, Pipeline, Sink, Source
from sluice.protocol.interval_facts import IntervalFacts
from sluice.protocol.transaction import State

PIPELINE = Pipeline(
    name="flights",
    source=Source(kafka=Kafka(topics="flights")),
    sink=Sink(hudi=Hudi(path="/lake/flights", schema="id INT")),
)
ASSET = table_asset(PIPELINE)


class Events(list[Any]):
    """Airflow's events of the asset, in the order in which they were sent."""

    def __getitem__(self, key: Any) -> Any:
        return self if isinstance(key, Asset) else super().__getitem__(key)

    def ascending(self, ascending: bool) -> Events:
        return self if ascending else Events(reversed(self))

    def limit(self, number: int) -> Events:
        return Events(self[:number])

    def told(self, instant: str, previous: str | None) -> None:
        self.append(SimpleNamespace(extra={"instant": instant, "previous_instant": previous, "path": "/lake/flights"}))


class Store(dict[str, Any]):
    """A state store of Airflow's."""

    def get(self, key: str, default: Any = None) -> Any:
        return super().get(key, default)

    def set(self, key: str, value: Any) -> None:
        self[key] = value


class Airflow:
    """As much of Airflow as a commit tells its figures to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.events = Events()
        self.counted: list[str] = []
        self.gauges: list[Any] = []
        self._stores: dict[str, Store] = {}
        stats = SimpleNamespace(
            incr=lambda name, *_, **__: self.counted.append(name),
            gauge=lambda name, value, **_: self.gauges.append((name, value)),
            timing=lambda *_, **__: None,
        )
        monkeypatch.setattr(metrics, "stats", stats)
        monkeypatch.setattr(airflows, "InletEventsAccessors", lambda _: self.events)
        monkeypatch.setattr(tasks, "source_and_control", lambda _: (SimpleNamespace(bootstrap_servers="b:1"), None))
        monkeypatch.setattr(tasks, "read_transaction", lambda _pipeline, _control, instant: str(instant))
        monkeypatch.setattr(tasks, "_addresses", lambda *_: {})
        monkeypatch.setattr(tasks, "interval_facts", self._facts)

    @staticmethod
    def _facts(instant: Any) -> IntervalFacts:
        return IntervalFacts(instant=instant, run_id="r", state=State.COMMITTED, lag_records=int(instant))

    def commit(self, instant: str) -> bool:
        """The task `commit` of one run, up to its success; whether there is an event of it."""
        operator = CommitOperator(task_id="commit", pipeline=PIPELINE)
        operator.outlets = []
        outlets = {ASSET: SimpleNamespace(extra={})}
        context = {
            "ti": SimpleNamespace(xcom_push=lambda **_: None, xcom_pull=lambda **_: None),
            "outlet_events": outlets,
            "task_state_store": self._stores.setdefault(instant, Store()),
        }
        operator._tell(context, {"control_offset": instant})  # type: ignore[arg-type]
        if operator.outlets:
            self.events.append(outlets[ASSET])
        return bool(operator.outlets)


@pytest.fixture
def airflow(monkeypatch: pytest.MonkeyPatch) -> Airflow:
    return Airflow(monkeypatch)


def test_events_never_go_back_and_each_row_is_announced_once(airflow: Airflow) -> None:
    """The commit of 5 dies before its task succeeds, a backfill commits 6, then the first one's retry ends."""
    assert airflow.commit("4")
    assert airflow.commit("6")
    assert not airflow.commit("5")
    assert airflow.commit("7")
    assert [(e.extra["previous_instant"], e.extra["instant"]) for e in airflow.events] == [
        (None, "4"),
        ("4", "6"),
        ("6", "7"),
    ]
    assert airflow.gauges[-2:] == [("sluice.lag_records", 6), ("sluice.lag_records", 7)]


def test_what_earlier_releases_have_told_twice_is_no_beginning(airflow: Airflow) -> None:
    for instant, previous in (("4", None), ("5", "4"), ("6", "5"), ("4", "6")):
        airflow.events.told(instant, previous)
    assert airflow.commit("7")
    assert airflow.events[-1].extra["previous_instant"] == "6"


def test_a_commit_counts_once_however_often_its_task_runs(airflow: Airflow) -> None:
    for instant in ("4", "5", "4", "5", "5"):
        airflow.commit(instant)
    assert airflow.counted.count("sluice.commits") == 2


def test_the_example_never_reads_a_row_twice(airflow: Airflow, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str]] = []
    hudi: Any = ModuleType("hudi")
    hudi.HudiQueryType = SimpleNamespace(Incremental=None)

    class Options:
        def __init__(self, filters: list[tuple[str, str, str]]) -> None:
            asked.append((filters[0][2], filters[1][2]))

        def __getattr__(self, _: str) -> Any:
            return lambda _value: self

    hudi.HudiReadOptions = Options
    table = SimpleNamespace(read=lambda _: [])
    hudi.HudiTableBuilder = SimpleNamespace(from_base_uri=lambda _: SimpleNamespace(build=lambda: table))
    monkeypatch.setitem(sys.modules, "hudi", hudi)
    path = Path(__file__).parents[2] / "dags" / "example_new_flights.py"
    spec = importlib.util.spec_from_file_location("example_of_a_test", path)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    store = Store()
    function = example.count_new_flights.function
    for instant, previous in (("4", None), ("6", "4"), ("5", "4"), ("7", "5")):
        airflow.events.told(instant, previous)
        function(inlet_events=airflow.events, asset_state_store={example.FLIGHTS: store})
    assert asked == [("0", "4"), ("4", "6"), ("6", "7")]


class Run:
    """A run whose task `commit` a person has marked as successful: it has returned nothing."""

    dag_id, run_id = "flights", "r1"

    def __init__(self, opened: dict[str, Any]) -> None:
        self._opened = opened

    def xcom_pull(self, *, task_ids: str, key: str = "return_value", **_: Any) -> Any:
        return self._opened if (task_ids, key) == ("start_commit", "transaction") else None

    def get_task_breadcrumbs(self, *_: str) -> list[dict[str, Any]]:
        return [{"task_id": COMMIT, "state": "success", "map_index": -1}]


@pytest.mark.parametrize(
    ("opened", "state", "outcome"),
    [
        ({"control_offset": 7}, State.ABORTED, "failed"),
        ({"control_offset": 7}, State.OPEN, "failed"),
        ({"control_offset": 7}, State.COMMITTED, "committed"),
        ({"control_offset": 7}, None, "failed"),
        ({"empty": "nothing", "remarks": []}, None, "empty"),
    ],
)
def test_a_commit_marked_by_hand_is_told_as_the_control_topic_has_it(
    monkeypatch: pytest.MonkeyPatch, opened: dict[str, Any], state: State | None, outcome: str
) -> None:
    known = {"facts": IntervalFacts(instant="7", run_id="r1", state=state)} if state else {"unknown": "no broker"}
    monkeypatch.setattr(alerting, "_from_control_topic", lambda *_: known)
    context: Any = {"ti": Run(opened), "dag_run": SimpleNamespace(start_date=None, conf={})}
    monkeypatch.setattr(alerting, "reads_on", lambda _: True)
    report = alerting._report(PIPELINE, context)
    assert report.outcome == outcome
    assert [failure.task for failure in report.failures] == ([COMMIT] if outcome == "failed" else [])
