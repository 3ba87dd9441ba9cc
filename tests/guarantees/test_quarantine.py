"""With `errors.tolerance: all` bad records are set aside in the same transaction, once each; no good one is lost."""

from __future__ import annotations

import json

import pytest

from sluice.errors import ActionRequiredError
from sluice.protocol.messages import AbortCommit, AckCommit, WriteStatus

from ..thorough import also
from .harness import Flow, finish, once_the_lease_is_free
from .quarantined import TOLERANT, files_there, folder, markers_there, places, quarantine, send

BAD = b'{"id": "seven"}'


def _bad(flow: Flow, *partitions: int) -> list[tuple[int, int]]:
    return [(p, flow.produce_raw(BAD, partition=p)) for p in partitions]


def test_bad_records_are_rows_of_the_quarantine(make_flow):
    flow = make_flow(**TOLERANT, write__ranges=2)
    flow.produce(20)
    headers = [("trace", b"\x00\x01"), ("none", None)]
    offset = send(flow, b'{"id": 1', partition=1, key=b"k", headers=headers, timestamp=1_700_000_000_000)
    tombstone = send(flow, None, partition=0, key=b"k2")
    flow.produce(20)
    missing = send(flow, b'{"v": "x", "p": "p0"}', partition=1)
    outcome = flow.interval()
    first = f"{flow.topic}[0]@{tombstone}: the value is null (a tombstone)"
    assert outcome.summary.endswith(f"; 3 bad records are set aside in file://{folder(flow)}; the first is {first}.")
    flow.check()
    rows = quarantine(flow)
    assert rows == quarantine(flow, metadata=False)
    assert places(rows) == [(0, tombstone), (1, offset), (1, missing)]
    by_offset = {(row["kafka_partition"], row["kafka_offset"]): row for row in rows}
    truncated = by_offset[1, offset]
    assert truncated["kafka_value"] == b'{"id": 1'
    assert truncated["kafka_key"] == b"k"
    assert [(h["key"], h["value"]) for h in truncated["kafka_headers"]] == headers
    assert truncated["kafka_timestamp"].timestamp() == 1_700_000_000
    assert "not one JSON object" in truncated["reason"]
    # Partition 1 has one offset more, and the range with the most work comes first.
    assert (truncated["stage"], truncated["range_number"], truncated["table_path"]) == ("value", 0, flow.table)
    assert (truncated["dag_id"], truncated["run_id"]) == ("tests", "run-1")
    assert truncated["_hoodie_commit_time"] == outcome.instant
    assert truncated["day"] == f"{outcome.instant[:4]}-{outcome.instant[4:6]}-{outcome.instant[6:8]}"
    assert by_offset[0, tombstone]["kafka_value"] is None
    assert "tombstone" in by_offset[0, tombstone]["reason"]
    assert by_offset[1, missing]["stage"] == "row"
    statuses = [m for m in flow.messages() if isinstance(m, WriteStatus)]
    assert {s.attempt for s in statuses} == {row["attempt"] for row in rows}
    assert sum(s.records_read for s in statuses) == sum(s.records_written + s.records_quarantined for s in statuses)
    ack = flow.messages()[-1]
    assert isinstance(ack, AckCommit)
    assert (ack.records_quarantined, ack.records_read, ack.records_written) == (3, 43, 40)
    # An interval without bad records leaves the quarantine alone.
    before = flow.jvm.commits(str(folder(flow)))
    flow.produce(20)
    flow.interval()
    flow.check()
    assert flow.jvm.commits(str(folder(flow))) == before
    # What was set aside is no difference between topic and table.
    verified = flow.verify("--json")
    assert verified.exit_code == 0, verified.output
    assert [i["in_topic"] for i in json.loads(verified.stdout)["intervals"]] == [40, 20]


def test_too_many(make_flow):
    flow = make_flow(**TOLERANT, write__ranges=2, errors__max_records=2)
    flow.produce(20)
    bad = _bad(flow, 0, 1, 1, 1)
    run = flow.run()
    started = flow.start(run)
    flow.write(started, 1).succeed()
    late = flow.write(started, 0)  # the range of partition 1, which has the most offsets
    assert late.wait() == 1
    for words in ("3 of", "errors.max_records is 2", f"first={flow.topic}[1]@{bad[1][1]}", "not of its column's type"):
        assert words in late.text()
    with pytest.raises(ActionRequiredError, match=r"errors\.max_records is 2"):
        flow.commit(started)
    assert flow.abort(run).state == "aborted"
    assert (files_there(flow), markers_there(flow)) == ([], [])
    # What no range can know by itself is found where the counts of all are known.
    flow.set(errors__max_records=3)
    started = flow.start(run := flow.run())
    flow.write_all(started)
    with pytest.raises(
        ActionRequiredError, match=rf"Too many records can't be loaded: 4 of 24, .* is 3\. \[first=\S+\[0\]@{bad[0][1]}"
    ):
        flow.commit(started)
    assert flow.abort(run).state == "aborted"
    ending = flow.messages()[-1]
    assert isinstance(ending, AbortCommit)
    assert (files_there(flow), markers_there(flow)) == ([], [])
    assert flow.jvm.commits(str(folder(flow))) == []
    flow.set(errors__max_records=4)
    flow.interval()
    flow.check()
    assert places(quarantine(flow)) == sorted(bad)


