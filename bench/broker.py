"""The one place that starts a Kafka broker for the benchmark; `sluice.local.broker` is to take over here."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from bench.home import jars, java
from sluice.local.process import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

START_SECONDS = 60.0
LOG4J = """<Configuration>
<Appenders><Console name="out"><PatternLayout pattern="%d %p %m%n"/></Console></Appenders>
<Loggers><Root level="WARN"><AppenderRef ref="out"/></Root></Loggers></Configuration>"""


@contextmanager
def embedded_broker(work: Path, more: Mapping[str, str] | None = None) -> Iterator[str]:
    """A KRaft broker with its data below work, stopped on leaving; yields its bootstrap address.

    `more`: further properties of the broker.
    """
    home = work / "broker"
    home.mkdir(parents=True)
    port, controller = free_port(), free_port()
    properties = home / "server.properties"
    properties.write_text(
        "process.roles=broker,controller\nnode.id=1\n"
        f"controller.quorum.voters=1@127.0.0.1:{controller}\ncontroller.listener.names=CONTROLLER\n"
        f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n"
        f"advertised.listeners=PLAINTEXT://127.0.0.1:{port}\n"
        f"log.dirs={home / 'logs'}\nauto.create.topics.enable=false\nlog.retention.ms=-1\n"
        "offsets.topic.replication.factor=1\ntransaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\n"
        "group.initial.rebalance.delay.ms=0\n" + "".join(f"{k}={v}\n" for k, v in (more or {}).items())
    )
    (home / "log4j2.xml").write_text(LOG4J)
    command = [
        java(),
        "-Xms512m",
        "-Xmx512m",
        "-XX:+UseSerialGC",
        f"-Dlog4j2.configurationFile={home / 'log4j2.xml'}",
        "-cp",
        str(jars("broker") / "*"),
    ]
    log = home / "broker.log"
    with log.open("ab") as out:
        subprocess.run(
            [
                *command,
                "kafka.tools.StorageTool",
                "format",
                "-t",
                "bench0000000000000000A",
                "-c",
                str(properties),
            ],
            stdout=out,
            stderr=out,
            check=True,
        )
        process = subprocess.Popen(
            [*command, "kafka.Kafka", str(properties)], stdout=out, stderr=out, start_new_session=True
        )
    try:
        _await_port(port, process, log)
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        shutil.rmtree(home, ignore_errors=True)


def _await_port(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        with socket.socket() as s:
            if s.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise RuntimeError(f"the Kafka broker did not start:{os.linesep}{log.read_text()[-2000:]}")
