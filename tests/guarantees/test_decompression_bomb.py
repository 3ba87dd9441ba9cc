"""Some compressed bytes that become hundreds of megabytes end the interval, with the place and the remedy."""

from __future__ import annotations

import pytest

from sluice.errors import SluiceError
from sluice.protocol.messages import WriteStatus

from .harness import wait_for
from .quarantined import TOLERANT, send

BOMB = 400 * 1024 * 1024  # bytes; the driver has 512 MiB in all


def test_a_batch_that_does_not_fit_into_memory(make_flow):
    flow = make_flow(**TOLERANT, partitions=2, errors__max_record_bytes="1 MiB")
    flow.produce(20)
    config = {"compression.type": "zstd", "message.max.bytes": 1_000_000_000, "queue.buffering.max.kbytes": 2_000_000}
    offset = send(flow, b" " * BOMB, partition=1, config=config)
    flow.produce(20)
    started = flow.start(run := flow.run())
    assert flow.write_alone(started).wait() != 0
    # Spark's JVM is gone before its Python has said why.
    wait_for(lambda: isinstance(flow.messages()[-1], WriteStatus), "the failed WRITE-STATUS", pause=0.2)
    with pytest.raises(SluiceError) as caught:
        flow.commit(started)
    for words in ("memory", "write.driver_memory", f"{flow.topic}[1] [0, {offset + 11})", "passed over"):
        assert words in str(caught.value)
    assert flow.abort(run).state == "aborted"
    # As docs/bad-records.md says: the interval up to it takes one record at a time, so that it isn't fetched ahead.
    flow.interval(kind="correction", offsets={flow.topic: {1: (offset, offset + 1)}}, reason="no memory holds it")
    flow.set(write__kafka_options={"max.poll.records": "1"})
    flow.interval()
    flow.set(write__kafka_options=None)
    flow.interval()
    flow.check()
