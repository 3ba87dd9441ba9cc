"""Reads the rows of a table's files in Spark, for comparisons: of the files that the log names."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField

from sluice.connectors.data import INSTANT
from sluice.identifiers import quoted
from sluice.protocol.messages import TableSpec
from sluice.records.csv import rfc_4180
from sluice.rows.conform import conform
from sluice.rows.records import parse_ddl
from sluice.sinks.files.log import IntervalLog, Record
from sluice.sinks.files.remote import remote_storage
from sluice.sinks.files.storage import LocalStorage, Storage, local_folder
from sluice.sinks.files.writer import TEXT_OPTIONS, refused

_FILE = "_sluice_file"
_LOCAL = "^file:/+"
_READ = {
    "json": {},
    # An empty field is null, and "" is an empty text. Spark reads both as null, unless another value means null.
    "csv": {**rfc_4180(TEXT_OPTIONS["csv"]), "multiLine": "true", "nullValue": "\ufffe", "emptyValue": ""},
}
"""Spark's options for reading text, by format; Avro and Parquet files describe themselves."""


class _FileRows:
    """See `sluice.connectors.data.ReadsRows` and `KnowsRefused`."""

    def __call__(self, spark: SparkSession, writer: TableSpec, instants: Collection[str] | None = None) -> DataFrame:
        return _table_rows(spark, writer, instants)

    def checked(self, spark: SparkSession, writer: TableSpec, rows: DataFrame) -> DataFrame:  # noqa: ARG002
        return refused(writer, rows)


table_rows = _FileRows()


def _table_rows(spark: SparkSession, writer: TableSpec, instants: Collection[str] | None = None) -> DataFrame:
    """The rows of published intervals, each with its instant; see `sluice.connectors.data.ReadsRows`.

    A file that was deleted since has no rows. Columns, and fields inside of them, that are missing from an interval's
    files are null in its rows.
    """
    storage = _storage(spark, writer.path)
    by_kind: dict[tuple[str, str], dict[str, str]] = {}
    for record in _records(storage, instants):
        files = [one.path for one in record.files if storage.size(one.path) is not None]
        by_kind.setdefault((record.data_format, record.schema), {}).update(dict.fromkeys(files, record.instant))
    columns = parse_ddl(spark, writer.schema_ddl)
    frames = [
        _frame(spark, writer, data_format, schema, files) for (data_format, schema), files in by_kind.items() if files
    ]
    found = [frame.select(*(_column(frame, column) for column in columns), INSTANT) for frame in frames]
    if not found:
        return spark.createDataFrame([], parse_ddl(spark, f"{writer.schema_ddl}, {INSTANT} STRING"))
    return reduce(DataFrame.unionAll, found)


def _column(frame: DataFrame, wanted: StructField) -> Column:
    """A column of some files as the table's present type."""
    if wanted.name not in frame.columns:
        return F.lit(None).cast(wanted.dataType).alias(wanted.name)
    has = frame.schema[wanted.name].dataType
    return conform(F.col(quoted(wanted.name)), has, wanted.dataType).alias(wanted.name)


def _records(storage: Storage, instants: Collection[str] | None) -> Iterator[Record]:
    """The log's records of some instants, or of all, newest first.

    Reading stops before the oldest of the instants, since instants ascend with the log's numbers.
    """
    log, oldest = IntervalLog(storage), min(instants, default="9") if instants is not None else ""
    for number in range(log.last(), 0, -1):
        record = log.read(number)
        if record.instant < oldest:
            return
        if instants is None or record.instant in instants:
            yield record


def _frame(spark: SparkSession, writer: TableSpec, data_format: str, schema: str, files: dict[str, str]) -> DataFrame:
    """The rows of files of one format and one schema."""
    paths = {f"{writer.path}/{path}": instant for path, instant in files.items()}
    read = spark.read.format(data_format).options(**_READ.get(data_format, {}))
    if data_format in _READ:
        read = read.schema(schema).option("mode", "FAILFAST")
    rows = read.load(list(paths)).withColumn(_FILE, F.regexp_replace("_metadata.file_path", _LOCAL, "file:/"))
    known = [(_as_spark_has_it(spark, path), instant) for path, instant in paths.items()]
    whose = spark.createDataFrame(known, f"{_FILE} string, {INSTANT} string")
    return rows.join(F.broadcast(whose), _FILE).drop(_FILE)


def _as_spark_has_it(spark: SparkSession, path: str) -> str:
    jvm: Any = spark._jvm
    configuration = spark.sparkContext._jsc.hadoopConfiguration()
    made = jvm.org.apache.hadoop.fs.Path(path)
    return _plain(str(made.getFileSystem(configuration).makeQualified(made).toUri().toString()))


def _plain(uri: str) -> str:
    """A URI in one spelling: Hadoop writes a local file's path after one slash or three."""
    return re.sub(_LOCAL, "file:/", uri)


def _storage(spark: SparkSession, path: str) -> Storage:
    local = local_folder(path)
    if local is not None:
        return LocalStorage(local)
    context: Any = spark._jsc
    return remote_storage(spark._jvm, context.hadoopConfiguration(), path)
