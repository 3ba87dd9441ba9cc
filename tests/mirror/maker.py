"""Kafka's MirrorMaker 2 as a process of its own, from one cluster to another, with topics' names as they are."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.ivy import ensure

from sluice.local.home import SluiceHome
from sluice.local.java import java_command
from sluice.local.process import Daemon

_JVM = ("-Xms64m", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
_SETTINGS = """
clusters = {source}, {target}
{source}.bootstrap.servers = {source_at}
{target}.bootstrap.servers = {target_at}
{source}->{target}.enabled = true
{source}->{target}.topics = {topics}
{source}->{target}.replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy
{source}->{target}.emit.heartbeats.enabled = false
{source}->{target}.emit.checkpoints.enabled = false
{source}->{target}.sync.topic.configs.enabled = false
{source}->{target}.sync.topic.acls.enabled = false
{source}->{target}.refresh.topics.interval.seconds = 1
{source}->{target}.offset.lag.max = {lag}
{target}->{source}.enabled = false
{source}.consumer.isolation.level = read_committed
replication.factor = 1
offset-syncs.topic.replication.factor = 1
offset.storage.replication.factor = 1
config.storage.replication.factor = 1
status.storage.replication.factor = 1
offset.flush.interval.ms = 500
{target}.offset.flush.interval.ms = 500
{target}.session.timeout.ms = 600000
{target}.heartbeat.interval.ms = 3000
{target}.task.shutdown.graceful.timeout.ms = 60000
tasks.max = 1
"""


def ensure_mirror(home: SluiceHome) -> Path:
    """The folder of MirrorMaker's jars, fetched if they aren't there."""
    return ensure(home, "mirror", Path(__file__).with_name("ivy.xml"), ("jar", "bundle"))


class MirrorMaker:
    """Copies all topics of some names. As a context manager it is stopped at the end.

    It stays a member of its group while it is paused or starved: one that has been put out starts its task again, and
    may copy records a second time.

    Args:
        jars: the folder of its jars.
        data: a folder of its own.
        topics: a regular expression of the topics' names.
        lag: the most records between two of the pairs of offsets that it tells; 100 by default.
        clusters: from which cluster to which, by their names: where they are.
    """

    def __init__(self, jars: Path, data: Path, topics: str, *, lag: int = 10, **clusters: str) -> None:
        (source, source_at), (target, target_at) = clusters.items()
        data.mkdir(parents=True)
        self._settings = data / "mirror.properties"
        self._settings.write_text(
            _SETTINGS.format(
                source=source, target=target, source_at=source_at, target_at=target_at, topics=topics, lag=lag
            )
        )
        self._jars = sorted(jars.glob("*.jar"))
        self._data = data
        self._daemon = Daemon("mirror", data, data / "mirror.log")

    def __enter__(self) -> Self:
        command = [java_command(), *_JVM, "-cp", os.pathsep.join(map(str, self._jars))]
        command += ["org.apache.kafka.connect.mirror.MirrorMaker", str(self._settings)]
        self._daemon.start(command, dict(os.environ), self._data)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._daemon.kill()

    def pause(self) -> None:
        """Have it stand still."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Have it go on."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        assert self._daemon.running(), self._daemon.log_tail(40)
        os.kill(int(json.loads((self._data / "mirror.pid").read_text())["pid"]), number)
