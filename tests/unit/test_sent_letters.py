"""How far an interval's dead letters were sent, by the note of whoever sent them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from sluice.kafka import sent_letters
from sluice.kafka.config import CONTROL_SECRET, KafkaSettings
from sluice.kafka.sent_letters import Sent, SentLetters

SECRET = "a secret of the tests"


@pytest.mark.parametrize(
    ("instant", "clusters", "sent"),
    [
        ("7", ("west",), 2),
        ("8", ("west",), 0),
        ("6", ("west",), 9),
        ("7", ("east", "west"), 0),  # what was counted is another sequence: rather twice than never
        ("6", ("east", "west"), 9),
    ],
)
def test_an_interval_s_letters_were_sent(instant, clusters, sent):
    assert Sent("7", 2, ("west",)).of(instant, clusters, 9) == sent


def test_a_note_of_an_earlier_release_counts_for_the_one_cluster_that_there_was():
    assert Sent("7", 2).of("7", ("kafka_default",), 9) == 2


def letters(monkeypatch, notes, **more):
    """A table's progress by these notes, in the order of their offsets: value and headers."""
    records = [
        SimpleNamespace(offset=lambda n=n: n, key=lambda: b"/lake/t", value=lambda v=v: v, headers=lambda h=h: h)
        for n, (v, h) in enumerate(notes)
    ]
    monkeypatch.setattr(sent_letters, "read_all", lambda *_: iter(records))
    monkeypatch.setattr(sent_letters, "present_topic_id", lambda *_: lambda _: "id")
    return SentLetters(
        KafkaSettings("k", {"bootstrap.servers": "h:1", CONTROL_SECRET: SECRET}), "dlq", "/lake/t", **more
    )


def note(monkeypatch, sent: Sent, secret: str = SECRET):
    monkeypatch.setattr(sent_letters, "present_topic_id", lambda *_: lambda _: "id")
    record = SentLetters(
        KafkaSettings("k", {"bootstrap.servers": "h:1", CONTROL_SECRET: secret}), "dlq", "/lake/t"
    ).note(sent)
    return record.value, list(record.headers)


def test_copies_of_earlier_notes_and_forged_ones_do_not_count(monkeypatch):
    first, later, last = Sent("7", 9), Sent("8", 5), Sent("8", 7)
    signed = [note(monkeypatch, first), note(monkeypatch, later), note(monkeypatch, last)]
    forged = [(note(monkeypatch, Sent("99", 9))[0], None), note(monkeypatch, Sent("99", 9), "a secret of another")]
    assert letters(monkeypatch, [*signed, *forged, signed[0], signed[1]]).last() == last
    elsewhere = Sent("8", 1, ("east",))  # another sequence
    assert letters(monkeypatch, [*signed, note(monkeypatch, elsewhere)]).last() == elsewhere


def test_notes_of_before_the_secret_count_unless_all_are_signed(monkeypatch):
    unsigned = [(note(monkeypatch, Sent("7", 9))[0], None)]
    assert letters(monkeypatch, unsigned).last() == Sent("7", 9)
    assert letters(monkeypatch, unsigned, all_signed=True).last() is None
