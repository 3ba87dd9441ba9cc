"""The control topic is no way in: what a message may name, whose messages count, and how a table moves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import Producer

from sluice.coordinator import Coordinator, Started
from sluice.errors import ActionRequiredError, IntervalError
from sluice.pipeline.model import SHARED_CONTROL_TOPIC, default_control_topic
from sluice.protocol.commit_note import CommitNote, commit_note
from sluice.protocol.confine import start_digest
from sluice.protocol.messages import AbortCommit, Moved, StartCommit, WriteStatus

from .harness import Flow, Step, finish, kafka_settings, wait_for
from .harness.topics import consume

FOREIGN = "20250101000000000"
OPTIONS = {"hoodie.parquet.compression.codec": "gzip"}


def forged(flow: Flow, start: StartCommit, victim: str) -> list[Any]:
    """What somebody might send who may write to the topic: of the table, and not from its coordinator."""
    envelope = start.model_dump(include={"table", "epoch", "dag_id", "run_id"})
    envelope |= {"sender": "coordinator", "time": datetime.now(UTC)}
    elsewhere = start.writer.model_copy(update={"path": victim, "options": OPTIONS})
    starts = [
        start.model_copy(update={"transaction": FOREIGN, "writer": elsewhere, "read_position": 10**9}),
        start.model_copy(update={"transaction": "*", "read_position": 10**9}),
        start.model_copy(update={"transaction": FOREIGN, "quarantine": elsewhere, "read_position": 10**9}),
        start.model_copy(update={"read_position": 10**9, "ranges": ((),)}),  # a committed instant's id once more
    ]
    status: dict[str, Any] = {**envelope, "range": 0, "attempt": "forged"}
    stat = {
        "fileId": "x-0",
        "path": f"../victim/x-0_0-0-0_{FOREIGN}.parquet",
        "partitionPath": "../victim",
    }
    statuses = [WriteStatus(**status, transaction=i, stats=(stat,)) for i in (FOREIGN, start.transaction)]
    aborts = [
        AbortCommit(**envelope, transaction=i, reason="forged", table_partitions=("p0", "p1", *more))
        for i in (FOREIGN, start.transaction)
        for more in (("../victim", victim), ())
    ]
    return [*starts, *statuses, *aborts]


def test_forged_messages_delete_read_and_write_nothing(make_flow: Callable[..., Flow]) -> None:
    flow = make_flow()
    flow.produce(20)
    flow.interval()
    (start,) = [m for m in flow.messages() if isinstance(m, StartCommit)]
    victim = flow.path.parent / "victim"
    victim.mkdir()
    files = [victim / f"x-0_0-0-0_{instant}.parquet" for instant in (FOREIGN, start.transaction)]
    for file in files:
        file.write_text("mine")
    flow.forget_control_messages()  # as retention does: nothing there says any more what was committed
    for message in forged(flow, start, f"file://{victim}"):
        flow.send_as_it_is(message)
    flow.produce(10)
    for _ in range(2):  # the first START supersedes what was forged, the second looks for its files again
        flow.interval()
        flow.check()
        flow.produce(4)
    assert sorted(victim.iterdir()) == sorted(files)
    assert not (victim / ".hoodie").exists()


def test_a_write_job_takes_the_start_that_its_coordinator_has_sent(make_flow: Callable[..., Flow]) -> None:
    flow = make_flow()
    flow.produce(4)
    started = flow.start()
    (start,) = [m for m in flow.messages() if isinstance(m, StartCommit)]
    options = start.writer.model_copy(update={"options": OPTIONS})
    another = start_digest(start.model_copy(update={"writer": options}))
    job = flow.write(replace(started, digest=another))
    assert job.wait() == 1
    assert "is not the one that this interval's start_commit has sent" in job.text()
    assert not flow.data_files()
    with pytest.raises(IntervalError, match="is not the one"):
        flow.coordinator().commit(started.control_offset, started.instant, another)
    flow.write_all(started)
    flow.commit(started)
    flow.check()


# Whose messages count, and which can be read -----------------------------------------------------------------------

SECRET = {"sluice.control.secret": "hunter2, and then some"}
NEW = {"sluice.control.secret": "another one that is new"}


def with_secret(flow: Flow, **secrets: str) -> Coordinator:
    known = kafka_settings(flow.bootstrap)
    return Coordinator(flow.pipeline, replace(known, librdkafka={**known.librdkafka, **secrets}), None, flow.jvm)


def one_interval(flow: Flow, **secrets: str) -> str:
    """An interval whose coordinator has these secrets; its write jobs come by them through their environment."""
    coordinator = with_secret(flow, **secrets)
    started = coordinator.start(flow.run())
    assert isinstance(started, Started)
    flow.secrets = secrets
    flow.write_all(started)
    return str(coordinator.commit(started.control_offset, started.instant, started.digest).instant)


def test_with_a_secret_only_signed_messages_count(
    make_flow: Callable[..., Flow], capfd: pytest.CaptureFixture[str]
) -> None:
    flow = make_flow()
    flow.produce(6)
    one_interval(flow)  # of the time before the secret
    flow.produce(6)
    one_interval(flow, **SECRET)
    flow.check()
    signed_from = flow.note()["signed_from"]
    flow.produce(6)
    coordinator = with_secret(flow, **SECRET)
    started = coordinator.start(flow.run())
    assert isinstance(started, Started)
    start = next(m for m in reversed(flow.messages()) if isinstance(m, StartCommit))
    envelope = start.model_dump(include={"table", "transaction", "epoch", "dag_id", "run_id"})
    envelope |= {"sender": "coordinator", "time": datetime.now(UTC)}
    offset = flow.send(AbortCommit(**envelope, reason="forged"))  # as an old release, or anybody, would send it
    flow.produce_to(flow.control_topic, flow.table.encode(), b"no message at all")
    capfd.readouterr()
    flow.write_all(started)
    coordinator.commit(started.control_offset, started.instant, started.digest)
    flow.check()
    assert flow.note()["signed_from"] == signed_from
    told = [
        line for line in capfd.readouterr().out.splitlines() if "doesn't count" in line and f"offset={offset}" in line
    ]
    assert len(told) == 1, told
    flow.produce(2)
    with pytest.raises(ActionRequiredError, match="signed with another secret"):
        with_secret(flow, **NEW).start(flow.run())
    one_interval(flow, **NEW, **{"sluice.control.secret.previous": SECRET["sluice.control.secret"]})
    flow.check()


def test_a_control_topic_that_was_made_again_has_nothing_of_the_old_one(make_flow: Callable[..., Flow]) -> None:
    flow = make_flow(1)
    flow.produce(6, partitions=[0])
    one_interval(flow, **SECRET)
    before, topic = flow.note(), flow.control_topic
    copies = consume(flow.bootstrap, topic)
    flow.admin.delete_topics([topic])[topic].result(30)
    wait_for(lambda: topic not in flow.admin.list_topics(timeout=10).topics, "the topic to go", pause=0.1)
    with_secret(flow, **SECRET)._session.control.ensure()
    producer = Producer({"bootstrap.servers": flow.bootstrap, "log_level": 0})
    for one in copies:
        producer.produce(topic, one.value, one.key, partition=0, headers=list(one.headers))
    assert producer.flush(30) == 0
    flow.produce(6, partitions=[0])
    one_interval(flow, **SECRET)
    flow.check()
    assert before["signed_by_log_from"] == before["signed_from"]
    after = flow.note()
    assert after["control_topic_id"] != before["control_topic_id"]
    assert (after["signed_from"], after["signed_by_log_from"]) == (-1, -1)  # all of the new topic's are younger


def test_a_control_topic_that_was_made_again_is_read_from_its_beginning(make_flow: Callable[..., Flow]) -> None:
    """Without a secret, too: offsets of the lost topic say nothing of where the table's messages are in the new one."""
    flow = make_flow(1)
    topic = flow.control_topic

    def fill(number: int) -> None:
        for _ in range(number):
            flow.produce_to(topic, b"file:///another/table", b"")

    flow.coordinator()._session.control.ensure()
    fill(5)
    flow.produce(6, partitions=[0])
    flow.interval()
    before = flow.note()
    flow.admin.delete_topics([topic])[topic].result(30)
    wait_for(lambda: topic not in flow.admin.list_topics(timeout=10).topics, "the topic to go", pause=0.1)
    flow.produce(6, partitions=[0])
    left = flow.start()
    flow.write_all(left)
    assert left.control_offset < before["control_offset"]
    fill(before["control_offset"] + 5)
    started = flow.start()
    assert flow.jvm.pending(str(flow.path)) == [started.instant]
    with pytest.raises(IntervalError, match="superseded"):
        flow.commit(left)
    flow.write_all(started)
    flow.commit(started)
    flow.check()
    assert flow.note()["control_topic_id"] != before["control_topic_id"]
    said = [remark for m in flow.messages() if isinstance(m, StartCommit) for remark in m.remarks]
    assert [f"the control topic {topic} was deleted and made again since" in remark for remark in said] == [True] * 2


