"""A worker's parts: whether its Spark application is well, which files are its own, and who else is there."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from protocol_messages import INSTANT, TABLE, start
from py4j.protocol import Py4JNetworkError

from sluice.errors import ActionRequiredError, RetryableError
from sluice.kafka.config import KafkaSettings
from sluice.participant import serving
from sluice.participant.claiming import End
from sluice.participant.serving import Files, Groups, SparkApplication, misfit, require_trust
from sluice.protocol.transaction import TableLog

# Its health


class _Spark:
    """A Spark session, with the pools of memory of its JVM as (name, used, most)."""

    def __init__(self, *pools: tuple[str, int, int] | tuple[str, None, None], stopped: bool = False) -> None:
        self._pools = pools
        self._stopped = stopped
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.is_lost = False

    @property
    def sparkContext(self) -> Any:  # noqa: N802
        beans = SimpleNamespace(getMemoryPoolMXBeans=self._beans)
        management = SimpleNamespace(ManagementFactory=beans)
        jvm = SimpleNamespace(java=SimpleNamespace(lang=SimpleNamespace(management=management)))
        context = SimpleNamespace(isStopped=lambda: self._stopped)
        return SimpleNamespace(_jvm=jvm, _jsc=SimpleNamespace(sc=lambda: context))

    def _beans(self) -> list[Any]:
        self.may_answer.wait(30)
        if self.is_lost:
            raise Py4JNetworkError("no answer")
        return [self._bean(*pool) for pool in self._pools]

    @staticmethod
    def _bean(name: str, used: int | None, most: int | None) -> Any:
        usage = None if used is None else SimpleNamespace(getUsed=lambda: used, getMax=lambda: most)
        return SimpleNamespace(getName=lambda: name, getCollectionUsage=lambda: usage)


@pytest.mark.parametrize(
    ("spark", "is_well"),
    [
        (_Spark(("Metaspace", None, None), ("G1 Old Gen", 89, 100)), True),
        (_Spark(("Metaspace", None, None), ("G1 Old Gen", 90, 100)), False),
        (_Spark(("Tenured Gen", 99, 100)), False),
        (_Spark(("G1 Eden Space", 99, 100), ("G1 Old Gen", 1, 100)), True),
        (_Spark(("G1 Old Gen", 99, -1)), True),
        (_Spark(("G1 Old Gen", 0, 0)), True),
        (_Spark(("G1 Old Gen", None, None)), True),
        (_Spark(), True),
        (_Spark(("G1 Old Gen", 1, 100), stopped=True), False),
    ],
    ids=["room", "full", "Serial's", "only young ones", "no limit", "none yet", "no collection", "no pools", "stopped"],
)
def test_an_application_is_well_while_its_old_generation_has_room_after_a_collection(spark, is_well):
    assert SparkApplication(spark, lambda: 0.0).health_problem() is (None if is_well else End.UNHEALTHY)


def test_a_lost_jvm_is_unhealthy():
    spark = _Spark()
    spark.is_lost = True
    assert SparkApplication(spark, lambda: 0.0).health_problem() is End.UNHEALTHY  # type: ignore[arg-type]


def test_a_jvm_that_does_not_answer_is_given_up_after_both_time_and_looks(monkeypatch):
    """On a suspended machine time passes in which no JVM can answer; looks in a row may take no time."""
    monkeypatch.setattr(serving, "_PROMPT", 0.001)
    spark, now = _Spark(("G1 Old Gen", 1, 100)), [100.0]
    spark.may_answer.clear()
    application = SparkApplication(spark, lambda: now[0])  # type: ignore[arg-type]
    assert application.silent_for() == 0
    assert application.health_problem() is None
    now[0] += 29.9
    assert application.silent_for() == pytest.approx(29.9)
    assert [application.health_problem() for _ in range(20)] == [None] * 20
    now[0] += 0.1
    assert application.health_problem() is End.JVM_UNRESPONSIVE
    spark.may_answer.set()
    monkeypatch.setattr(serving, "_PROMPT", 30.0)
    assert application.health_problem() is None
    now[0] += 3600  # it owes no answer while it isn't asked
    assert application.silent_for() == 0
    monkeypatch.setattr(serving, "_PROMPT", 0.001)
    spark.may_answer.clear()
    now[0] += 1000
    assert application.health_problem() is None  # asked anew
    now[0] += 30
    assert [application.health_problem() for _ in range(18)] == [None] * 18
    assert application.health_problem() is End.JVM_UNRESPONSIVE
    spark.may_answer.set()


# Its files


def test_files_are_looked_at_every_ten_seconds(monkeypatch):
    looks: list[float] = []
    now = [50.0]
    served = SimpleNamespace(are_same=lambda: bool(looks.append(now[0])))
    monkeypatch.setattr(serving, "ServedFiles", lambda *_: served)
    files = Files([], "default", lambda: now[0])
    found = []
    for now[0] in (50.0, 59.9, 60.0, 69.9, 70.0):
        found.append(files.are_same())
    assert found == [True, True, False, True, False]
    assert looks == [60.0, 70.0]


# Whose plans it carries out


def _why(*, trusting: bool = False, signed: bool = False, path: str = TABLE, connections: Any = None) -> str | None:
    log = TableLog(TABLE).extend([(4, start(INSTANT))])
    asked: list[Any] = []

    def are_required(table: str, at: int) -> bool:
        asked.append((table, at))
        return signed

    control: Any = SimpleNamespace(signatures=SimpleNamespace(are_required=are_required))
    pipeline: Any = SimpleNamespace(table_id=path, errors=None, further_tables=())
    found = misfit(pipeline, control, connections, log.transactions[INSTANT], trusting=trusting)
    assert asked == ([] if trusting else [(path, 4)])
    return found


def test_a_worker_carries_out_signed_plans_of_its_own_tables_unless_it_trusts_the_topic():
    assert _why() == "its START-COMMIT isn't signed"
    assert _why(signed=True) is None
    assert _why(trusting=True) is None
    assert _why(signed=True, path="file:///lake/other") == "its table is another than the pipeline's"


def test_a_plan_of_a_connector_that_is_not_here_is_left_to_others(monkeypatch):
    def missing(_: str) -> Any:
        raise ActionRequiredError("It isn't installed.", next_step="-")

    monkeypatch.setattr(serving, "writer_of", missing)
    assert _why(signed=True) == "It isn't installed."


@pytest.mark.parametrize(("secrets", "is_refused"), [((), True), (("s",), False)])
def test_a_worker_that_trusts_no_topic_needs_a_secret_for_each(secrets, is_refused):
    pipelines: Any = [SimpleNamespace(name="first"), SimpleNamespace(name="second")]
    of_first: Any = SimpleNamespace(control_secrets=("s",), name="k")
    of_second: Any = SimpleNamespace(control_secrets=secrets, name="k")
    if is_refused:
        with pytest.raises(ActionRequiredError, match="pipeline=second"):
            require_trust(pipelines, lambda p: of_first if p.name == "first" else of_second)
    else:
        require_trust(pipelines, lambda p: of_first if p.name == "first" else of_second)


# Its group


class _Group:
    """In place of the membership of a group on a cluster, and of the question who is in it."""

    def __init__(self) -> None:
        self.there: dict[str, list[str] | None] = {}
        self.asked = 0
        self.meanwhile: Any = lambda: None
        self.changed: Any = None
        self.left: list[str] = []
        self.joined: list[Any] = []
        self.memberships: list[Any] = []

    def presence(self, cluster: KafkaSettings, _within: float) -> Any:
        def members(group: str) -> list[Any]:
            assert group == "default"
            self.asked += 1
            self.meanwhile()
            found = self.there[cluster.name]
            if found is None:
                raise RetryableError("No answer.", next_step="-")
            return [SimpleNamespace(worker=name) for name in found]

        return SimpleNamespace(members=members)

    def membership(self, cluster: KafkaSettings, group: str, worker: str, topics: Any, changed: Any) -> Any:
        self.joined.append((cluster.name, group, worker, topics))
        self.changed = changed
        self.memberships.append(
            SimpleNamespace(is_member=not self.memberships, leave=lambda: self.left.append(cluster.name))
        )
        return self.memberships[-1]


@pytest.fixture
def group(monkeypatch) -> _Group:
    here = _Group()
    monkeypatch.setattr(serving, "Presence", here.presence)
    monkeypatch.setattr(serving, "Membership", here.membership)
    return here


def _groups() -> Groups:
    clusters = {name: KafkaSettings(name, {"bootstrap.servers": f"{name}:9092"}) for name in ("east", "west")}
    return Groups(clusters, "default", "own", {"east": ["a"], "west": ["b"]})


def test_a_worker_is_in_its_group_on_each_cluster_and_knows_the_workers_of_all(group):
    group.there = {"east": ["own", "z"], "west": ["own", "b"]}
    groups = _groups()
    assert group.joined == [("east", "default", "own", ["a"]), ("west", "default", "own", ["b"])]
    assert groups.workers() == ("b", "own", "z")
    group.there = {"east": ["own"], "west": None}
    assert groups.workers() == ("b", "own", "z")  # as of the last change
    assert group.asked == 2
    group.changed()
    assert groups.workers() == ("own",)  # also where one of them doesn't answer
    assert not groups.are_joined()
    for membership in group.memberships:
        membership.is_member = True
    assert groups.are_joined()
    groups.leave()
    assert group.left == ["east", "west"]


def test_an_answer_during_which_the_group_has_changed_is_asked_for_again(group):
    group.there = {"east": ["z"], "west": []}
    groups = _groups()
    group.meanwhile = lambda: group.changed()
    assert groups.workers() == ("own", "z")
    group.meanwhile = lambda: None
    group.there["east"] = ["y"]
    assert groups.workers() == ("own", "y")
    group.there["east"] = []
    assert groups.workers() == ("own", "y")
