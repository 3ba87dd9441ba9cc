"""`sluice quarantine`: what was set aside is listed and explained, and sent again once, to where it came from."""

from __future__ import annotations

import json
from dataclasses import replace
from shutil import rmtree
from typing import Any

import pytest
import structlog
from confluent_kafka import Producer
from typer.testing import CliRunner

from sluice.cli import app, set_aside
from sluice.errors import ActionRequiredError
from sluice.kafka.config import CONTROL_SECRET
from sluice.local.broker_config import CLUSTER_ID
from sluice.logs import log
from sluice.protocol import quarantine as protocol
from sluice.protocol.request import Request
from sluice.protocol.signing import Signatures
from sluice.sinks.hudi import quarantine as hudi_quarantine
from sluice.sinks.hudi import sink as hudi_sink

from .harness import CLUSTER, Flow, finish, kafka_settings
from .quarantined import TOLERANT, consume, folder, places, quarantine, send

BAD = b'{"id": "7", "v": "x", "p": "p0"}'  # which another schema takes


def _json(flow: Flow, *arguments: str) -> Any:
    with pytest.MonkeyPatch.context() as patch:  # the command would start a JVM, to look at the table's last commit
        patch.setattr(set_aside, "coordinator", lambda _file: flow.coordinator())
        done = CliRunner().invoke(app, ["quarantine", arguments[0], str(flow.file), *arguments[1:], "--json"])
    structlog.reset_defaults()  # the command logs to what was its own output
    vars(log).pop("bind", None)
    if done.exception is not None:
        raise done.exception
    return json.loads(done.stdout)


def _sent(flow: Flow, *options: str) -> int:
    return sum(s["records"] for s in _json(flow, "redrive", *options)["sent"])


def _topic_id(flow: Flow) -> str | None:
    topic = flow.checkpoint().topic(CLUSTER, flow.topic)
    return topic and topic.topic_id


@pytest.fixture(autouse=True)
def connect(bootstrap, monkeypatch):
    """Sets the control secrets of the commands' connection; there are none at first."""

    def connect(*secrets: str) -> None:
        name, known = "SLUICE_KAFKA_SOURCE", kafka_settings(bootstrap)
        own = dict(zip((CONTROL_SECRET, f"{CONTROL_SECRET}.previous"), secrets, strict=False))
        with_secrets = replace(known, librdkafka={**known.librdkafka, **own})
        monkeypatch.setenv(name, with_secrets.to_environment("source")[name])

    connect()
    return connect


