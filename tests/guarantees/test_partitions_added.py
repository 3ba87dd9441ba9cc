"""Partitions that are added to the topic: an append reads them from their start, an upsert refuses."""

from __future__ import annotations

import pytest

from sluice.errors import ActionRequiredError


def test_a_new_partition_is_read_from_its_earliest_offset_in_the_next_interval(make_flow):
    flow = make_flow(source__kafka__starting_offsets="latest")
    flow.commit(flow.start())  # "latest" was before all that follows
    flow.produce(20)
    started = flow.start()
    flow.grow(3)
    flow.produce(15, partitions=(0, 1, 2))
    flow.write_all(started)
    flow.commit(started)
    assert set(flow.offsets()) == {0, 1}
    flow.check(complete=False)
    flow.interval()
    assert set(flow.offsets()) == {0, 1, 2}
    flow.check()


def test_an_upsert_refuses_since_keys_may_have_moved(make_flow):
    flow = make_flow(sink__hudi__operation="upsert", sink__hudi__record_key="id")
    flow.produce(20)
    flow.interval()
    flow.grow(3)
    flow.produce(20)
    messages = flow.messages()
    with pytest.raises(ActionRequiredError, match="partitions changed") as caught:
        flow.start()
    assert flow.topic in str(caught.value)
    assert "new table path" in caught.value.next_step
    assert flow.messages() == messages
    assert flow.jvm.pending(str(flow.path)) == []
    flow.check(complete=False)
