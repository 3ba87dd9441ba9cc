"""Messages on the wire: encoding, and statuses in parts."""

from __future__ import annotations

import json
import random

import pytest
from protocol_messages import abort, ack, end, start, status
from pydantic import ValidationError

from sluice.protocol.messages import decode, encode, join, split


@pytest.mark.parametrize("message", [start("1"), status("1"), end("1"), ack("1"), abort("1")], ids=lambda m: m.type)
def test_a_message_is_read_back_as_it_was(message):
    assert decode(encode(message)) == message


def test_a_message_says_who_what_and_when_in_plain_json():
    fields = json.loads(encode(start("20260101000000000")))
    assert {"version", "table", "transaction", "epoch", "dag_id", "run_id", "sender", "time", "type"} <= set(fields)


def test_what_is_no_message_is_refused():
    with pytest.raises(ValidationError):
        decode(b'{"type": "SOMETHING-ELSE"}')


def test_a_large_status_is_split_and_joined_in_any_order_with_repeats():
    stats = tuple({"fileId": f"file-{i}", "path": "p" * 200, "numWrites": i} for i in range(100))
    whole = status("1", stats=stats)
    parts = split(whole, 4000)
    assert len(parts) > 5
    assert all(len(encode(part)) <= 4000 for part in parts)
    shuffled = [*parts, *parts[:3]]
    random.Random(1).shuffle(shuffled)
    assert join(shuffled) == whole
    assert join(parts[1:]) is None
    assert join(parts[:-1]) is None


def test_a_small_status_stays_one_message():
    assert split(status("1"), 1_000_000) == [status("1")]


def test_one_stat_larger_than_the_limit_cannot_be_sent():
    with pytest.raises(ValueError, match="one write stat"):
        split(status("1", stats=({"path": "p" * 5000},)), 4000)