def test_a_table_s_path_in_another_spelling_is_refused(make_flow: Callable[..., Flow]) -> None:
    """It is the table's name in the control topic: the first pipeline's interval wouldn't be seen."""
    flow = make_flow(1)
    flow.produce(4, partitions=[0])
    flow.interval()
    assert flow.note()["known_as"] == flow.table
    flow.produce(4, partitions=[0])
    opened = flow.start()
    flow.set(sink__hudi__path=f"{flow.path.parent}/./{flow.path.name}")
    with pytest.raises(ActionRequiredError, match=r"spelled differently.*before=file:///") as caught:
        flow.start()
    assert caught.value.where["before"] == f"file://{flow.path}"
    flow.set(sink__hudi__path=str(flow.path))
    flow.write_all(opened)
    flow.commit(opened)
    flow.check()


def test_a_table_that_has_another_name_now_says_so(make_flow: Callable[..., Flow]) -> None:
    """As a moved table has, or one that is reached by a link: only the file system knows that they are one."""
    flow = make_flow(1)
    flow.produce(4, partitions=[0])
    flow.interval()
    link = flow.path.parent / "link"
    link.symlink_to(flow.path)
    flow.set(sink__hudi__path=str(link))
    flow.produce(4, partitions=[0])
    for remarks in (1, 0):
        flow.interval()
        start = [m for m in flow.messages() if isinstance(m, StartCommit)][-1]
        assert [f"under the name file://{flow.path}:" in r for r in start.remarks] == [True] * remarks
        flow.check()
        flow.produce(4, partitions=[0])


