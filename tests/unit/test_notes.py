"""Notes that Sluice reads back: what counts of them with a secret, and which topics there are."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from pydantic import BaseModel

from sluice.protocol.notes import SignedNotes, note_of

PACKAGE = Path(__file__).parents[2] / "plugins" / "sluice"
SECRET, OLD = "a secret of the tests, of some length", "the secret before it, of some length"
READ_BACK = {
    "control/topic.py": "control messages: signed",
    "control/reader.py": "control messages: signed",
    "control/followed.py": "control messages: signed",
    "control/waiters.py": "control messages: signed",
    "control/presence.py": "no records: a group's members",
    "sinks/kafka/log.py": "the topic sink's log: signed",
    "sources/kafka/redriven.py": "what was sent again: signed",
    "kafka/sent_letters.py": "which dead letters were sent: signed",
    "sinks/kafka/quarantine.py": "bad records of a topic sink, which are records of others",
    "kafka/transactional.py": "reads a topic for those who judge its records",
    "sources/kafka/probe.py": "single records of a source",
    "sources/kafka/sample.py": "a sample of a source's records",
    "sources/kafka/gathering.py": "a source's records",
    "sources/files/log.py": "which files of a folder are read, not signed",
    "sources/kafka/mirror.py": "what MirrorMaker has noted, when a person asks for a move",
    "cli/connect_offsets.py": "the offsets that Kafka Connect has left, for a person to look at",
}
"""Modules that read records themselves, and what of. A new one has to say whose word it takes: docs/production.md."""


class Note(BaseModel):
    n: int


def test_what_is_not_signed_counts_before_the_first_that_is():
    told = []
    ours = SignedNotes("t", (SECRET,), lambda offset, _: told.append(offset))
    headers = ours.headers(b"k", b"v")
    assert ours.counts(0, b"k", b"older", ())
    assert ours.counts(1, b"k", b"v", headers)
    assert not ours.counts(2, b"k", b"v", ())
    assert not ours.counts(3, b"\xff", b"v", ())
    assert not ours.counts(4, b"k", b"w", headers)
    assert told == [2, 3, 4]
    assert ours.headers(b"k", None) == ours.headers(b"k", b"")
    none = SignedNotes("t", (), lambda _offset, _reason: None)
    assert none.headers(b"k", b"v") == []
    assert none.counts(2, b"k", b"v", ())


def test_where_all_notes_are_signed_none_counts_unsigned():
    ours = SignedNotes("t", (SECRET,), lambda _offset, _reason: None)
    ours.require_all()
    assert not ours.counts(0, b"k", b"v", ())
    assert ours.counts(1, b"k", b"v", ours.headers(b"k", b"v"))
    none = SignedNotes("t", (), lambda _offset, _reason: None)
    none.require_all()
    assert none.counts(0, b"k", b"v", ())


def test_what_names_no_id_of_the_topic_counts_before_the_first_that_does():
    ours, old = (
        SignedNotes("t", (SECRET,), lambda *_: None, lambda _: "id"),
        SignedNotes("t", (SECRET,), lambda *_: None),
    )
    by_name, by_id = old.headers(b"k", b"v"), ours.headers(b"k", b"v")
    assert ours.counts(0, b"k", b"v", by_name)
    assert not ours.counts(1, b"l", b"v", ())
    assert not ours.have_begun
    assert not ours.is_by_present(b"k", b"v", by_name)
    assert ours.counts(2, b"k", b"v", by_id)
    assert ours.have_begun
    assert not ours.counts(3, b"l", b"v", old.headers(b"l", b"v"))


def test_notes_of_the_previous_secret_are_told_from_those_of_the_present_one():
    old, new = (SignedNotes("t", secrets, lambda *_: None) for secrets in ((OLD,), (SECRET, OLD)))
    headers = old.headers(b"k", b"v")
    assert new.counts(0, b"k", b"v", headers)
    assert not new.is_by_present(b"k", b"v", headers)
    assert new.is_by_present(b"k", b"v", new.headers(b"k", b"v"))
    assert not new.is_by_present(b"k", b"v", ())


@pytest.mark.parametrize("junk", [b"x", b"[" * 10_000, b"5", b'{"n": "x"}', None])
def test_what_is_no_note_is_left_out(junk):
    assert note_of(Note, junk) is None
    assert note_of(Note, b'{"n": 1, "time": "of a note"}') == Note(n=1)


def test_all_topics_that_are_read_back_are_known():
    """By who makes a consumer, or has one read a topic."""
    readers = {"Consumer", "AssignedConsumer", "read_all", "read_whole"}
    found = set()
    for file in (one for one in PACKAGE.rglob("*.py") if one.parent.name != "demo"):
        called = {
            getattr(node.func, "id", getattr(node.func, "attr", ""))
            for node in ast.walk(ast.parse(file.read_text()))
            if isinstance(node, ast.Call)
        }
        if readers & called:
            found.add(file.relative_to(PACKAGE).as_posix())
    assert found == READ_BACK.keys()
