"""The driver's Spark session, with the settings that must not be on its command line."""

from __future__ import annotations

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import SparkSession

from sluice.private import PrivateSettings


def spark_session(name: str) -> SparkSession:
    """The session of this driver.

    Args:
        name: the application's name.

    Raises:
        ActionRequiredError: the private settings can't be read.
    """
    builder: SparkSession.Builder = SparkSession.builder.appName(name)
    for key, value in PrivateSettings.from_environment().conf.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def readable_error(error: Exception) -> Exception:
    """The error with its text as read now, or the error that reading it raised.

    A Java error's text is fetched from the JVM on every access, and the JVM may be gone by then.
    """
    try:
        text = str(error)
    except (Py4JError, OSError) as lost:
        return lost
    return RuntimeError(text) if isinstance(error, Py4JJavaError) else error
