"""A record that can't be loaded fails the interval with its place and reason, and nothing is half written."""

from __future__ import annotations

from collections import Counter

import pytest

from sluice.errors import ActionRequiredError
from sluice.protocol.messages import AbortCommit

from .harness import Flow

BAD = {
    "undecodable": (b"\x00\x01 not JSON", "not one JSON object"),
    "truncated": (b'{"id": 1, "v": "x"', "not one JSON object"),
    "an_array": (b'[{"id": 1}]', "not one JSON object"),
    "wrong_type": (b'{"id": "seven", "v": "x", "p": "p0"}', "a field is not of its column's type"),
    "missing_key": (b'{"v": "x", "p": "p0"}', "the field id is missing or null"),
    "missing_partition_field": (b'{"id": 7, "v": "x"}', "the field p is missing or null"),
    "null_value": (None, "the value is null"),
}


def _fails(flow: Flow, offset: int, reason: str) -> None:
    run = flow.run()
    started = flow.start(run)
    job = flow.write(started)
    assert job.wait() == 1
    with pytest.raises(ActionRequiredError) as caught:
        flow.commit(started)
    for words in (reason, f"topic={flow.topic}", "partition=1", f"offset={offset}", f"table={flow.table}"):
        assert words in str(caught.value)
        assert words in job.text()
    assert flow.abort(run).state == "aborted"
    ending = flow.messages()[-1]
    assert isinstance(ending, AbortCommit)
    assert reason in ending.reason
    assert flow.data_files(started.instant) == []
    assert flow.jvm.pending(str(flow.path)) == []


@pytest.mark.parametrize("kind", [k for k in BAD if k != "undecodable"])
def test_a_bad_record(make_flow, kind):
    value, reason = BAD[kind]
    flow = make_flow(sink__hudi__record_key="id")
    flow.produce(20)
    offset = flow.produce_raw(value, partition=1)
    flow.produce(20)
    _fails(flow, offset, reason)
    assert flow.rows(metadata=False) == Counter()


def test_after_the_correction_the_next_interval_goes_on(make_flow):
    value, reason = BAD["undecodable"]
    flow = make_flow(sink__hudi__record_key="id")
    flow.produce(20)
    flow.interval()
    offset = flow.produce_raw(value, partition=1)
    flow.produce(20)
    _fails(flow, offset, reason)
    flow.check(complete=False)
    _fails(flow, offset, reason)  # and again, until somebody acts
    flow.delete_records({1: offset + 1})
    flow.set(source__kafka__on_offset_loss="earliest")
    flow.interval()
    flow.check()


def test_a_bad_record_of_an_upsert(make_flow):
    value, reason = BAD["missing_key"]
    flow = make_flow(sink__hudi__operation="upsert", sink__hudi__record_key="id")
    flow.produce(20)
    _fails(flow, flow.produce_raw(value, partition=1), reason)
