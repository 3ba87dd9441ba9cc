"""Two brokers that may die, beside one that stays and is the controller: one may be elected that lacks records."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, PartitionMetadata

from sluice.local.broker import LocalBroker
from sluice.local.broker_config import CLUSTER_ID
from sluice.local.home import SluiceHome
from sluice.local.process import free_port

from .harness import wait_for

STAYS, SECOND, THIRD = 1, 2, 3
_QUICK = {"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "300"}


class _Broker(LocalBroker):
    """A broker that is no controller."""

    def _format(self) -> None:
        tool = ["kafka.tools.StorageTool", "format", "--ignore-formatted", "-t", CLUSTER_ID]
        subprocess.run([*self._java(), *tool, "-c", str(self._config.properties)], check=True, capture_output=True)


class TwoBrokers:
    """A cluster. What isn't placed by hand was made before these brokers came, and is on the one that stays."""

    def __init__(self, home: SluiceHome, folder: Path) -> None:
        self._home, self._folder = home, folder
        self._stays = LocalBroker(home, folder / "stays", settings=_QUICK).start(120)
        self.bootstrap = self._stays.bootstrap
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        self._make_the_group_topic()
        self.second, self.third = self._join(SECOND), self._join(THIRD)
        wait_for(lambda: len(self.admin.list_topics(timeout=10).brokers) == 3, "all brokers", pause=0.1)

    def _join(self, number: int) -> LocalBroker:
        port, controller = free_port(), self._stays._config._ports()[1]
        joined = {
            "process.roles": "broker",
            "node.id": str(number),
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
        }
        return _Broker(self._home, self._folder / str(number), port, {**_QUICK, **joined}).start(120)

    def _make_the_group_topic(self) -> None:
        self.create("first", [[STAYS]])
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "first", "log_level": 0})
        consumer.commit(offsets=[TopicPartition("first", 0, 0)], asynchronous=False)
        consumer.close()

    def create(self, topic: str, replicas: Sequence[Sequence[int]]) -> None:
        """A topic whose partitions are placed by hand, each led by the first of its replicas.

        Any replica may be elected, also one that lacks what the others have.
        """
        config = {"unclean.leader.election.enable": "true"}
        new = NewTopic(topic, len(replicas), replica_assignment=[list(r) for r in replicas], config=config)
        self.admin.create_topics([new])[topic].result(30)
        self.led_by(topic, [brokers[0] for brokers in replicas])

    def led_by(self, topic: str, leaders: Sequence[int]) -> None:
        """Wait until a topic's partitions have these leaders, -1 for none."""
        self._wait(lambda p: p.leader, topic, list(leaders), "led by")

    def in_sync(self, topic: str, replicas: Sequence[Sequence[int]]) -> None:
        """Wait until these replicas of a topic's partitions are in sync."""
        self._wait(lambda p: sorted(p.isrs), topic, [list(r) for r in replicas], "in sync on")

    def _wait(self, what: Callable[[PartitionMetadata], Any], topic: str, wanted: list[Any], words: str) -> None:
        def as_wanted() -> bool:
            known = self.admin.list_topics(topic, timeout=10).topics[topic].partitions
            return [what(known[p]) for p in sorted(known)] == wanted

        wait_for(as_wanted, f"{topic} to be {words} {wanted}", pause=0.1)

    def close(self) -> None:
        for broker in (self.third, self.second, self._stays):
            broker.kill()
