"""A stream moves from one cluster to another, under load, with a mirror between them or without: each record once."""

from __future__ import annotations

import json
import struct
from contextlib import ExitStack
from datetime import timedelta

import pytest
from tests.mirror import MirrorMaker, ensure_mirror

from sluice.coordinator import Outcome
from sluice.coordinator.machine import ThisMachine
from sluice.errors import ActionRequiredError, RetryableError
from sluice.local.broker import LocalBroker

from ..thorough import also
from .harness import wait_for
from .harness.streams import Streams

UPSERT = {
    "sink__hudi__operation": "upsert",
    "sink__hudi__record_key": "id",
    "sink__hudi__key_placement": "hashed",
    "sink__hudi__buckets": 2,
    "sink__hudi__ordering_field": "at",
    "sink__hudi__schema": "id BIGINT, v STRING, p STRING, at BIGINT",
    "write__ranges": 1,
}
BY_PARTITION = {"sink__hudi__operation": "upsert", "sink__hudi__record_key": "id"}


@pytest.fixture(scope="module")
def new(home, tmp_path_factory):
    """The cluster that streams are moved to."""
    with LocalBroker(home, tmp_path_factory.mktemp("new") / "broker", cluster_id="c2x1aWNlLW5ldy0wMDAwMDQ") as broker:
        yield broker.bootstrap


@pytest.fixture
def make_streams(make_flow, bootstrap, new, monkeypatch):
    """A stream of two partitions on the cluster `old`, which is to be moved to `new`."""

    def make(old: str = bootstrap, **settings) -> Streams:
        flow = make_flow(partitions=1, **settings)
        streams = Streams(flow, old=old, new=new)
        streams.topic = f"{flow.topic}-orders"
        streams.create("old", streams.topic)
        streams.map(old=streams.topic)
        streams.read()
        for variable, value in flow.secret_environment.items():
            monkeypatch.setenv(variable, value)  # of steps that are processes of their own
        return streams

    return make


@pytest.fixture
def dying(home, tmp_path):
    """A cluster that dies with the block in which it is used."""
    return LocalBroker(home, tmp_path / "dying", cluster_id="c2x1aWNlLWR5aW5nLTAwMDU")


def move(streams: Streams, **how) -> None:
    """Map the stream to the cluster `new`, as moved from `old`."""
    said = {"topics": streams.topic, "connection": "new", "moved_from": {"cluster": "old", **how}}
    streams.map(new=said)


class Mirror:
    """Copies records by hand, and tells of it as MirrorMaker does, when the test says so."""

    def __init__(self, streams: Streams) -> None:
        self.streams = streams
        self.syncs = f"syncs-{streams.topic}"
        with streams.at("old", self.syncs) as flow:
            flow.create_topic(1)
        streams.create("new", streams.topic)

    def copy(self, partition: int, records: range) -> None:
        """Copies of some of the records that were sent to a partition of `old`, after those that were copied before."""
        of = [s for s in self.streams.sent["old", self.streams.topic] if s.partition == partition]
        with self.streams.at("new", self.streams.topic) as flow:
            before = len(flow.sent)
            for number in records:
                row = {"id": of[number].id, "v": of[number].value, "p": of[number].table_partition}
                flow.produce(1, partitions=(partition,), ids=[row["id"]], values=row["v"].rstrip("0123456789"))
            copies = flow.sent[before:]
        assert [c.value for c in copies] == [of[number].value for number in records]

    def tell(self, partition: int, upstream: int, downstream: int) -> None:
        """One pair of offsets."""
        topic = self.streams.topic.encode()
        key = struct.pack(">h", len(topic)) + topic + struct.pack(">i", partition)
        with self.streams.at("old", self.syncs) as flow:
            flow.produce_to(self.syncs, key, struct.pack(">qq", upstream, downstream))


@pytest.mark.thorough
def test_without_a_mirror_both_are_read_in_one_commit(make_streams, dying, new):
    """Other partitions, transactions' gaps, a limit that leaves records behind, and a commit that is killed."""
    with dying:
        streams = make_streams(dying.bootstrap, source__kafka__max_records=40)
        flow, topic = streams.flow, streams.topic
        with streams.at("old", topic) as there:
            there.produce_in_transactions([(10, True), (4, False), (6, True)])
        flow.interval()
        streams.create("new", topic, partitions=3)
        streams.send("old", topic, 30)
        streams.send("new", topic, 30, partitions=(0, 1, 2))
        move(streams)
        shown = streams.shown()
        assert "orders of cluster new continues from" in shown["changes"][0].replace(flow.topic + "-", "")
        assert {(r["cluster"], r["state"]) for r in shown["streams"]} == {("old", "draining"), ("new", "active")}
        started = flow.start()
        flow.write_all(started)
        killed = flow.step("commit", "--control-offset", str(started.control_offset),
                           failpoint="coordinator.before_hudi_commit=kill")  # fmt: skip
        assert killed.killed, killed.err
        streams.send("old", topic, 6)  # after where its log ended when the move was begun
        assert flow.commit(started).records == 40
        assert {r["cluster"] for r in flow.note()["ranges"] if r["start"] < r["end"]} == {"old", "new"}
        assert flow.interval().records == 20
    late = streams.sent["old", topic][-6:]
    streams.check(("old", topic), ("new", topic), but_not=lambda s: s in late)
    streams.send("new", topic, 6, partitions=(0, 1, 2))
    assert flow.interval().records == 6, "the old cluster isn't there any more, and isn't asked"
    flow.interval_is_empty()
    streams.check(("old", topic), ("new", topic), but_not=lambda s: s in late)
    verified = flow.verify("--json")
    assert verified.exit_code == 0, verified.output
    found = json.loads(verified.stdout)
    assert (found["intervals"][-1]["in_topic"], found["intervals"][-1]["in_table"]) == (6, 6)
    assert len(found["not_in_topic"]) >= 2, "what was read of the old cluster can't be compared any more"


