"""Messages in the topic: readable while they are small, packed and in parts where not, of every type."""

from __future__ import annotations

import json
import lzma
import random
import uuid
from base64 import b64decode, b64encode

import pytest
from protocol_messages import TABLE, abort, ack, end, planned, start, status

from sluice.protocol.messages import ControlMessage, PlannedRange
from sluice.protocol.messages import encode as plain
from sluice.protocol.transaction import State, TableLog
from sluice.protocol.wire import READABLE, Encoded, MessagePart, assemble, decode, encode

DEFAULT_LIMIT = 1_048_588 - 2048  # max.message.bytes of a broker, less what a batch takes
SMALL = 4000
random_text = random.Random(1)


def wide(count: int, topics: int = 50) -> tuple[PlannedRange, ...]:
    numbers = random.Random(2)
    return tuple(
        PlannedRange(
            cluster="kafka_default", topic=f"orders.of.shop-{i % topics}", partition=i // topics,
            start=(first := numbers.randrange(10**9)), end=first + numbers.randrange(10**4), log_end=first + 10**4,
        )
        for i in range(count)
    )  # fmt: skip


def large(kind: str, size: int) -> ControlMessage:
    """A message of every type, too large for one record of `SMALL` bytes however it is packed."""
    words = tuple(random_text.randbytes(40).hex() for _ in range(size))
    ranges = tuple(planned(i).model_copy(update={"topic": word}) for i, word in enumerate(words))
    return {
        "START-COMMIT": lambda: start("1", idle=ranges),
        "WRITE-STATUS": lambda: status("1", stats=tuple({"path": word, "numWrites": 1} for word in words)),
        "END-COMMIT": lambda: end("1", holder=" ".join(words)),
        "ACK-COMMIT": lambda: ack("1").model_copy(update={"offsets": ranges}),
        "ABORT-COMMIT": lambda: abort("1").model_copy(update={"standing_offsets": ranges, "reason": words[0]}),
    }[kind]()


TYPES = ("START-COMMIT", "WRITE-STATUS", "END-COMMIT", "ACK-COMMIT", "ABORT-COMMIT")


class Topic:
    """What a control topic does: offsets in the order of sending, and readers that fetch by offset."""

    def __init__(self) -> None:
        self.values: list[bytes] = []

    def put(self, value: bytes) -> int:
        self.values.append(value)
        return len(self.values) - 1

    def send(self, encoded: Encoded) -> int:
        return self.put(encoded.last([self.put(part) for part in encoded.earlier]))

    def read(self, first: int = 0) -> list[tuple[int, ControlMessage]]:
        found = []
        for offset, value in enumerate(self.values[first:], first):
            message = decode(value)
            if isinstance(message, MessagePart):
                if not message.is_last_part:
                    continue
                message = assemble(message, [self.values[o] for o in message.offsets_before(offset)])
            found.append((offset, message))
        return found


@pytest.mark.parametrize("message", [start("1"), status("1"), end("1"), ack("1"), abort("1")], ids=lambda m: m.type)
def test_a_small_message_is_plain_json_and_one_record(message):
    encoded = encode(message, DEFAULT_LIMIT)
    assert encoded.earlier == ()
    assert encoded.last([]) == plain(message)
    assert decode(encoded.last([])) == message


@pytest.mark.parametrize("kind", TYPES)
def test_a_large_message_is_packed_and_its_envelope_stays_readable(kind):
    message = large(kind, 1500)
    encoded = encode(message, DEFAULT_LIMIT)
    value = encoded.last([])
    assert encoded.earlier == ()
    assert len(value) < len(plain(message))
    fields = json.loads(value)
    assert (fields["type"], fields["table"], fields["transaction"], fields["run_id"]) == (kind, TABLE, "1", "run")
    assert lzma.decompress(b64decode(fields["packed"]["xz"])) == plain(message)  # as `base64 -d | xz -d` says
    assert decode(value) == message


@pytest.mark.parametrize("kind", TYPES)
def test_any_message_travels_in_parts_where_it_has_to(kind):
    message = large(kind, 600)
    encoded = encode(message, SMALL)
    topic = Topic()
    topic.put(plain(end("another")))
    offset = topic.send(encoded)
    assert len(encoded.earlier) > 3
    assert max(map(len, topic.values)) <= SMALL
    assert all(json.loads(value)["type"] == kind for value in topic.values[1:])
    assert topic.read()[1:] == [(offset, message)]


def test_ten_thousand_partitions_are_one_message_of_the_default_size():
    ranges = wide(10_000)
    plan = start("20260101000000000").model_copy(update={"ranges": (ranges[:5000], ranges[5000:])})
    results = tuple(
        status("1").partitions[0].model_copy(update={
            "topic": r.topic, "partition": r.partition, "start": r.start, "next_offset": r.end,
            "file_groups": (f"{uuid.UUID(int=random_text.getrandbits(128))}-0",),
        })
        for r in ranges
    )  # fmt: skip
    stats = tuple(
        {"fileId": p.file_groups[0], "path": f"{p.file_groups[0]}_0-0-0_20260101000000000.parquet", "numWrites": 10}
        for p in results
    )
    written = status("1", partitions=results, stats=stats)
    done = ack("1").model_copy(update={"offsets": ranges})
    undone = abort("1").model_copy(update={"standing_offsets": ranges})
    for message in (plan, written, done, undone):
        encoded = encode(message, DEFAULT_LIMIT)
        assert len(plain(message)) > DEFAULT_LIMIT
        assert encoded.earlier == ()
        assert decode(encoded.last([])) == message


