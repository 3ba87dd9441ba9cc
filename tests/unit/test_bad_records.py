"""The pure rules of bad records: limits, where they are set aside, what is registered."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from sluice.errors import ActionRequiredError, IntervalError, PipelineFileError
from sluice.participant import quarantine
from sluice.pipeline import load_pipeline
from sluice.protocol.audit import audit
from sluice.protocol.bad_records import audit_bad_records, certainly_too_many, first_bad, limit_broken
from sluice.protocol.committable import Committable
from sluice.protocol.messages import BadRecord
from sluice.protocol.quarantine import (
    day_of,
    may_have_left_files,
    quarantine_path,
    registered_files,
    set_aside,
)
from sluice.protocol.transaction import TableLog
from sluice.records.plan import RecordPlan
from sluice.records.settings import Errors
from sluice.rows.bad_records import BadSpan
from sluice.rows.records import Counted
from sluice.sinks.hudi.quarantine import quarantine_writer
from sluice.sinks.hudi.writer import Written

from .protocol_messages import TABLE, WRITER, abort, ack, end, planned, start, status

PAGE = Path(__file__).parents[2] / "docs" / "bad-records.md"
FIRST = BadRecord(topic="t", partition=1, offset=105, reason="no JSON")


@pytest.mark.parametrize("text", re.findall(r"^```yaml\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE))
def test_the_file_of_the_page_loads(tmp_path, text):
    file = tmp_path / "pipeline.yaml"
    file.write_text(text)
    errors = load_pipeline(file).errors
    assert (errors.tolerance, errors.max_record_bytes) == ("all", 10 * 1024 * 1024)


@pytest.mark.parametrize(
    ("errors", "says"),
    [
        ({"max_records": 1}, "tolerance: all"),
        ({"tolerance": "all", "quarantine": "/lake/t"}, "a separate table"),
        ({"tolerance": "all", "quarantine": "/lake/t/bad"}, "a separate table"),
        ({"tolerance": "all", "quarantine": "/lake"}, "a separate table"),
        ({"tolerance": "all", "dead_letter_topic": "t"}, "one of the topics that are read"),
    ],
)
def test_wrong_settings(tmp_path, errors, says):
    file = tmp_path / "p.yaml"
    hudi = {"path": "/lake/t", "schema": "id BIGINT"}
    content = {"name": "p", "source": {"kafka": {"topics": "t"}}, "sink": {"hudi": hudi}, "errors": errors}
    file.write_text(yaml.safe_dump(content))
    with pytest.raises(PipelineFileError, match=says):
        load_pipeline(file)


@pytest.mark.parametrize(
    ("limits", "bad", "read", "broken"),
    [
        ({}, 10, 10, None),
        ({"max_records": 3}, 3, 10, None),
        ({"max_records": 3}, 4, 1_000_000, "max_records"),
        ({"max_records": 0}, 0, 0, None),
        ({"max_records": 0}, 1, 10, "max_records"),
        ({"max_rate": 0.1}, 1, 10, None),
        ({"max_rate": 0.1}, 2, 19, "max_rate"),
        ({"max_rate": 0.0}, 0, 0, None),
        ({"max_rate": 0.0}, 1, 1_000_000, "max_rate"),
        ({"max_records": 100, "max_rate": 0.01}, 50, 1000, "max_rate"),
    ],
)
def test_limits(limits, bad, read, broken):
    assert limit_broken(Errors(tolerance="all", **limits), bad, read) == broken


def _start(ranges: int = 2, **limits):
    errors = Errors(tolerance="all", **limits)
    writer = quarantine_writer(WRITER, errors, "{}")
    return start("20260101000000000", ranges=ranges, records=RecordPlan(errors=errors), quarantine=writer)


def _status(number: int, bad: int, **more):
    counts = {"records_written": 10 - bad, "records_quarantined": bad, "stats": ({"numWrites": 10 - bad},)}
    stats = ({"numWrites": bad, "path": f"day/{number}"},) if bad else ()
    return status("20260101000000000", number, **{"quarantine_stats": stats, **counts, **more})


def test_the_limits_hold_over_all_ranges():
    reported = {0: _status(0, 2), 1: _status(1, 2, first_bad=FIRST)}
    audit_bad_records(_start(max_records=4, max_rate=0.2), reported)
    with pytest.raises(ActionRequiredError) as caught:
        audit_bad_records(_start(max_records=3), reported)
    for words in ("4 of 20", "errors.max_records is 3", "t[1]@105", "no JSON", TABLE):
        assert words in str(caught.value)
    with pytest.raises(ActionRequiredError, match=r"max_rate is 0\.19"):
        audit_bad_records(_start(max_rate=0.19), reported)


def test_the_first_bad_record_is_that_of_the_first_partition_in_whichever_range_it_is():
    later = FIRST.model_copy(update={"partition": 2, "offset": 3})
    assert first_bad([_status(0, 1, first_bad=later), _status(1, 1, first_bad=FIRST), _status(2, 0)]) == FIRST
    assert first_bad([_status(0, 0)]) is None


def test_a_range_knows_by_itself_what_no_other_can_change():
    rated = _start(max_rate=0.2)  # 20 offsets are planned
    assert certainly_too_many(rated, 4, FIRST) is None
    assert certainly_too_many(rated, 5, FIRST) is not None
    assert certainly_too_many(_start(max_records=4), 4, FIRST) is None
    assert certainly_too_many(_start(max_records=4), 5, None) is not None


def test_the_quarantine_must_have_what_was_counted():
    audit(_start(), 0, _status(0, 3))
    with pytest.raises(IntervalError, match="in_quarantine=2"):
        audit(_start(), 0, _status(0, 3, quarantine_stats=({"numWrites": 2},)))
    with pytest.raises(IntervalError, match="write_errors=1"):
        audit(_start(), 0, _status(0, 1, quarantine_stats=({"numWrites": 1, "totalWriteErrors": 1},)))


def test_where_it_is():
    assert quarantine_path(TABLE, Errors()) == f"{TABLE}_quarantine"
    assert quarantine_path(TABLE, Errors(tolerance="all", quarantine="/q")) == "file:///q"
    assert day_of("20260131235959999") == "2026-01-31"
    versioned = WRITER.model_copy(update={"options": {"hoodie.write.table.version": "6", "hoodie.x": "y"}})
    assert quarantine_writer(versioned, Errors(), "{}").options == {"hoodie.write.table.version": "6"}


def _fold(*messages):
    log = TableLog(TABLE).extend(enumerate(messages))
    return log.transactions["20260101000000000"]


def test_what_may_have_left_files():
    begun, instant = _start(), "20260101000000000"
    assert may_have_left_files(_fold(begun))
    assert may_have_left_files(_fold(begun, _status(0, 0), abort(instant)))
    clean = (_status(0, 0), _status(1, 0), end(instant, reported=(0, 1)), ack(instant))
    assert not may_have_left_files(_fold(begun, *clean))
    bad = _fold(begun, _status(0, 0), _status(1, 2), _status(1, 2, attempt="late"), end(instant, (0, 1)), ack(instant))
    assert may_have_left_files(bad)
    assert list(set_aside(bad)) == [1]
    assert registered_files(bad) == {"day/1"}
    assert not may_have_left_files(_fold(begun.model_copy(update={"quarantine": None})))


class _Chain:
    def bad(self, records):
        return records


class _Writer:
    def __init__(self, begun, attempt):
        assert begun.writer.path == f"{TABLE}_quarantine"
        assert not begun.keep_newer

    def write(self, rows):
        return Written((Committable(rows=len(rows)),), None)


def test_a_second_pass_that_finds_others_fails_the_attempt(monkeypatch):
    monkeypatch.setattr(quarantine, "RecordChain", lambda *_, **__: _Chain())
    monkeypatch.setattr(quarantine, "_rows", lambda bad, *_: bad)
    monkeypatch.setattr(quarantine, "_first", lambda *_: FIRST)
    begun, span = _start(), BadSpan(planned(0), 3, 7)
    reads = []

    def read(ranges, may_share):
        assert not may_share  # the writer doesn't say so
        reads.append(ranges)
        return [(["a bad record"] * 2, False)] * min(2, len(ranges))

    def writer():
        return _Writer(quarantine.in_quarantine(begun), "a")

    found = quarantine.set_aside(None, begun, Counted(2, spans=(span,)), read, writer, (0, "a"), object())
    assert (found.records, found.first) == (2, FIRST)
    assert [(r.start, r.end) for r in reads[0]] == [(3, 8)]
    with pytest.raises(IntervalError, match=r"counted=3, found=2"):
        quarantine.set_aside(None, begun, Counted(3, spans=(span,)), read, writer, (0, "a"), object())
    reads.clear()
    many = tuple(BadSpan(planned(i), 0, 1) for i in range(65))
    found = quarantine.set_aside(None, begun, Counted(4, spans=many), read, writer, (0, "a"), object())
    assert (found.records, [len(ranges) for ranges in reads]) == (4, [65])
    reads.clear()
    assert quarantine.set_aside(None, begun, Counted(), read, writer, (0, "a"), object()) == quarantine.SetAside()
    assert reads == []
