"""Functions that a pipeline's `python` steps name, as a user would have them beside the DAGs."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def add_length(rows: DataFrame) -> DataFrame:
    length = F.udf(len, "int")  # in Python workers
    return rows.withColumn("length", length("note")).where("id <> 4")


def with_amount_only(rows: DataFrame) -> DataFrame:
    """What would hide the bad records, if it saw any."""
    return rows.where("amount IS NOT NULL")


def doubled(rows: DataFrame) -> DataFrame:
    return rows.union(rows)


def of_other_columns(rows: DataFrame) -> DataFrame:
    return rows.select("id", "note")
