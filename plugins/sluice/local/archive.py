"""Class-data-sharing archives of the three kinds of JVM, made by running real intervals once after the install.

Loading and verifying Spark's and Hudi's classes is most of a small interval's time, and Kafka's half of a broker's
start. A dynamic archive (JEP 350) holds them as the JVM wants them; it fits only the same JVM with the same class path,
which is why it is made on the machine.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, stop_after_delay

from sluice import runtime
from sluice.local import archive_intervals
from sluice.local.archive_intervals import archiving
from sluice.local.broker import ARCHIVE as BROKER
from sluice.local.broker import LocalBroker
from sluice.local.errors import LocalRuntimeError
from sluice.local.home import SluiceHome
from sluice.local.jars import class_path
from sluice.local.java import java_home
from sluice.local.venv import search_path

_ATTEMPTS = 3
_MOST_SECONDS = 900  # until the last attempt has begun; one takes 40 on two cores that have nothing else to do
_NOT_MADE = "not made"  # so that make doesn't try again at each command


class ArchivesMissingError(LocalRuntimeError):
    """The intervals that fill the archives failed."""


def ensure_archives(home: SluiceHome) -> bool:
    """Make the archives unless they are there for the present jars and Java; True if they were made.

    Raises:
        ArchivesMissingError: the intervals failed, several times. Everything works without archives, only slower.
        LocalRuntimeError: there is no Java.
    """
    stamp, java = home.archive / "stamp", java_home()
    jars = [*runtime.jars("spark"), *runtime.jars("coordinator"), *runtime.local_jars(), *class_path(home, "broker")]
    made_for = "\n".join(map(str, [java, *jars]))
    if stamp.exists() and stamp.read_text() == made_for:
        return False
    home.create()
    stamp.write_text(_NOT_MADE)
    os.environ["JAVA_HOME"] = str(java)  # the archive fits only the JVM that made it
    # A step of an interval may fail on a busy machine, and Airflow would try it again.
    again = Retrying(
        retry=retry_if_exception_type(ArchivesMissingError),
        stop=stop_after_attempt(_ATTEMPTS) | stop_after_delay(_MOST_SECONDS),
        reraise=True,
    )
    again(_make, home)
    stamp.write_text(made_for)
    return True


def archives_in_words(home: SluiceHome) -> str:
    """Make the archives where they are missing, and say how that went: an install without them is whole."""
    try:
        made = ensure_archives(home)
    except ArchivesMissingError as error:
        return f"not made; all works without them, only slower. {error}"
    return "made" if made else "there already"


def _make(home: SluiceHome) -> None:
    for left in home.archive.glob("*.new"):
        left.unlink()
    with tempfile.TemporaryDirectory(prefix="sluice-archive-") as scratch:
        broker = LocalBroker(home, data=Path(scratch) / "broker")
        try:
            with archiving(BROKER):
                broker.start()
        except LocalRuntimeError as error:
            raise ArchivesMissingError(error.what, next_step=error.next_step, detail=error.detail) from error
        try:
            _run_intervals(broker.bootstrap, scratch)
        finally:
            broker.stop()  # it writes its archive now
    for made in home.archive.glob("*.new"):
        made.replace(made.with_suffix(".jsa"))  # at once: JVMs may start meanwhile


def _run_intervals(bootstrap: str, scratch: str) -> None:
    """In a process that may die: a crash of its Kafka client must not leave the broker behind."""
    command = [sys.executable, "-m", archive_intervals.__name__, bootstrap, scratch]
    environment = {**os.environ, **search_path(runtime.packages())}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        raise ArchivesMissingError(
            f"The intervals that fill the class-data-sharing archives ended with {done.returncode}.",
            next_step=f"run `{sys.executable} -m sluice.local archives` when less runs on this machine.",
            detail=done.stdout + done.stderr,
        )
