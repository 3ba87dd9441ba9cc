"""Streams over several clusters, as intervals: each record once, whatever the mapping says next."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from sluice.coordinator import Outcome
from sluice.errors import ActionRequiredError, RetryableError
from sluice.local.broker import LocalBroker
from sluice.protocol.messages import StartCommit
from sluice.protocol.offsets import OFFSETS_KEY, Checkpoint
from sluice.sources.kafka import cluster

from .harness.databases import SqliteFile
from .harness.jdbc import jdbc_table, refused
from .harness.streams import Streams, two_clusters

UPSERT = {"sink__hudi__operation": "upsert", "sink__hudi__record_key": "id"}
EAST, WEST = ("east", "orders"), ("west", "orders")


@pytest.fixture
def streams(make_streams):
    return two_clusters(make_streams())


def _logs(streams: Streams, *brokers: str) -> list[tuple[str, str]]:
    return [(broker, streams.topic) for broker in brokers]


def _known(streams: Streams) -> dict:
    return streams.flow.note()["streams"]["logs"]


@pytest.mark.thorough
@pytest.mark.parametrize("settings", [{}, UPSERT], ids=["append", "upsert"])
def test_clusters_are_read_in_one_interval(make_streams, settings):
    """Topics, partitions and offsets have the same names and numbers on both."""
    streams = two_clusters(make_streams(**settings))
    flow = streams.flow
    for _ in range(2):
        streams.send("east", streams.topic, 20)
        streams.send("west", streams.topic, 20)
        outcome = flow.interval()
        assert outcome.records == 40, outcome
    streams.check(*_logs(streams, "east", "west"))
    flow.interval_is_empty()
    clusters = Checkpoint.model_validate_json(flow.commits()[-1]["sluice.offsets"]).clusters
    assert {name: known.cluster_id is not None for name, known in clusters.items()} == {"east": True, "west": True}
    assert clusters["east"].cluster_id != clusters["west"].cluster_id
    assert flow.interval(kind="replay", instant=str(outcome.instant)).records == 40
    streams.check(*_logs(streams, "east", "west"))


@pytest.mark.parametrize("partitions", [2, 9], ids=["a task for each partition", "one for each cluster"])
def test_rows_say_where_they_are_from(make_streams, partitions):
    columns = {"source__kafka__columns": {"c": "cluster", "t": "topic"}}
    streams = make_streams(sink__hudi__schema="id BIGINT, v STRING, p STRING, c STRING, t STRING", **columns)
    two_clusters(streams, partitions)
    streams.send("east", streams.topic, 2 * partitions, partitions=range(partitions))
    streams.send("west", streams.topic, 3 * partitions, partitions=range(partitions))
    streams.flow.interval()
    expected = {("east", streams.topic): 2 * partitions, ("west", streams.topic): 3 * partitions}
    assert Counter(streams.flow.read("c", "t")) == expected
    streams.check(*_logs(streams, "east", "west"))
    assert len(streams.flow.data_files()) == 2 * 2 if partitions > 2 else 2 * partitions


@pytest.mark.thorough  # test_upgrade.py has tables of before, too
@pytest.mark.parametrize("settings", [{}, UPSERT], ids=["append", "upsert"])
def test_a_table_of_today_goes_on_with_streams(make_flow, bootstrap, west, settings):
    """Positions are carried over by the cluster's id, and its keys are found where they are."""
    flow = make_flow(**settings)
    flow.produce(20)
    flow.interval()
    streams = Streams.from_today(flow, east=bootstrap, west=west)
    streams.send("west", flow.topic, 20)
    versions = {"ids": range(20), "values": "b"} if settings else {}
    streams.send("east", flow.topic, 20, **versions)
    assert flow.interval().records == 40
    newest = {s.id: s for s in streams.sent["east", flow.topic]} if settings else {}
    streams.check(("east", flow.topic), ("west", flow.topic), but_not=lambda s: newest.get(s.id, s) is not s)


