"""A record without a value deletes its key's row: in any order of intervals, after a compaction, and in replays."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from sluice.errors import ActionRequiredError
from sluice.protocol.messages import AckCommit

from .harness import Flow

TOMBSTONES: dict[str, Any] = {
    "sink__hudi__operation": "upsert",
    "sink__hudi__record_key": ["id", "p"],
    "sink__hudi__schema": "id BIGINT NOT NULL, p STRING NOT NULL, v STRING NOT NULL",
    "sink__hudi__key_placement": None,
    "source__kafka__key": {"converter": "json"},
    "changes": {"format": "tombstones"},
    "table_services": {"compaction": {"after_delta_commits": 1}},
}
Record = tuple[bytes | None, bytes | None]


def written(number: int, version: str) -> Record:
    key = {"id": number, "p": f"p{number % 2}"}
    return json.dumps(key).encode(), json.dumps({**key, "v": version}).encode()


def deleted(number: int) -> Record:
    return written(number, "")[0], None


class Model:
    """What the table must hold: the last record of each key."""

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self.rows: dict[bytes, str] = {}

    def send(self, *records: Record) -> None:
        self._flow.produce_keyed(records, partitioner="murmur2")
        for key, value in records:
            assert key is not None
            if value is None:
                self.rows.pop(key, None)
            else:
                self.rows[key] = json.loads(value)["v"]

    def check(self) -> None:
        expected = Counter((json.loads(key)["id"], v) for key, v in self.rows.items())
        for metadata in (True, False):
            assert Counter(self._flow.read("id", "v", metadata=metadata)) == expected


def acknowledged(flow: Flow) -> AckCommit:
    return next(m for m in reversed(flow.messages()) if isinstance(m, AckCommit) and m.records_read)


def test_tombstones_delete_and_are_counted(make_flow):
    flow = make_flow(partitions=2, **TOMBSTONES)
    model = Model(flow)
    model.send(*(written(i, "a") for i in range(10)))
    model.send(deleted(9), deleted(77), deleted(8), written(8, "again"))  # within one interval, and of nothing
    flow.interval()
    model.check()
    ack = acknowledged(flow)
    assert (ack.records_read, ack.records_written, ack.records_deleted) == (14, 11, 3)
    first = flow.commits()[-1]["instant"]
    model.send(deleted(0), deleted(1), written(1, "b"), written(2, "b"), deleted(2), written(3, "b"))
    flow.interval()
    model.check()
    ack = acknowledged(flow)
    assert (ack.records_read, ack.records_written, ack.records_deleted) == (6, 3, 3)
    assert flow.columns() == {"id", "p", "v", "_source_position"}, "how Hudi deletes shows in no column"
    flow.serve("compaction")
    model.check()
    assert flow.rows_by_rust() == Counter((json.loads(k)["id"], v) for k, v in model.rows.items())
    flow.interval(kind="replay", instant=first)  # of keys that were deleted since, and compacted away
    model.check()
    model.send(written(0, "back"), deleted(3))
    flow.interval()
    model.check()


def test_a_soft_delete_leaves_the_row(make_flow):
    flow = make_flow(partitions=1, **{**TOMBSTONES, "changes": {"format": "tombstones", "delete": "soft"}})
    flow.produce_keyed([written(1, "a"), written(2, "a"), deleted(2), written(3, "a"), deleted(3), written(3, "b")])
    flow.interval()
    assert sorted(flow.read("id", "v", "_deleted")) == [(1, "a", False), (2, None, True), (3, "b", False)]
    ack = acknowledged(flow)
    assert (ack.records_read, ack.records_written, ack.records_deleted) == (6, 6, 0)
    flow.produce_keyed([deleted(1), written(2, "c")])
    flow.interval()
    assert sorted(flow.read("id", "v", "_deleted")) == [(1, None, True), (2, "c", False), (3, "b", False)]


def test_a_key_that_does_not_say_where_the_row_is_is_refused(make_flow):
    one_column = {"converter": "string", "as": "id"}
    flow = make_flow(partitions=1, **{**TOMBSTONES, "source__kafka__key": one_column})
    flow.produce_keyed([(b"7", b'{"p": "x", "v": "a"}')])
    with pytest.raises(ActionRequiredError, match="it lacks p") as caught:
        flow.start()
    assert "partition_fields" in caught.value.next_step
    flat = {"sink__hudi__record_key": "id", "sink__hudi__partition_fields": None, "source__kafka__key": one_column}
    flow = make_flow(partitions=1, **{**TOMBSTONES, **flat})
    flow.produce_keyed([(b"7", b'{"p": "x", "v": "a"}'), (b"8", b'{"p": "x", "v": "a"}'), (b"7", None)])
    flow.interval()
    assert flow.read("id", "p", "v") == [(8, "x", "a")]
    flow.produce_keyed([(None, None)])
    started = flow.start()
    job = flow.write(started)
    assert job.wait() == 1
    assert "the field id is missing or null" in job.text()


def test_changes_of_a_topic_that_was_made_again_are_newer_than_those_of_the_old_one(make_flow):
    """Offsets begin at 0 again: by them alone, each change would lose against the old log's until it is as long."""
    flow = make_flow(partitions=1, **TOMBSTONES)
    model = Model(flow)
    model.send(*(written(number, "old") for number in range(6)), *(written(number, "older") for number in range(3)))
    flow.interval()
    for version in ("new", "third"):
        flow.create_again()
        model.send(deleted(5), written(0, version), written(0, f"{version} twice"), written(7, version))
        flow.set(source__kafka__on_offset_loss="earliest")
        flow.interval()
        model.check()
    position = dict(flow.read("id", "_source_position"))
    assert (position[0], position[3]) == ((2 << 48) + 2, 3)
