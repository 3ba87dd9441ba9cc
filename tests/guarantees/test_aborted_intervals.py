"""What START costs doesn't grow with the intervals that were aborted, and none of their files gets past it."""

from __future__ import annotations

import pytest
from py4j.java_gateway import GatewayClient

from .harness import Flow

ABORTED = 25


class Calls:
    """Counts the calls that are made to the JVM, in which Hudi and the storage are."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.number = 0
        send = GatewayClient.send_command

        def counted(client: GatewayClient, command: str, *rest: object, **more: object) -> str:
            self.number += not command.startswith("m\n")  # by which Python's garbage is reported, at any time
            return str(send(client, command, *rest, **more))

        monkeypatch.setattr(GatewayClient, "send_command", counted)


def _aborted(flow: Flow, calls: Calls) -> int:
    """Abort an interval; how many calls its START took."""
    before = calls.number
    run = flow.run()
    flow.start(run)
    taken = calls.number - before
    assert flow.abort(run).state == "aborted"
    return taken


def test_start_costs_the_same_after_many_aborted_intervals(make_flow, monkeypatch):
    """As a record that stops each run leaves them: thousands over a weekend of one-minute intervals."""
    flow = make_flow(errors__tolerance="all")
    flow.produce(30)
    flow.interval()
    flow.produce(30)
    calls = Calls(monkeypatch)
    taken = [_aborted(flow, calls) for _ in range(ABORTED)]
    *taken_later, most = sorted(taken[2:])  # one may ask for the time again: its clock was at the last instant still
    assert max(taken_later) <= taken[1], f"calls of each START: {taken}"
    assert most <= taken[1] * 1.5, f"calls of each START: {taken}"
    flow.interval()
    flow.check()