@pytest.mark.thorough
def test_a_step_that_dies_while_positions_are_carried_over(make_flow, bootstrap, west):
    """The START with the new names is there, its commit isn't: the next one carries them over again."""
    flow = make_flow()
    flow.produce(20)
    flow.interval()
    streams = Streams.from_today(flow, east=bootstrap, west=west)
    streams.send("west", flow.topic, 6)
    streams.send("east", flow.topic, 6)
    left = flow.start()
    flow.write(left).succeed()
    assert flow.interval().records == 12
    streams.check(("east", flow.topic), ("west", flow.topic))


def test_a_topic_that_is_missed_once_is_read_on(streams):
    """Services lose streams for a moment and have them again (FLINK-39837)."""
    flow = streams.flow
    streams.send("west", streams.topic, 4)
    flow.interval()
    streams.map(east=streams.topic)
    streams.send("west", streams.topic, 4)
    shown = streams.shown()
    (change,) = shown["changes"]
    assert "isn't in the mapping any more" in change
    assert [(r["cluster"], r["state"], r["unread"]) for r in shown["streams"]] == [
        ("east", "active", 0),
        ("west", "missed", 4),
    ]
    flow.interval()
    assert _known(streams)["west"][streams.topic]["status"] == "missed"
    streams.map(east=streams.topic, west=streams.topic)
    streams.send("west", streams.topic, 4)
    flow.interval()
    assert _known(streams)["west"][streams.topic]["status"] == "active"
    streams.check(*_logs(streams, "west"))


def test_what_was_removed_is_drained_and_goes_on_where_it_was(streams):
    flow = streams.flow
    flow.set(source__kafka__max_records=3)
    for broker in ("east", "west"):
        streams.send(broker, streams.topic, 4)
    flow.interval()
    streams.map(east=streams.topic)
    while not isinstance(found := flow.coordinator().start(flow.run()), Outcome):
        flow.write_all(found)
        flow.commit(found)
    assert "west" not in _known(streams)
    assert any("is drained" in remark for remark in flow.note()["remarks"])
    streams.check(*_logs(streams, "east", "west"))
    assert {(row["cluster"], row["state"]) for row in streams.shown()["streams"]} == {("east", "active")}
    before = len(streams.sent["west", streams.topic])
    streams.send("west", streams.topic, 6)
    later = streams.sent["west", streams.topic][before:]
    flow.interval_is_empty()
    streams.check(*_logs(streams, "east", "west"), but_not=lambda s: s in later)
    streams.map(east=streams.topic, west=streams.topic)
    flow.set(source__kafka__max_records=None)
    assert flow.interval().records == 6
    streams.check(*_logs(streams, "east", "west"))


def test_what_a_transaction_has_open_when_its_topic_is_removed_is_read(streams):
    """It commits after the interval that confirms the removal, and has to be in the table before the topic is left."""
    flow = streams.flow
    streams.send("west", streams.topic, 4)
    flow.interval()
    before = datetime.now(UTC) - timedelta(milliseconds=1)  # records have no finer times
    with streams.at("west", streams.topic) as there:
        commit = there.begin_transaction(6)
    since = datetime.now(UTC)
    streams.map(east=streams.topic)
    for _ in range(2):  # missed, and then confirmed
        flow.interval()
    assert any("an open Kafka transaction holds back" in remark for remark in flow.note()["remarks"])
    assert _known(streams)["west"][streams.topic]["status"] == "draining"
    (*_, start) = (m for m in flow.messages() if isinstance(m, StartCommit))
    assert sum(r.log_end - r.end for r in start.idle if r.cluster == "west") == 6
    flow.interval_is_empty()
    empty = flow.coordinator().start(flow.run())
    assert (empty.state, empty.lag_records) == ("empty", 6), "records that are held back are a lag"
    assert before <= empty.valid_through <= since
    commit()
    assert flow.interval().records == 6
    flow.interval()
    assert "west" not in _known(streams)
    streams.check(*_logs(streams, "west"))


