"""Streams over several clusters: what a mapping says, and how an interval follows one that changed."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from sluice.errors import ActionRequiredError, RetryableError
from sluice.protocol.streams import (
    Followed,
    KnownStreams,
    Stream,
    StreamMapping,
    follow,
    follow_without_answer,
    mapping_of,
    require_streams,
)


def mapping(**streams: dict) -> StreamMapping:
    parsed = {name: Stream.model_validate(stream) for name, stream in streams.items()}
    return mapping_of(parsed, connection="kafka_default", starting="earliest", table="t")


def on(*topics: str, **more: object) -> dict:
    return {"topics": topics, **more}


EAST_AND_WEST = mapping(orders={"clusters": {"east": on("orders"), "west": on("orders")}})
EAST = mapping(orders={"clusters": {"east": on("orders")}})


def after(*answers: StreamMapping, on_removed: str = "drain") -> Followed:
    """What the last of some intervals reads, each of which has committed."""
    known: KnownStreams | None = None
    for answer in answers:
        followed = follow(known, answer, on_removed, "t")
        known = KnownStreams.model_validate_json(followed.known.model_dump_json())
    return followed


def test_a_cluster_wins_over_its_stream_and_that_over_the_pipeline():
    found = mapping(
        a={"clusters": {"east": on("t", starting_offsets="latest", connection="east")}, "starting_offsets": "earliest"},
        b={"clusters": {"west": on("u", "v")}, "starting_offsets": {"u": {"0": 7}}, "stopping_offsets": "latest"},
        c={"clusters": {"north": on("w")}},
    )
    starting = {log: mapped.starting for log, mapped in found.logs.items()}
    assert starting == {("east", "t"): "latest", ("west", "u"): {0: 7}, ("west", "v"): {}, ("north", "w"): "earliest"}
    assert found.logs["west", "u"].stopping == "latest"
    assert {name: address.connection for name, address in found.clusters.items()} == {
        "east": "east", "west": "kafka_default", "north": "kafka_default",
    }  # fmt: skip


def test_two_streams_of_one_cluster_keep_their_own_starting_offsets():
    found = mapping(a={"clusters": {"east": on("t", starting_offsets="latest")}}, b={"clusters": {"east": on("u")}})
    assert {topic: mapped.starting for (_, topic), mapped in found.logs.items()} == {"t": "latest", "u": "earliest"}


def test_a_topic_of_two_streams_is_read_once():
    found = mapping(a={"clusters": {"east": on("t")}}, b={"clusters": {"east": on("t")}})
    assert found.logs["east", "t"].streams == ("a", "b")


@pytest.mark.parametrize(
    ("other", "what"),
    [
        (on("t", starting_offsets="latest"), "start or stop the topic at different offsets"),
        (on("t", bootstrap_servers="elsewhere:9092"), "reach the cluster at different addresses"),
    ],
)
def test_streams_that_contradict_each_other_are_refused(other, what):
    with pytest.raises(ActionRequiredError, match=what):
        mapping(a={"clusters": {"east": on("t")}}, b={"clusters": {"east": other}})


def test_a_cluster_without_topics_is_no_cluster_of_the_stream():
    with pytest.raises(ValidationError, match="leave the cluster out"):
        mapping(a={"clusters": {"east": on()}})


def test_all_that_a_mapping_says_is_in_its_digest():
    """Not its topics alone: an address, a connection or an offset that changed is a change."""
    others = [
        mapping(orders={"clusters": {"east": on("orders", **more)}})
        for more in ({}, {"connection": "c"}, {"bootstrap_servers": "b:1"}, {"starting_offsets": "latest"},
                     {"stopping_offsets": "latest"})
    ]  # fmt: skip
    assert len({m.digest for m in [EAST_AND_WEST, *others]}) == 6
    assert others[0].digest == EAST.digest


def test_what_is_new_is_read_at_once():
    assert after(EAST).topics("west") == ()
    assert after(EAST, EAST_AND_WEST).topics("west") == ("orders",)


def test_a_topic_that_is_missed_once_is_read_on():
    found = after(EAST_AND_WEST, EAST)
    assert found.topics("west") == ("orders",)
    assert found.clusters["west"].connection == "kafka_default"
    assert ("west", "orders") not in found.starting
    (remark,) = found.remarks
    assert "orders of cluster west" in remark
    back = after(EAST_AND_WEST, EAST, EAST_AND_WEST)
    assert (back.known.logs["west"]["orders"].status, back.remarks) == ("active", ())


def test_a_topic_that_is_missed_twice_is_drained():
    found = after(EAST_AND_WEST, EAST, EAST)
    assert (found.topics("west"), found.to_confirm) == (("orders",), {("west", "orders")})
    later = after(EAST_AND_WEST, EAST, EAST, EAST)
    assert (later.topics("west"), later.to_confirm, later.remarks) == (("orders",), frozenset(), ())


def test_a_topic_that_is_missed_twice_is_dropped_or_fails_the_run():
    found = after(EAST_AND_WEST, EAST, EAST, on_removed="drop")
    assert (found.topics("west"), found.dropped, "west" in found.clusters) == ((), {("west", "orders")}, False)
    assert after(EAST_AND_WEST, EAST, on_removed="fail").topics("west") == ("orders",)
    with pytest.raises(ActionRequiredError, match="removed from the mapping") as caught:
        after(EAST_AND_WEST, EAST, EAST, on_removed="fail")
    assert caught.value.where["topic"] == "orders"


def test_a_topic_of_a_cluster_that_stays_is_no_different():
    both = mapping(orders={"clusters": {"east": on("orders", "returns")}})
    assert after(both, EAST).topics("east") == ("orders", "returns")
    assert after(both, EAST, EAST).to_confirm == {("east", "returns")}


def test_without_an_answer_the_last_one_serves_for_so_many_intervals():
    known = after(EAST_AND_WEST).known
    for number in (1, 2):
        found = follow_without_answer(known, 2, "timed out", "t")
        assert (found.topics("west"), found.known.failures) == (("orders",), number)
        known = found.known
    with pytest.raises(RetryableError, match="served 2 intervals"):
        follow_without_answer(known, 2, "timed out", "t")
    assert follow(known, EAST_AND_WEST, "drain", "t").known.failures == 0


def test_without_any_answer_nothing_begins():
    with pytest.raises(RetryableError, match="didn't say where"):
        follow_without_answer(None, 5, "timed out", "t")


def test_a_stream_that_the_service_does_not_know_is_not_one_without_records():
    require_streams(["a"], ["a", "b"], "t")
    with pytest.raises(ActionRequiredError, match="doesn't know the streams b, c"):
        require_streams(["a", "b", "c"], ["a"], "t")
