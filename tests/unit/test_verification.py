"""Which records `sluice verify` compares an interval's rows with: those of the clusters that it has read."""

from __future__ import annotations

import pytest

from sluice.protocol.offsets import OffsetRange, TopicPartition
from sluice.verification.verify import Interval

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
