"""Offsets that can't be read any more: stop and say so, or do what `on_offset_loss` says, never silently."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sluice.coordinator import Coordinator
from sluice.errors import ActionRequiredError, IntervalError, RetryableError
from sluice.protocol.offsets import OFFSETS_KEY, TRANSACTION_KEY
from sluice.sources.kafka.cluster import KafkaCluster

from .harness import Flow, kafka_settings, wait_for
from .without_ids import BrokerWithoutIds


def _lost_from_retention(flow: Flow) -> None:
    """20 records in the table, 20 more of which retention has taken half of partition 0's."""
    flow.produce(20)
    flow.interval()
    flow.produce(20)
    flow.delete_records({0: 15})


def _recreate(flow: Flow) -> None:
    flow.admin.delete_topics([flow.topic])[flow.topic].result(30)
    wait_for(lambda: flow.topic not in flow.admin.list_topics(timeout=10).topics, "the topic to go", pause=0.1)
    flow.create_topic(2)


def _losses(flow: Flow) -> list[dict]:
    return json.loads(flow.commits()[-1][TRANSACTION_KEY])["losses"]


def test_a_topic_that_is_made_again_between_two_of_start_s_questions_is_asked_again(make_flow, monkeypatch):
    """Otherwise START-COMMIT would have the old topic's id and the new one's offsets, and call it truncated."""
    flow = make_flow(source__kafka__on_offset_loss="earliest")
    flow.produce(20)
    flow.interval()
    ask = KafkaCluster._list_offsets

    def made_again_before(*arguments: Any) -> Any:
        monkeypatch.setattr(KafkaCluster, "_list_offsets", ask)
        _recreate(flow)
        flow.produce(4)  # then each partition has a leader, who answers
        return ask(*arguments)

    monkeypatch.setattr(KafkaCluster, "_list_offsets", made_again_before)
    messages = flow.messages()
    with pytest.raises(RetryableError, match="deleted and created again while its offsets were read"):
        flow.start()
    assert flow.messages() == messages
    flow.produce(5)
    flow.interval()
    (loss, *others) = _losses(flow)
    assert "created again" in loss["reason"]
    assert all(one["truncated_at"] is None for one in (loss, *others))


def test_by_default_the_interval_stops_and_says_which_offsets_are_lost(make_flow):
    flow = make_flow()
    _lost_from_retention(flow)
    messages = flow.messages()
    with pytest.raises(ActionRequiredError, match="retention or a delete has removed") as caught:
        flow.start()
    where = caught.value.where
    assert (where["topic"], where["partition"]) == (flow.topic, 0)
    assert (where["committed_offset"], where["log_start"]) == (10, 15)
    assert "on_offset_loss" in caught.value.next_step
    assert flow.messages() == messages
    flow.check(complete=False)


