"""Arrow's record batches as a DataFrame, by the way that PySpark takes for those of pandas."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

_IN_THE_PLAN = "spark.sql.execution.arrow.localRelationThreshold"


class _Stream:
    def dump_stream(self, batches: Iterable[Any], stream: Any) -> None:
        """Write batches of one schema; PySpark's name and arguments."""
        first, *others = batches
        with pa.ipc.new_stream(stream, first.schema) as writer:
            for batch in (first, *others):
                writer.write_batch(batch)


def frame_of(spark: SparkSession, batches: Sequence[Any], schema: StructType) -> DataFrame:
    """A DataFrame with a Spark partition for each batch, in their order.

    Args:
        spark: the session.
        batches: at least one `pyarrow.RecordBatch`, all with the columns of `schema`.
        schema: Spark's types of the columns.
    """
    jvm: Any = spark._jvm
    context: Any = spark.sparkContext
    python = jvm.org.apache.spark.sql.api.python.PythonSQLUtils
    read = context._serialize_to_jvm(
        batches, _Stream(), python.readArrowStreamFromFile, jvm.org.apache.spark.sql.api.python.ArrowIteratorServer
    )
    # A few rows would become part of the plan, of one task, and Spark would compute all that follows when it plans.
    before = spark.conf.get(_IN_THE_PLAN)
    spark.conf.set(_IN_THE_PLAN, "0")
    try:
        return DataFrame(python.toDataFrame(read, schema.json(), spark._jsparkSession), spark)
    finally:
        spark.conf.set(_IN_THE_PLAN, str(before))
