"""The trigger that starts runs by arrival: what it says of itself, and what it does when a poll fails."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from pydantic import ValidationError
from structlog.testing import capture_logs

from sluice.airflow import arriving
from sluice.airflow.arriving import ArrivalTrigger
from sluice.airflow.dag import build_dag
from sluice.control import continued
from sluice.control.reader import TopicBounds
from sluice.errors import RetryableError
from sluice.kafka.config import KafkaSettings
from sluice.page.service import _schedule
from sluice.protocol.messages import ControlMessage, PlannedRange
from sluice.protocol.offsets import TopicPartition

from ..unit.protocol_messages import ack, end, start, status
from .test_dag_shape import a_pipeline, serialized

SCHEDULE = {"records": 100, "at_most_every": "1 second", "at_least_every": "1 hour"}


def _trigger(**kafka: Any) -> ArrivalTrigger:
    pipeline = a_pipeline(schedule=SCHEDULE, kafka=kafka)
    (asset,) = build_dag(pipeline, auto_register=False).timetable.asset_condition.objects
    (watcher,) = asset.watchers
    assert isinstance(watcher.trigger, ArrivalTrigger)
    return watcher.trigger


class _Log:
    """A control topic, and what was read of it. It isn't there at first."""

    topic_id = ""
    unreadable = 0
    messages: ClassVar[list[ControlMessage]] = []
    read_: ClassVar[list[tuple[int, int]]] = []

    def __init__(self, settings: KafkaSettings, topic: str) -> None:
        self.settings = settings
        assert topic == "sluice-control-orders"

    def bounds(self) -> TopicBounds:
        return TopicBounds(self.topic_id, 0, len(self.messages))

    def read(self, start: int, end: int) -> Iterator[list[tuple[int, ControlMessage]]]:
        self.read_.append((start, end))
        yield [(offset, self.messages[offset]) for offset in range(start, end)]


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A Kafka that gives these answers, one a poll: the end of the topic, or an error."""

    def give(*answers: int | Exception) -> None:
        left = iter(answers)

        def log_ends(_settings: KafkaSettings, topics: list[str], isolation: str) -> dict[TopicPartition, int]:
            assert (topics, isolation) == (["orders"], "read_committed")
            answer = next(left)
            if isinstance(answer, Exception):
                raise answer
            return {TopicPartition("kafka_default", "orders", 0): answer}

        monkeypatch.setattr(arriving, "log_ends", log_ends)
        monkeypatch.setattr(arriving, "kafka_settings", lambda name: KafkaSettings(name, {"bootstrap.servers": "h:1"}))
        monkeypatch.setattr(continued, "ControlReader", _Log)
        monkeypatch.setattr(_Log, "topic_id", "")
        monkeypatch.setattr(_Log, "messages", [])
        monkeypatch.setattr(_Log, "read_", [])
        monkeypatch.setattr(arriving, "_POLL", 0.0)

    return give


def test_a_poll_that_fails_is_logged_and_followed_by_the_next(kafka: Callable[..., None]) -> None:
    kafka(RetryableError("Kafka is away.", next_step="none"), RuntimeError("a defect"), 99, 100)

    async def first() -> Any:
        return (await anext(_trigger().run())).payload

    with capture_logs() as logs:
        assert asyncio.run(asyncio.wait_for(first(), 30)) == {"records": 100}
    failed = [line for line in logs if line["log_level"] == "warning"]
    assert len(failed) == 2
    assert (failed[0]["connection"], failed[0]["topics"]) == ("kafka_default", ["orders"])
    assert "Kafka is away." in failed[0]["reason"]


def _committed(transaction: str, start_: int, end_: int) -> list[ControlMessage]:
    offsets = (PlannedRange(cluster="kafka_default", topic="orders", partition=0, start=start_, end=end_),)
    found = (
        start(transaction, ranges=1).model_copy(update={"ranges": (offsets,)}),
        status(transaction),
        end(transaction),
        ack(transaction).model_copy(update={"offsets": offsets}),
    )
    return [message.model_copy(update={"table": "file:///lake/orders"}) for message in found]


def test_each_poll_reads_on_in_the_control_topic_and_anew_in_another_of_its_name(
    kafka: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka(1000, 1000, 1100, 1000)
    trigger = _trigger()
    monkeypatch.setattr(_Log, "topic_id", "a")
    _Log.messages += _committed("20260101000000000", 0, 950)
    assert trigger.look() is None
    assert trigger.look() is None
    _Log.messages += _committed("20260101000100000", 950, 1000)
    assert trigger.look() == 100
    assert _Log.read_ == [(0, 4), (4, 8)]
    monkeypatch.setattr(_Log, "topic_id", "b")
    trigger.look()
    assert _Log.read_[2:] == [(0, 8)]


def test_a_triggers_arguments_make_the_same_trigger_again_and_are_json() -> None:
    trigger = _trigger()
    path, arguments = trigger.serialize()
    assert path == "sluice.airflow.arriving.ArrivalTrigger"
    assert ArrivalTrigger(**json.loads(json.dumps(arguments))).serialize() == (path, arguments)
    assert (arguments["records"], arguments["at_most_every"], arguments["topics"]) == (100, 1.0, ["orders"])


@pytest.mark.parametrize(("starting", "new"), [("earliest", False), ("latest", True), ({"orders": {0: 7}}, True)])
def test_where_a_table_begins_says_what_counts_before_its_first_commit(starting: Any, new: bool) -> None:
    assert _trigger(starting_offsets=starting).serialize()[1]["counts_new_ones"] is new


def test_runs_start_by_the_clock_and_by_the_asset_and_airflow_keeps_both() -> None:
    from airflow.serialization.serialized_objects import DagSerialization

    found = DagSerialization.from_dict(serialized(a_pipeline(schedule=SCHEDULE))).timetable
    assert type(found).__name__ == "AssetOrTimeSchedule"
    assert found.timetable._delta == timedelta(hours=1)
    assert [asset.name for _, asset in found.asset_condition.iter_assets()] == ["orders.arrivals"]


@pytest.mark.parametrize(
    ("schedule", "kafka", "says"),
    [
        ({"records": 0}, {}, "schedule.mapping.records"),
        ({"records": 1, "at_most_every": "0.5 seconds"}, {}, "schedule.mapping.at_most_every"),
        ({"records": 1, "at_most_every": "2 hours"}, {}, "`at_most_every` is longer than `at_least_every`"),
        ({"records": 1}, {"until": "data_interval_end"}, "`schedule.records` starts runs without a data interval"),
    ],
)
def test_what_cannot_be_meant_is_refused(schedule: dict[str, Any], kafka: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        a_pipeline(schedule=schedule, kafka=kafka)


def test_the_page_says_how_runs_start() -> None:
    view: Any = SimpleNamespace(entry=SimpleNamespace(pipeline=a_pipeline(schedule=SCHEDULE)))
    assert _schedule(view) == "by 100 records, at least every hour"
