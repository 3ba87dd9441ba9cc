"""What a participant hands to the commit: on the wire as version 1 has always had it, and as another sink's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from sluice.connectors.registry import confinement
from sluice.errors import IntervalError
from sluice.protocol.audit import audit
from sluice.protocol.committable import Committable
from sluice.protocol.messages import WriteStatus, decode, encode

from .protocol_messages import TABLE, start, status

RECORDED = (Path(__file__).parent / "messages" / "write_status_v1.json").read_bytes()
"""A message as releases wrote it when all that a participant reported were Hudi's write stats."""


def test_a_recorded_message_reads_and_is_written_back_byte_for_byte():
    message = decode(RECORDED)
    assert isinstance(message, WriteStatus)
    (written,), (bad,) = message.stats, message.quarantine_stats
    assert (written.rows, written.deletes, written.errors, written.bytes) == (100, 0, 0, 435053)
    assert (written.partition, written.path.partition("/")[0]) == ("JFK", "JFK")
    assert written.payload == json.loads(RECORDED)["stats"][0]
    assert (bad.rows, bad.partition) == (1, "2026-11-21")
    assert encode(message) == RECORDED


def test_what_another_sink_reports_travels_with_its_payload_apart():
    made = Committable(
        rows=3, deletes=1, bytes=70, path="a/b", partition="a", payload={"path": "its own", "numWrites": 9}
    )
    message = status("20260101000000000", stats=(made,), records_written=3)
    read = decode(encode(message))
    assert isinstance(read, WriteStatus)
    assert read.stats == (made,)
    sent = json.loads(encode(message))["stats"][0]
    assert (sent["numWrites"], sent["path"], sent["payload"]["numWrites"]) == (3, "a/b", 9)


def test_an_earlier_release_finds_the_counts_that_it_audits():
    """It has `dict` where we have a committable, and reads these names of it."""
    sent = Committable(rows=3, deletes=1, errors=2, bytes=70, path="a/b", partition="a", payload={"x": 1}).as_wire()
    names = ("numWrites", "numDeletes", "totalWriteErrors", "totalWriteBytes", "path", "partitionPath")
    assert [sent[name] for name in names] == [3, 1, 2, 70, "a/b", "a"]


def test_a_write_stat_beside_which_something_else_is_said_is_not_committed():
    """Else a message's file would be looked at, and another one be committed."""
    (stat,) = json.loads(RECORDED)["stats"]
    assert Committable.of_wire(stat).whole() == stat
    forged = {**stat, "payload": {**stat, "path": "../another_table/x.parquet", "partitionPath": "../another_table"}}
    assert confinement().refusal(status("20260101000000000", stats=(Committable.of_wire(forged),)), TABLE) is None
    with pytest.raises(IntervalError, match="outside of its payload"):
        Committable.of_wire(forged).whole()


@pytest.mark.parametrize("sent", ["text", 7, None, ["a"], {"numWrites": "many"}, {"numDeletes": []}, {"payload": "x"}])
def test_what_is_no_committable_is_not_read(sent):
    raw = json.loads(RECORDED)
    raw["stats"] = [sent]
    with pytest.raises(ValidationError):
        decode(json.dumps(raw).encode())


@pytest.mark.parametrize(
    "committable",
    [
        Committable(rows=9, payload={"numWrites": 10}),
        Committable(rows=10, errors=1),
        Committable(rows=10, deletes=1),
    ],
)
def test_the_audit_reads_the_counts_and_never_the_payload(committable):
    good = Committable(rows=10, payload={"numWrites": 7, "totalWriteErrors": 5})
    audit(start("1"), 0, status("1", stats=(good,)))
    with pytest.raises(IntervalError, match="not all accounted for"):
        audit(start("1"), 0, status("1", stats=(committable,)))


@pytest.mark.parametrize("path", ["../other", "/etc/passwd", ".hoodie/x", "s3a://other/x", "a/../../b"])
def test_a_file_outside_of_the_table_does_not_count(path):
    inside = Committable(path="a/part-0.jsonl", partition="a", payload={})
    instant = "20260101000000000"
    assert confinement().refusal(status(instant, stats=(inside,)), TABLE) is None
    assert confinement().refusal(status(instant, stats=(Committable(path=path, payload={}),)), TABLE) is not None
    assert confinement().refusal(status(instant, stats=(Committable(partition=path, payload={}),)), TABLE) is not None