def test_what_comes_late_is_drained_for_some_time(make_streams, monkeypatch):
    streams = make_streams()
    flow, topic = streams.flow, streams.topic
    streams.create("new", topic)
    streams.send("old", topic, 4)
    flow.interval()
    move(streams, drain_for="1 hour")
    for _ in range(2):
        streams.send("old", topic, 4)
        streams.send("new", topic, 4)
        assert flow.interval().records == 8
    now = ThisMachine.now
    monkeypatch.setattr(ThisMachine, "now", lambda self: now(self) + timedelta(hours=2))
    streams.send("old", topic, 4)
    assert flow.interval().records == 4
    streams.check(("old", topic), ("new", topic))
    streams.send("old", topic, 4)
    assert flow.interval().records == 0, "what is noted is that it isn't read any more"
    flow.interval_is_empty()
    (row,) = streams.shown()["streams"]
    assert row["cluster"] == "new"


@pytest.mark.parametrize("settings", also({}, UPSERT), ids=["append", "upsert"])
def test_by_mirror_maker_under_load(make_streams, home, tmp_path, dying, new, settings):
    """Producers go on sending to the old cluster while the stream is moved, and are switched over some time later."""
    with ExitStack() as until_it_dies:
        until_it_dies.enter_context(dying)
        streams = make_streams(dying.bootstrap, **settings)
        flow, topic = streams.flow, streams.topic

        def send(broker: str, count: int) -> None:
            fields = {"at": sum(map(len, streams.sent.values()))} if settings else {}
            ids = {"ids": range(count)} if settings else {}
            streams.send(broker, topic, count, fields=fields, **ids)

        send("old", 40)
        with streams.at("old", topic) as there:
            there.produce_in_transactions([(3, False)])  # by which the copies have other offsets
        send("old", 7)
        flow.interval()
        mirror = until_it_dies.enter_context(
            MirrorMaker(ensure_mirror(home), tmp_path / "mirror", topic, old=dying.bootstrap, new=new)
        )
        copied = _copies(streams)
        wait_for(lambda: sum(copied()) == 47, "the mirror", pause=0.2)
        mirror.pause()
        send("old", 12)
        assert flow.interval().records == 12, "the table is ahead of the mirror"
        move(streams, mirror="mirror_maker")
        with pytest.raises(RetryableError, match="hasn't recorded an offset yet"):
            flow.coordinator().start(flow.run())
        mirror.go_on()
        send("old", 20)
        wait_for(lambda: sum(copied()) == 79, "the mirror", pause=0.2)
        wait_for(lambda: "continues from its mirror" in str(_planned(flow)), "the mirror's last pairs", pause=0.5)
        outcome = flow.interval()
        assert flow.note()["streams"]["moves"]["new"][topic]["mirrored"]
        send("old", 9)
        wait_for(lambda: sum(copied()) == 88, "the mirror", pause=0.2)
    flow.interval()
    send("new", 5)
    flow.interval()
    assert outcome.state == "committed"
    logs = [("old", topic), ("new", topic)]
    newest = {s.id: s for log in logs for s in streams.sent[log]} if settings else {}
    streams.check(*logs, but_not=lambda s: newest.get(s.id, s) is not s)


def _copies(streams: Streams):
    """How many records each partition of the mirror's topic has."""

    def count() -> list[int]:
        with streams.at("new", streams.topic) as flow:
            return list(flow.log_ends().values()) if streams.topic in flow.admin.list_topics(timeout=10).topics else []

    return count


def _planned(flow) -> object:
    """What the next interval would do, or why it can't be said yet."""
    try:
        return flow.coordinator().streams()[0].remarks
    except RetryableError as error:
        return error


