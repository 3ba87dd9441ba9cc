"""Processes of the product that a test starts: their environment, how they end, and where they stand still."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest

from sluice import runtime
from sluice.coordinator import Started
from sluice.errors import RetryableError
from sluice.failpoints import VARIABLE
from sluice.kafka.config import KafkaSettings
from sluice.participant.launch.submit import driver_environment

MASTER = "local[1]"
CLUSTER = "kafka_default"
PATIENCE = 600.0  # seconds for one step: against hangs alone, since nobody knows how busy the machine is


def wait_for(condition: Callable[[], Any], what: str, timeout: float = PATIENCE, pause: float = 0.02) -> Any:
    """The condition's first true value."""
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(pause)
    raise TimeoutError(f"waited {timeout:.0f} s for {what}")


def once_the_lease_is_free(step: Callable[[], Any]) -> Any:
    """What a step of a coordinator returns as soon as no other one is committing the table."""

    def unless_busy() -> Any:
        try:
            return step()
        except RetryableError as error:
            if "committing this table just now" not in str(error):
                raise
            return None

    return wait_for(unless_busy, "the lease to run out", pause=0.2)


def kafka_settings(bootstrap: str, connection: str = CLUSTER) -> KafkaSettings:
    return KafkaSettings(connection, {"bootstrap.servers": bootstrap, "log_level": 0})


def environment(bootstrap: str, **more: str) -> dict[str, str]:
    """The environment of the product's processes."""
    settings = kafka_settings(bootstrap)
    product = driver_environment(settings, settings, MASTER)
    return {**product, VARIABLE: "", **more}


def other_clock(offset: str, folder: Path) -> dict[str, str]:
    """The environment of a process whose JVM has a clock that differs, as another machine's: `+300s`, `-2d`.

    Python keeps its own: it waits for ever with a clock of libfaketime's.
    """
    library = next(iter(Path("/usr/lib").glob("*/faketime/libfaketime.so.1")), None)
    if library is None:
        pytest.skip("libfaketime is not installed")
    java = folder / f"java{offset}" / "bin" / "java"
    if not java.exists():
        java.parent.mkdir(parents=True)
        java.write_text(
            f'#!/bin/sh\nLD_PRELOAD={library} FAKETIME={offset} exec {runtime.java_home() / "bin" / "java"} "$@"\n'
        )
        java.chmod(0o755)
    return {"SLUICE_JAVA_HOME": str(java.parents[1])}


@dataclass(frozen=True)
class Step:
    """How a coordinator step in a process of its own ended."""

    status: int
    out: str
    err: str

    @property
    def killed(self) -> bool:
        return self.status == -signal.SIGKILL

    def started(self) -> Started:
        assert self.status == 0, self.err
        found = json.loads(self.out)
        return Started(found["instant"], found["control_offset"], ((),) * found["ranges"], digest=found["digest"])


def finish(process: subprocess.Popen[str]) -> Step:
    """Wait for its end; where Python was killed, its JVM is killed too, as it would be with the machine."""
    status = process.wait(PATIENCE)
    if status < 0:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    out, err = process.communicate(timeout=PATIENCE)
    return Step(status, out, err)


class WriteJob(Protocol):
    def poll(self) -> object:
        """None while it runs."""

    def text(self) -> str:
        """What it has logged."""


def _told(step: subprocess.Popen[str] | WriteJob) -> str:
    return finish(step).err if isinstance(step, subprocess.Popen) else step.text()[-4000:]


class Pause:
    """A failpoint at which a process waits until it is released."""

    def __init__(self, point: str, folder: Path) -> None:
        self._file = folder / f"{point}.{time.monotonic_ns()}"
        self.failpoint = f"{point}=pause:{self._file}"

    def reached(self) -> bool:
        return self._file.with_name(self._file.name + ".reached").exists()

    def wait(self, step: subprocess.Popen[str] | WriteJob) -> None:
        """Until the step has reached it; one that ends before fails the test with what it said."""

        def reached_or_ended() -> bool:
            ended = step.poll() is not None  # asked first: it may reach it, be killed there, and have ended
            if self.reached():
                return True
            assert not ended, f"it ended before {self.failpoint}: {_told(step)}"
            return False

        wait_for(reached_or_ended, f"{self.failpoint} to be reached")

    def release(self) -> None:
        self._file.touch()