def test_a_message_counts_where_its_last_part_stands_wherever_a_reader_begins():
    """Parts of several messages between each other, senders that died in the middle, another attempt: one verdict."""
    numbers = random.Random(3)
    messages = [
        first := start("1", idle=large("START-COMMIT", 60).idle),
        start("2", idle=large("START-COMMIT", 60).idle),
        start("3", read_position=10**6, idle=large("START-COMMIT", 60).idle),
        status("1", stats=large("WRITE-STATUS", 90).stats),
        status("1", attempt="b"),
        end("1", holder=large("END-COMMIT", 90).holder),
        abort("2"),
        first,
    ]
    ready = [(message, encode(message, SMALL)) for message in messages]
    assert sum(bool(encoded.earlier) for _, encoded in ready) == 6
    for _ in range(20):
        topic, standing = Topic(), {}
        under_way = [(message, encoded, []) for message, encoded in ready]
        while under_way:
            message, encoded, offsets = sender = numbers.choice(under_way)
            if numbers.random() < 0.05:
                under_way.remove(sender)  # it died
            elif len(offsets) < len(encoded.earlier):
                offsets.append(topic.put(encoded.earlier[len(offsets)]))
            else:
                standing[topic.put(encoded.last(offsets))] = message
                under_way.remove(sender)
        assert topic.read() == list(standing.items())
        whole = TableLog(TABLE).extend(topic.read())
        for offset in standing:  # a reader may begin at any message, in the middle of the parts of others
            assert topic.read(offset) == [(o, m) for o, m in standing.items() if o >= offset]
        step = TableLog(TABLE)
        for place in topic.read():  # one that reads on as messages come
            step.extend([place])
        assert {t.id: t.state for t in step.transactions.values()} == {
            t.id: t.state for t in whole.transactions.values()
        }


def test_a_sender_that_died_before_the_last_part_has_sent_nothing():
    topic = Topic()
    topic.send(encode(start("1"), SMALL))
    for part in encode(large("ABORT-COMMIT", 600), SMALL).earlier:
        topic.put(part)
    (transaction,) = TableLog(TABLE).extend(topic.read()).transactions.values()
    assert transaction.state is State.OPEN


def test_parts_that_are_not_those_of_the_message_are_refused():
    encoded, other = encode(large("ACK-COMMIT", 600), SMALL), encode(large("ACK-COMMIT", 600), SMALL)
    earlier = encoded.earlier
    last = decode(encoded.last(range(len(earlier))))
    assert isinstance(last, MessagePart)
    assert assemble(last, earlier).type == "ACK-COMMIT"
    for wrong in (earlier[:-1], earlier[::-1], (*earlier[:-1], other.earlier[-1]), (plain(end("1")), *earlier[1:])):
        with pytest.raises(ValueError, match="part"):
            assemble(last, wrong)


@pytest.mark.parametrize("earlier", [[], [-1, 3], [3, 3], [4, 3], [3, 10], [3, 11]])
def test_offsets_that_can_not_be_those_of_earlier_parts_are_refused(earlier):
    fields = json.loads(encode(large("ACK-COMMIT", 600), SMALL).earlier[0])
    fields["packed"] |= {"part": 2, "parts": 3, "earlier": earlier}
    part = decode(json.dumps(fields).encode())
    assert isinstance(part, MessagePart)
    assert part.is_last_part
    with pytest.raises(ValueError, match="offsets"):
        part.offsets_before(10)


def _packed(content: bytes, **more) -> bytes:
    fields = json.loads(plain(ack("1")))
    return json.dumps({**fields, "packed": {"xz": b64encode(content).decode()}, **more}).encode()


@pytest.mark.parametrize(
    "value",
    [
        _packed(lzma.compress(bytes(200 * 1024 * 1024), preset=0)),  # 30 kB that would become 200 MiB
        _packed(b"not packed at all"),
        _packed(lzma.compress(plain(ack("2")))),  # another transaction than the envelope says
        _packed(lzma.compress(plain(ack("1"))), type="END-COMMIT"),
        _packed(lzma.compress(plain(ack("1")))[:-4]),
        b"[]",
        b"{",
    ],
    ids=["bomb", "garbage", "another transaction", "another type", "cut", "list", "no json"],
)
def test_what_is_no_packed_message_is_refused(value):
    with pytest.raises(ValueError):  # noqa: PT011  # pydantic's, json's and our own
        decode(value)


def test_what_no_number_of_parts_can_hold_is_refused():
    with pytest.raises(ValueError, match="fit"):
        encode(large("ACK-COMMIT", 600), 600)
    assert len(plain(large("ACK-COMMIT", 600))) > READABLE
