"""A Spark session with a release of Hudi, for this folder's programs: each is started as a script of its own."""

from __future__ import annotations

import tempfile
from pathlib import Path

from pyspark.sql import SparkSession


def session_with(jar: str) -> SparkSession:
    """A session whose Hudi is that of the bundle, and no other.

    Raises:
        RuntimeError: Spark has found another Hudi.
    """
    settings = {
        "spark.master": "local[1]",
        "spark.jars": jar,
        "spark.driver.memory": "1g",
        "spark.ui.enabled": "false",
        "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.warehouse.dir": tempfile.mkdtemp(),
    }
    builder = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    loader = spark._jvm.Thread.currentThread().getContextClassLoader()
    hudi = loader.loadClass("org.apache.hudi.common.table.HoodieTableMetaClient").getProtectionDomain()
    loaded_from = hudi.getCodeSource().getLocation().getPath()
    if Path(loaded_from).name != Path(jar).name:
        raise RuntimeError(f"Spark has Hudi from {loaded_from}, not from {jar}")
    return spark
