"""Two brokers of one cluster, of which the second may die or lose what it wrote last: the first is the controller."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from sluice.local.broker import LocalBroker
from sluice.local.broker_config import CLUSTER_ID
from sluice.local.home import SluiceHome
from sluice.local.process import free_port

from .harness import wait_for

FIRST, SECOND = 1, 2
_QUICK = {"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "300"}


class _Second(LocalBroker):
    """A broker that is no controller."""

    def _format(self) -> None:
        tool = ["kafka.tools.StorageTool", "format", "--ignore-formatted", "-t", CLUSTER_ID]
        subprocess.run([*self._java(), *tool, "-c", str(self._config.properties)], check=True, capture_output=True)


class TwoBrokers:
    """A cluster. What isn't placed by hand was made before the second broker came, and is on the first."""

    def __init__(self, home: SluiceHome, folder: Path) -> None:
        self.first = LocalBroker(home, folder / "first", settings=_QUICK).start(120)
        self.bootstrap = self.first.bootstrap
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        self._make_the_group_topic()
        port, controller = free_port(), self.first._config._ports()[1]
        joined = {
            "process.roles": "broker",
            "node.id": str(SECOND),
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
        }
        self._folder = folder / "second"
        self.second = _Second(home, self._folder, port, {**_QUICK, **joined}).start(120)
        wait_for(lambda: len(self.admin.list_topics(timeout=10).brokers) == 2, "both brokers", pause=0.1)

    def _make_the_group_topic(self) -> None:
        self.create("first", [FIRST])
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "first", "log_level": 0})
        consumer.commit(offsets=[TopicPartition("first", 0, 0)], asynchronous=False)
        consumer.close()

    def create(self, topic: str, brokers: Sequence[int]) -> None:
        """A topic whose partitions are placed by hand, a single copy of each."""
        new = NewTopic(topic, len(brokers), replica_assignment=[[broker] for broker in brokers])
        self.admin.create_topics([new])[topic].result(30)
        self.led_by(topic, brokers)

    def led_by(self, topic: str, leaders: Sequence[int]) -> None:
        """Wait until a topic's partitions have these leaders, -1 for none."""

        def as_wanted() -> bool:
            known = self.admin.list_topics(topic, timeout=10).topics[topic].partitions
            return [known[p].leader for p in sorted(known)] == list(leaders)

        wait_for(as_wanted, f"{topic} to be led by {leaders}", pause=0.1)

    def keep(self, topic: str, partition: int) -> None:
        """Keep the second broker's copy of a partition as it is now."""
        shutil.copytree(self._log(topic, partition), self._kept(topic, partition))

    def lose(self, topic: str, partition: int) -> None:
        """Put the kept copy in place of the one that was written since, while the broker is down.

        Its log ends earlier then, and gets another leader epoch: as after the election of a replica that lagged.
        """
        shutil.rmtree(self._log(topic, partition))
        shutil.copytree(self._kept(topic, partition), self._log(topic, partition))

    def _log(self, topic: str, partition: int) -> Path:
        return self._folder / "segments" / f"{topic}-{partition}"

    def _kept(self, topic: str, partition: int) -> Path:
        return self._folder / "kept" / f"{topic}-{partition}"

    def close(self) -> None:
        self.second.kill()
        self.first.kill()
