"""Reads a Hudi table's rows in Spark, for comparisons."""

from __future__ import annotations

from collections.abc import Collection

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sluice.connectors.data import INSTANT
from sluice.protocol.messages import TableSpec


def table_rows(
    spark: SparkSession,
    writer: TableSpec,
    instants: Collection[str] | None = None,  # noqa: ARG001 - Spark selects the files by itself
) -> DataFrame:
    """All rows, for appends with the instant of the interval that wrote each; see `sluice.connectors.data`."""
    return spark.read.format("hudi").load(writer.path).withColumn(INSTANT, F.col("_hoodie_commit_time"))
