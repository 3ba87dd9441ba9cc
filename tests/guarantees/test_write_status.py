"""A WRITE-STATUS counts once, whole, and only if the audit accounts for every record."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from sluice.errors import IntervalError
from sluice.protocol.committable import Committable
from sluice.protocol.messages import PartitionResult, WriteStatus
from sluice.sinks.hudi.write_stats import STAT_FIELDS
from sluice.sinks.hudi.writer import refused_records

from .harness import Flow


def _statuses(flow: Flow) -> list[WriteStatus]:
    return [m for m in flow.messages() if isinstance(m, WriteStatus)]


def test_a_status_that_comes_twice_counts_once(make_flow):
    flow = make_flow()
    flow.produce(40)
    started = flow.start()
    flow.write_all(started)
    status = _statuses(flow)[0]
    flow.send(status)  # as a producer that sends again
    flow.send(status.model_copy(update={"attempt": "another"}))
    assert flow.commit(started).records == 40
    flow.check()


def test_two_attempts_that_both_report_count_once(make_flow):
    flow = make_flow()
    flow.produce(40)
    started = flow.start()
    flow.write_all(started)
    flow.write_all(started)
    assert len({s.attempt for s in _statuses(flow)}) == 2
    assert flow.commit(started).records == 40
    flow.check()


def test_half_of_a_split_status_does_not_count(make_flow):
    flow = make_flow()
    flow.produce(10)
    run = flow.run()
    started = flow.start(run)
    flow.send_as_it_is(_forged(flow, started).model_copy(update={"part": 0, "parts": 2}))
    with pytest.raises(IntervalError, match="did not report"):
        flow.commit(started)
    flow.abort(run)
    flow.interval()
    flow.check()


def _forged(flow: Flow, started, **changes) -> WriteStatus:
    """The status that a participant would send that had written all, but for the changes."""
    planned = started.ranges[0]
    partitions = tuple(
        PartitionResult(
            **r.model_dump(include={"cluster", "topic", "partition", "start"}),
            next_offset=r.end, records_read=r.end - r.start, gaps=0, bytes_read=1,
        )
        for r in planned
    )  # fmt: skip
    read = sum(p.records_read for p in partitions)
    same = {"table": flow.table, "transaction": started.instant, "epoch": 1, "dag_id": "tests", "run_id": "run-1"}
    status = WriteStatus(
        **same, sender="test", time=datetime.now(UTC), range=0, attempt="forged", records_read=read,
        records_written=read, partitions=partitions, stats=({"numWrites": read},),
    )  # fmt: skip
    return status.model_copy(update=changes)


def test_a_status_whose_stat_has_anything_but_hudis_fields_does_not_count(make_flow):
    flow = make_flow()
    flow.produce(40)
    started = flow.start()
    read = sum(r.end - r.start for r in started.ranges[0])
    for named in (
        {"tempPath": "/etc/passwd"},
        {"prevCommit": "../x"},
        {"cdcStats": {"../../other/x.cdc": 9}},
        {"somewhere": "../x"},
    ):
        stats = (Committable.of_wire({"numWrites": read, **named}),)
        flow.send_as_it_is(_forged(flow, started, stats=stats))  # the first whole status of a range would count
    flow.write_all(started)
    assert flow.commit(started).records == 40
    flow.check()


def test_the_fields_of_a_write_stat_are_those_of_hudi(shared_jvm):
    with shared_jvm() as jvm:
        hudi = jvm.jvm.org.apache.hudi.common
        stat = hudi.model.HoodieDeltaWriteStat()
        assert set(json.loads(hudi.util.JsonUtils.toString(stat))) == STAT_FIELDS


def test_what_hudi_says_of_records_that_it_could_not_write_quotes_none_of_them(shared_jvm):
    with shared_jvm() as jvm:
        status = jvm.jvm.org.apache.hudi.client.WriteStatus(True, 1.0)
        status.setFileId("0-0-0")
        reason = jvm.jvm.java.lang.IllegalStateException("can't write hunter2@example.com")
        for key in ("hunter2", "hunter3"):
            status.markFailure(key, "p=hunter2", reason)
        error = refused_records(status, table="file:///t", instant="1")
    assert (error.what, error.recovery) == ("Hudi could not write 2 records.", "retry")
    assert (error.where["file_group"], error.where["errors"]) == ("0-0-0", "IllegalStateException")
    assert "hunter" not in str(error)


def test_an_audit_that_does_not_add_up_refuses_the_commit(make_flow):
    flow = make_flow()
    flow.produce(40)

    def short(status: WriteStatus) -> dict:
        first, *others = status.partitions
        return {"partitions": (first.model_copy(update={"next_offset": first.next_offset - 1}), *others)}

    wrong = [
        lambda status: {"records_written": status.records_read - 1},
        lambda status: {"stats": (Committable(rows=status.records_read - 1),)},
        lambda status: {"stats": (Committable(rows=status.records_read, errors=1),)},
        lambda status: {"partitions": status.partitions[:1]},
        short,
    ]
    for change in wrong:
        run = flow.run()
        started = flow.start(run)
        status = _forged(flow, started)
        flow.send(status.model_copy(update=change(status)))
        with pytest.raises(IntervalError, match="The audit failed") as caught:
            flow.commit(started)
        assert caught.value.where["instant"] == started.instant
        assert flow.abort(run).state == "aborted"
        assert flow.commits() == []
    flow.interval()
    flow.check()
