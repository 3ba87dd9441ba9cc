"""Warm Spark drivers, and the write jobs that run in them or in processes of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from threading import Thread
from typing import Any

from sluice.participant.launch.settings import spark_conf

from .processes import MASTER, PATIENCE, Pause, environment, wait_for

MEMORY = "512m"
_SERVER = Path(__file__).parents[1] / "spark_server.py"


@dataclass
class Job:
    """A write job that was started: in a warm driver, or as a process of its own."""

    log: Path
    group: int
    answer: Callable[[], int | None]  # exit status; None where it was killed
    answered: Callable[[], bool]
    on_kill: Callable[[], None] = lambda: None
    _done: list[int | None] = field(default_factory=list)

    def wait(self) -> int | None:
        if not self._done:
            self._done.append(self.answer())
        return self._done[0]

    def poll(self) -> bool | None:
        """None while it runs."""
        return True if self._done or self.answered() else None

    def succeed(self) -> None:
        status = self.wait()
        assert status == 0, f"the write job ended with {status}:\n{self.text()[-4000:]}"

    def text(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the driver's JVM and Python at once."""
        if number is signal.SIGKILL:
            self.on_kill()
        os.killpg(self.group, number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.wait()


class Driver:
    """One warm Spark driver in a process group of its own."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        folder.mkdir(parents=True)
        address = str(folder / "socket")
        command = spark_submit_of(_SERVER, [address])
        with Listener(address, "AF_UNIX") as listener, (folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                command, env=environment, cwd=folder, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
            accepted: list[Connection] = []
            thread = Thread(target=lambda: accepted.append(listener.accept()), daemon=True)
            thread.start()
            wait_for(lambda: accepted or self._process.poll() is not None, "a Spark driver")
            assert accepted, (folder / "log").read_text()[-4000:]
        self._connection = accepted[0]
        self.log = folder / "log"
        self.group = self._process.pid
        self.busy = False
        self._killed = False

    @property
    def alive(self) -> bool:
        return not self._killed and self._process.poll() is None

    def mark_killed(self) -> None:
        """Take note that its processes are killed: it may have answered just before, and die only in a moment."""
        self._killed = True

    def reap(self) -> None:
        """Wait for the end of a driver that isn't alive. What it has answered can still be received."""
        self._process.wait(30)

    def ask(self, *task: Any) -> Any:
        """Do a task and wait for it; None where the driver died over it."""
        self.send(*task)
        return self.receive()

    def send(self, *task: Any) -> None:
        self.busy = True
        self._connection.send(task)

    def answered(self) -> bool:
        """Whether `receive` would return at once."""
        return self._connection.poll()

    def receive(self) -> Any:
        try:
            if not self._connection.poll(PATIENCE):
                raise TimeoutError(f"the Spark driver did not answer; its log: {self.log.read_text()[-4000:]}")
            fine, value = self._connection.recv()
        except (EOFError, ConnectionResetError):
            self.kill()
            return None
        self.busy = False
        if not fine:
            raise RuntimeError(value)
        return value

    def kill(self) -> None:
        """End Python and JVM: a driver of which one half has died is dead."""
        with suppress(ProcessLookupError):
            os.killpg(self.group, signal.SIGKILL)
        self._process.wait(30)
        self._connection.close()


# For a driver that runs hundreds of small jobs: the quick compiler alone (with more room for its code than the 48 MB
# that it then gets, which it sweeps all the time), one thread that collects garbage, and room for what is short-lived.
# That takes a third of the CPU off; and nobody looks at what Spark keeps of the jobs that have ended.
_JAVA = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:-UseParallelGC -XX:+UseSerialGC -Xms512m -Xmn256m"
_WARM = {
    "spark.driver.extraJavaOptions": _JAVA,
    **{f"spark.ui.retained{what}": "10" for what in ("Jobs", "Stages", "Tasks")},
    "spark.sql.ui.retainedExecutions": "10",
}


def spark_submit_of(application: Path, arguments: Sequence[str]) -> list[str]:
    """The product's own command, but for the application, and for what makes a long-lived driver cheap."""
    conf = spark_conf(MASTER, _WARM)
    options = [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
    bin_folder = Path(sys.executable).parent
    submit = [str(bin_folder / "spark-submit"), "--master", MASTER, "--driver-memory", MEMORY]
    return [*submit, *options, str(application), *arguments]


class Drivers:
    """The warm Spark drivers of a test worker: one, and more while some are paused."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._environment = environment("not.used:1")  # each write job brings its own
        self._drivers: list[Driver] = []
        self._started = 0

    def idle(self) -> Driver:
        for driver in [d for d in self._drivers if not d.alive]:
            driver.reap()
            self._drivers.remove(driver)
        for driver in self._drivers:
            if not driver.busy:
                return driver
        self._started += 1
        self._drivers.append(Driver(self._folder / str(self._started), self._environment))
        return self._drivers[-1]

    def close(self) -> None:
        for driver in self._drivers:
            driver.kill()


class Zombie:
    """A write job that stands still before it writes, and then writes its files to the end whatever happened meanwhile.

    It is deaf to the control topic until its files are closed: the worst that can be.
    """

    def __init__(self, start: Callable[[str], Job], folder: Path) -> None:
        points = ("before_write", "watch", "after_write")
        self._asleep, self._deaf, self._written = (Pause(f"participant.{point}", folder) for point in points)
        pauses = (self._asleep, self._deaf, self._written)
        self.job = start(",".join(pause.failpoint for pause in pauses))
        self._asleep.wait(self.job)

    def write(self) -> None:
        """Wake it up; it has closed its files."""
        self._asleep.release()
        self._written.wait(self.job)

    def hear(self) -> None:
        """Let it hear the control topic and go on; it has failed."""
        self._deaf.release()
        self._written.release()
        assert self.job.wait() == 1
