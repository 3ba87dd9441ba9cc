"""A Spark session in a test's own process, for what a connector does in one."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from pyspark import SparkContext
from pyspark.sql import SparkSession

from sluice import runtime
from sluice.participant.launch.settings import spark_conf

_MASTER = "local[1]"
_QUICK = {
    "spark.network.timeout": "30s",  # also how long a read of Kafka waits for an offset that isn't there
    "spark.network.timeoutInterval": "10s",
    "spark.executor.heartbeatInterval": "5s",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:-UseParallelGC -XX:+UseSerialGC",
}


@contextmanager
def session() -> Iterator[SparkSession]:
    """The session; its JVM ends with the block."""
    options = [part for name, value in spark_conf(_MASTER, _QUICK).items() for part in ("--conf", f"{name}={value}")]
    environment = {
        "PYSPARK_SUBMIT_ARGS": shlex.join(["--master", _MASTER, "--driver-memory", "512m", *options, "pyspark-shell"]),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),  # a task's Python finds what the test has found
        "JAVA_HOME": str(runtime.java_home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    with mock.patch.dict(os.environ, environment):  # and no longer: other processes of the test have Spark, too
        running = SparkSession.builder.getOrCreate()
    gateway = SparkContext._gateway
    try:
        yield running
    finally:
        running.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(60)
        SparkContext._gateway = SparkContext._jvm = None
