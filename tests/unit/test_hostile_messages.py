"""What anyone may write into a control topic: a reader says that it is no message, or takes it, at a bounded cost."""

from __future__ import annotations

import json
import subprocess
import sys
from base64 import b64encode
from contextlib import suppress
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from protocol_messages import INSTANT, TABLE, abort, ack, claim, end, planned, start, status

from sluice.connectors.registry import confinement
from sluice.packed import pack
from sluice.protocol.history import TableHistory
from sluice.protocol.interval_facts import interval_facts
from sluice.protocol.messages import encode, join
from sluice.protocol.transaction import TableLog
from sluice.protocol.wire import MessagePart, decode
from sluice.untrusted import MOST_CONTAINERS

from ..fuzz.hostile import places

DEEP = b"[" * 100_000 + b"]" * 100_000  # from 3.12 on, Python lets code in C nest more than a thousand calls
REAL = [
    start(INSTANT, idle=(planned(9),), replays=INSTANT, replaced_file_groups={"p": ("x-0",)}),
    status(INSTANT, stats=({"fileId": "x-0", "path": "p/x-0_0-0-0_20260101000000000.parquet", "partitionPath": "p"},)),
    end(INSTANT, table_partitions=("p",)),
    ack(INSTANT).model_copy(update={"offsets": (planned(0),)}),
    abort(INSTANT),
    claim(),
]
VALUES = [json.loads(encode(message)) for message in REAL]
HOSTILE = st.one_of(
    st.sampled_from([
        None, True, -1, 0, 2**31, 2**63, -(2**70), 1e999, 0.5, "", "x", "..", "\x00", [], {}, [[]], [None], {"": []},
        "2026-01-01T00:00:00", "2026-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-12:00",
        "START-COMMIT", "Infinity", "9" * 5000, 5, [5], {"a": 5}, [[[[[]]]]], "*", "20260101000000001", [{}],
    ]),
    st.recursive(st.none() | st.integers() | st.text(), lambda s: st.lists(s) | st.dictionaries(st.text(), s)),
)  # fmt: skip


@st.composite
def forged(draw: st.DrawFn) -> bytes:
    """A real message some of whose values are others."""
    fields = deepcopy(draw(st.sampled_from(VALUES)))
    for _ in range(draw(st.integers(0, 3))):
        container, key = draw(st.sampled_from(places(fields)))
        if isinstance(container, dict) and draw(st.booleans()):
            container[draw(st.sampled_from(["logFiles", "cdcStats", "payload", "xz", "packed", key]))] = deepcopy(
                draw(HOSTILE)
            )
        else:
            container[key] = deepcopy(draw(HOSTILE))
    return json.dumps(fields).encode()


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(forged(), min_size=1, max_size=6))
def test_what_is_forged_is_refused_or_folded(values):
    log, history = TableLog(TABLE), TableHistory(TABLE)
    for offset, value in enumerate([encode(REAL[0]), *values]):
        try:
            message = decode(value)
        except ValueError:
            continue
        if isinstance(message, MessagePart) or confinement().refusal(message, TABLE) is not None:
            continue
        log.extend([(offset, message)])
        history.extend([(offset, message)])
    log.forget_ended()
    for transaction in log.transactions.values():
        interval_facts(transaction)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200) | forged().flatmap(lambda v: st.integers(0, len(v)).map(lambda n: v[:n])))
def test_bytes_are_a_message_or_no_message(value):
    with suppress(ValueError):
        decode(value)


def packed(content: bytes) -> bytes:
    fields = json.loads(encode(ack(INSTANT)))
    return json.dumps({**fields, "packed": {"xz": b64encode(pack(content, 2**26, fast=True)).decode()}}).encode()


def within(fields: dict[str, Any], name: str, raw: bytes) -> bytes:
    return encode_object(fields)[:-1] + b',"%s":%s}' % (name.encode(), raw)


def encode_object(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields).encode()


@pytest.mark.parametrize(
    "value",
    [
        DEEP,
        within(VALUES[3], "x", DEEP),
        within(VALUES[3], "offsets", DEEP),
        packed(DEEP),
        packed(within(VALUES[3], "x", DEEP)),
        within(VALUES[1], "stats", b'[{"numWrites":1e999}]'),
        within(VALUES[1], "stats", b'[{"numWrites":[]}]'),
        within(VALUES[3], "offsets", b"[" + b"[]," * MOST_CONTAINERS + b"[]]"),
        packed(within(VALUES[3], "offsets", b"[" + b"[]," * MOST_CONTAINERS + b"[]]")),
        packed(within(VALUES[2], "reported", b"[" + b"1," * 9 * MOST_CONTAINERS + b"1]")),
    ],
    ids=["deep", "deep and unknown", "deep and known", "packed", "packed and unknown", "infinite", "no number",
         "lists", "packed lists", "packed numbers"],
)  # fmt: skip
def test_what_a_parser_can_not_take_is_no_message(value):
    with pytest.raises(ValueError):  # noqa: PT011  # pydantic's, msgspec's and our own
        decode(value)


MEMORY = """
import resource, sys
from sluice.protocol.wire import decode
value = sys.stdin.buffer.read()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    decode(value)
except ValueError:
    pass
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize("missing", [None, "table"])
@pytest.mark.parametrize("name", ["x", "offsets"])
def test_a_message_of_kilobytes_does_not_take_gigabytes(name, missing):
    fields = {key: value for key, value in VALUES[3].items() if key not in (missing, name)}
    lists = b"[" + b"[]," * 5_000_000 + b"[]]"
    value = packed(within(fields, name, lists))
    assert len(value) < 20_000
    done = subprocess.run([sys.executable, "-c", MEMORY], input=value, capture_output=True, check=True, timeout=60)
    assert int(done.stdout) < 150 * 1024, f"{int(done.stdout) >> 10} MiB"


def test_a_range_of_as_many_files_as_a_message_holds_is_taken():
    stat = {"fileId": f"{'be915637-db15-470e-94cb-189f48b39e12'}-0", "cdcStats": {}, "recordsStats": {}, "logFiles": []}
    stat |= {f"a count of {i}": 1234567 for i in range(33)} | {"runtimeStats": {"totalCreateTime": 412}}
    files = (64 * 1024 * 1024) // len(json.dumps(stat, separators=(",", ":")))
    value = within(VALUES[1], "stats", b"[" + b",".join([json.dumps(stat).encode()] * files) + b"]")
    message = join([decode(value)])  # type: ignore[list-item]
    assert message is not None
    assert len(message.stats) == files