@pytest.mark.parametrize("policy", ["fail", "drop"])
def test_what_is_removed_by_other_policies(streams, policy):
    flow = streams.flow
    flow.set(source__kafka__on_removed=policy)
    streams.send("west", streams.topic, 4)
    flow.interval()
    streams.map(east=streams.topic)
    flow.interval()  # nothing to read: that it was missed is noted
    streams.send("west", streams.topic, 4)
    if policy == "fail":
        with pytest.raises(ActionRequiredError, match="was removed from the mapping"):
            flow.coordinator().start(flow.run())
        return
    left = streams.sent["west", streams.topic][4:]
    flow.interval()
    assert any("are skipped" in remark for remark in flow.note()["remarks"])
    flow.interval_is_empty()
    streams.check(*_logs(streams, "west"), but_not=lambda s: s in left)


def test_a_cluster_under_another_name_and_address(streams, west):
    """Positions and keys follow its own id."""
    flow = streams.flow
    streams.send("west", streams.topic, 4)
    flow.interval()
    there = {"topics": streams.topic, "connection": "west", "bootstrap_servers": west.replace("127.0.0.1", "localhost")}
    streams.map(east=streams.topic, far_west=there)
    with pytest.raises(ActionRequiredError, match="to which its connection may not go"):
        flow.coordinator().start(flow.run())
    streams.brokers["fresh"] = there.pop("bootstrap_servers")
    streams.use(**streams.brokers)
    streams.map(east=streams.topic, far_west={**there, "connection": "fresh"})
    streams.send("west", streams.topic, 4)
    assert flow.interval().records == 4
    streams.check(*_logs(streams, "west"))


def test_clusters_that_swap_their_names(streams):
    """Each goes on where it was."""
    flow, topic = streams.flow, streams.topic
    streams.send("east", topic, 4)
    streams.send("west", topic, 8)
    flow.interval()
    streams.map(west={"topics": topic, "connection": "east"}, east={"topics": topic, "connection": "west"})
    flow.interval()  # nothing to read: the names are noted
    streams.send("east", topic, 6)
    streams.send("west", topic, 2)
    assert flow.interval().records == 8
    streams.check(*_logs(streams, "east", "west"))


def test_one_cluster_under_two_names_is_refused(streams):
    streams.map(east=streams.topic, also={"topics": streams.topic, "connection": "east"})
    with pytest.raises(ActionRequiredError, match="one cluster under two names, also and east"):
        streams.flow.coordinator().start(streams.flow.run())


def test_a_connection_that_the_pipeline_does_not_allow_is_refused(streams):
    """A mapping of others' making can't have a table loaded from any cluster that Airflow knows."""
    flow = streams.flow
    streams.map(east=streams.topic, west=streams.topic)
    for allowed, other in ([], "east"), (["east"], "west"):
        flow.set(source__kafka__mapped_connections=allowed)
        with pytest.raises(ActionRequiredError, match=f"names the connection {other}, which this pipeline doesn't"):
            flow.coordinator().start(flow.run())
    flow.set(source__kafka__mapped_connections=["east"])
    streams.map(east={"topics": streams.topic, "connection": "east", "registry": "payroll"})
    with pytest.raises(ActionRequiredError, match="names the connection payroll"):
        flow.coordinator().start(flow.run())
    assert flow.messages() == []


def test_another_cluster_under_a_known_name_is_refused(streams):
    flow = streams.flow
    streams.map(west=streams.topic)
    streams.send("west", streams.topic, 4)
    flow.interval()
    streams.map(west={"topics": streams.topic, "connection": "east"})
    with pytest.raises(ActionRequiredError, match="the connection now leads to another cluster"):
        flow.coordinator().start(flow.run())


def test_a_name_that_leads_to_another_cluster_by_mistake_and_back(streams):
    """What was read of the first one isn't read again."""
    flow, topic = streams.flow, streams.topic
    flow.set(source__kafka__on_offset_loss="earliest")
    streams.map(west=topic)
    streams.send("west", topic, 4)
    flow.interval()
    streams.send("east", topic, 6)
    streams.map(west={"topics": topic, "connection": "east"})
    assert flow.interval().records == 6
    streams.send("west", topic, 2)
    streams.map(west=topic)
    assert flow.interval().records == 2
    streams.check(*_logs(streams, "east", "west"))


