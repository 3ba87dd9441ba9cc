"""The driver's Spark session, with the settings that must not be on its command line."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from sluice.jvm.s3_login import look_where_aws_does
from sluice.logs import log
from sluice.private import PrivateSettings

Sessions = Callable[[str], AbstractContextManager[tuple[SparkSession, Callable[[], None]]]]
"""Opens the Spark session of a job, by a name for people; with it, a function that cancels the job's Spark work."""


def spark_session(name: str) -> SparkSession:
    """The session of this driver.

    Args:
        name: the application's name.

    Raises:
        ActionRequiredError: the private settings can't be read.
    """
    # The JVM first, without any settings: PySpark puts all settings known by then on the command line of a JVM that it
    # starts itself, as in a worker. In a job started by spark-submit the JVM exists, and is found here.
    SparkContext._ensure_initialized()
    builder: SparkSession.Builder = SparkSession.builder.appName(name)
    for key, value in PrivateSettings.from_environment().conf.items():
        builder = builder.config(key, value)
    spark: SparkSession = builder.getOrCreate()
    context: Any = spark.sparkContext._jsc
    look_where_aws_does(context.hadoopConfiguration())  # which travels to executors with each job
    return spark


@contextmanager
def own_session(name: str) -> Iterator[tuple[SparkSession, Callable[[], None]]]:
    """This process's session, for its only job; it ends with the block.

    Raises:
        ActionRequiredError: the private settings can't be read.
    """
    spark = spark_session(name)
    try:
        yield spark, spark.sparkContext.cancelAllJobs
    finally:
        stop(spark)


def stop(spark: SparkSession) -> None:
    """Stop the application; where its JVM is lost there is nothing to stop."""
    try:
        spark.stop()
    except Exception as error:  # a lost JVM can raise any error: py4j's, OSError, TypeError
        log.warning("Spark's session was not stopped as it should be", reason=type(error).__name__)


class KeptSession:
    """A long-lived application; each job gets its own session in it, a job group, and a share of the cores.

    Args:
        spark: its first session.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    @contextmanager
    def __call__(self, name: str) -> Iterator[tuple[SparkSession, Callable[[], None]]]:
        """A session for a job in this thread; see `Sessions`."""
        context, group = self._spark.sparkContext, str(uuid.uuid4())
        session = self._spark.newSession()
        jvm = context._jvm
        assert jvm is not None
        jvm.org.apache.spark.sql.SparkSession.setActiveSession(session._jsparkSession)
        context.setJobGroup(group, name, interruptOnCancel=True)
        # FAIR: as many cores for a small range as for a big. Spark keeps a pool for good, so it has a slot's name.
        context.setLocalProperty("spark.scheduler.pool", threading.current_thread().name)
        try:
            yield session, partial(context.cancelJobGroup, group)
        finally:
            jvm.org.apache.spark.sql.SparkSession.clearActiveSession()


def readable_error(error: Exception) -> Exception:
    """The error with its text as read now, or the error that reading it raised.

    A Java error's text is fetched from the JVM on every access, and the JVM may be gone by then.
    """
    try:
        text = str(error)
    except (Py4JError, OSError) as lost:
        return lost
    if not isinstance(error, Py4JJavaError):
        return error
    readable = RuntimeError(text)
    readable.__cause__ = error
    return readable
