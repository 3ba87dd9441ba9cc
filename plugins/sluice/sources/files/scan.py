"""Stretches of files as a DataFrame, in their order, by Spark's own classes: its public API gives none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from sluice.sources.files.entries import BITS, Entry

Stretch = tuple[int, Entry]
"""An entry and its number."""
FACTS = ("at", "modified", "start", "path", "header")
"""Columns with the facts of a record's file; `at` is the offset of its first record."""
_FACTS = "at BIGINT, modified TIMESTAMP, start STRING, path STRING, header STRING"
# A damaged or missing file fails the read, whatever the session says.
_STRICT = {"ignoreCorruptFiles": "false", "ignoreMissingFiles": "false"}


def scan(
    spark: SparkSession,
    file_format: Any,
    columns: Any,
    stretches: Sequence[Stretch],
    options: Mapping[str, str],
    configuration: Any,
) -> DataFrame:
    """The records of stretches, each stretch a Spark partition.

    Args:
        spark: the session.
        file_format: Spark's `FileFormat`.
        columns: the columns to read, by the names that the files have, as Java's StructType.
        stretches: at least one partition is made, if there are none an empty one.
        options: the format's.
        configuration: Hadoop's.

    Returns:
        Columns `c0`, `c1`, ... for `columns`, `FACTS`, and `line`: the record's number in its stretch, from 0.
    """
    session: Any = spark._jsparkSession
    jvm: Any = spark._jvm
    gateway: Any = spark.sparkContext._gateway
    sources, tools = jvm.org.apache.spark.sql.execution.datasources, jvm.org.apache.spark.api.python.PythonUtils
    types = jvm.org.apache.spark.sql.types
    facts, named = types.StructType.fromDDL(_FACTS), types.StructType()
    for i, field in enumerate(columns.fields()):  # a file may have columns of any names
        named = named.add(f"c{i}", field.dataType(), True)
    for field in facts.fields():
        named = named.add(field)
    given, nothing = tools.toScalaMap({**options, **_STRICT}), tools.toSeq([])
    read = file_format.buildReaderWithPartitionValues(session, columns, facts, columns, nothing, given, configuration)
    parts = [sources.FilePartition(i, _files(gateway, jvm, tools, s)) for i, s in enumerate(stretches)]
    if not parts:
        parts = [sources.FilePartition(0, gateway.new_array(sources.PartitionedFile, 0))]
    rdd = sources.FileScanRDD(
        session, read, tools.toSeq(parts), named, nothing, tools.toScalaMap({}),
        jvm.org.apache.spark.sql.catalyst.FileSourceOptions(given),
    )  # fmt: skip
    records = DataFrame(session.internalCreateDataFrame(rdd, named, False), spark)
    # Each stretch is a Spark partition until its records are counted, in the upper bits of this id.
    return records.selectExpr("*", f"monotonically_increasing_id() & {(1 << 33) - 1}L AS line")


def _files(gateway: Any, jvm: Any, tools: Any, stretch: Stretch) -> Any:
    number, entry = stretch
    spark = jvm.org.apache.spark
    text = spark.unsafe.types.UTF8String.fromString
    row = spark.sql.catalyst.expressions.GenericInternalRow(len(FACTS))
    row.setLong(0, number << BITS)
    row.setLong(1, entry.modified)
    for i, one in enumerate((str(entry.start), entry.path, entry.header), 2):
        row.update(i, text(one))
    # Hadoop gives a split the lines that begin in it or at its very end, but not the one at its start, which it
    # takes for the rest of one: from the newline before the stretch to its last byte are just the stretch's.
    start = entry.start - 1 if entry.start else 0
    end = entry.end - 1 if entry.grows else entry.end
    file = spark.sql.execution.datasources.PartitionedFile(
        row, spark.paths.SparkPath.fromUrlString(entry.path), start, end - start,
        gateway.new_array(jvm.java.lang.String, 0), entry.modified // 1000, entry.size, tools.toScalaMap({}),
    )  # fmt: skip
    found = gateway.new_array(spark.sql.execution.datasources.PartitionedFile, 1)
    found[0] = file
    return found