def test_a_service_that_does_not_answer(streams):
    flow = streams.flow
    flow.set(source__kafka__metadata_failures=1)
    streams.answer({"streams": {}})
    with pytest.raises(ActionRequiredError, match="doesn't know the streams"):
        flow.coordinator().start(flow.run())
    streams.map(east=streams.topic, west=streams.topic)
    streams.send("west", streams.topic, 4)
    flow.interval()
    streams.file.unlink()
    streams.send("east", streams.topic, 4)
    flow.interval()
    assert any("doesn't answer" in remark for remark in flow.note()["remarks"])
    streams.check(*_logs(streams, "east", "west"))
    with pytest.raises(RetryableError, match="has served 1 intervals"):
        flow.coordinator().start(flow.run())


@pytest.mark.thorough
def test_a_cluster_that_is_down(streams, home, tmp_path, monkeypatch):
    """It fails the run, or is skipped: told, with the time of completeness held, until it is back with its records."""
    flow, topic = streams.flow, streams.topic
    broker = LocalBroker(home, tmp_path / "north", cluster_id="c2x1aWNlLW5vcnRoLTAwMw")
    with broker:
        streams.use(**streams.brokers, north=broker.bootstrap)
        streams.create("north", topic)
        streams.map(east=topic, north=topic)
        for there in ("east", "north"):
            streams.send(there, topic, 4)
        flow.interval()
        streams.send("north", topic, 4)
    complete = flow.note()["valid_through"]
    monkeypatch.setattr(cluster, "TIMEOUT", 5.0)  # seconds that the cluster is given, each time
    streams.send("east", topic, 4)
    with pytest.raises(RetryableError, match="asking for the cluster's id"):
        flow.coordinator().start(flow.run())
    flow.set(source__kafka__on_unreachable="skip")
    for skipped in (1, 2):
        streams.send("east", topic, 2)
        flow.interval()
        note = flow.note()
        assert note["streams"]["skipped"] == {"north": skipped}
        assert any("cluster north can't be read" in remark for remark in note["remarks"])
        assert note["valid_through"] == complete
    later = streams.sent["north", topic][4:]
    streams.check(*_logs(streams, "east", "north"), but_not=lambda s: s in later)
    flow.set(source__kafka__on_unreachable="fail")
    streams.map(east=topic)
    flow.interval()  # nothing to read: that it was removed, and is gone, is noted
    assert any("has just ceased to name it" in remark for remark in flow.note()["remarks"])
    with pytest.raises(RetryableError, match="asking for the cluster's id"):  # what is unread of it
        flow.coordinator().start(flow.run())
    monkeypatch.undo()
    streams.map(east=topic, north=topic)
    with broker:
        assert flow.interval().records == 4
    assert flow.note()["streams"]["skipped"] == {}
    assert flow.note()["valid_through"] > complete
    streams.check(*_logs(streams, "east", "north"))


def test_a_cluster_that_the_service_calls_inactive(streams):
    flow, topic = streams.flow, streams.topic
    for there in ("east", "west"):
        streams.send(there, topic, 4)
    both = {name: {"topics": topic, "connection": name} for name in ("east", "west")}
    streams.answer({"streams": {"orders": {"clusters": both}}, "inactive": ["west"]})
    with pytest.raises(RetryableError, match="a cluster isn't active"):
        flow.coordinator().start(flow.run())
    flow.set(source__kafka__on_unreachable="skip")
    assert flow.interval().records == 4
    assert flow.note()["valid_through"] is None
    streams.map(east=topic, west=topic)
    assert flow.interval().records == 4
    streams.check(*_logs(streams, "east", "west"))


