"""The trigger that asks the metadata service between runs: what it notes and tells, and what a failure does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from pydantic import ValidationError
from structlog.testing import capture_logs

from sluice.airflow import metrics, watched_streams
from sluice.airflow.dag import build_dag
from sluice.airflow.watched_streams import StreamsTrigger
from sluice.control import continued
from sluice.control.reader import TopicBounds
from sluice.errors import RetryableError
from sluice.kafka.config import KafkaSettings
from sluice.page.service import _schedule
from sluice.pipeline import Pipeline
from sluice.protocol.messages import ControlMessage, MappingSeen
from sluice.protocol.offsets import TopicPartition
from sluice.protocol.seen_streams import MappingChange

from .test_dag_shape import a_pipeline, serialized

TABLE = "file:///lake/orders"


def _pipeline(file: Path | str = "/etc/streams.yaml", schedule: Any = "1 day", **kafka: Any) -> Pipeline:
    streams = {"topics": (), "streams": "orders", "metadata": {"service": "file", "path": str(file)}}
    return a_pipeline(schedule=schedule, kafka={**streams, "metadata_interval": "1 second", **kafka})


def _trigger(pipeline: Pipeline) -> StreamsTrigger:
    (asset,) = build_dag(pipeline, auto_register=False).timetable.asset_condition.objects
    (watcher,) = asset.watchers
    assert isinstance(watcher.trigger, StreamsTrigger)
    return watcher.trigger


class _Log:
    """A control topic: what it has is read, and written, by the trigger."""

    def __init__(self, failures: int = 0) -> None:
        self.messages: list[ControlMessage] = []
        self.failures = failures
        self.unreadable = 0
        self.topic_id = "a"
        self.settings: KafkaSettings | None = None

    def reader(self, settings: KafkaSettings, topic: str) -> _Log:
        assert topic == "sluice-control-orders"
        self.settings = settings
        return self

    def bounds(self) -> TopicBounds:
        if self.failures:
            self.failures -= 1
            raise RetryableError("Kafka is away.", next_step="none")
        return TopicBounds(self.topic_id, 0, len(self.messages))

    def read(self, start: int, end: int) -> Iterator[list[tuple[int, ControlMessage]]]:
        yield [(offset, self.messages[offset]) for offset in range(start, end)]

    def ensure(self) -> None:
        pass

    def send(self, message: ControlMessage) -> int:
        self.messages.append(message)
        return len(self.messages) - 1

    @property
    def noted(self) -> list[list[str]]:
        """The clusters of each mapping that was noted."""
        return [sorted(note.streams.clusters) for note in self.messages if isinstance(note, MappingSeen)]


@pytest.fixture
def control(monkeypatch: pytest.MonkeyPatch) -> _Log:
    found = _Log()
    monkeypatch.setattr(
        watched_streams, "kafka_settings", lambda name: KafkaSettings(name, {"bootstrap.servers": "h:1"})
    )
    monkeypatch.setattr(continued, "ControlReader", found.reader)
    monkeypatch.setattr(watched_streams, "ControlTopic", found.reader)
    return found


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    incr = lambda name, count=1, tags=None: found.append((name, tags))  # noqa: E731
    monkeypatch.setattr(metrics, "stats", SimpleNamespace(incr=incr))
    return found


def _map(file: Path, *clusters: str) -> None:
    said = {name: {"topics": "orders", "connection": name} for name in clusters}
    file.write_text(yaml.safe_dump({"streams": {"orders": {"clusters": said}}}))


def test_each_new_mapping_is_noted_and_all_but_the_first_are_told(
    tmp_path: Path, control: _Log, counted: list[tuple[str, Any]]
) -> None:
    file = tmp_path / "streams.yaml"
    trigger = _trigger(_pipeline(file))
    _map(file, "east")
    assert [trigger.look(), trigger.look()] == [None, None]
    assert (control.noted, counted) == ([["east"]], [])
    _map(file, "east", "west")
    with capture_logs() as logs:
        assert trigger.look() == MappingChange(("cluster west", "orders of cluster west"), ())
    (line,) = logs
    assert (line["event"], line["came"], line["went"]) == (
        "the streams' mapping has changed",
        ("cluster west", "orders of cluster west"),
        (),
    )
    assert trigger.look() is None
    _map(file, "east")
    assert trigger.look() == MappingChange((), ("cluster west", "orders of cluster west"))
    assert control.noted == [["east"], ["east", "west"], ["east"]]
    assert counted == [("sluice.metadata_changes", {"pipeline": "orders", "table": "orders"})] * 2
    assert {message.table for message in control.messages} == {TABLE}


def test_another_trigger_goes_on_with_what_was_noted(tmp_path: Path, control: _Log, counted: list[Any]) -> None:
    """The triggerer was started anew; and the control topic was made anew."""
    file = tmp_path / "streams.yaml"
    _map(file, "east")
    _trigger(_pipeline(file)).look()
    again = _trigger(_pipeline(file))
    assert again.look() is None
    _map(file, "east", "west")
    assert again.look() is not None
    control.messages, control.topic_id = [], "b"
    assert again.look() is None
    assert control.noted == [["east", "west"]]


def test_a_failure_is_logged_and_followed_by_the_next_look(
    tmp_path: Path, control: _Log, counted: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "streams.yaml"
    _map(file, "east")
    trigger = _trigger(_pipeline(file))
    trigger.look()
    control.failures = 1
    _map(file, "west")

    async def first() -> Any:
        return (await anext(trigger.run())).payload

    monkeypatch.setattr(trigger, "_interval", 0.0)
    with capture_logs() as logs:
        found = asyncio.run(asyncio.wait_for(first(), 30))
    assert found == {
        "came": ["cluster west", "orders of cluster west"],
        "went": ["cluster east", "orders of cluster east"],
    }
    (failed,) = [line for line in logs if line["log_level"] == "warning"]
    assert "Kafka is away." in failed["reason"]
    assert failed["service"] == "file"


def test_a_new_topic_that_starts_at_its_end_is_noted_with_the_end_that_it_has_now(
    tmp_path: Path, control: _Log, counted: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And without it where its cluster doesn't answer, or may not be asked."""
    asked = []

    def log_ends(settings: KafkaSettings, topics: list[str], isolation: str) -> dict[TopicPartition, int]:
        asked.append((settings.name, *topics, isolation))
        if settings.name == "south":
            raise RetryableError("Kafka is away.", next_step="none")
        return {TopicPartition(settings.name, "orders", 0): 7}

    monkeypatch.setattr(watched_streams, "log_ends", log_ends)
    file = tmp_path / "streams.yaml"
    trigger = _trigger(_pipeline(file, starting_offsets="latest", mapped_connections=["east", "west", "south"]))
    _map(file, "east")
    trigger.look()
    _map(file, "east", "west", "south", "foreign")
    trigger.look()
    (_, last) = control.messages
    assert isinstance(last, MappingSeen)
    starting = {log[0]: said.starting for log, said in last.streams.items()}
    assert starting == {"east": "latest", "west": {0: 7}, "south": "latest", "foreign": "latest"}
    assert sorted(asked) == [(name, "orders", "read_committed") for name in ("east", "south", "west")]


