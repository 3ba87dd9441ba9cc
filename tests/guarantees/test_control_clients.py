"""A process follows and writes as many control topics as it has pipelines, by a few Kafka clients."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor

import psutil

from sluice.control.clients import Clients
from sluice.control.topic import ControlTopic
from sluice.protocol.messages import AbortCommit

from .harness import kafka_settings

TABLE = "file:///lake/t"
TOPICS = 20


def _abort(number: int) -> AbortCommit:
    return AbortCommit(
        table=TABLE, transaction=f"2026010100000000{number}", epoch=number, dag_id="dag", run_id="run",
        sender="coordinator", time="2026-01-01T00:00:00Z", reason="a test",
    )  # fmt: skip


def _threads() -> int:
    return psutil.Process().num_threads()


def test_control_topics_share_their_clients_and_each_gets_its_own_messages_in_order(bootstrap):
    settings = kafka_settings(bootstrap)
    clients = Clients(settings)
    topics = [ControlTopic(settings, f"control-{uuid.uuid4()}", clients) for _ in range(TOPICS)]

    def send(control: ControlTopic) -> list[int]:
        control.ensure()
        return [control.send(_abort(number)) for number in range(3)]

    before = _threads()
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(send, topics)) == [[0, 1, 2]] * TOPICS
    # A client has four threads or so; two clients for each topic were 160.
    assert _threads() - before < 2 * TOPICS
    for control in topics:
        assert control.recent(TABLE, 10) == [(number, _abort(number)) for number in range(3)]