def test_earliest_goes_on_with_what_is_left(make_flow):
    flow = make_flow(source__kafka__on_offset_loss="earliest")
    _lost_from_retention(flow)
    flow.sent = [s for s in flow.sent if (s.partition, s.offset // 5) != (0, 2)]  # offsets 10 to 14 of partition 0
    flow.interval()
    flow.check()
    assert len(_losses(flow)) == 1
    loss = _losses(flow)[0]
    assert (loss["topic"], loss["partition"], loss["committed"], loss["resumed_at"]) == (flow.topic, 0, 10, 15)
    flow.produce(10)
    flow.interval()
    flow.check()
    assert _losses(flow) == []


def test_latest_goes_on_from_now_for_that_partition_alone(make_flow):
    flow = make_flow(source__kafka__on_offset_loss="latest")
    _lost_from_retention(flow)
    flow.sent = [s for s in flow.sent if s.partition == 1 or s.offset < 10]
    flow.interval()
    flow.check()
    assert flow.offsets() == {0: 20, 1: 20}


@pytest.mark.thorough
def test_latest_with_nothing_to_read_records_its_position(make_flow):
    flow = make_flow(source__kafka__on_offset_loss="latest")
    flow.produce(20)
    flow.interval()
    flow.produce(20)
    flow.delete_records({0: 15, 1: 15})
    started = flow.start()
    assert started.ranges == ()
    flow.commit(started)
    assert flow.offsets() == {0: 20, 1: 20}
    assert len(_losses(flow)) == 2
    flow.sent = [s for s in flow.sent if s.offset < 10]
    flow.check()
    flow.set(source__kafka__on_offset_loss="fail")
    flow.produce(10)
    flow.interval()
    flow.check()


def test_a_topic_that_was_deleted_and_created_again(make_flow):
    flow = make_flow()
    flow.produce(20)
    flow.interval()
    loaded = flow.expected()
    _recreate(flow)
    flow.sent = []
    flow.produce(40)  # as many offsets as before and more: the offsets alone don't tell
    with pytest.raises(ActionRequiredError, match="deleted and created again") as caught:
        flow.start()
    assert caught.value.where["topic"] == flow.topic
    flow.set(source__kafka__on_offset_loss="earliest")
    flow.others = loaded
    flow.interval()
    flow.check()
    flow.set(source__kafka__on_offset_loss="fail")
    flow.produce(10)
    flow.interval()
    flow.check()


def test_offsets_of_another_log_are_asked_for_by_nobody(make_flow):
    """Old offsets mean other records once a topic was made again: only the schedule may go on, as the policy says."""
    flow = make_flow()
    flow.produce(20)
    instant = str(flow.interval().instant)
    loaded = flow.others = flow.expected()
    _recreate(flow)
    flow.sent = []
    flow.produce(30)
    times = {"from_time": datetime(2000, 1, 1, tzinfo=UTC), "to_time": datetime.now(UTC) + timedelta(hours=1)}
    asked = [
        {"kind": "replay", "instant": instant},
        {"kind": "range", "offsets": {flow.topic: {0: (12, 14)}}},
        {"kind": "backfill", **times},
        {"kind": "correction", "offsets": {flow.topic: {0: (11, 12)}}, "reason": "r"},
        {},
    ]
    for request in asked:
        with pytest.raises(ActionRequiredError, match="deleted and created again"):
            flow.start(flow.run(**request))
    flow.set(source__kafka__on_offset_loss="earliest")
    for request in asked[:-1]:
        with pytest.raises(ActionRequiredError, match="deleted and created again"):
            flow.start(flow.run(**request))
    assert flow.rows(metadata=True) == loaded
    newer = str(flow.interval().instant)
    flow.check()
    with pytest.raises(ActionRequiredError, match="deleted and created again"):
        flow.start(flow.run(**asked[0]))  # the table knows the new log, but that interval read the old one
    flow.interval(kind="replay", instant=newer)
    flow.check()


@pytest.mark.thorough
def test_what_a_backfill_has_covered_of_another_log_is_read(make_flow):
    """A table that only a backfill has loaded has no position, yet what it covers is of the log that is gone."""
    flow = make_flow()
    flow.produce(20)
    flow.interval(kind="range", offsets={flow.topic: {0: (0, 10)}})
    flow.others = flow.expected()
    _recreate(flow)
    flow.sent = []
    flow.produce(30)
    with pytest.raises(ActionRequiredError, match="deleted and created again"):
        flow.start()
    flow.set(source__kafka__on_offset_loss="earliest")
    flow.interval()
    flow.check()


def test_records_removed_while_the_interval_runs_are_not_passed_over(make_flow):
    flow = make_flow()
    flow.produce(20)
    run = flow.run()
    started = flow.start(run)
    flow.delete_records({0: 5})
    job = flow.write(started)
    assert job.wait() == 1
    with pytest.raises(ActionRequiredError, match="could not be read") as caught:
        flow.commit(started)
    assert "on_offset_loss" in caught.value.next_step
    flow.abort(run)
    assert flow.commits() == []


@pytest.fixture(scope="module")
def old(home, tmp_path_factory):
    with BrokerWithoutIds(home, tmp_path_factory.mktemp("old") / "broker") as broker:
        yield broker


def test_a_broker_without_topic_ids_that_is_upgraded(make_flow, old, bootstrap):
    """Before, a topic made again can't be told from one that was truncated; after, its first id is no other one."""
    flow, made_again = make_flow(partitions=0), make_flow()  # the latter's topic is on another cluster as well
    for one in (flow, made_again):
        one.move(old.bootstrap, one.connection)
        one.create_topic(2)
        one.produce(20)
        one.interval()
    made_again.produce(4)
    started = made_again.start()
    made_again.write_all(started)
    control = kafka_settings(old.bootstrap, "control")
    elsewhere = Coordinator(made_again.pipeline, kafka_settings(bootstrap), control, made_again.jvm)
    with pytest.raises(IntervalError, match="leads to another cluster"):
        elsewhere.commit(started.control_offset)
    _recreate(made_again)
    made_again.produce(8)
    made_again.set(source__kafka__on_offset_loss="earliest")
    with pytest.raises(ActionRequiredError, match="is unknown whether the log is another one"):
        made_again.start()
    (topic,) = json.loads(flow.commits()[-1][OFFSETS_KEY])["clusters"][flow.connection]["topics"].values()
    assert topic.get("topic_id") is None
    flow.produce(10)
    started = flow.start()  # planned before, committed after
    old.upgrade()
    flow.write_all(started)
    flow.commit(started)
    flow.produce(10)
    flow.interval()
    flow.check()
    (topic,) = json.loads(flow.commits()[-1][OFFSETS_KEY])["clusters"][flow.connection]["topics"].values()
    assert len(topic["topic_id"]) == 22
    loaded = flow.expected()
    _recreate(flow)
    flow.sent = []
    flow.produce(60)
    with pytest.raises(ActionRequiredError, match="deleted and created again"):
        flow.start()
    assert flow.rows(metadata=True) == loaded
