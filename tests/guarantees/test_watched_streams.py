"""A topic that is mapped and unmapped between two runs is read once, by what the triggerer's watcher has noted."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sluice.airflow import metrics, watched_streams
from sluice.airflow.watched_streams import StreamsTrigger, streams_asset
from sluice.coordinator import start
from sluice.protocol.messages import MappingSeen

from .harness.processes import kafka_settings
from .harness.streams import Streams, two_clusters


@pytest.fixture
def streams(make_streams) -> Streams:
    """On `east` alone, with a topic on `west` that isn't mapped; all that the table has is read."""
    streams = two_clusters(make_streams())
    streams.flow.set(source__kafka__metadata_interval="1 minute")
    streams.map(east=streams.topic)
    streams.send("east", streams.topic, 4)
    streams.flow.interval()
    return streams


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The counters that were counted, in order."""
    found: list[str] = []
    monkeypatch.setattr(metrics.stats, "incr", lambda name, *_, **__: found.append(name))
    return found


@pytest.fixture
def watch(streams: Streams, monkeypatch: pytest.MonkeyPatch, counted: list[str]) -> Callable[[], StreamsTrigger]:
    """The trigger of the pipeline as its file is now."""
    own = kafka_settings(streams.flow.bootstrap, streams.flow.connection)
    at = {name: kafka_settings(bootstrap, name) for name, bootstrap in streams.brokers.items()}
    monkeypatch.setattr(watched_streams, "kafka_settings", lambda name: at.get(name, own))

    def make() -> StreamsTrigger:
        pipeline = streams.flow.pipeline
        settings = pipeline.source.options.streams_settings
        assert settings is not None
        trigger = streams_asset(pipeline, settings).watchers[0].trigger
        assert isinstance(trigger, StreamsTrigger)
        return trigger

    return make


def _map_for_a_while(streams: Streams, watcher: StreamsTrigger) -> None:
    """Have the watcher see `west`, which has records then, and see it go."""
    streams.map(east=streams.topic, west=streams.topic)
    assert watcher.look() is not None
    streams.send("west", streams.topic, 6)
    streams.map(east=streams.topic)
    assert watcher.look() is not None


def _both(streams: Streams) -> None:
    streams.check(("east", streams.topic), ("west", streams.topic))


def _notes(streams: Streams) -> int:
    return sum(isinstance(message, MappingSeen) for message in streams.flow.messages())


def test_a_topic_that_was_mapped_between_two_runs_is_read_to_its_end(
    streams: Streams, watch: Callable[[], StreamsTrigger], counted: list[str]
) -> None:
    flow, watcher = streams.flow, watch()
    assert watcher.look() is None, "the last commit has this mapping"
    assert _notes(streams) == 0
    _map_for_a_while(streams, watcher)
    assert (_notes(streams), counted) == (2, ["sluice.metadata_changes"] * 2)
    assert [(row["cluster"], row["state"], row["unread"]) for row in streams.shown()["streams"]] == [
        ("east", "active", 0),
        ("west", "missed", 6),
    ]
    assert flow.interval().records == 6
    assert any("of cluster west was mapped for a while" in remark for remark in flow.note()["remarks"])
    _both(streams)
    streams.send("west", streams.topic, 4)  # before the removal is confirmed
    assert flow.interval().records == 4
    flow.interval()  # nothing to read: it is noted that it is drained
    assert "west" not in flow.note()["streams"]["logs"]
    streams.send("west", streams.topic, 2)
    unread = streams.sent["west", streams.topic][10:]
    flow.interval_is_empty()
    streams.check(("east", streams.topic), ("west", streams.topic), but_not=lambda sent: sent in unread)
    assert watch().look() is None, "a triggerer that was started anew knows the last commit's mapping"


def test_a_note_between_a_plan_and_its_start_commit_is_read_by_the_next_interval(
    streams: Streams, watch: Callable[[], StreamsTrigger], monkeypatch: pytest.MonkeyPatch
) -> None:
    """START has asked the service before; its START-COMMIT follows the notes, and counts."""
    flow, watcher = streams.flow, watch()
    streams.send("east", streams.topic, 4)

    def reach(point: str) -> None:
        if point == "coordinator.before_start_commit":
            _map_for_a_while(streams, watcher)

    with monkeypatch.context() as patched:
        patched.setattr(start, "reach", reach)
        started = flow.start()
    flow.write_all(started)
    assert flow.commit(started).records == 4
    assert flow.interval().records == 6
    _both(streams)


def test_what_an_interval_knew_that_was_never_committed_is_known_to_the_next(
    streams: Streams, watch: Callable[[], StreamsTrigger]
) -> None:
    flow, watcher = streams.flow, watch()
    _map_for_a_while(streams, watcher)
    run = flow.run()
    flow.write_all(flow.start(run))
    flow.abort(run)
    assert flow.interval().records == 6
    _both(streams)


@pytest.mark.thorough
def test_what_starts_at_its_log_s_end_starts_where_that_was_when_it_was_seen(
    streams: Streams, watch: Callable[[], StreamsTrigger]
) -> None:
    flow = streams.flow
    flow.set(source__kafka__starting_offsets="latest")
    watcher = watch()
    watcher.look()
    streams.send("west", streams.topic, 4)
    earlier = list(streams.sent["west", streams.topic])
    _map_for_a_while(streams, watcher)
    assert flow.interval().records == 6
    streams.check(("east", streams.topic), ("west", streams.topic), but_not=lambda sent: sent in earlier)


@pytest.mark.thorough
def test_it_is_read_while_the_service_does_not_answer(streams: Streams, watch: Callable[[], StreamsTrigger]) -> None:
    _map_for_a_while(streams, watch())
    streams.file.unlink()
    assert streams.flow.interval().records == 6
    streams.map(east=streams.topic)
    streams.flow.interval()
    assert streams.flow.note()["streams"]["logs"]["west"][streams.topic]["status"] == "missed"
    _both(streams)


@pytest.mark.thorough
def test_notes_of_the_control_topic_before_count(streams: Streams, watch: Callable[[], StreamsTrigger]) -> None:
    flow = streams.flow
    _map_for_a_while(streams, watch())
    flow.control_topic = f"{flow.control_topic}-2"
    flow.set(control__topic=flow.control_topic)
    watcher = watch()
    assert watcher.look() is None
    assert flow.interval().records == 6
    _both(streams)
    assert watcher.look() is None
    assert _notes(streams) == 1


@pytest.mark.thorough
@pytest.mark.parametrize("how", ["unreadable", "dropped"])
def test_a_mapping_that_could_not_be_followed_keeps_no_later_one_from_being_followed(
    streams: Streams, watch: Callable[[], StreamsTrigger], how: str
) -> None:
    flow, watcher = streams.flow, watch()
    if how == "dropped":
        flow.set(source__kafka__on_removed="drop")
        _map_for_a_while(streams, watcher)
    else:
        streams.map(east=streams.topic, west={"topics": streams.topic, "connection": "nobodys"})
        watcher.look()
        streams.map(east=streams.topic)
        watcher.look()
    streams.send("east", streams.topic, 4)
    assert flow.interval().records == 4
    assert any("was mapped for a while" in remark for remark in flow.note()["remarks"])
    streams.check(("east", streams.topic))
