"""Where notes of records sent again are, whatever control topic a pipeline file names, and which of them are lost."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from sluice.coordinator.session import Session
from sluice.errors import ActionRequiredError
from sluice.pipeline.model import Pipeline
from sluice.protocol.commit_note import NO_NOTE, CommitNote
from sluice.protocol.notes_topics import LostNotes, NotesTopic, NotesTopics, refuse_lost
from sluice.protocol.redriven import Places

A, B = NotesTopic(topic="a", logs={"k": ("1",)}), NotesTopic(topic="b", since="20", logs={"k": ("2",)})
BOTH = NotesTopics((A, B), "b")


def test_a_table_keeps_its_notes_where_they_are_until_a_commit_names_another_topic():
    before = NotesTopics.known_by((), (), "a")
    assert (before.current, before.others) == ("a", ())
    first = before.of_interval("10", {"k": {"a": "1"}, "west": {}})
    assert first == (A,)
    changed = NotesTopics.known_by(first, (), "b")
    assert (changed.current, changed.others, changed.names) == ("a", ("b",), ("b", "a"))
    second = changed.of_interval("20", {"k": {"a": "1", "b": "2"}})
    assert second == (A, B)
    assert (BOTH.current, BOTH.others) == ("b", ("a",))
    assert BOTH.of_interval("30", {"k": {"b": None}}) == (A, B)
    assert BOTH.of_interval("30", {}) == (A, B)
    assert BOTH.of_interval("30", {"k": {"b": "3"}})[1].logs == {"k": ("2", "3")}


def test_a_topic_that_is_named_once_more_may_have_notes_of_any_interval():
    assert NotesTopics((A, B), "a").of_interval("30", {}) == (B, A)
    again = NotesTopics((A, B.model_copy(update={"since": "20"}), NotesTopic(topic="c", since="30")), "b")
    assert again.of_interval("40", {})[-1] == B.model_copy(update={"since": None})


@pytest.mark.parametrize(
    ("there", "lost"),
    [
        ({"a": "1", "b": "2"}, []),
        ({"a": None, "b": None}, []),  # the broker has no ids any more, which says nothing
        ({"b": "2"}, [LostNotes("a", "1", "20")]),
        ({"a": "9", "b": "2"}, [LostNotes("a", "1", "20")]),
        ({"a": "1"}, [LostNotes("b", "2", None)]),
        ({"a": "1", "b": "9"}, [LostNotes("b", "2", None)]),
        ({}, [LostNotes("a", "1", "20"), LostNotes("b", "2", None)]),
    ],
)
def test_notes_are_lost_with_their_topic_or_its_log(there, lost):
    assert list(BOTH.lost("k", there, ())) == lost
    assert BOTH.lost("k", there, {("a", "1"), ("b", "2")}) == ()


def test_an_earlier_topic_that_no_commit_has_seen_may_have_been_lost_and_the_present_one_is_not_used_yet():
    topics = NotesTopics((NotesTopic(topic="a"), NotesTopic(topic="b", since="20")), "b")
    assert topics.lost("k", {}, ()) == (LostNotes("a", None, "20"),)
    assert topics.lost("k", {}, {("a", "1")}) == (LostNotes("a", None, "20"),)
    assert topics.lost("k", {}, {("a", None)}) == ()
    assert BOTH.lost("west", {"b": "7"}, ()) == (LostNotes("a", None, "20"),)


def test_lost_notes_stop_the_intervals_that_they_may_be_of():
    lost = [LostNotes("a", "1", "20"), LostNotes("a", "3", "20")]
    refuse_lost(lost, ["20", "21"], "…")
    refuse_lost(lost, [], "…")
    refuse_lost([], ["10"], "…")
    with pytest.raises(ActionRequiredError, match="isn't known any more") as caught:
        refuse_lost(lost, ["21", "19", "10"], "bring it back", table="t")
    expected = {"table": "t", "notes": "a", "notes_ids": "1, 3", "first_instant": "10"}
    assert (caught.value.where, caught.value.next_step) == (expected, "bring it back")
    with pytest.raises(ActionRequiredError):
        refuse_lost([LostNotes("b", None, None)], ["99"], "…")


@pytest.mark.parametrize(
    ("noted", "file", "names"),
    [
        ({}, None, ["hudi-control-topic.redriven"]),  # before the first commit
        ({}, "mine", ["mine.redriven"]),
        ({"instant": "1", "control_topic": "mine"}, "mine", ["mine.redriven"]),
        ({"instant": "1", "control_topic": "mine"}, "other", ["other.redriven", "mine.redriven"]),
        ({"instant": "1", "control_topic": "mine"}, None, ["hudi-control-topic.redriven", "mine.redriven"]),
        ({"instant": "1", "control_topic": "sluice-control-p"}, None, ["hudi-control-topic.redriven"]),
        ({"instant": "1", "control_topic": "hudi-control-topic"}, None, ["hudi-control-topic.redriven"]),
        (
            {"instant": "1", "control_topic": "sluice-control-old"},  # its pipeline's, or named in the file: who knows
            None,
            ["sluice-control-old.redriven", "hudi-control-topic.redriven"],
        ),
        ({"instant": "1", "control_topic": "mine", "notes_topics": (A, B)}, "mine", ["a", "mine.redriven", "b"]),
    ],
)
def test_notes_of_earlier_releases_are_by_the_last_commits_control_topic(noted, file, names):
    pipeline: Any = SimpleNamespace(control=SimpleNamespace(topic=file), name="p")
    pipeline.notes_topic = Pipeline.notes_topic.fget(pipeline)  # type: ignore[attr-defined]
    session: Any = SimpleNamespace(
        pipeline=pipeline,
        control=SimpleNamespace(topic=Pipeline.control_topic.fget(pipeline)),  # type: ignore[attr-defined]
    )
    session._elsewhere = lambda note: Session._elsewhere(session, note)
    note = CommitNote(**noted) if noted else NO_NOTE
    assert list(Session.notes_topics(session, note).names) == names


def test_what_was_given_up_is_known_of_all_clusters():
    one, other = Places(), Places()
    other.given_up.add(("a", None))
    one.add_all(other)
    assert one.renamed(str.upper).given_up == {("a", None)}
