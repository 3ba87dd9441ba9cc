"""After Hudi's own restore: the schedule reads again what was taken back, and says what it doesn't read again."""

from __future__ import annotations

import json

import pytest

from sluice.errors import ActionRequiredError
from sluice.protocol.messages import StartCommit

from ..thorough import also
from .harness import CLUSTER, Flow, kafka_settings
from .harness.flow import invoke
from .quarantined import TOLERANT, send
from .test_redrive import BAD, _sent

UPSERT = {"sink__hudi__operation": "upsert", "sink__hudi__record_key": "id", "sink__hudi__ordering_field": "id"}


def remarks(flow: Flow) -> tuple[str, ...]:
    """What the newest START-COMMIT says to people."""
    return next(one for one in reversed(flow.messages()) if isinstance(one, StartCommit)).remarks


@pytest.mark.parametrize("settings", [{}, *also(UPSERT)], ids=["append", "upsert"])
def test_the_schedule_says_what_it_reads_again_after_a_restore_and_what_not(make_flow, settings):
    flow = make_flow(1, **settings)
    flow.set(source__kafka__starting_offsets={flow.topic: {0: 10}})
    flow.produce(20, partitions=[0])
    kept = str(flow.interval().instant)
    gone = [flow.interval(kind="range", offsets={flow.topic: {0: (0, 10)}}).instant]
    flow.produce(10, partitions=[0], values="b")
    bad = {flow.topic: {0: (25, 27)}}
    gone.append(flow.interval(kind="correction", offsets=bad, reason="test data").instant)
    gone += [flow.interval().instant, flow.interval().instant]  # up to what is passed over, and past it
    assert flow.offsets() == {0: 30}
    flow.restore(kept)
    flow.produce(5, partitions=[0], values="c")
    flow.interval()  # reads all after the restored position, of which nothing is lost
    assert flow.offsets() == {0: 35}
    flow.check(complete=False)
    whole, unread, again = remarks(flow)
    assert whole.startswith(f"4 committed intervals ({gone[0]} to {gone[-1]}) are not in the table any more")
    assert f"does not read {flow.topic}[0] [0, 10) again" in unread
    assert again.endswith(f"passed over before the table was restored: {flow.topic}[0] [25, 27)")
    outcome = flow.coordinator().start(flow.run())
    assert outcome.state == "empty"
    assert [f"{flow.topic}[0] [0, 10)" in one for one in outcome.remarks] == [True]
    flow.interval(kind="range", offsets={flow.topic: {0: (0, 10)}})
    flow.check()
    assert flow.coordinator().start(flow.run()).remarks == ()


def test_records_of_restored_intervals_that_were_sent_again_are_not_loaded_twice(make_flow, monkeypatch):
    flow = make_flow(1, **TOLERANT)
    name = "SLUICE_KAFKA_SOURCE"
    monkeypatch.setenv(name, kafka_settings(flow.bootstrap).to_environment("source")[name])
    flow.produce(10, partitions=[0])
    kept = str(flow.interval().instant)
    first = send(flow, BAD)
    flow.produce(5, partitions=[0])
    flow.interval()
    assert _sent(flow) == 1
    flow.restore(kept)
    with pytest.raises(ActionRequiredError, match="were sent again since") as caught:
        flow.start()
    assert caught.value.where["first"] == f"{flow.topic}[0]@{first}"
    option = f"--pass-over '{flow.topic}[0]:{first}-{first + 1}'"
    assert option in caught.value.next_step
    assert flow.coordinator().position().checkpoint.clusters[CLUSTER].topics[flow.topic].partitions == {0: 10}
    flow.interval(kind="correction", offsets={flow.topic: {0: (first, first + 1)}}, reason="sent again")
    flow.interval()
    flow.interval_is_empty()
    flow.check(complete=False)
    assert flow.offsets() == flow.log_ends()


def test_offsets_that_a_range_had_loaded_although_they_were_passed_over_are_named(make_flow):
    """The restored table passes over them again, so no later interval reads them."""
    flow = make_flow(1)
    flow.produce(10, partitions=[0])
    flow.interval()
    flow.produce(5, partitions=[0], values="b")
    offsets = {flow.topic: {0: (10, 12)}}
    kept = str(flow.interval(kind="correction", offsets=offsets, reason="test data").instant)
    flow.interval(kind="range", offsets=offsets)
    flow.restore(kept)
    flow.interval()
    assert any(f"are passed over again: {flow.topic}[0] [10, 12)" in one for one in remarks(flow))
    flow.interval(kind="range", offsets=offsets)
    flow.check()


def test_verify_compares_what_a_restored_table_has(make_flow, monkeypatch):
    """The control topic still has the intervals that the restore took back."""
    flow = make_flow(1)
    name = "SLUICE_KAFKA_SOURCE"
    monkeypatch.setenv(name, kafka_settings(flow.bootstrap).to_environment("source")[name])
    kept, gone = "", ""
    for value in "ab":
        flow.produce(10, partitions=[0], values=value)
        kept, gone = gone, str(flow.interval().instant)
    flow.restore(kept)

    def verified() -> list[tuple[str, int]]:
        done = invoke("verify", str(flow.file), "--json", "--master", "local[1]")
        assert done.exit_code == 0, (done.stdout, done.exception)
        found = json.loads(done.stdout)
        assert found["taken_back"] == [gone]
        return [(one["instant"], one["in_table"]) for one in found["intervals"]]

    assert verified() == [(kept, 10)]
    flow.produce(4, partitions=[0], values="c")
    again = str(flow.interval().instant)
    assert verified() == [(kept, 10), (again, 14)]