def set_aside(flow: Flow, offset: int) -> Step:
    told = ("control", "set-aside", str(flow.file), "--offset", str(offset), "--reason", "a test")
    return finish(flow._spawn(*told, failpoint="", clock=""))


def test_a_message_that_cannot_be_read_stops_its_table_alone(make_flow: Callable[..., Flow]) -> None:
    flow, other = make_flow(), make_flow()
    other.set(control__topic=flow.control_topic)
    for one in (flow, other):
        one.produce(4)
        one.interval()
        one.produce(4)
    of_the_future, deep = (
        flow.produce_to(flow.control_topic, flow.table.encode(), value)
        for value in (b'{"type": "OF-THE-FUTURE"}', b"[" * 1000 + b"]" * 1000)
    )
    with pytest.raises(ActionRequiredError, match=rf"offset={of_the_future}\D.*sluice control set-aside"):
        flow.start()
    other.interval()
    other.check()
    readable = set_aside(flow, 0)
    assert (readable.status, "which can be read" in readable.err) == (1, True), readable.err
    for bad in (of_the_future, deep):
        done = set_aside(flow, bad)
        assert done.status == 0, done.err
    flow.interval()
    flow.check()


# The way to another control topic ---------------------------------------------------------------------------------


def on_the_shared_topic(make_flow: Callable[..., Flow], monkeypatch: pytest.MonkeyPatch) -> Flow:
    """A table whose commits don't say on which control topic they were made, as those of earlier releases don't."""

    def note(*arguments: Any) -> CommitNote:
        return commit_note(*arguments).model_copy(update={"control_topic": None})

    monkeypatch.setattr("sluice.coordinator.commit.commit_note", note)
    flow = make_flow(control__topic=SHARED_CONTROL_TOPIC)
    flow.control_topic = SHARED_CONTROL_TOPIC
    flow.produce(10)
    flow.interval()
    flow.produce(6)
    return flow


