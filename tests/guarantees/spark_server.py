"""A Spark driver that runs one write job after another, and reads tables: starting a JVM is most of a small job's time.

Each job is `write_range.main()` with the command line, environment and Spark settings that a job of its own would have.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Sequence
from multiprocessing.connection import Client
from types import ModuleType
from typing import Any

from pyspark.sql import SparkSession

import table_service
import write_range


def write(arguments: Sequence[str], environment: dict[str, str], log: str) -> int:
    return _job(write_range, arguments, environment, log)


def service(arguments: Sequence[str], environment: dict[str, str], log: str) -> int:
    return _job(table_service, arguments, environment, log)


def _job(entry: ModuleType, arguments: Sequence[str], environment: dict[str, str], log: str) -> int:
    os.environ.update(environment)
    with open(log, "a", buffering=1) as file, contextlib.redirect_stdout(file):  # noqa: PTH123
        sys.argv = [str(entry.__file__), *arguments]
        try:
            status: int = entry.main()
        except Exception:
            traceback.print_exc(file=file)
            return 1
        return status


def read(path: str, metadata: bool, columns: Sequence[str] = ("id", "v", "p")) -> list[tuple[Any, ...]]:
    """The rows as a reader sees them that asks the metadata table, or one that lists the table's files."""
    spark = SparkSession.builder.getOrCreate()
    options = {"hoodie.metadata.enable": str(metadata).lower(), "hoodie.file.index.enable": "true"}
    frame = spark.read.format("hudi").options(**options).load(path)
    return [tuple(row) for row in frame.select(*columns).collect()]


def columns(path: str) -> list[str]:
    """The table's columns as a reader sees them."""
    names: list[str] = SparkSession.builder.getOrCreate().read.format("hudi").load(path).columns
    return names


def read_all(path: str, metadata: bool) -> list[dict[str, Any]]:
    """All rows with the table's own columns, nested ones as dictionaries."""
    spark = SparkSession.builder.getOrCreate()
    options = {"hoodie.metadata.enable": str(metadata).lower(), "hoodie.file.index.enable": "true"}
    frame = spark.read.format("hudi").options(**options).load(path)
    own = [f"`{name}`" for name in frame.columns if not name.startswith("_hoodie_")]
    return [row.asDict(recursive=True) for row in frame.select(*own).collect()]


def append(path: str, ddl: str, rows: list[tuple[Any, ...]], options: dict[str, str]) -> None:
    """A commit by Hudi's own Spark data source, as another writer of the table would make it."""
    frame = SparkSession.builder.getOrCreate().createDataFrame(rows, ddl)
    frame.write.format("hudi").options(**options).mode("append").save(path)


def serve(address: str) -> None:
    tasks = {
        "write": write, "service": service, "read": read, "read_all": read_all, "columns": columns, "append": append,
    }  # fmt: skip
    with Client(address, "AF_UNIX") as harness:
        while True:
            try:
                name, *arguments = harness.recv()
            except EOFError:
                return
            try:
                harness.send((True, tasks[name](*arguments)))
            except Exception:
                harness.send((False, traceback.format_exc()))


if __name__ == "__main__":
    serve(sys.argv[1])