def test_the_cut_is_exact(make_streams):
    """Between two pairs the old log is read on to the next: a consumer's offset would go back to the one before."""
    streams = make_streams()
    flow, topic, mirror = streams.flow, streams.topic, Mirror(streams)
    streams.send("old", topic, 20)  # ten in each partition
    flow.interval()
    streams.send("old", topic, 20)
    for partition in (0, 1):
        mirror.copy(partition, range(4, 20))  # it was begun after the first four
        mirror.tell(partition, 4, 0)
    mirror.tell(0, 9, 5)  # and so partition 0 may be left at 10, where the table is
    mirror.tell(1, 14, 10)
    move(streams, mirror="mirror_maker", offset_syncs=mirror.syncs)
    outcome = flow.interval()
    cuts = flow.note()["streams"]["moves"]["new"][topic]
    assert (cuts["begins"], cuts["mirrored"]) == ({"0": 6, "1": 10}, True)
    assert flow.note()["streams"]["logs"]["old"][topic]["ends"] == {"0": 10, "1": 14}
    assert outcome.records == 20
    streams.check(("old", topic))
    with pytest.raises(ActionRequiredError, match="wanted"):
        flow.interval(kind="range", offsets={f"new/{topic}": {0: (0, 6)}})
    everything = {"from_time": "2000-01-01T00:00:00Z", "to_time": "2100-01-01T00:00:00Z"}
    assert isinstance(flow.coordinator().start(flow.run(kind="backfill", **everything)), Outcome)
    streams.check(("old", topic))


def test_a_mirror_that_has_copied_again(make_streams):
    """After a restart it goes back some records: what stands before that in the copy is there twice."""
    streams = make_streams()
    flow, topic, mirror = streams.flow, streams.topic, Mirror(streams)
    streams.send("old", topic, 20, partitions=(0,))
    flow.set(source__kafka__max_records=5)
    flow.interval()
    mirror.copy(0, range(12))
    for upstream in (0, 5, 10):
        mirror.tell(0, upstream, upstream)
    mirror.copy(0, range(8, 20))
    mirror.tell(0, 8, 12)
    mirror.tell(0, 15, 19)
    move(streams, mirror="mirror_maker", offset_syncs=mirror.syncs)
    _refused(flow, "has copied records again")
    move(streams, mirror="mirror_maker", offset_syncs=mirror.syncs, copies_only=True)
    flow.set(source__kafka__max_records=1000)
    assert flow.interval().records == 15
    assert flow.note()["streams"]["moves"]["new"][topic]["begins"] == {"0": 12, "1": 0}
    streams.check(("old", topic))


def test_a_killed_start_decides_anew(make_streams):
    streams = make_streams()
    flow, topic, mirror = streams.flow, streams.topic, Mirror(streams)
    streams.send("old", topic, 10, partitions=(0,))
    flow.interval()
    mirror.copy(0, range(10))
    mirror.tell(0, 9, 9)
    move(streams, mirror="mirror_maker", offset_syncs=mirror.syncs)
    killed = flow.step("start", "--run-id", "killed", failpoint="coordinator.after_open_instant=kill")
    assert killed.killed, killed.err
    streams.send("old", topic, 5, partitions=(0,))
    mirror.copy(0, range(10, 15))
    mirror.tell(0, 12, 12)
    assert flow.interval().records == 5
    streams.check(("old", topic))


def test_what_can_not_be_moved_is_refused(make_streams, make_flow, bootstrap, new):
    streams = make_streams(**BY_PARTITION)
    flow, topic, mirror = streams.flow, streams.topic, Mirror(streams)
    streams.send("old", topic, 10)
    flow.interval()
    move(streams)
    _refused(flow, "by the log and the partition that it came from")
    flow = make_streams().flow
    streams = Streams(flow, old=bootstrap, new=new)
    streams.topic, streams.sent = topic, {("old", topic): []}
    streams.map(old=topic, new=topic)
    streams.read().interval()
    move(streams, mirror="mirror_maker", offset_syncs=mirror.syncs)
    _refused(flow, "has already read the topic to which another is moved")
    elsewhere = {"topics": topic, "connection": "new", "moved_from": {"cluster": "unknown"}}
    streams.map(old=topic, new=elsewhere)
    _refused(flow, "moves a topic from one that the table doesn't know")
    streams.map(old=topic, new={**elsewhere, "moved_from": {"cluster": "old"}})
    _refused(flow, "mapped twice")


@pytest.mark.thorough
def test_a_moved_topic_is_not_mapped_again(make_streams):
    streams = make_streams()
    flow, topic, mirror = streams.flow, streams.topic, Mirror(streams)
    streams.send("old", topic, 10, partitions=(0,))
    flow.interval()
    mirror.copy(0, range(10))
    mirror.tell(0, 9, 9)
    move(streams, mirror="mirror_maker", offset_syncs="no-such-topic")
    _refused(flow, "no topic of MirrorMaker's offset syncs")
    move(streams, mirror="mirror_maker", offset_syncs=mirror.syncs)
    with pytest.raises(ActionRequiredError, match="to be moved first"):
        flow.coordinator().start(flow.run(kind="range", offsets={f"new/{topic}": {0: (0, 4)}}))
    flow.interval()
    streams.map(old=topic, new=topic)
    _refused(flow, "is mapped again")
    streams.map(new=topic)
    streams.send("new", topic, 4)
    assert flow.interval().records == 4
    del streams.sent["new", topic][:10]  # copies, which are rows already
    streams.check(("old", topic), ("new", topic))


def _refused(flow, why: str) -> None:
    with pytest.raises(ActionRequiredError, match=why):
        flow.coordinator().start(flow.run())
