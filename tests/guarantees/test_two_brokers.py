"""A broker that dies takes its partitions with it: the others go on. One that lost records is found out.

One cluster, one death: what happens to each pipeline is looked at by a test of its own, in this order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from sluice.coordinator import Outcome, Started
from sluice.errors import ActionRequiredError, IntervalError, RetryableError

from .harness import Flow
from .two_brokers import FIRST, SECOND, TwoBrokers


@pytest.fixture(scope="module")
def cluster(home, tmp_path_factory) -> Iterator[TwoBrokers]:
    running = TwoBrokers(home, tmp_path_factory.mktemp("two"))
    yield running
    running.close()


class Story:
    """Three pipelines of ten records committed in each of two partitions, the second of which is to suffer."""

    def __init__(self, cluster: TwoBrokers, make) -> None:
        self.cluster = cluster
        self.left_out, self.cut, self.cut_meanwhile = (self._flow(make) for _ in range(3))
        for flow in (self.left_out, self.cut, self.cut_meanwhile):
            flow.produce(10)
            cluster.keep(flow.topic, 1)
            flow.interval()
        self.before = self.left_out.note()["valid_through"]
        for flow in (self.cut, self.cut_meanwhile):
            flow.produce(10)
        self.cut.interval()
        self.started = self.cut_meanwhile.start()
        self.left_out.produce(10)
        cluster.second.kill()
        for flow in (self.left_out, self.cut, self.cut_meanwhile):
            cluster.led_by(flow.topic, [FIRST, -1])

    def _flow(self, make) -> Flow:
        flow: Flow = make(0)
        self.cluster.create(flow.topic, [FIRST, SECOND])
        self.cluster.create(flow.control_topic, [FIRST])
        return flow

    def bring_back(self) -> None:
        if self.cluster.second.running:
            return
        for flow in (self.cut, self.cut_meanwhile):
            self.cluster.lose(flow.topic, 1)
        self.cluster.second.start(120)
        for flow in (self.left_out, self.cut, self.cut_meanwhile):
            self.cluster.led_by(flow.topic, [FIRST, SECOND])


@pytest.fixture(scope="module")
def story(cluster, tmp_path_factory, shared_jvm, drivers, topic_name) -> Story:
    folder = tmp_path_factory.mktemp("flows")
    return Story(cluster, lambda _: Flow(folder, cluster.bootstrap, shared_jvm, drivers, topic_name("t")))


def _forget(flow: Flow, first: int) -> None:
    """The records of partition 1 from an offset on are gone from the log; their rows stay."""
    lost = [s for s in flow.sent if s.partition == 1 and s.offset >= first]
    flow.sent = [s for s in flow.sent if s not in lost]
    flow.others += Counter((s.id, s.value) for s in lost)


def test_the_others_go_on_without_a_partition_that_has_no_leader(story):
    flow = story.left_out
    started = flow.start()
    assert [(r.partition, r.start, r.end) for group in started.ranges for r in group] == [(0, 5, 10)]
    flow.write_all(started)
    flow.commit(started)
    assert flow.offsets() == {0: 10, 1: 5}
    assert flow.note()["valid_through"] == story.before
    assert flow.note()["remarks"] == [f"{flow.topic}[1]: it has no leader, so it is left out until it has one"]
    flow.check(complete=False)


def test_that_it_waits_is_told_though_there_is_nothing_else_to_read(story):
    outcome = story.left_out.coordinator().start(story.left_out.run())
    assert isinstance(outcome, Outcome)
    assert "[1]: it has no leader" in outcome.summary


def test_offsets_of_it_that_somebody_names_are_not_left_out_unseen(story):
    flow = story.left_out
    with pytest.raises(RetryableError, match="no leader"):
        flow.start(flow.run(kind="range", offsets={flow.topic: {1: (5, 10)}}))


def test_it_catches_up_when_it_has_a_leader_again(story):
    story.bring_back()
    flow = story.left_out
    flow.interval()
    assert flow.note()["valid_through"] > story.before
    assert flow.note()["remarks"] == []
    flow.check()
    flow.interval_is_empty()


def test_a_log_that_was_truncated_and_has_grown_again_is_found_out(story):
    story.bring_back()
    flow = story.cut
    with pytest.raises(ActionRequiredError, match="truncated at 5"):  # the end is below the position
        flow.start()
    _forget(flow, 5)
    flow.produce(20)
    assert flow.log_ends() == {0: 20, 1: 15}
    with pytest.raises(ActionRequiredError, match="truncated at 5") as caught:  # it is past it: nothing else shows it
        flow.start()
    assert caught.value.where["committed_offset"] == 10
    with pytest.raises(ActionRequiredError, match="truncated at 5"):
        flow.start(flow.run(kind="replay", instant=flow.commits()[-1]["instant"]))
    flow.set(source__kafka__on_offset_loss="earliest")
    flow.interval()
    flow.check()
    assert flow.note()["losses"][0]["resumed_at"] == 5
    flow.set(source__kafka__on_offset_loss="fail")
    flow.produce(4)
    flow.interval()
    flow.check()


def test_a_log_that_is_truncated_while_an_interval_reads_it(story):
    story.bring_back()
    flow = story.cut_meanwhile
    _forget(flow, 5)
    flow.produce(20)
    started: Started = story.started
    flow.write_all(started)
    with pytest.raises(IntervalError, match="truncated at 5 while"):
        flow.commit(started)
    flow.interval()
    flow.others = Counter()  # what was lost was never in the table
    flow.check()
