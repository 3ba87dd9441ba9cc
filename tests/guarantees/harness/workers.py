"""`sluice worker` in processes of their own, and what a `write` task waits for."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from urllib.error import HTTPError
from urllib.request import urlopen

from confluent_kafka.admin import AdminClient

from sluice.control.presence import members
from sluice.control.topic import ControlTopic
from sluice.control.waiting import wait_for_workers
from sluice.coordinator import Started
from sluice.errors import RetryableError
from sluice.failpoints import VARIABLE
from sluice.protocol.claims import Verdict

from .flow import Flow
from .processes import MASTER, environment, kafka_settings, wait_for

LEASE = 6.0


class WorkerProcess:
    """`sluice worker`, in a process of its own."""

    def __init__(
        self, name: str, group: str, flow: Flow, *more: str, files: tuple[Path, ...] = (), failpoint: str = "",
        connections: Mapping[str, str] = MappingProxyType({}),
    ):  # fmt: skip
        self.name, self.bootstrap = name, flow.bootstrap
        self._of = group
        self.log = flow.folder / f"worker-{name}.log"
        command = [sys.executable, "-m", "sluice.cli", "worker", *map(str, files or (flow.file,)), "--group", group]
        command += ["--name", name, "--lease", str(LEASE), "--memory", "1g", "--master", MASTER, *more]
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(
                command, env=environment(flow.bootstrap, **{VARIABLE: failpoint, **connections}), cwd=flow.folder,
                stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    @property
    def group(self) -> int:
        """Its process group: itself, and its JVM."""
        return self.process.pid

    def is_there(self) -> bool:
        """Whether its group of workers has it."""
        assert self.process.poll() is None, self.log.read_text()
        settings = kafka_settings(self.bootstrap)
        with suppress(RetryableError):  # the broker has just begun
            there = members(AdminClient(settings.client()), settings, self._of)
            return any(member.worker.startswith(f"{self.name}-") for member in there)
        return False

    def answer(self, path: str) -> tuple[int, str]:
        """Status and text that its endpoint answers, given `--port 0`."""
        found = wait_for(lambda: re.search(r"the worker answers .*port=(\d+)", self.log.read_text()), "its port")
        try:
            with urlopen(f"http://127.0.0.1:{found[1]}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except HTTPError as error:
            return error.code, error.read().decode()

    def signal(self, number: int) -> None:
        """Send a signal to all of it."""
        with suppress(ProcessLookupError):
            os.killpg(self.group, number)

    def jvm(self) -> int:
        """The process id of its JVM."""
        listed = subprocess.run(["pgrep", "-g", str(self.group), "java"], capture_output=True, text=True, check=True)
        return int(listed.stdout.split()[0])

    def wait(self, seconds: float | None = None) -> int | None:
        """Its exit status; None where it still runs."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def end(self) -> int | None:
        """Let it end as whoever keeps it does: SIGTERM, and SIGKILL where that takes too long."""
        self.signal(signal.SIGCONT)
        self.process.send_signal(signal.SIGTERM)
        status = self.wait(60)
        if status is None:
            self.signal(signal.SIGKILL)
            status = self.wait()
        return status


def waited(flow: Flow, started: Started, *numbers: int) -> dict[int, Verdict]:
    """What becomes of some ranges, by default all, as their `write` tasks see it."""
    control = ControlTopic(kafka_settings(flow.bootstrap), flow.pipeline.control_topic)
    write = flow.pipeline.write
    within = write.claim_within.total_seconds()
    ranges = numbers or range(len(started.ranges))
    return wait_for_workers(control, flow.table, started.control_offset, ranges, write.workers or "", within)