def move(flow: Flow) -> None:
    flow.set(control__topic=None)
    flow.control_topic = default_control_topic(flow.pipeline.name)


@pytest.mark.thorough
def test_an_open_interval_is_superseded_when_its_table_moves(
    make_flow: Callable[..., Flow], monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = on_the_shared_topic(make_flow, monkeypatch)
    started = flow.start()
    flow.write_all(started)
    monkeypatch.undo()
    move(flow)
    for point in ("before_moved", "after_moved"):
        assert flow.step("start", "--run-id", point, failpoint=f"coordinator.{point}=kill").killed
    flow.set(control__topic=SHARED_CONTROL_TOPIC)  # a process that has the old configuration still
    with pytest.raises(IntervalError, match="superseded"):
        flow.commit(started)
    with pytest.raises(ActionRequiredError, match=f"moved from .*{SHARED_CONTROL_TOPIC} to sluice-control-"):
        flow.start()
    move(flow)
    assert flow.step("start", "--run-id", "r", failpoint="coordinator.after_start_commit=kill").killed
    flow.interval()
    flow.check()
    assert (flow.note()["control_topic"], flow.jvm.pending(str(flow.path))) == (flow.control_topic, [])
    flow.produce(4)
    flow.interval()
    flow.check()
    flow.control_topic = SHARED_CONTROL_TOPIC
    assert [m.to for m in flow.messages() if isinstance(m, Moved) and m.table == flow.table] == [
        default_control_topic(flow.pipeline.name)
    ]


@pytest.mark.thorough
def test_a_table_continues_without_its_control_topic(make_flow: Callable[..., Flow]) -> None:
    """The steps of docs/how-to/lost-control-topic.md, with an interval whose rows were written when it was lost."""
    flow = make_flow()
    flow.produce(10)
    flow.interval()
    flow.produce(6)
    started = flow.start()
    flow.write_all(started)
    flow.admin.delete_topics([flow.control_topic])[flow.control_topic].result(30)
    flow.control_topic += "-2"
    flow.set(control__topic=flow.control_topic)
    flow.interval()
    flow.check()
    assert flow.jvm.pending(str(flow.path)) == [started.instant]  # the lost interval's, which no reader sees
    flow.produce(4)
    flow.interval()
    flow.check()


def test_a_decided_interval_is_finished_before_its_table_moves(
    make_flow: Callable[..., Flow], monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = on_the_shared_topic(make_flow, monkeypatch)
    started = flow.start()
    flow.write_all(started)
    offset = str(started.control_offset)
    assert flow.step("commit", "--control-offset", offset, failpoint="coordinator.before_hudi_commit=kill").killed
    monkeypatch.undo()
    move(flow)
    flow.interval_is_empty()
    flow.check()
    assert flow.note()["instant"] == started.instant
    flow.produce(4)
    flow.interval()
    flow.check()
    assert flow.note()["control_topic"] == flow.control_topic
