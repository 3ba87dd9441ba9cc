"""A broker that dies takes its partitions with it: the others go on. An unclean election is found out.

One cluster, one story: what happens to each pipeline is looked at by a test of its own, in this order. The third broker
dies. What is written then, the second has alone, and it dies too; the third comes back and is elected.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from sluice.coordinator import Outcome, Started
from sluice.errors import ActionRequiredError, IntervalError, RetryableError

from .harness import Flow
from .test_deletes import TOMBSTONES, deleted, written
from .two_brokers import SECOND, STAYS, THIRD, TwoBrokers

CHANGES = {**TOMBSTONES, "sink__hudi__key_placement": "trusted"}  # all of them in the partition that is to suffer
BOTH = [[STAYS, SECOND], [SECOND, THIRD]]
LOST = [written(5, "lost"), deleted(3), written(2, "lost"), written(0, "lost"), deleted(1)]


@pytest.fixture(scope="module")
def cluster(home, tmp_path_factory) -> Iterator[TwoBrokers]:
    running = TwoBrokers(home, tmp_path_factory.mktemp("two"))
    yield running
    running.close()


class Story:
    """Pipelines of ten records committed in each of two partitions, the second of which is to suffer."""

    def __init__(self, cluster: TwoBrokers, make: Callable[..., Flow]) -> None:
        self.cluster = cluster
        self.left_out = self._flow(make, [[STAYS], [THIRD]])
        self.cut, self.cut_meanwhile, self.changed = (self._flow(make, BOTH, **s) for s in ({}, {}, CHANGES))
        self._cut = (self.cut, self.cut_meanwhile, self.changed)
        for flow in (self.left_out, self.cut, self.cut_meanwhile):
            flow.produce(10)
            flow.interval()
        self.changed.produce_keyed([written(i, "a") for i in range(5)], partition=1)
        self.changed.interval()
        self.before = self.left_out.note()["valid_through"]
        self.left_out.produce(10)
        cluster.third.kill()
        cluster.led_by(self.left_out.topic, [STAYS, -1])
        for flow in self._cut:
            cluster.in_sync(flow.topic, [[STAYS, SECOND], [SECOND]])
        for flow in (self.cut, self.cut_meanwhile):
            flow.produce(10)
        self.changed.produce_keyed(LOST, partition=1)
        self.cut.interval()
        self.changed.interval()
        self.started = self.cut_meanwhile.start()

    def _flow(self, make: Callable[..., Flow], replicas: Sequence[Sequence[int]], **settings: Any) -> Flow:
        flow = make(**settings)
        self.cluster.create(flow.topic, replicas)
        self.cluster.create(flow.control_topic, [[STAYS]])
        return flow

    def elect(self) -> None:
        """Let the third broker lead, which lacks what the second has written alone."""
        if self.cluster.third.running:
            return
        self.cluster.second.kill()
        for flow in self._cut:
            self.cluster.led_by(flow.topic, [STAYS, -1])
        self.cluster.third.start(120)
        for flow in (self.left_out, *self._cut):
            self.cluster.led_by(flow.topic, [STAYS, THIRD])


@pytest.fixture(scope="module")
def story(cluster, tmp_path_factory, shared_jvm, drivers, topic_name) -> Story:
    folder = tmp_path_factory.mktemp("flows")
    return Story(cluster, lambda **s: Flow(folder, cluster.bootstrap, shared_jvm, drivers, topic_name("t"), **s))


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
    story.elect()
    flow = story.left_out
    flow.interval()
    assert flow.note()["valid_through"] > story.before
    assert flow.note()["remarks"] == []
    flow.check()
    flow.interval_is_empty()


def test_a_log_that_was_truncated_and_has_grown_again_is_found_out(story):
    story.elect()
    flow = story.cut
    with pytest.raises(ActionRequiredError, match="truncated at 5"):  # the end is below the position
        flow.start()
    _forget(flow, 5)
    flow.produce(20)
    assert flow.log_ends() == {0: 20, 1: 15}
    with pytest.raises(ActionRequiredError, match="truncated at 5") as caught:  # it is past it: nothing else shows it
        flow.start()
    assert caught.value.where["committed_offset"] == 10
    before = flow.commits()[-1]["instant"]
    with pytest.raises(ActionRequiredError, match="truncated at 5"):
        flow.start(flow.run(kind="replay", instant=before))
    flow.set(source__kafka__on_offset_loss="earliest")
    flow.interval()
    flow.check()
    assert flow.note()["losses"][0]["resumed_at"] == 5
    flow.set(source__kafka__on_offset_loss="fail")
    # The table has these offsets by now, but as rows of the interval that came after.
    with pytest.raises(ActionRequiredError, match="can't be read again: the log was truncated at 5 since"):
        flow.start(flow.run(kind="replay", instant=before))
    flow.produce(4)
    flow.interval()
    flow.check()


def test_a_log_that_is_truncated_while_an_interval_reads_it(story):
    story.elect()
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


def test_changes_after_a_truncation_are_newer_than_those_that_it_lost(story):
    """They stand at earlier offsets: by these alone each would lose against the lost change of its key."""
    story.elect()
    flow = story.changed
    assert flow.offsets() == {0: 0, 1: 10}
    assert flow.log_ends() == {0: 0, 1: 5}
    flow.produce_keyed([deleted(2), written(0, "new"), written(1, "new"), written(6, "new")], partition=1)
    with pytest.raises(ActionRequiredError, match="truncated at 5"):
        flow.start()
    flow.set(source__kafka__on_offset_loss="earliest")
    flow.interval()
    flow.set(source__kafka__on_offset_loss="fail")
    expected = [(0, "new"), (1, "new"), (4, "a"), (5, "lost"), (6, "new")]  # what the new log doesn't change stays
    for metadata in (True, False):
        assert sorted(flow.read("id", "v", metadata=metadata)) == expected
    flow.serve("compaction")
    assert sorted(flow.read("id", "v")) == expected
    flow.produce_keyed([written(3, "new"), deleted(5), written(0, "newer")], partition=1)
    flow.interval()
    expected = [(0, "newer"), (1, "new"), (3, "new"), (4, "a"), (6, "new")]
    for metadata in (True, False):
        assert sorted(flow.read("id", "v", metadata=metadata)) == expected
