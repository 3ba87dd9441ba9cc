"""Which partitioner explains where keys are, over a table's whole life, and what is refused."""

from __future__ import annotations

import pytest

from sluice.errors import ActionRequiredError
from sluice.protocol.placement import (
    PARTITIONERS,
    KeyPlacement,
    Misplaced,
    PlacedKeys,
    PlacementNote,
    fitting_partitioners,
    placement_note,
    refuse_other_placement,
)

CHECKED = KeyPlacement(kind="checked", partitions={"t": 3, "one": 1})
MURMUR2, CRC32 = PARTITIONERS


def wrong(records: int, partition: int, offset: int) -> Misplaced:
    return Misplaced(records=records, partition=partition, offset=offset)


def seen(topic: str = "t", keyless: Misplaced | None = None, **misplaced: Misplaced) -> PlacedKeys:
    return PlacedKeys(topic=topic, keyless=keyless, misplaced=misplaced)


def note(*names: str, topic: str = "t") -> PlacementNote:
    return PlacementNote(partitioners={topic: names})


def test_records_that_fit_both_partitioners_decide_nothing():
    assert fitting_partitioners(CHECKED, [seen()], None) == {"t": PARTITIONERS}


def test_what_one_interval_rules_out_stays_out():
    first = fitting_partitioners(CHECKED, [seen(crc32=wrong(4, 1, 7))], None)
    assert first == {"t": (MURMUR2,)}
    with pytest.raises(ActionRequiredError, match="murmur2 leads, which has placed all keys") as caught:
        fitting_partitioners(CHECKED, [seen(murmur2=wrong(2, 0, 9))], note(*first["t"]), table="flights", instant="i")
    where = caught.value.where
    assert (where["topic"], where["partition"], where["offset"], where["records"]) == ("t", 0, 9, 2)
    assert (where["table"], where["instant"]) == ("flights", "i")
    for way_out in ("trusted", "hashed"):
        assert way_out in caught.value.next_step


def test_ranges_are_judged_together():
    """Each range by itself fits a partitioner, but not the same one."""
    ranges = [seen(crc32=wrong(5, 1, 3)), seen(murmur2=wrong(2, 2, 8), crc32=wrong(1, 2, 0))]
    with pytest.raises(ActionRequiredError, match="a known partitioner") as caught:
        fitting_partitioners(CHECKED, ranges, None)
    assert (caught.value.where["nearest"], caught.value.where["partition"], caught.value.where["offset"]) == (
        MURMUR2,
        2,
        8,
    )


def test_records_without_a_key_are_refused_whatever_fits():
    with pytest.raises(ActionRequiredError, match="Records have no key") as caught:
        fitting_partitioners(CHECKED, [seen(), seen(keyless=wrong(3, 1, 12))], None)
    assert (caught.value.where["partition"], caught.value.where["offset"]) == (1, 12)


def test_a_topic_with_one_partition_has_no_wrong_place():
    found = fitting_partitioners(CHECKED, [seen("one", keyless=wrong(9, 0, 0))], note(MURMUR2))
    assert found == {"t": (MURMUR2,)}


@pytest.mark.parametrize("kind", ["trusted", "hashed"])
def test_nothing_is_checked_where_nothing_was_asked_and_nothing_is_forgotten(kind):
    placement = KeyPlacement(kind=kind, partitions={"t": 3}, buckets=4 if kind == "hashed" else None)
    found = fitting_partitioners(placement, [seen(keyless=wrong(1, 0, 0))], note(CRC32))
    assert found == {"t": (CRC32,)}
    expected = PlacementNote(kind=kind, buckets=placement.buckets, partitioners={"t": (CRC32,)})
    assert placement_note(placement, found) == expected


def test_topics_may_have_partitioners_of_their_own():
    placement = KeyPlacement(kind="checked", partitions={"t": 3, "u": 2})
    found = fitting_partitioners(placement, [seen(crc32=wrong(1, 0, 0)), seen("u", murmur2=wrong(1, 0, 0))], None)
    assert found == {"t": (MURMUR2,), "u": (CRC32,)}


@pytest.mark.parametrize(
    ("before", "wanted", "refused"),
    [
        (None, KeyPlacement(kind="hashed", buckets=4), True),  # a table from before there was a choice
        (None, KeyPlacement(kind="checked"), False),
        (PlacementNote(kind="checked"), KeyPlacement(kind="trusted"), False),
        (PlacementNote(kind="hashed", buckets=4), KeyPlacement(kind="hashed", buckets=4), False),
        (PlacementNote(kind="hashed", buckets=4), KeyPlacement(kind="hashed", buckets=8), True),
        (PlacementNote(kind="hashed", buckets=4), KeyPlacement(kind="checked"), True),
    ],
)
def test_a_table_keeps_its_rule_for_life(before, wanted, refused):
    if not refused:
        refuse_other_placement(wanted, before, "flights")
        return
    with pytest.raises(ActionRequiredError, match="another rule") as caught:
        refuse_other_placement(wanted, before, "flights")
    assert caught.value.where["table"] == "flights"
