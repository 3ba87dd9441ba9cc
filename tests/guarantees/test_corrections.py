"""Offsets that a person passes over: a commit of its own, with a reason, and never backwards."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from sluice.errors import ActionRequiredError
from sluice.protocol.offsets import TRANSACTION_KEY

from ..thorough import also
from .harness import DDL


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


UPSERT = {"sink__hudi__operation": "upsert", "sink__hudi__record_key": "id", "sink__hudi__schema": f"{DDL}, n BIGINT"}


@pytest.mark.parametrize("ordering", [*also(None), "n"], ids=["by arrival", "ties of an ordering field"])
def test_updates_around_what_was_passed_over_win(make_flow, ordering):
    """Nothing is out of order by a record that nobody reads."""
    flow = make_flow(**UPSERT, sink__hudi__ordering_field=ordering)
    flow.produce(20, fields={"n": 1})
    flow.interval()
    flow.produce(10, ids=range(10), values="b", fields={"n": 1})
    bad = flow.produce_raw(b"not json", partition=0)
    flow.produce(10, ids=range(10, 20), values="b", fields={"n": 1})
    flow.interval(kind="correction", offsets={flow.topic: {0: (bad, bad + 1)}}, reason="ticket 7")
    assert flow.interval().records == 15  # partition 0 up to the bad record, and all of partition 1
    assert flow.interval().records == 5
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
