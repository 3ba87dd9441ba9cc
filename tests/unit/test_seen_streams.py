"""What a watcher has seen of streams between two intervals, and what the next one reads of it."""

from __future__ import annotations

from typing import Any

import pytest

from sluice.errors import ActionRequiredError
from sluice.protocol.history import TableHistory
from sluice.protocol.known_streams import KnownLog, KnownMove, KnownStreams
from sluice.protocol.mapping import Stream, StreamMapping, mapping_of
from sluice.protocol.messages import ControlMessage, MappingSeen, encode
from sluice.protocol.messages import decode as decode_whole
from sluice.protocol.seen_streams import (
    MappingChange,
    WatchedStreams,
    as_seen,
    change,
    having_seen,
    starting_at,
    starting_latest,
)
from sluice.protocol.streams import Followed, follow
from sluice.protocol.transaction import State, TableLog
from sluice.protocol.wire import MessagePart, assemble, decode
from sluice.protocol.wire import encode as encode_for_topic

from .protocol_messages import INSTANT, TABLE, abort, ack, end, envelope, start, status

LATER = "20260101000500000"


def mapping(**clusters: Any) -> StreamMapping:
    """The stream `orders`, by cluster its topics or all that is said of it."""
    said = {
        name: one if isinstance(one, dict) else {"topics": one, "connection": name} for name, one in clusters.items()
    }
    stream = Stream.model_validate({"clusters": said})
    return mapping_of({"orders": stream}, connection="kafka_default", starting="earliest", table="t")


EAST = mapping(east="orders")
BOTH = mapping(east="orders", west="orders")
MORE = mapping(east=["orders", "returns"])


def known(of: StreamMapping, before: KnownStreams | None = None) -> KnownStreams:
    return follow(before, of, "drain", "t").known


def next_after(
    last: KnownStreams | None, *seen: StreamMapping, now: StreamMapping, on_removed: Any = "drain"
) -> Followed:
    """What the next interval reads."""
    before, remarks = having_seen(last, [as_seen(one) for one in seen], now, on_removed, "t")
    found = follow(before, now, on_removed, "t")
    return Followed(found.known, found.starting, found.to_confirm, found.moves, remarks=(*remarks, *found.remarks))


def test_what_was_mapped_for_a_while_is_read_and_then_drained():
    found = next_after(known(EAST), BOTH, EAST, now=EAST)
    assert (found.topics("west"), found.clusters["west"].connection) == (("orders",), "west")
    assert found.known.logs["west"]["orders"].status == "missed"
    assert found.remarks[0] == "orders of cluster west was mapped for a while since the last commit"
    later = follow(found.known, EAST, "drain", "t")
    assert later.to_confirm == {("west", "orders")}


def test_before_the_first_commit_it_is_read_too():
    assert next_after(None, BOTH, now=EAST).topics("west") == ("orders",)
    assert having_seen(None, [], EAST, "drain", "t") == (None, ())


def test_of_what_the_mapping_names_now_nothing_else_is_said():
    seen = mapping(east="orders", west={"topics": "orders", "connection": "elsewhere", "starting_offsets": "latest"})
    assert next_after(known(EAST), seen, now=BOTH) == follow(known(EAST), BOTH, "drain", "t")


def test_where_its_end_then_is_not_known_it_is_said_that_nothing_before_is_read():
    at_its_end = {"topics": "orders", "connection": "west", "starting_offsets": "latest"}
    seen = as_seen(mapping(east="orders", west=at_its_end))
    (new,) = starting_latest(seen, as_seen(EAST))
    assert starting_latest(seen, seen) == ()
    for one, remark in (
        (seen, "; nothing of it is read that was sent before now"),
        (starting_at(seen, {new: {0: 7}}), ""),
    ):
        found, remarks = having_seen(known(EAST), [one], EAST, "drain", "t")
        assert remarks == (f"orders of cluster west was mapped for a while since the last commit{remark}",)
        assert found.logs["west"]["orders"].starting == ({0: 7} if not remark else "latest")


def test_where_it_starts_and_stops_is_what_was_said_then():
    said = {"topics": "returns", "starting_offsets": {"returns": {0: 7}}, "stopping_offsets": {"returns": {0: 9}}}
    log = next_after(known(EAST), mapping(east="orders", west=said), now=EAST).known.logs["west"]["returns"]
    assert (log.starting, log.ends, log.streams) == ({0: 7}, {0: 9}, ("orders",))


@pytest.mark.parametrize("status_then", ["active", "missed", "draining"])
def test_a_topic_that_was_read_to_an_end_and_was_mapped_again_is_read_on(status_then: Any):
    last = known(BOTH).with_log(("west", "orders"), KnownLog(status=status_then, ends={0: 5}))
    found = next_after(last, BOTH, now=EAST)
    log = found.known.logs["west"]["orders"]
    expected = {"active": ("missed", {0: 5}), "missed": ("draining", {0: 5}), "draining": ("missed", {})}
    assert (log.status, log.ends) == expected[status_then]


def test_copies_of_records_that_are_read_elsewhere_are_not_read():
    moved = {"topics": "orders", "connection": "west", "moved_from": {"cluster": "east", "mirror": "mirror_maker"}}
    found = next_after(known(EAST), mapping(west=moved), now=EAST)
    assert found.topics("west") == ()
    assert found.remarks == (
        "orders of cluster west was mapped for a while; its unread records are skipped (it had `moved_from` with a "
        "mirror)",
    )
    without = {**moved, "moved_from": {"cluster": "east"}}
    assert next_after(known(EAST), mapping(west=without), now=EAST).topics("west") == ("orders",)
    last = known(mapping(west="orders")).with_move(
        ("west", "orders"), KnownMove(cluster="east", topic="orders", mirrored=True)
    )
    assert next_after(last, EAST, now=mapping(west="orders")).topics("east") == ()


