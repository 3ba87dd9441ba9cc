"""`sluice quarantine`: what was set aside is listed and explained, and sent again once, to where it came from."""

from __future__ import annotations

import json
from typing import Any

import pytest
import structlog
from typer.testing import CliRunner

from sluice.cli import app
from sluice.errors import ActionRequiredError
from sluice.logs import log

from .harness import Flow, finish, kafka_settings
from .quarantined import TOLERANT, consume, quarantine, send

BAD = b'{"id": "7", "v": "x", "p": "p0"}'  # which another schema takes


def _json(flow: Flow, *arguments: str) -> Any:
    done = CliRunner().invoke(app, ["quarantine", arguments[0], str(flow.file), *arguments[1:], "--json"])
    structlog.reset_defaults()  # the command logs to what was its own output
    vars(log).pop("bind", None)
    if done.exception is not None:
        raise done.exception
    return json.loads(done.stdout)


def test_listed_explained_and_sent_again_once(make_flow, monkeypatch):
    flow = make_flow(**TOLERANT)
    monkeypatch.setenv(
        "SLUICE_KAFKA_SOURCE", kafka_settings(flow.bootstrap).to_environment("source")["SLUICE_KAFKA_SOURCE"]
    )
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
    assert _json(flow, "redrive", "--offset", place)["sent"] == [{"topic": flow.topic, "partition": 1, "records": 1}]
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
