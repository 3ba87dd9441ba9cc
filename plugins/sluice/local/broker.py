"""An embedded Kafka broker: one KRaft process with a small heap, for the demo and the tests."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from sluice import runtime
from sluice.local.broker_config import CLUSTER_ID, BrokerConfig
from sluice.local.errors import LocalRuntimeError
from sluice.local.home import SluiceHome
from sluice.local.jars import class_path
from sluice.local.java import java_command
from sluice.local.process import Daemon

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

_JVM_OPTIONS = (
    "-Xms128m",
    "-Xmx384m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Xshare:auto",
)
ARCHIVE = "broker"
_LOOK = 3.0  # seconds for an answer of a broker that has started: a busy machine takes more than one


class _NotReadyError(Exception):
    """The broker lives, but doesn't answer yet."""


class LocalBroker:
    """An embedded broker on the loopback interface. As a context manager it is stopped at the end.

    Data and ports stay in `data`, so a broker that was stopped or killed starts again as the same one.

    Args:
        home: Where the jars are.
        data: Log segments, settings and pid file. Default: the home's own.
        port: The port to listen on; where it is taken, or None, a free one. A restart keeps the first.
        settings: Broker settings on top of those for a quick start, e.g. `{"message.max.bytes": "2000"}`.
        cluster_id: Kafka's id of the cluster that it is, which each cluster of an environment needs another of.
    """

    def __init__(
        self,
        home: SluiceHome,
        data: Path | None = None,
        port: int | None = None,
        settings: Mapping[str, str] | None = None,
        cluster_id: str = CLUSTER_ID,
    ) -> None:
        self._home = home
        self._cluster_id = cluster_id
        self._data = data or home.broker
        self._config = BrokerConfig(self._data, port, dict(settings or {}))
        log = home.logs / "broker.log" if data is None else data / "broker.log"
        self._daemon = Daemon("broker", self._data, log)

    @property
    def bootstrap(self) -> str:
        """`bootstrap.servers` of clients. Known once it has been started."""
        return f"127.0.0.1:{self._config.client_port}"

    @property
    def running(self) -> bool:
        """Whether its process is alive."""
        return self._daemon.running()

    @property
    def log(self) -> Path:
        """The broker's log of this start."""
        return self._daemon.log

    def start(self, timeout: float = 300.0) -> Self:
        """Start it and wait until it answers; harmless where it runs already.

        Raises:
            LocalRuntimeError: It ended, or didn't answer within `timeout` seconds.
        """
        started = not self.running
        if started:
            if not self._config.write():
                self._format()
            self._daemon.start(
                [*self._java(), "kafka.Kafka", str(self._config.properties)], dict(os.environ), self._data
            )
        try:
            self._await_ready(timeout)
        except BaseException:  # Ctrl-C too: nothing else would know of this process
            if started:
                self.kill()
            raise
        return self

    def stop(self) -> None:
        """Shut it down in order (SIGTERM), and wait for its end."""
        self._daemon.stop()

    def kill(self) -> None:
        """Kill it (SIGKILL), as a machine that fails would. `start()` recovers the data."""
        self._daemon.kill()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _java(self) -> list[str]:
        jars = os.pathsep.join(str(jar) for jar in class_path(self._home, "broker"))
        logging = f"-Dlog4j2.configurationFile={self._config.logging}"
        return [java_command(), *_JVM_OPTIONS, *runtime.archive_options(ARCHIVE), logging, "-cp", jars]

    def _format(self) -> None:
        tool = ["kafka.tools.StorageTool", "format", "--standalone", "--ignore-formatted"]
        command = [*self._java(), *tool, "-t", self._cluster_id, "-c", str(self._config.properties)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        if done.returncode != 0:
            raise LocalRuntimeError(
                f"The broker's data folder {self._data} could not be formatted.",
                next_step="correct the settings below, or remove the folder.",
                detail=done.stdout + done.stderr,
            )

    def _await_ready(self, timeout: float) -> None:
        # librdkafka would report each refused connection on standard error; log_level 0 keeps it quiet.
        from confluent_kafka.admin import AdminClient

        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0, "reconnect.backoff.max.ms": 200})
        attempts = Retrying(
            retry=retry_if_exception_type(_NotReadyError),
            stop=stop_after_delay(timeout),
            wait=wait_fixed(0.1),
            reraise=True,
        )
        try:
            attempts(self._ask, admin, min(timeout, _LOOK))
        except _NotReadyError as error:
            raise self._failed(f"did not answer within {timeout:.0f} s") from error

    def _ask(self, admin: AdminClient, timeout: float) -> None:
        from confluent_kafka import KafkaException

        if not self.running:
            raise self._failed("ended while it was starting")
        try:
            if not admin.list_topics(timeout=timeout).brokers:
                raise _NotReadyError
        except KafkaException as error:
            raise _NotReadyError from error

    def _failed(self, what: str) -> LocalRuntimeError:
        return LocalRuntimeError(
            f"The embedded broker at {self.bootstrap} {what}.",
            next_step=f"read the end of its log below; all of it is in {self.log}.",
            detail=self._daemon.log_tail(),
        )