def test_no_cluster_at_all_is_an_empty_window(streams):
    streams.map()
    assert streams.flow.interval().records == 0  # that there is nothing is noted once
    streams.flow.interval_is_empty()


def test_starting_and_stopping_offsets(streams):
    """They are a cluster's own, and hold for a topic that is mapped later, too."""
    flow, topic = streams.flow, streams.topic
    streams.send("east", topic, 8, partitions=[0])
    streams.map(east={"topics": topic, "connection": "east", "stopping_offsets": {topic: {0: 6}}})
    assert flow.interval().records == 6
    streams.send("west", topic, 8, partitions=[0])
    late = {"topics": topic, "connection": "west", "starting_offsets": {topic: {0: 5}}}
    streams.map(east={"topics": topic, "connection": "east", "stopping_offsets": {topic: {0: 6}}}, west=late)
    assert flow.interval().records == 3
    flow.interval_is_empty()
    wanted = [*streams.sent["east", topic][:6], *streams.sent["west", topic][5:]]
    assert flow.rows(metadata=True) == Counter((s.id, s.value) for s in wanted)


def test_two_streams_of_one_cluster_have_their_own_starting_offsets(streams):
    flow, orders = streams.flow, streams.topic
    returns = f"{orders}-returns"
    streams.create("east", returns)
    for topic in (orders, returns):
        streams.send("east", topic, 8, partitions=[0])
    at = {"orders": (orders, {orders: {0: 5}}), "returns": (returns, {returns: {0: 6}})}
    said = {
        stream: {"clusters": {"east": {"topics": topic, "connection": "east", "starting_offsets": offsets}}}
        for stream, (topic, offsets) in at.items()
    }
    streams.answer({"streams": said})
    flow.set(source__kafka__streams=["orders", "returns"])
    assert flow.interval().records == 3 + 2
    wanted = [*streams.sent["east", orders][5:], *streams.sent["east", returns][6:]]
    assert flow.rows(metadata=True) == Counter((s.id, s.value) for s in wanted)


def test_a_bad_record_is_told_and_passed_over_by_cluster(streams):
    """Both clusters have a record at that topic, partition and offset; one of them is bad."""
    flow, topic = streams.flow, streams.topic
    streams.send("east", topic, 4)
    with streams.at("west", topic) as there:
        bad = there.produce_raw(b"{", partition=0)
    streams.send("west", topic, 4)
    run = flow.run()
    started = flow.start(run)
    assert flow.write(started).wait() == 1
    with pytest.raises(ActionRequiredError, match=f"topic=west/{topic}, partition=0, offset={bad}"):
        flow.commit(started)
    flow.abort(run)
    with pytest.raises(ActionRequiredError, match=f"Several clusters have a topic {topic}"):
        flow.coordinator().start(flow.run(kind="correction", offsets={topic: {0: (bad, bad + 1)}}, reason="bad"))
    passed = {f"west/{topic}": {0: (bad, bad + 1)}}
    flow.commit(flow.start(flow.run(kind="correction", offsets=passed, reason="it is no JSON")))
    assert flow.interval().records == 8
    streams.check(*_logs(streams, "east", "west"))


def test_bad_records_are_set_aside_by_cluster(make_streams, tmp_path):
    streams = two_clusters(make_streams(errors__tolerance="all", errors__quarantine=str(tmp_path / "quarantine")))
    flow, topic = streams.flow, streams.topic
    for broker in ("east", "west"):
        with streams.at(broker, topic) as there:
            there.produce_raw(b"{", partition=0)
        streams.send(broker, topic, 4)
    assert flow.interval().records == 8
    streams.check(*_logs(streams, "east", "west"))
    found = flow.drivers.idle().ask("read", str(tmp_path / "quarantine"), True, ["kafka_topic", "kafka_cluster_id"])
    ids = {name: known.cluster_id for name, known in flow.checkpoint().clusters.items()}
    assert sorted(map(tuple, found)) == sorted((f"{name}/{topic}", ids[name]) for name in ("east", "west"))


