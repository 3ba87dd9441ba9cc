"""`sluice quarantine redrive` after `control.topic` was changed: earlier notes are read, or their loss is noticed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import NewTopic

from sluice.errors import ActionRequiredError, RetryableError
from sluice.kafka import transactional
from sluice.protocol.identity import LogId
from sluice.protocol.quarantine import Quarantined
from sluice.sources.kafka.redriven import Redriven

from .harness import CLUSTER, Flow, kafka_settings, wait_for
from .harness.topics import consume, create
from .quarantined import TOLERANT, send
from .test_redrive import BAD, _json, _sent, connect

__all__ = ["connect"]

_LOST = "isn't known any more"


def _moved(flow: Flow, topic: str) -> None:
    flow.set(control__topic=topic)
    flow.control_topic = topic


def _deleted(flow: Flow, topic: str) -> None:
    flow.admin.delete_topics([topic])[topic].result(30)
    wait_for(lambda: topic not in flow.admin.list_topics(timeout=10).topics, "the topic to go", pause=0.1)


def _redriven(flow: Flow) -> int:
    return sum(g["redriven"] for g in _json(flow, "list")["groups"])


def test_what_was_sent_under_another_control_topic_is_not_sent_again(make_flow):
    flow = make_flow(1, **TOLERANT)
    first, _, third = (f"{flow.topic}[0]@{send(flow, BAD)}" for _ in range(3))
    old = flow.interval().instant
    before = flow.control_topic
    assert _sent(flow, "--offset", first) == 1
    # The file names another one: the table doesn't know it yet, so notes go to where the table has them.
    _moved(flow, f"{before}-2")
    assert _sent(flow, "--dry-run") == 2
    assert _redriven(flow) == 1
    assert _sent(flow, "--offset", third) == 1
    assert _sent(flow, "--offset", third) == 0
    new = flow.interval().instant
    assert [one["topic"] for one in flow.note()["notes_topics"]] == [f"{before}.redriven", f"{before}-2.redriven"]
    assert (_sent(flow, "--offset", first), _redriven(flow)) == (0, 2)
    with pytest.raises(ActionRequiredError, match="would make them rows a second time"):
        flow.start(flow.run(kind="replay", instant=old))
    assert _sent(flow, "--instant", old) == 1
    _moved(flow, before)  # as a process that has the earlier file
    assert _sent(flow, "--instant", old) == 0
    assert _sent(flow, "--instant", new) == 2
    _moved(flow, f"{before}-2")
    assert _sent(flow) == 0
    assert flow.log_ends()[0] > 8  # 3 records, 5 sent again, and the markers of their transactions


def test_lost_notes_are_noticed_and_given_up_by_name_alone(make_flow):
    flow = make_flow(1, **TOLERANT)
    first, _ = (f"{flow.topic}[0]@{send(flow, BAD)}" for _ in range(2))
    old = flow.interval().instant
    earlier = f"{flow.control_topic}.redriven"
    assert _sent(flow, "--offset", first) == 1
    _moved(flow, f"{flow.control_topic}-2")
    send(flow, BAD)
    later = flow.interval().instant
    present = f"{flow.control_topic}.redriven"
    _deleted(flow, earlier)
    ends = flow.log_ends()
    for options in ([], ["--dry-run"], ["--instant", old]):
        with pytest.raises(ActionRequiredError, match=_LOST) as caught:
            _json(flow, "redrive", *options)
        assert (caught.value.where["notes"], caught.value.where["first_instant"]) == (earlier, old)
    with pytest.raises(ActionRequiredError, match=_LOST):
        flow.start(flow.run(kind="replay", instant=old))
    assert flow.log_ends() == ends
    assert _json(flow, "list")["lost_notes"] == [earlier]
    assert _json(flow, "explain", first)["lost notes"] == earlier
    assert _sent(flow, "--instant", later) == 2  # whose notes never were there

    flow.interval()  # its commit has the id of the present notes' topic
    _deleted(flow, present)
    flow.admin.create_topics([NewTopic(present, 1)])[present].result(30)
    with pytest.raises(ActionRequiredError, match=_LOST) as caught:
        _json(flow, "redrive", "--instant", later)
    assert caught.value.where["notes"] == present
    with pytest.raises(ActionRequiredError, match="No notes of that topic are lost"):
        _json(flow, "give-up", "another", "--reason", "a test")
    given = [_json(flow, "give-up", one, "--reason", "a test")["given_up"] for one in (earlier, present)]
    assert [(one["cluster"], one["topic"]) for (one,) in given] == [(CLUSTER, earlier), (CLUSTER, present)]
    assert given[1][0]["topic_id"] == flow.note()["notes_topics"][-1]["logs"][CLUSTER][0]
    assert _json(flow, "list")["lost_notes"] == []
    assert _sent(flow, "--instant", old) == 2
    assert _sent(flow, "--instant", old) == 0


@pytest.fixture
def records(bootstrap, topic_name, monkeypatch):
    """Records of a topic, of which four are sent in a transaction."""
    monkeypatch.setattr(transactional, "_CHUNK_RECORDS", 4)
    topic = topic_name("again")
    create(bootstrap, topic, 1)
    no_ids = LogId(None, None)
    return [Quarantined("1", topic, 0, n, "bad", "value", 0, "r", no_ids, value=b"%d" % n) for n in range(10)]


def test_a_process_that_knows_the_earlier_topic_alone_is_fenced(bootstrap, topic_name, records):
    """It has sent some, and has asked for the table's topics once more: right after that the table moves."""
    kafka, old, new = kafka_settings(bootstrap), topic_name("old"), topic_name("new")
    asked: list[None] = []

    def moves_after_that() -> None:
        asked.append(None)
        if len(asked) == 2:
            assert Redriven(kafka, new, "/lake/t", [old]).send(records, {}).total() == 6

    with pytest.raises(RetryableError, match="Another process"):
        Redriven(kafka, old, "/lake/t").send(records, {}, moves_after_that)
    assert sorted(int(one.value or b"") for one in consume(bootstrap, records[0].topic)) == list(range(10))


def test_a_process_that_began_before_the_table_moved_gives_way(bootstrap, topic_name, records):
    """It takes the transactional id after the other process, so it isn't fenced; but it asks the table then."""
    kafka, old, new = kafka_settings(bootstrap), topic_name("old"), topic_name("new")
    moved: list[None] = []

    def interrupted() -> Iterator[Quarantined]:
        yield from records[:6]
        assert Redriven(kafka, new, "/lake/t", [old]).send(records, {}).total() == 6
        moved.append(None)
        yield from records[6:]

    def require_same_topics() -> None:
        if moved:
            raise RetryableError("The table moved.", next_step="")

    with pytest.raises(RetryableError, match="The table moved"):
        Redriven(kafka, old, "/lake/t").send(interrupted(), {}, require_same_topics)
    assert sorted(int(one.value or b"") for one in consume(bootstrap, records[0].topic)) == list(range(10))
