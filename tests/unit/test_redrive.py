"""Which quarantined records may be sent again, and which were: by the topic's id, and not by their place alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sluice.cli import set_aside
from sluice.cli.redrive import Unsent
from sluice.cli.set_aside import QuarantinedRecords
from sluice.errors import ActionRequiredError, RetryableError
from sluice.protocol.identity import LogId, LogIds
from sluice.protocol.notes_topics import NotesTopic, NotesTopics
from sluice.protocol.offsets import Checkpoint, ClusterCheckpoint, TopicCheckpoint
from sluice.protocol.redriven import Places

HERE = LogId("c", "new")
NOW = LogIds({"kafka": "c"}, {("kafka", "t"): "new"})
OLD_BROKER = LogIds({"kafka": "c"}, {("kafka", "t"): None})


def _checkpoint(topic_id: str | None) -> Checkpoint:
    topics = {"t": TopicCheckpoint(topic_id=topic_id, partitions={0: 7})}
    return Checkpoint(clusters={"kafka": ClusterCheckpoint(cluster_id="c", topics=topics)})


def _require(log: LogId, now: LogIds, **known: Checkpoint) -> list[str]:
    """Check two records of an interval; which instants the table was asked for."""
    asked: list[str] = []

    def checkpoints(instants: Iterable[str]) -> dict[str, Checkpoint]:
        asked.extend(instants)
        return {i: known[i] for i in known if i in asked}

    rows = [("i1", ("t", 0, offset), log) for offset in (9, 7)]
    Unsent.of(rows, Places()).require_same_logs({"t": ("kafka", "t")}, now, checkpoints, "q")
    return asked


@pytest.mark.parametrize("log", [HERE, LogId(None, "new")])
def test_of_the_log_that_is_there(log):
    assert _require(log, NOW) == []


@pytest.mark.parametrize(
    ("log", "known", "reason"),
    [
        (LogId("c", "old"), {}, "created again"),
        (LogId("d", "new"), {}, "leads to another cluster"),
        (LogId(), {}, "isn't known of which log"),
        (LogId(), {"i1": _checkpoint(None)}, "isn't known of which log"),
        (LogId(), {"i1": _checkpoint("old")}, "created again"),
        (LogId(), {"i2": _checkpoint("new")}, "isn't known of which log"),
    ],
)
def test_of_another_log(log, known, reason):
    with pytest.raises(ActionRequiredError, match=reason) as caught:
        _require(log, NOW, **known)
    where: dict[str, Any] = {"quarantine": "q", "topic": "t", "first": "t[0]@7", "records": 2, "instants": "i1"}
    assert caught.value.where == where


def test_rows_of_earlier_releases_are_asked_for_in_the_tables_commits():
    assert _require(LogId(), NOW, i1=_checkpoint("new")) == ["i1"]


def test_brokers_that_give_no_ids_are_asked_nothing():
    assert _require(LogId(), OLD_BROKER) == []


def test_what_was_sent_is_known_by_place_and_topic():
    places = Places()
    places.add(("t", 0, 7), "old")
    places.add(("t", 0, 8), None)  # by an earlier release, which noted no id
    assert places.has(("t", 0, 7), "old")
    assert not places.has(("t", 0, 7), "new")
    assert places.has(("t", 0, 7), None)
    assert places.has(("t", 0, 8), "new")
    assert not places.has(("t", 1, 7), "old")
    rows = [("i1", ("t", 0, 7), LogId("c", "old")), ("i2", ("t", 0, 7), HERE), ("i2", ("t", 1, 3), HERE)]
    unsent = Unsent.of(rows, places)
    assert unsent.by_partition == Counter({("t", 0): 1, ("t", 1): 1})
    assert unsent.topics == ["t"]


def test_a_commit_that_names_another_topic_of_notes_stops_a_redrive(monkeypatch):
    """One that only adds an id does not; a topic that was deleted since does."""
    known = NotesTopics((NotesTopic(topic="a"),), "a")
    pipeline: Any = SimpleNamespace(table_id="t")
    nothing: Any = None
    present: dict[str, str | None] = {"a": "1", "new": "9"}
    redriven: Any = SimpleNamespace(there=lambda: present)
    here = QuarantinedRecords(Path("f"), pipeline, nothing, nothing, known, {"kafka": redriven})
    now = [NotesTopics((NotesTopic(topic="a", logs={"kafka": ("1",)}),), "a")]
    monkeypatch.setattr(set_aside, "coordinator", lambda _file: SimpleNamespace(notes_topics=lambda: now[-1]))
    here.require_same_topics("kafka", {"a": "1"})
    for before in ({"a": "2"}, {"b": None}):
        with pytest.raises(RetryableError, match="was deleted since"):
            here.require_same_topics("kafka", before)
    now.append(NotesTopics((*known.noted, NotesTopic(topic="b")), "b"))
    with pytest.raises(RetryableError, match="in another topic") as caught:
        here.require_same_topics("kafka", {"a": "1"})
    assert caught.value.where == {"table": "t", "notes": "b"}


def test_the_intervals_of_records_are_known_by_cluster():
    rows = [("i1", ("t", 0, 7), HERE), ("i2", ("t", 1, 7), HERE), ("i2", ("u", 0, 1), HERE)]
    logs = {"t": ("kafka", "t"), "u": ("west", "u")}
    assert Unsent.of(rows, Places()).instants(logs) == {"kafka": {"i1", "i2"}, "west": {"i2"}}
