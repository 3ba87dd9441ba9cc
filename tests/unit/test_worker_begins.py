"""A worker from its pipeline files to its end: which control topics it follows for which tables, what it leaves."""

from __future__ import annotations

import signal
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from sluice.errors import ActionRequiredError
from sluice.kafka.config import KafkaSettings
from sluice.participant import serving
from sluice.participant.claiming import End, Terms

TERMS = Terms("worker-1", 30.0, 2)


class _Worker:
    """In place of all that a worker begins: what it was given, and in which order its parts end."""

    def __init__(self, monkeypatch: Any, *pipelines: Any, unusable: tuple[str, ...] = (), why: Any = End.ASKED) -> None:
        self.did: list[Any] = []
        self.given: dict[str, Any] = {}
        self.follows: list[tuple[str, list[str], dict[str, frozenset[str]]]] = []
        self.joined: Any = None
        self.signed: list[str] = []
        self.clients: list[str] = []
        self.handlers: dict[int, Any] = {}

        def topic(control: KafkaSettings, name: str, clients: Any) -> Any:
            def ensure() -> None:
                if name in unusable:
                    raise ActionRequiredError("It may not be used.", next_step="-")

            signatures = SimpleNamespace(require_all=lambda: self.signed.append(name))
            return SimpleNamespace(topic=name, clients=clients, ensure=ensure, signatures=signatures)

        def worker(terms: Terms, tables: Any, *_: Any) -> Any:
            self.given = tables

            def run() -> End:
                self.did.append("runs")
                if isinstance(why, Exception):
                    raise why
                return why

            return SimpleNamespace(
                run=run, said="said", reads_from="reads", end=lambda why=End.ASKED: self.did.append(why)
            )

        def following(cluster: KafkaSettings, topics: Any, tables: Any, said: Any, reads: Any, dead: Any) -> Any:
            assert (said, reads) == ("said", "reads")
            self.follows.append((cluster.name, sorted(topics), tables))
            self.dead = dead
            name = cluster.name
            return SimpleNamespace(
                start=lambda: self.did.append(f"follows {name}"), stop=lambda: self.did.append(f"leaves {name}")
            )

        def groups(clusters: Any, group: str, worker: str, topics: Any) -> Any:
            self.joined = (sorted(clusters), group, worker, topics)
            return SimpleNamespace(
                workers=tuple, are_joined=lambda: True, leave=lambda: self.did.append("leaves its group")
            )

        monkeypatch.setattr(serving, "Files", lambda *_: SimpleNamespace(are_same=lambda: True))
        monkeypatch.setattr(serving, "pipelines_of", lambda *_: list(pipelines))
        monkeypatch.setattr(serving, "spark_session", lambda name: self.did.append(name) or "spark")
        monkeypatch.setattr(serving, "KeptSession", lambda spark: spark)
        monkeypatch.setattr(serving, "SparkJob", lambda source, known, sessions: (source, known, sessions))
        monkeypatch.setattr(serving, "SparkApplication", lambda *_: None)
        monkeypatch.setattr(serving, "Clients", lambda control: self.clients.append(control.name) or object())
        monkeypatch.setattr(serving, "ControlTopic", topic)
        monkeypatch.setattr(serving, "Worker", worker)
        monkeypatch.setattr(serving, "Following", following)
        monkeypatch.setattr(serving, "Groups", groups)
        monkeypatch.setattr(serving, "stop", lambda spark: self.did.append(f"stops {spark}"))
        monkeypatch.setattr(signal, "signal", self.handlers.__setitem__)

    def serve(self, *, trusting: bool = True) -> End:
        def settings(pipeline: Any) -> Any:
            return f"source of {pipeline.name}", _cluster(pipeline.cluster)

        return serving.serve(
            [],
            "default",
            TERMS,
            settings,
            lambda pipeline: pipeline.name,
            lambda: 0.0,
            trusting=trusting,  # type: ignore[arg-type]
        )