@pytest.mark.parametrize(
    ("point", "then"),
    [
        ("after_hudi_commit", "next"),
        *also(("before_quarantine_commit", "again"), ("after_quarantine_commit", "abort")),
    ],
)
def test_killed_between_the_tables_commit_and_ack(make_flow, point, then):
    flow = make_flow(**TOLERANT)
    flow.produce(20)
    bad = _bad(flow, 0, 1)
    started = flow.start(run := flow.run())
    flow.write_all(started)
    step = flow.step("commit", "--control-offset", str(started.control_offset), failpoint=f"coordinator.{point}=kill")
    assert step.killed, step.err
    if then == "again":
        assert flow.commit(started).state == "committed"
    elif then == "abort":  # what is committed is never undone
        assert flow.abort(run).state == "committed"
    flow.produce(20)
    bad += _bad(flow, 1)
    flow.interval()
    flow.check()
    assert places(quarantine(flow)) == places(quarantine(flow, metadata=False)) == sorted(bad)
    assert len(flow.jvm.commits(str(folder(flow)))) == 2
    assert flow.jvm.pending(str(folder(flow))) == []
    assert len(files_there(flow)) == len(bad)
    assert sum(isinstance(m, AckCommit) for m in flow.messages()) == 2


@pytest.mark.thorough
def test_killed_while_the_quarantines_instant_is_opened(make_flow):
    flow = make_flow(**TOLERANT)
    flow.produce(20)
    bad = _bad(flow, 0)
    started = flow.start()
    flow.write_all(started)
    step = flow.step(
        "commit", "--control-offset", str(started.control_offset), failpoint="coordinator.before_ack_commit=kill"
    )
    assert step.killed, step.err
    # A kill in there leaves the instant requested, and nothing of its commit.
    timeline = folder(flow) / ".hoodie" / "timeline"
    for file in timeline.glob(f"{started.instant}*"):
        if not file.name.endswith(".requested"):
            file.unlink()
    assert quarantine(flow) == quarantine(flow, metadata=False) == []
    assert flow.commit(started).state == "committed"
    assert places(quarantine(flow)) == places(quarantine(flow, metadata=False)) == bad


@pytest.mark.thorough
def test_committed_by_another_while_the_first_stands_still(make_flow):
    """The first has looked whether it is done before that, so it goes on to commit it a second time."""
    flow = make_flow(**TOLERANT, control__commit_timeout="5 seconds", control__clock_wait="1 second")
    flow.produce(20)
    bad = _bad(flow, 0, 1)
    started = flow.start()
    flow.write_all(started)
    pause, first = flow.frozen_commit(started, "coordinator.before_quarantine_commit")
    assert once_the_lease_is_free(lambda: flow.commit(started)).state == "committed"
    pause.release()
    late = finish(first)
    assert late.status == 1, "it was not too late, so this test shows nothing"
    assert "Hudi failed (opening the instant)" in late.err
    assert places(quarantine(flow)) == places(quarantine(flow, metadata=False)) == bad
    assert flow.jvm.pending(str(folder(flow))) == []
    flow.produce(20)
    bad += _bad(flow, 1)
    flow.interval()
    flow.check()
    assert places(quarantine(flow)) == places(quarantine(flow, metadata=False)) == sorted(bad)
    assert len(flow.jvm.commits(str(folder(flow)))) == 2
    assert flow.jvm.pending(str(folder(flow))) == []
    assert sum(isinstance(m, AckCommit) for m in flow.messages()) == 2


def test_completed_twice_by_one_that_stood_still_inside_of_hudi(make_flow):
    """Hudi takes the second completion for the commit's: who reads what is new gets the rows again."""
    flow = make_flow(**TOLERANT)
    flow.produce(20)
    bad = _bad(flow, 0, 1)
    instant = flow.interval().instant
    (first,) = (folder(flow) / ".hoodie" / "timeline").glob(f"{instant}_*")
    rest = first.name.partition("_")[2]
    second = first.with_name(f"{instant}_{int(rest[:17]) + 5}{rest[17:]}")
    second.write_bytes(first.read_bytes())
    flow.produce(20)
    flow.interval()
    assert first.exists()
    assert not second.exists()
    assert places(quarantine(flow)) == places(quarantine(flow, metadata=False)) == bad


@pytest.mark.thorough
def test_what_dead_attempts_leave(make_flow):
    flow = make_flow(**TOLERANT)
    flow.produce(20)
    bad = _bad(flow, 0, 1)
    started = flow.start(run := flow.run())
    flow.write_all(started)
    assert len(files_there(flow)) == 2
    assert quarantine(flow) == []
    assert flow.abort(run).state == "aborted"
    assert (files_there(flow), markers_there(flow)) == ([], [])
    # Of a run that never comes back: the next one takes its files away, and commits those of its own second attempt.
    flow.write_all(flow.start())
    assert len(files_there(flow)) == 2
    started = flow.start()
    assert (files_there(flow), markers_there(flow)) == ([], [])
    flow.write(started, failpoint="participant.after_quarantine=kill").wait()
    flow.write_all(started)
    flow.commit(started)
    flow.check()
    assert places(quarantine(flow)) == places(quarantine(flow, metadata=False)) == bad
    assert (len(files_there(flow)), markers_there(flow)) == (2, [])


def test_a_zombies_file_is_swept_up(make_flow):
    flow = make_flow(**TOLERANT)
    flow.produce(20)
    bad = _bad(flow, 0)
    flow.interval()
    registered = files_there(flow)
    group, token, rest = registered[0].name.split("_")
    late = registered[0].with_name(f"{group[::-1]}_{token}_{rest}")
    late.write_bytes(registered[0].read_bytes())
    flow.produce(20)
    flow.interval()
    assert files_there(flow) == registered
    assert places(quarantine(flow, metadata=False)) == bad