@pytest.mark.parametrize("starting", ["latest", {"orders": {0: 7}}])
def test_a_triggers_arguments_make_the_same_trigger_again_and_are_json(starting: Any) -> None:
    trigger = _trigger(_pipeline(starting_offsets=starting))
    path, arguments = trigger.serialize()
    assert path == "sluice.airflow.watched_streams.StreamsTrigger"
    again = StreamsTrigger(**json.loads(json.dumps(arguments)))
    assert again.serialize() == (path, arguments)
    assert again._starting == starting
    assert (arguments["interval"], arguments["streams"]) == (1.0, ["orders"])
    assert arguments["service_options"] == '{"path": "/etc/streams.yaml"}'
    assert not [name for name, value in arguments.items() if isinstance(value, dict)], "Airflow 3.2 can't hand it over"


def test_a_trigger_that_an_earlier_release_has_stored_is_the_same() -> None:
    trigger = _trigger(_pipeline(starting_offsets={"orders": {0: 7}}))
    _, arguments = trigger.serialize()
    stored = {"service_options": {"path": "/etc/streams.yaml"}, "starting_offsets": {"orders": {"0": 7}}}
    assert StreamsTrigger(**{**arguments, **stored}).serialize() == trigger.serialize()


def test_runs_start_by_the_clock_and_by_a_change_or_by_a_change_alone() -> None:
    from airflow.serialization.serialized_objects import DagSerialization

    both = DagSerialization.from_dict(serialized(_pipeline())).timetable
    assert type(both).__name__ == "AssetOrTimeSchedule"
    assert both.timetable._delta == timedelta(days=1)
    assert [asset.name for _, asset in both.asset_condition.iter_assets()] == ["orders.streams"]
    by_hand = DagSerialization.from_dict(serialized(_pipeline(schedule=None))).timetable
    assert [asset.name for _, asset in by_hand.asset_condition.iter_assets()] == ["orders.streams"]
    assert type(by_hand).__name__ == "AssetTriggeredTimetable"
    unwatched = build_dag(_pipeline(metadata_interval=None), auto_register=False).timetable
    assert type(unwatched).__name__ == "DeltaDataIntervalTimetable"


@pytest.mark.parametrize(
    ("kafka", "says"),
    [
        ({"metadata_interval": "0.5 seconds"}, "metadata_interval\n  Input should be greater than or equal"),
        ({"topics": "orders", "streams": (), "metadata": None}, "there is no metadata service to ask"),
        ({"until": "data_interval_end"}, "`metadata_interval` starts runs without a data interval"),
    ],
)
def test_what_cannot_be_meant_is_refused(kafka: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        _pipeline(**kafka)


def test_the_page_says_how_runs_start() -> None:
    view: Any = SimpleNamespace(entry=SimpleNamespace(pipeline=_pipeline()))
    assert _schedule(view) == "every day, and when the streams' mapping changes"
    view = SimpleNamespace(
        entry=SimpleNamespace(pipeline=_pipeline(schedule=None)), dag=SimpleNamespace(schedule="Asset")
    )
    assert _schedule(view) == "when the streams' mapping changes"
