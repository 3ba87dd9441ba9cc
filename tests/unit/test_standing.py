"""What an interval leaves unread, by cluster."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from sluice.protocol.known_streams import KnownStreams
from sluice.protocol.mapping import ClusterAddress
from sluice.protocol.offsets import TopicPartition
from sluice.protocol.standing import ClusterStanding, Standing, standing_after
from sluice.protocol.state import ClusterState, PartitionBounds

NOW = datetime(2026, 1, 1, tzinfo=UTC)
EAST, EAST_1, WEST = TopicPartition("east", "t", 0), TopicPartition("east", "t", 1), TopicPartition("west", "t", 0)


def bounds(tp: TopicPartition, stable: int, high_watermark: int) -> PartitionBounds:
    return PartitionBounds(tp, 0, stable, stable, NOW, high_watermark)


STATE = ClusterState([bounds(EAST, 10, 10), bounds(EAST_1, 8, 12), bounds(WEST, 5, 9)], {}, {})
AT = {EAST: 7, EAST_1: 8, WEST: 2}


def test_lag_goes_to_the_log_s_end_and_what_is_held_back_begins_at_the_last_stable_offset() -> None:
    found = standing_after(AT, STATE, None)
    assert found.clusters == {
        "east": ClusterStanding(partitions=2, lag_records=3 + 4, held_back_records=4),
        "west": ClusterStanding(partitions=1, lag_records=7, held_back_records=4),
    }
    assert (found.partitions, found.held_back_records, found.metadata_failures) == (3, 8, None)
    assert Standing.model_validate_json(found.model_dump_json()) == found


def test_offsets_that_a_truncation_or_uncommitted_reads_have_passed_are_neither() -> None:
    beyond = standing_after({EAST: 14, EAST_1: 11}, STATE, None).clusters["east"]
    assert (beyond.lag_records, beyond.held_back_records) == (1, 1)


def test_a_cluster_that_does_not_answer_or_has_a_partition_without_a_leader_is_unknown() -> None:
    missing = TopicPartition("north", "t", 0)
    state = replace(STATE, leaderless=(missing, WEST), skipped=("north",))
    found = standing_after({**AT, missing: 4}, state, KnownStreams(failures=2))
    assert found.clusters["north"] == ClusterStanding(partitions=1)
    assert found.clusters["west"] == ClusterStanding(partitions=1)
    assert found.clusters["east"].lag_records == 7
    assert (found.unreachable, found.held_back_records, found.metadata_failures) == (("north",), None, 2)


def test_a_cluster_that_is_mapped_and_has_no_partition_yet_is_there() -> None:
    streams = KnownStreams(clusters={"south": ClusterAddress(connection="south")})
    found = standing_after(AT, STATE, streams)
    assert found.clusters["south"] == ClusterStanding(partitions=0, lag_records=0, held_back_records=0)
