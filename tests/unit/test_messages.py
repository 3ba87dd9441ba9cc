"""Messages as JSON, and the statuses in parts of earlier releases."""

from __future__ import annotations

import json
import random

import pytest
from protocol_messages import abort, ack, end, start, status
from pydantic import ValidationError

from sluice.protocol.messages import decode, encode, join


@pytest.mark.parametrize("message", [start("1"), status("1"), end("1"), ack("1"), abort("1")], ids=lambda m: m.type)
def test_a_message_is_read_back_as_it_was(message):
    assert decode(encode(message)) == message


def test_a_message_says_who_what_and_when_in_plain_json():
    fields = json.loads(encode(start("20260101000000000")))
    assert {"version", "table", "transaction", "epoch", "dag_id", "run_id", "sender", "time", "type"} <= set(fields)


def test_what_is_no_message_is_refused():
    with pytest.raises(ValidationError):
        decode(b'{"type": "SOMETHING-ELSE"}')


def test_the_parts_of_a_status_of_an_earlier_release_are_joined_in_any_order_with_repeats():
    stats = tuple({"fileId": f"file-{i}", "numWrites": i} for i in range(9))
    whole = status("1", stats=stats, quarantine_stats=stats[:2])
    stats = whole.stats
    parts = [
        whole.model_copy(update={"part": i, "parts": 3, "stats": stats[3 * i : 3 * i + 3], "quarantine_stats": bad})
        for i, bad in enumerate(((), stats[:1], stats[1:2]))
    ]
    shuffled = [*parts, *parts[:2]]
    random.Random(1).shuffle(shuffled)
    assert join(shuffled) == whole
    assert join(parts[1:]) is None
    assert join(parts[:-1]) is None