def test_listed_explained_and_sent_again_once(make_flow):
    flow = make_flow(**TOLERANT)
    flow.produce(10)
    own = [("trace", b"\x00\xff")]
    first = send(flow, BAD, partition=1, key=b"\x00\x00\x00\x00\x2akey", headers=own)
    tombstone = send(flow, None, partition=1, key=b"gone")
    instant = flow.interval().instant
    flow.produce(10)
    other = send(flow, b"[" * 500, partition=0)
    later = flow.interval().instant
    flow.check()

    listed = _json(flow, "list")
    groups = {(g["instant"], g["first"]): g for g in listed["groups"]}
    assert listed["records"] == 3
    assert groups[instant, f"{flow.topic}[1]@{first}"]["reason"].startswith("the value is not JSON")
    assert [g["records"] for g in _json(flow, "list", "--instant", later)["groups"]] == [1]
    facts = _json(flow, "explain", f"{flow.topic}[1]@{first}")
    assert (facts["value"], facts["header trace"], facts["instant"]) == (BAD.decode(), "\x00\\xff", instant)
    assert facts["key's schema id"].startswith("42,")
    assert "redrive" in facts["what next"]
    assert f"--offset '{flow.topic}[1]@{first}'" in facts["what next"]

    # Sent again, one at first and then the rest; killed in between nothing is sent, or nobody sees it.
    failpoint = "kafka.before_commit_transaction=kill"
    killed = finish(flow._spawn("quarantine", "redrive", str(flow.file), failpoint=failpoint))
    assert killed.killed, killed.err
    place = f"{flow.topic}[1]@{first}"
    sent_first = {"cluster": CLUSTER, "topic": flow.topic, "partition": 1, "records": 1}
    assert _json(flow, "redrive", "--offset", place)["sent"] == [sent_first]
    assert _json(flow, "redrive", "--offset", place)["sent"] == []
    assert [s["records"] for s in _json(flow, "redrive", "--dry-run")["sent"]] == [1, 1]
    assert [s["records"] for s in _json(flow, "redrive")["sent"]] == [1, 1]
    assert _json(flow, "redrive")["sent"] == []
    with pytest.raises(ActionRequiredError, match="has no record"):
        _json(flow, "redrive", "--offset", f"{flow.topic}[0]@0")
    assert sum(g["redriven"] for g in _json(flow, "list")["groups"]) == 3

    again = {
        (r.partition(), dict(r.headers())["sluice.redriven"].decode()): r
        for p in (0, 1)
        for r in consume(flow, flow.topic, p)
        if "sluice.redriven" in dict(r.headers() or ())
    }
    assert set(again) == {(1, f"{flow.topic}[1]@{o}") for o in (first, tombstone)} | {(0, f"{flow.topic}[0]@{other}")}
    record = again[1, f"{flow.topic}[1]@{first}"]
    assert (record.value(), record.key(), record.headers()[:1]) == (BAD, b"\x00\x00\x00\x00\x2akey", own)
    with pytest.raises(ActionRequiredError, match="would make them rows a second time") as caught:
        flow.start(flow.run(kind="replay", instant=instant))
    assert caught.value.where["first"] == place
    # They are records like any other: still bad here, each with the header that says where it was first.
    flow.interval()
    flow.check(complete=False)
    assert sum(row["_hoodie_commit_time"] > later for row in quarantine(flow)) == 3
    assert facts["redriven"] is False
    assert _json(flow, "explain", place)["redriven"] is True


@pytest.mark.thorough
def test_what_came_from_a_topic_that_was_made_again_is_not_sent(make_flow):
    flow = make_flow(1, **TOLERANT, source__kafka__on_offset_loss="earliest")
    for _ in range(2):
        send(flow, BAD)
    old = flow.interval().instant
    ids = [_topic_id(flow)]
    first, second = f"{flow.topic}[0]@0", f"{flow.topic}[0]@1"
    assert _sent(flow, "--offset", first) == 1
    flow.create_again()
    send(flow, BAD)
    new = flow.interval().instant
    ids.append(_topic_id(flow))
    assert [row["kafka_topic_id"] for row in quarantine(flow)] == [*ids, ids[0]]  # by offset
    for options in ([], ["--dry-run"], ["--instant", old]):
        with pytest.raises(ActionRequiredError, match="created again") as caught:
            _json(flow, "redrive", *options)
        assert (caught.value.where["instants"], caught.value.where["first"]) == (old, second)
    assert flow.log_ends() == {0: 1}
    assert "created again" in _json(flow, "explain", second)["what next"]
    # Two records have the same place, and each counts for itself: that of the old log was sent, the other wasn't.
    assert {g["instant"]: g["redriven"] for g in _json(flow, "list")["groups"]} == {old: 1, new: 0}
    flow.coordinator().plan(Request(kind="replay", instant=new))
    assert _sent(flow, "--offset", first) == 1
    assert _sent(flow, "--instant", new) == 0


def test_what_others_write_among_the_notes_changes_nothing(make_flow):
    """Nothing takes a record out of that topic again, so one that is no note of ours is passed over."""
    flow = make_flow(1, **TOLERANT)
    send(flow, BAD)
    flow.interval()
    assert _sent(flow) == 1
    producer = Producer({"bootstrap.servers": flow.bootstrap, "log_level": 0})
    for junk in (b"x", b"[" * 5000, b'{"places": 5}', None):
        producer.produce(f"{flow.pipeline.control.topic}.redriven", junk, b"anything")
    assert producer.flush(30) == 0
    assert _sent(flow) == 0
    send(flow, BAD)
    flow.interval()
    assert _sent(flow) == 2  # what was sent again is a bad record still
    assert _sent(flow) == 0


