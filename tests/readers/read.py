"""A program of its own: `read.py JAR COLUMNS TABLE...` prints what Spark reads, by table, as one line of JSON."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession


def main(jar: str, columns: str, *tables: str) -> None:
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
    found: dict[str, object] = {}
    for table in tables:
        try:
            rows = spark.read.format("hudi").load(table).selectExpr(columns.split(",")).collect()
            found[table] = sorted([list(row) for row in rows], key=str)
        except (Py4JJavaError, PySparkException) as error:
            cause = str(getattr(error, "java_exception", error))
            found[table] = cause.splitlines()[0]
    spark.stop()
    sys.stdout.write(json.dumps(found, default=str))


if __name__ == "__main__":
    main(*sys.argv[1:])
