"""A Spark driver's Python whose JVM is gone: it still can say what was wrong, and nobody reads its lines any more."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from protocol_messages import start
from py4j.protocol import Py4JJavaError, Py4JNetworkError

from sluice.participant.spark_job import RunningSparkJob
from sluice.sources.kafka.reader import KafkaReader

LOGS = """
import os
from sluice.logs import leave_the_time_to_the_parent, log
leave_the_time_to_the_parent()
log.error("the Spark job failed", reason="any")
os._exit(7)  # reached
"""


class _JavaError(Py4JJavaError):
    """As Py4J's own: what it says is asked of the JVM each time."""

    def __init__(self, *answers: str) -> None:
        self._answers = list(answers)

    def __str__(self) -> str:
        if self._answers:
            return self._answers.pop(0)
        raise Py4JNetworkError("Answer from Java side is empty")


@pytest.fixture
def job() -> RunningSparkJob:
    return RunningSparkJob(None, lambda _cluster: KafkaReader.__new__(KafkaReader), None, lambda: None)


@pytest.mark.parametrize(
    "error",
    [
        _JavaError(),
        _JavaError("Job 0 cancelled because SparkContext was shut down"),
        _JavaError("java.lang.OutOfMemoryError: Java heap space"),
        Py4JNetworkError("Answer from Java side is empty"),
        ConnectionResetError(),
        RuntimeError("Job 0 cancelled because SparkContext was shut down"),
    ],
)
def test_that_the_jvm_was_lost_is_said_whatever_it_can_be_asked(job: RunningSparkJob, error: Exception) -> None:
    found = job.classified(error, start("20260101000000000"), 0)
    assert "ran out of memory" in str(found)
    assert "write.driver_memory" in str(found)


def test_what_nobody_reads_ends_nothing() -> None:
    read, write = os.pipe()
    os.close(read)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "plugins")}
    with os.fdopen(write, "wb") as out:
        done = subprocess.run([sys.executable, "-c", LOGS], stdout=out, stderr=out, env=environment, check=False)
    assert done.returncode == 7