def _cluster(name: str) -> KafkaSettings:
    secret = {"sluice.control.secret": "0123456789abcdef"}
    return KafkaSettings(name, {"bootstrap.servers": f"{name}:9092", **secret})


def _pipeline(name: str, cluster: str, topic: str, timeout: int = 600) -> Any:
    write = SimpleNamespace(timeout=timedelta(seconds=timeout))
    return SimpleNamespace(
        name=name, cluster=cluster, control_topic=topic, table_id=f"table of {name}", table_name=f"t{name}", write=write
    )


A, B, C = _pipeline("a", "east", "one"), _pipeline("b", "east", "one", 900), _pipeline("c", "west", "two")


def test_a_worker_follows_each_control_topic_once_for_all_of_its_pipelines_tables(monkeypatch):
    worker = _Worker(monkeypatch, A, B, C)
    assert worker.serve() is End.ASKED
    assert worker.follows == [
        ("east", ["one"], {"one": frozenset({"table of a", "table of b"})}),
        ("west", ["two"], {"two": frozenset({"table of c"})}),
    ]
    assert worker.joined == (["east", "west"], "default", "worker-1", {"east": ["one"], "west": ["two"]})
    of_a, of_b = worker.given["one", "table of a"], worker.given["one", "table of b"]
    assert of_a.control is of_b.control
    assert (of_a.timeout, of_b.timeout) == (600.0, 900.0)
    assert (of_a.pipeline, of_a.name) == ("a", "ta")
    assert of_a.job == ("source of a", "a", "spark")
    assert set(worker.given) == {("one", "table of a"), ("one", "table of b"), ("two", "table of c")}


def test_a_worker_leaves_its_group_before_all_else_and_stops_spark_last(monkeypatch):
    worker = _Worker(monkeypatch, A, C)
    worker.serve()
    assert worker.did == [
        "sluice worker worker-1", "follows east", "follows west", "runs", "leaves its group", "leaves east",
        "leaves west", "stops spark",
    ]  # fmt: skip


@pytest.mark.parametrize(("why", "stops"), [(End.OLD, True), (End.RANGE_HUNG, False), (End.JVM_UNRESPONSIVE, False)])
def test_spark_is_not_stopped_where_a_stuck_thread_may_hold_it_up(why, stops, monkeypatch):
    worker = _Worker(monkeypatch, A, why=why)
    assert worker.serve() is why
    assert ("stops spark" in worker.did) is stops


def test_a_worker_that_breaks_leaves_nothing_behind(monkeypatch):
    worker = _Worker(monkeypatch, A, why=ValueError("any"))
    with pytest.raises(ValueError, match="any"):
        worker.serve()
    assert worker.did[-3:] == ["leaves its group", "leaves east", "stops spark"]


def test_a_pipeline_whose_control_topic_can_t_be_used_is_left_alone_and_no_cluster_is_joined_for_it(monkeypatch):
    worker = _Worker(monkeypatch, A, C, unusable=("two",))
    worker.serve()
    assert [name for name, _, _ in worker.follows] == ["east"]
    assert worker.joined[0] == ["east"]
    none = _Worker(monkeypatch, A, C, unusable=("one", "two"))
    with pytest.raises(ActionRequiredError, match="None of the group's control topics"):
        none.serve()
    assert none.joined is None


def test_a_worker_ends_on_a_signal_and_where_it_can_t_follow_its_topics_any_more(monkeypatch):
    worker = _Worker(monkeypatch, A)
    worker.serve()
    assert set(worker.handlers) == {signal.SIGTERM, signal.SIGINT}
    worker.handlers[signal.SIGTERM](signal.SIGTERM, None)
    worker.dead()
    assert worker.did[-2:] == [End.ASKED, End.CONTROL_TOPICS_LOST]


@pytest.mark.parametrize(("trusting", "signed"), [(True, []), (False, ["one", "two"])])
def test_only_signed_plans_count_unless_the_topic_is_trusted(trusting, signed, monkeypatch):
    worker = _Worker(monkeypatch, A, C)
    worker.serve(trusting=trusting)
    assert worker.signed == signed
