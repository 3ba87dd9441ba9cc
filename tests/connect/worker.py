"""A distributed worker of Kafka Connect's as a process of its own."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.ivy import ensure

from sluice.local.home import SluiceHome
from sluice.local.java import java_command
from sluice.local.process import Daemon

_JVM = ("-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
_JSON = "org.apache.kafka.connect.json.JsonConverter"
_SETTINGS = """
bootstrap.servers = {bootstrap}
group.id = {group}
listeners = http://127.0.0.1:{port}
key.converter = {json}
value.converter = {json}
offset.storage.topic = {group}-offsets
offset.storage.partitions = 3
offset.storage.replication.factor = 1
config.storage.topic = {group}-configs
config.storage.replication.factor = 1
status.storage.topic = {group}-status
status.storage.partitions = 1
status.storage.replication.factor = 1
offset.flush.interval.ms = 200
scheduled.rebalance.max.delay.ms = 0
plugin.discovery = only_scan
"""


def ensure_connect(home: SluiceHome) -> Path:
    """The folder of Connect's jars, fetched if they aren't there."""
    return ensure(home, "connect", Path(__file__).with_name("ivy.xml"), ("jar", "bundle"))


class ConnectWorker:
    """A worker with a REST API. As a context manager it is stopped at the end.

    Args:
        jars: the folder of its jars.
        data: a folder of its own.
        bootstrap: the cluster.
        group: its group, by which its topics are named.
        port: where its REST API answers.
    """

    def __init__(self, jars: Path, data: Path, bootstrap: str, group: str, port: int) -> None:
        data.mkdir(parents=True)
        self.url, self.offsets_topic = f"http://127.0.0.1:{port}", f"{group}-offsets"
        self._settings = data / "worker.properties"
        self._settings.write_text(_SETTINGS.format(bootstrap=bootstrap, group=group, port=port, json=_JSON))
        self._jars, self._data = sorted(jars.glob("*.jar")), data
        self._daemon = Daemon("connect", data, data / "connect.log")

    def __enter__(self) -> Self:
        command = [java_command(), *_JVM, "-cp", os.pathsep.join(map(str, self._jars))]
        command += ["org.apache.kafka.connect.cli.ConnectDistributed", str(self._settings)]
        self._daemon.start(command, dict(os.environ), self._data)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._daemon.kill()

    def answers(self) -> bool:
        """Whether it has begun to work.

        Raises:
            AssertionError: it has ended.
        """
        assert self._daemon.running(), self._daemon.log_tail(40)
        try:
            return self.ask("GET", "/connectors")[0] == 200
        except OSError:
            return False

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """The status and the answer of one request."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            with error:
                body = error.read()
            # Until Connect has begun, its web server answers by itself, in HTML.
            return error.code, json.loads(body or b"null") if body[:1] != b"<" else None