def test_nothing_is_added_where_what_is_removed_is_dropped():
    found = next_after(known(EAST), BOTH, BOTH, now=EAST, on_removed="drop")
    assert found.topics("west") == ()
    assert found.remarks == (
        "orders of cluster west was mapped for a while; its unread records are skipped (on_removed: drop)",
    )


def test_a_cluster_has_the_name_that_its_address_has_now():
    far = mapping(far_east={"topics": "returns", "connection": "east"})
    found = next_after(known(EAST), far, now=EAST)
    assert (found.topics("east"), found.topics("far_east")) == (("orders", "returns"), ())


def test_a_name_that_leads_elsewhere_now_is_refused_unless_nothing_is_read_there():
    elsewhere = mapping(east={"topics": "returns", "connection": "other"})
    with pytest.raises(ActionRequiredError, match="has another address now") as refused:
        next_after(known(EAST), elsewhere, now=EAST)
    assert refused.value.where["connection"] == "other"
    assert next_after(known(EAST), elsewhere, now=EAST, on_removed="drop").topics("east") == ("orders",)


def test_two_clusters_that_turn_out_to_be_one_keep_the_topics_of_both():
    last = known(EAST).model_copy(update={"ids": {"east": "E"}})
    seen = mapping(east="orders", far_east={"topics": "returns", "connection": "far"})
    before, _ = having_seen(last, [as_seen(seen)], EAST, "drain", "t")
    found = before.identified({"far_east": "E"}).renamed({"east": "E"})
    assert sorted(found.topics("east")) == ["orders", "returns"]


def test_how_two_mappings_differ():
    assert change(as_seen(EAST), as_seen(BOTH)) == MappingChange(("cluster west", "orders of cluster west"), ())
    assert change(as_seen(MORE), as_seen(EAST)) == MappingChange((), ("returns of cluster east",))
    none = StreamMapping()
    assert change(as_seen(none), as_seen(EAST)).came == ("stream orders", "cluster east", "orders of cluster east")
    other = mapping(east={"topics": "orders", "connection": "other"})
    assert change(as_seen(EAST), as_seen(other)) == MappingChange((), ())
    assert change(known(EAST, known(BOTH)), as_seen(EAST)) == MappingChange((), ()), "what is drained isn't mapped"


# The notes in the control topic


def seen(of: StreamMapping) -> MappingSeen:
    return MappingSeen(**envelope("20260101000100000"), streams=as_seen(of))


def committed(of: StreamMapping | None, transaction: str = INSTANT, read_position: int = 0) -> list[ControlMessage]:
    streams = known(of) if of is not None else None
    return [start(transaction, read_position, streams=streams), status(transaction), end(transaction), ack(transaction)]


def watched(*messages: ControlMessage) -> str | None:
    """The digest of what is known after these messages, which come one by one."""
    found = WatchedStreams(TABLE)
    for numbered in enumerate(messages):
        found.extend([numbered])
    whole = WatchedStreams(TABLE)
    whole.extend(enumerate(messages))
    assert whole.known == found.known
    return found.known.digest if found.known is not None else None


def test_what_is_known_is_the_last_note_or_the_last_commit_s_mapping():
    assert watched() is None
    assert watched(seen(BOTH)) == BOTH.digest
    assert watched(*committed(EAST)) == EAST.digest
    assert watched(*committed(EAST), seen(BOTH)) == BOTH.digest
    assert watched(seen(BOTH), *committed(EAST, read_position=1)) == EAST.digest
    assert watched(*committed(EAST), seen(BOTH), *committed(None, LATER, 5)) == BOTH.digest


def test_a_note_that_a_commit_s_plan_may_not_have_seen_is_still_one():
    """It is between the position that START noted and START itself."""
    assert watched(seen(BOTH), *committed(EAST, read_position=0)) == BOTH.digest


def test_what_was_never_committed_is_not_known():
    started = committed(BOTH)[0]
    assert watched(started) is None
    assert watched(started, abort(INSTANT)) is None
    assert watched(*committed(EAST), start(LATER, 4, streams=known(BOTH)), abort(LATER)) == EAST.digest


def test_a_note_is_no_turn_and_no_transaction():
    log = TableLog(TABLE).extend([(0, seen(BOTH)), (1, start(INSTANT, read_position=0))])
    assert log.transactions[INSTANT].state is State.OPEN
    assert [(at, note.streams.digest) for at, note in log.seen] == [(0, BOTH.digest)]
    log.forget_ended()
    assert log.seen == []
    history = TableHistory(TABLE).extend([(0, seen(BOTH)), (1, start(INSTANT))])
    assert (list(history.transactions), history.position) == ([INSTANT], 2)


def test_a_note_is_sent_and_read_as_every_message():
    note = seen(BOTH)
    assert decode_whole(encode(note)) == note
    large = seen(mapping(**{f"c{n}": [f"topic-{n}-{i}" for i in range(200)] for n in range(40)}))
    encoded = encode_for_topic(large, 3_000)
    last = decode(encoded.last(range(len(encoded.earlier))))
    assert encoded.earlier
    assert isinstance(last, MessagePart)
    assert assemble(last, encoded.earlier) == large
