"""Settings, ports and logging of the embedded broker, as files in its data folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from sluice.local.process import free_port

# One cluster, formatted anew in every data folder; a fixed id spares a JVM start to draw a random one.
CLUSTER_ID = "c2x1aWNlLWxvY2FsLTAwMQ"

# A broker of one node that starts quickly: single copies, one partition for each internal topic, and no
# wait for further members of a group. The cleaner's default buffer alone would take a third of the heap.
_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "auto.create.topics.enable": "false",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    # A killed broker may register again only when its old session has expired: 9 s by default.
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "4000",
    "log.cleaner.dedupe.buffer.size": "8388608",
    "log.cleaner.threads": "1",
    "num.network.threads": "2",
    "num.io.threads": "4",
}


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """What one broker is started with.

    Args:
        data: Its folder.
        preferred_port: The port for clients, where it is free.
        settings: Broker settings on top of those for a quick start.
    """

    data: Path
    preferred_port: int | None
    settings: Mapping[str, str]

    @property
    def properties(self) -> Path:
        """The file that `kafka.Kafka` is started with."""
        return self.data / "server.properties"

    @property
    def logging(self) -> Path:
        """Log4j's configuration."""
        return self.data / "log4j2.properties"

    @property
    def client_port(self) -> int:
        """The port for clients."""
        return self._ports()[0]

    def write(self) -> bool:
        """Write the files.

        Returns:
            Whether the folder for the segments has been formatted already.
        """
        client, controller = self._ports()
        segments = self.data / "segments"
        settings = {
            **_SETTINGS,
            "listeners": f"PLAINTEXT://127.0.0.1:{client},CONTROLLER://127.0.0.1:{controller}",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
            "log.dirs": str(segments),
            **self.settings,
        }
        self.properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        self.logging.write_text(files("sluice.local").joinpath("broker-log4j2.properties").read_text())
        return (segments / "meta.properties").exists()

    def _ports(self) -> tuple[int, int]:
        """The ports for clients and for the controller, chosen once for each data folder."""
        chosen = self.data / "ports.json"
        if not chosen.exists():
            self.data.mkdir(parents=True, exist_ok=True)
            chosen.write_text(json.dumps([free_port(self.preferred_port), free_port()]))
        client, controller = json.loads(chosen.read_text())
        return int(client), int(controller)