def test_a_window_of_one_cluster_is_backfilled(make_streams):
    streams = two_clusters(make_streams(source__kafka__starting_offsets="latest"))
    flow, topic = streams.flow, streams.topic
    for broker in ("east", "west"):
        streams.send(broker, topic, 4)
    flow.interval()
    assert flow.rows(metadata=True).total() == 0
    assert flow.interval(kind="range", offsets={f"west/{topic}": {0: (0, 2), 1: (0, 2)}}).records == 4
    streams.check(*_logs(streams, "west"))
    assert flow.interval(kind="range", partitions=(f"east/{topic}",), from_time="2000-01-01T00:00:00Z").records == 4
    streams.check(*_logs(streams, "east", "west"))


@pytest.mark.thorough
def test_the_product_s_own_command_line(streams, monkeypatch):
    """A whole interval by `sluice`, whose driver gets each cluster's settings in its environment only."""
    for broker in ("east", "west"):
        streams.send(broker, streams.topic, 4)
    for variable, value in streams.flow.secret_environment.items():
        monkeypatch.setenv(variable, value)
    done = streams.flow.step("run")
    assert done.status == 0, done.err
    assert "8 rows" in done.out
    streams.check(*_logs(streams, "east", "west"))


def test_a_database_has_the_records_of_both_clusters_once(make_streams, tmp_path, monkeypatch):
    """Also where the coordinator dies in the transaction that has them; offsets of both are in it."""
    streams = make_streams()
    database = SqliteFile(tmp_path / "warehouse.db")
    for variable, value in database.environment().items():
        monkeypatch.setenv(variable, value)
    table = jdbc_table(streams.flow, database, {"pk_mode": "kafka"})
    two_clusters(streams)

    def send() -> None:
        streams.send("east", streams.topic, 20)
        streams.send("west", streams.topic, 20)

    send()
    assert streams.flow.interval().records == 40
    send()
    started = streams.flow.start()
    streams.flow.write_all(started)
    offset = str(started.control_offset)
    step = streams.flow.step("commit", "--control-offset", offset, failpoint="jdbc.before_database_commit=kill")
    assert step.killed, step.err
    assert len(table.rows()) == 40
    assert streams.flow.commit(started).records == 40
    logs = _logs(streams, "east", "west")
    assert Counter(table.rows()) == streams.rows_of(*logs)
    places = Counter(topic for (topic,) in table.rows("__connect_topic"))
    assert places == {f"east/{streams.topic}": 40, f"west/{streams.topic}": 40}
    note = database.query("SELECT metadata FROM _sluice_positions")[0][0]
    covered = Checkpoint.model_validate_json(json.loads(note)[OFFSETS_KEY])
    assert set(covered.clusters) == {"east", "west"}
    assert table.staging() == set()
    streams.flow.interval_is_empty()


def test_a_key_that_is_on_two_clusters_is_refused_by_a_database(make_streams, tmp_path, monkeypatch):
    """Nothing says which version is the last, until a column does."""
    streams = make_streams()
    database = SqliteFile(tmp_path / "warehouse.db")
    for variable, value in database.environment().items():
        monkeypatch.setenv(variable, value)
    keyed = {"schema": "id BIGINT NOT NULL, v STRING, ts BIGINT", "insert_mode": "upsert", "pk_mode": "record_value"}
    table = jdbc_table(streams.flow, database, {**keyed, "pk_fields": "id"})
    two_clusters(streams)
    streams.send("east", streams.topic, 1, partitions=[0], ids=[1], values="a", fields={"ts": 2})
    streams.send("west", streams.topic, 1, partitions=[0], ids=[1], values="b", fields={"ts": 1})
    error = str(refused(streams.flow))
    assert "A key is in two partitions" in error
    assert f"east/{streams.topic}[0]" in error
    assert f"west/{streams.topic}[0]" in error
    assert table.rows() == []
    streams.flow.set(sink__jdbc__ordering_field="ts")
    streams.flow.interval()
    assert table.rows() == [(1, "a1")]
