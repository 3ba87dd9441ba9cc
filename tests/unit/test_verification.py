"""Which records `sluice verify` compares an interval's rows with, and that without any it refuses."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from sluice.coordinator import Position
from sluice.coordinator.verification.verify import (
    WHOLE_TABLE,
    Compared,
    Interval,
    Verification,
    _offsets_left_out,
    _require_compared,
    standing,
)
from sluice.errors import ActionRequiredError
from sluice.pipeline import Pipeline
from sluice.protocol.offsets import Checkpoint, ClusterCheckpoint, OffsetRange, TopicCheckpoint, TopicPartition
from sluice.protocol.state import ClusterState, PartitionBounds

THEN = {"east": "E", "west": "W"}


def _present(now: dict[str, str | None], then: dict[str, str | None] = THEN, *, one_place: bool = False):
    ranges = tuple(OffsetRange(TopicPartition(name, "orders", 0), 0, 4) for name in then)
    return Interval("7", ranges, then).present(now, one_place=one_place)


@pytest.mark.parametrize(
    ("now", "found"),
    [
        ({"east": "E", "west": "W"}, {"east": "east", "west": "west"}),
        ({"west": "E", "east": "W"}, {"east": "west", "west": "east"}),
        ({"east": "E", "far_west": "W"}, {"east": "east", "west": "far_west"}),
        ({"east": "E"}, {"east": "east"}),
        ({"east": "E", "west": "another"}, {"east": "east"}),
        ({"east": None, "west": "W"}, {"east": "east", "west": "west"}),
    ],
)
def test_clusters_are_found_by_their_ids(now, found):
    assert _present(now) == found


def test_a_connection_of_another_name_leads_to_the_same_cluster_or_to_another():
    assert _present({"new": "E"}, {"old": "E"}, one_place=True) == {"old": "new"}
    assert _present({"new": None}, {"old": None}, one_place=True) == {"old": "new"}
    assert _present({"new": "W"}, {"old": "E"}, one_place=True) == {}


# Nothing to compare

PIPELINE = Pipeline.model_validate(
    {
        "name": "orders",
        "source": {"kafka": {"topics": ["orders"]}},
        "sink": {"hudi": {"path": "/lake/orders", "schema": "id BIGINT"}},
    }
)
LOG = TopicPartition("kafka_default", "orders", 0)


def _position(*covered: tuple[int, int], instant: str | None = "9", log_start: int = 0) -> Position:
    topic = TopicCheckpoint(partitions={0: 50}, covered={0: covered})
    checkpoint = Checkpoint(clusters={LOG.cluster: ClusterCheckpoint(topics={LOG.topic: topic})} if covered else {})
    bounds = PartitionBounds(LOG, log_start, 50, 50, datetime(2026, 1, 1, tzinfo=UTC))
    state = ClusterState(partitions=(bounds,), cluster_ids={LOG.cluster: None}, topic_ids={})
    return Position(checkpoint, state, None, instant)


def _refusal(found: Verification, position: Position, name: str | None = None) -> str:
    assert not found.same
    assert "the same" not in found.in_words()
    with pytest.raises(ActionRequiredError) as caught:
        _require_compared(found, PIPELINE, position, lambda _: name)
    return str(caught.value)


def test_nothing_compared_is_never_the_same():
    assert "no interval of it has been committed yet" in _refusal(Verification(()), _position(instant=None))
    assert "though the table has 50 offsets" in _refusal(Verification((), offsets_left_out=50), _position((0, 50)))
    other = _refusal(Verification((), offsets_left_out=50), _position((0, 50)), "file:///mnt/orders")
    assert "as the pipeline has it that loads the table: file:///mnt/orders" in other
    assert "of none of its 2 intervals" in _refusal(Verification((), ("1", "2")), _position((0, 50)))


def test_nor_is_a_table_of_which_all_keys_were_left_out():
    nothing = Verification((Compared(WHOLE_TABLE, 0, 0, same=True),), keys_left_out=3)
    with pytest.raises(ActionRequiredError, match="each of the 3 keys"):
        _require_compared(nothing, PIPELINE, _position((0, 50)), lambda _: None)
    _require_compared(replace(nothing, keys_left_out=0), PIPELINE, _position((0, 50)), lambda _: None)


def test_offsets_of_no_known_interval_are_counted_as_far_as_the_topic_has_them():
    read = [Interval("1", (OffsetRange(LOG, 10, 20),)), Interval("2", (OffsetRange(LOG, 20, 30),))]
    assert _offsets_left_out(_position((0, 50)), read, lambda _: True) == 30
    assert _offsets_left_out(_position((0, 50), log_start=5), read, lambda _: True) == 25
    assert _offsets_left_out(_position((10, 30)), read, lambda _: True) == 0
    assert _offsets_left_out(_position((0, 50)), read, lambda _: False) == 0
    words = Verification((Compared("1", 5, 5, same=True),), offsets_left_out=30, tables_left_out=("b",)).in_words()
    assert "the same, row for row: 5 rows" in words
    assert "30 offsets of the table are of no interval" in words
    assert words.endswith("since no interval has loaded them yet: b.")


def test_intervals_that_a_restore_has_taken_off_the_table_are_not_compared():
    def at(instant: str, start: int, end: int) -> Interval:
        return Interval(instant, (OffsetRange(LOG, start, end),), {LOG.cluster: None})

    def found(position: Position, *intervals: Interval) -> list[str]:
        return [one.instant for one in standing(intervals, position)]

    first, second, third = at("1", 0, 10), at("2", 10, 20), at("3", 10, 24)
    assert found(_position((0, 20)), first, second) == ["1", "2"]
    assert found(_position((0, 10)), first, second) == ["1"]  # nothing was read since
    assert found(_position((0, 24)), first, second, third) == ["1", "3"]
    assert found(_position((0, 10)), first, second, third) == ["1"]  # and restored once more
    assert found(_position((0, 24)), first, at("2", 10, 12), second, third) == ["1", "3"]
    backfill = at("4", 30, 40)
    assert found(_position((0, 10), (30, 40)), backfill, first) == ["4", "1"]
