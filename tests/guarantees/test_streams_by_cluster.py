"""What people and programs do with streams beside loading them: each record is looked for on its own cluster."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from sluice.errors import ActionRequiredError

from .harness.flow import invoke
from .harness.streams import Streams, two_clusters
from .quarantined import TOLERANT, consume

UPSERT = {"sink__hudi__operation": "upsert", "sink__hudi__record_key": "id"}


def _verified(streams: Streams) -> dict:
    done = streams.flow.verify("--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_a_table_is_verified_with_all_of_its_clusters(make_streams):
    """Also where a cluster has another name since: rows have the name that it had."""
    columns = {"source__kafka__columns": {"c": "cluster"}}
    streams = two_clusters(make_streams(sink__hudi__schema="id BIGINT, v STRING, p STRING, c STRING", **columns))
    flow, topic = streams.flow, streams.topic
    streams.send("east", topic, 4)
    streams.send("west", topic, 6)
    flow.interval()
    streams.map(east=topic, far_west={"topics": topic, "connection": "west"})
    streams.send("west", topic, 2)
    flow.interval()
    assert [(i["in_topic"], i["in_table"]) for i in _verified(streams)["intervals"]] == [(10, 10), (2, 2)]


@pytest.mark.thorough
def test_an_upsert_is_verified_with_all_of_its_clusters(make_streams):
    streams = two_clusters(make_streams(**UPSERT))
    streams.send("east", streams.topic, 4)
    streams.send("west", streams.topic, 6)
    streams.flow.interval()
    (whole,) = _verified(streams)["intervals"]
    assert (whole["in_topic"], whole["in_table"], whole["same"]) == (10, 10, True)


def _json(streams: Streams, *arguments: str) -> Any:
    """What a command says, in the test's own process."""
    with streams.environment():
        done = invoke(*arguments, "--json")
    if done.exception is not None:
        raise done.exception
    return json.loads(done.stdout)


def _letters(streams: Streams, broker: str, topic: str) -> list[dict[str, bytes]]:
    with streams.at(broker, topic) as there:
        return [dict(record.headers()) for record in consume(there, topic)]


@pytest.mark.thorough
def test_bad_records_are_told_and_sent_again_by_cluster(make_streams, tmp_path):
    """Both clusters have bad records at the same places."""
    streams = two_clusters(make_streams(**TOLERANT))
    flow, topic, own = streams.flow, streams.topic, str(streams.flow.file)
    letters = f"{topic}.dlq"
    flow.set(errors__dead_letter_topic=letters)
    for broker, number in (("east", 1), ("west", 2)):
        with streams.at(broker, topic) as there:
            for _ in range(number):
                there.produce_raw(b"{", partition=0)
        streams.send(broker, topic, 4)
    run = flow.run()
    started = flow.start(run)
    flow.write_all(started)

    # The commit dies when one cluster has its letters: whoever goes on sends the other's, and none twice.
    with streams.environment():
        step = flow.step(
            "commit", "--control-offset", str(started.control_offset), failpoint="coordinator.dead_letters_1=kill"
        )
    assert step.killed, step.err
    assert [len(_letters(streams, b, letters)) for b in ("east", "west")] == [1, 0]
    assert flow.commit(started).state == "committed"
    streams.check(("east", topic), ("west", topic))
    for broker, number in (("east", 1), ("west", 2)):
        told = _letters(streams, broker, letters)
        places = [(h["sluice.cluster"], h["__connect.errors.topic"], h["__connect.errors.offset"]) for h in told]
        assert places == [(broker.encode(), topic.encode(), str(offset).encode()) for offset in range(number)]

    listed = _json(streams, "quarantine", "list", own)["groups"]
    assert {(g["cluster"], g["first"], g["records"]) for g in listed} == {
        (broker, f"{broker}/{topic}[0]@0", number) for broker, number in (("east", 1), ("west", 2))
    }
    streams.map(east=topic, far_west={"topics": topic, "connection": "west"})
    place = f"far_west/{topic}[0]@1"
    facts = _json(streams, "quarantine", "explain", own, place)
    assert (facts["record"], facts["cluster"], facts["redriven"]) == (f"west/{topic}[0]@1", "far_west", False)
    sent = _json(streams, "quarantine", "redrive", own, "--offset", place)["sent"]
    assert sent == [{"cluster": "far_west", "topic": topic, "partition": 0, "records": 1}]
    assert {(s["cluster"], s["records"]) for s in _json(streams, "quarantine", "redrive", own)["sent"]} == {
        ("east", 1), ("far_west", 1),
    }  # fmt: skip
    assert _json(streams, "quarantine", "redrive", own)["sent"] == []
    with streams.at("west", topic) as there:
        again = [dict(r.headers() or ()).get("sluice.redriven") for r in consume(there, topic)]
    assert [place.decode() for place in again if place] == [f"{topic}[0]@1", f"{topic}[0]@0"]

    # What was sent again is read on both clusters; nobody would read it on a cluster that the stream has left.
    flow.set(errors__dead_letter_connection="west")
    flow.interval()
    assert Counter(h["sluice.cluster"] for h in _letters(streams, "west", letters)) == {
        b"west": 2, b"far_west": 2, b"east": 1,
    }  # fmt: skip
    assert len(_letters(streams, "east", letters)) == 1
    flow.set(source__kafka__on_removed="drop")
    streams.map(far_west={"topics": topic, "connection": "west"})
    flow.interval()
    with pytest.raises(ActionRequiredError, match="isn't read any more, so they would never be loaded"):
        _json(streams, "quarantine", "redrive", own)


def test_a_schema_is_proposed_by_the_records_of_all_clusters(make_streams):
    streams = two_clusters(make_streams(sink__hudi={"path": "/lake/t"}))
    for broker, value in (("east", b'{"id": 1, "a": 1}'), ("west", b'{"id": 2, "b": "x"}')):
        with streams.at(broker, streams.topic) as there:
            there.produce_raw(value, partition=1)
    found = _json(streams, "infer", str(streams.flow.file))
    assert (found["sampled"], found["ddl"]) == (2, "a BIGINT,id BIGINT,b STRING")
