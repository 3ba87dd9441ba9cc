"""Offsets that a person passes over: a commit of its own, with a reason, and never backwards."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from sluice.errors import ActionRequiredError
from sluice.protocol.offsets import TRANSACTION_KEY


def test_a_record_that_cannot_be_loaded_is_passed_over_with_a_reason(make_flow):
    flow = make_flow()
    flow.produce(10)
    bad = flow.produce_raw(b"not json", partition=0)
    flow.produce(10)
    run = flow.run()
    started = flow.start(run)
    assert flow.write(started).wait() == 1
    flow.abort(run)
    passed = {flow.topic: {0: (bad, bad + 1)}}
    outcome = flow.interval(kind="correction", offsets=passed, reason="ticket 7")
    assert outcome.records == 0
    note = json.loads(flow.commits()[-1][TRANSACTION_KEY])
    assert (note["kind"], note["reason"]) == ("correction", "ticket 7")
    assert [(r["start"], r["end"]) for r in note["passed_over"]] == [(bad, bad + 1)]
    flow.interval()  # up to the bad record
    flow.interval()
    assert flow.offsets() == flow.log_ends()
    flow.check()


def test_committed_offsets_never_move_backwards(make_flow):
    flow = make_flow()
    flow.produce(20)
    flow.interval()
    for start, end in ((3, 4), (10, 11)):
        with pytest.raises(ActionRequiredError, match="can be passed over"):
            flow.start(flow.run(kind="correction", offsets={flow.topic: {0: (start, end)}}, reason="r"))
    assert flow.offsets() == {0: 10, 1: 10}
    flow.check()


def test_a_correction_needs_a_reason(make_flow):
    flow = make_flow()
    with pytest.raises(ValidationError, match="reason"):
        flow.run(kind="correction", offsets={flow.topic: {0: (1, 1)}})