def test_with_a_secret_no_forged_note_keeps_a_record_from_being_sent(make_flow, connect):
    flow = make_flow(1, **TOLERANT)
    first, second, third = (f"{flow.topic}[0]@{send(flow, BAD)}" for _ in range(3))
    flow.interval()
    notes = f"{flow.pipeline.control.topic}.redriven"
    assert _sent(flow, "--offset", first) == 1
    connect("a secret of the tests")
    assert _sent(flow, "--offset", second) == 1  # signing begins
    forged = json.dumps({"version": 1, "places": [(flow.topic, 0, 2)], "topic_ids": {flow.topic: None}}).encode()
    producer = Producer({"bootstrap.servers": flow.bootstrap, "log_level": 0})
    key = flow.table.encode()
    for secrets in ((), ("a secret of another",)):
        headers = Signatures(notes, secrets, lambda *_: None).headers(key, forged)
        producer.produce(notes, forged, key, headers=headers)
    assert producer.flush(30) == 0
    assert sum(g["redriven"] for g in _json(flow, "list")["groups"]) == 2
    assert _sent(flow, "--offset", third) == 1
    assert _sent(flow) == 0
    # A secret is replaced in two steps: in between a command that sends nothing signs the notes again.
    connect("another secret of the tests", "a secret of the tests")
    assert _sent(flow) == 0
    connect("another secret of the tests")
    assert _sent(flow) == 0


@pytest.mark.thorough
def test_what_was_set_aside_before_rows_had_ids_is_judged_by_the_tables_own_commits(make_flow, monkeypatch):
    flow = make_flow(1, **TOLERANT)
    with monkeypatch.context() as before:
        for module in (protocol, hudi_sink, hudi_quarantine):
            before.setattr(module, "SCHEMA", protocol.SCHEMA.partition(", kafka_topic_id")[0])
        send(flow, BAD)
        old = flow.interval().instant
    assert "kafka_topic_id" not in quarantine(flow)[0]
    send(flow, BAD)
    flow.interval()
    rows = flow.drivers.idle().ask("read_all", str(folder(flow)), True)
    ids = {row["kafka_offset"]: (row["kafka_topic_id"], row["kafka_cluster_id"]) for row in rows}
    assert ids == {0: (None, None), 1: (_topic_id(flow), CLUSTER_ID)}
    assert _sent(flow, "--dry-run") == 2
    flow.create_again()
    with pytest.raises(ActionRequiredError, match="created again"):
        _json(flow, "redrive", "--instant", old)
    rmtree(flow.path)  # and with it all that says of which log they are
    with pytest.raises(ActionRequiredError, match="isn't known of which log") as caught:
        _json(flow, "redrive", "--instant", old)
    assert caught.value.where["first"] == f"{flow.topic}[0]@0"


def test_as_newest_lets_what_is_sent_again_win(make_flow):
    upsert = {"sink__hudi__operation": "upsert", "errors__max_record_bytes": 60}
    flow = make_flow(1, **TOLERANT, **upsert)
    flow.produce(1, ids=[7], partitions=[0], values="an old version, of more bytes than a record may have: ")
    flow.produce(1, ids=[7], partitions=[0], values="b")
    flow.interval()
    assert (flow.read("id", "v"), places(quarantine(flow))) == ([(7, "b7")], [(0, 0)])
    flow.set(errors__max_record_bytes=None)
    with pytest.raises(ActionRequiredError, match="wins over all records that came after it") as caught:
        _json(flow, "redrive")
    assert "--as-newest" in caught.value.next_step
    assert flow.log_ends() == {0: 2}
    assert _sent(flow, "--as-newest") == 1
    flow.interval()
    assert flow.read("id", "v") == [(7, flow.sent[0].value)]
