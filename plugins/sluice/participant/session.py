"""The driver's Spark session, with the settings that may not stand on its command line."""

from __future__ import annotations

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
