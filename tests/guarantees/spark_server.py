"""A Spark driver that runs one write job after another, and reads tables: starting a JVM is most of a small job's time.

Each job is `write_range.main()` with the command line, environment and Spark settings that a job of its own would have.
Only Spark's session outlives one that has succeeded, since making one takes as long as the rest of a warm job.
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

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from sluice.coordinator.verification import verify_table
from sluice.participant.launch.applications import table_service, write_range
from sluice.sinks.hudi.schema_cache import hold_metadata_schema

_STOP = SparkSession.stop
_TASK = "Executor task launch worker"  # Spark's name for a thread that runs tasks


def write(arguments: Sequence[str], environment: dict[str, str], log: str) -> int:
    return _job(write_range, arguments, environment, log)


def service(arguments: Sequence[str], environment: dict[str, str], log: str) -> int:
    return _job(table_service, arguments, environment, log)


def verify(arguments: Sequence[str], environment: dict[str, str], log: str) -> int:
    return _job(verify_table, arguments, environment, log)


def _job(entry: ModuleType, arguments: Sequence[str], environment: dict[str, str], log: str) -> int:
    os.environ.update(environment)
    SparkSession.stop = _keep  # type: ignore[method-assign]
    status = 1
    with open(log, "a", buffering=1) as file, contextlib.redirect_stdout(file):  # noqa: PTH123
        sys.argv = [str(entry.__file__), *arguments]
        try:
            status = entry.main()
        except Exception:
            traceback.print_exc(file=file)
    if status != 0:
        _end()
    return status


def _keep(spark: SparkSession) -> None:
    """What a job's `stop` does here: forget what it has cached."""
    spark.catalog.clearCache()


def _end() -> None:
    """Tasks of a job that failed may still run: they end with its session, as they do in a process of its own.

    Stopping the session only asks them to: one that is about to make a file would make it afterwards.
    """
    session = SparkSession._instantiatedSession
    if session is not None:
        with contextlib.suppress(Py4JError, OSError):  # its JVM is gone
            running = session._jvm.java.lang.Thread.getAllStackTraces().keySet()
            tasks = [thread for thread in running if thread.getName().startswith(_TASK)]
            _STOP(session)
            for task in tasks:
                task.join()


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


def schema(path: str) -> str:
    """The type of the table's rows as a reader sees it, as Spark's JSON."""
    found: str = SparkSession.builder.getOrCreate().read.format("hudi").load(path).schema.json()
    return found


def read_all(path: str, metadata: bool) -> list[dict[str, Any]]:
    """All rows with the table's own columns, nested ones as dictionaries."""
    spark = SparkSession.builder.getOrCreate()
    options = {"hoodie.metadata.enable": str(metadata).lower(), "hoodie.file.index.enable": "true"}
    frame = spark.read.format("hudi").options(**options).load(path)
    own = [f"`{name}`" for name in frame.columns if not name.startswith("_hoodie_")]
    return [row.asDict(recursive=True) for row in frame.select(*own).collect()]


def where(path: str, condition: str) -> list[int]:
    """Ids of the rows that a reader finds by a condition, for which it may leave out table partitions."""
    spark = SparkSession.builder.getOrCreate()
    frame = spark.read.format("hudi").option("hoodie.file.index.enable", "true").load(path)
    return sorted(row["id"] for row in frame.where(condition).select("id").collect())


def decode(start: str, kafka: dict[str, Any]) -> tuple[list[dict[str, Any]], dict[int, str]]:
    """What a write job would make of an interval's records: its rows, and what is wrong with the others by offset."""
    from sluice.connectors.data import reader_of
    from sluice.kafka.config import KafkaSettings
    from sluice.protocol import messages
    from sluice.records.settings import Errors
    from sluice.rows.reading import read_range
    from sluice.rows.records import PROBLEM, RecordChain

    message = messages.decode(start.encode())
    assert isinstance(message, messages.StartCommit)
    plan = message.records.model_copy(update={"errors": Errors(tolerance="all")})
    spark = SparkSession.builder.getOrCreate()
    ranges = [one for group in message.ranges for one in group]
    chain = RecordChain(spark, plan, message.writer)
    reader = reader_of(message.source)(spark, KafkaSettings(**kafka))
    records = read_range(lambda _cluster: reader, ranges, message.isolation_level, headers=True)
    rows, bad = chain.rows(records).collect(), chain.bad(records).collect()
    return [row.asDict(recursive=True) for row in rows], {row["_kafka_offset"]: row[PROBLEM] for row in bad}


def append(path: str, ddl: str, rows: list[tuple[Any, ...]], options: dict[str, str]) -> None:
    """A commit by Hudi's own Spark data source, as another writer of the table would make it."""
    frame = _to_commit().createDataFrame(rows, ddl)
    frame.write.format("hudi").options(**options).mode("append").save(path)


def _to_commit() -> SparkSession:
    """The session for a commit by Hudi itself. Hudi fails in a driver that has read no table before."""
    spark = SparkSession.builder.getOrCreate()
    hold_metadata_schema(spark._jvm)
    return spark


def restore(path: str, instant: str) -> None:
    """Hudi's savepoint at an instant, and its restore to it, by its own procedures."""
    spark = _to_commit()
    extension = spark._jvm.org.apache.spark.sql.hudi.HoodieSparkSessionExtension()
    with_hudi = spark._jvm.org.apache.spark.sql.SparkSession.builder().withExtensions(extension)
    sessions = spark._jvm.org.apache.spark.sql.SparkSession
    sessions.clearActiveSession()
    sessions.clearDefaultSession()
    try:
        session = with_hudi.getOrCreate()
        for procedure in ("create_savepoint", "rollback_to_savepoint"):
            name = "commit_time" if procedure == "create_savepoint" else "instant_time"
            session.sql(f"CALL {procedure}(path => '{path}', {name} => '{instant}')").collectAsList()
    finally:
        sessions.setDefaultSession(spark._jsparkSession)
        sessions.setActiveSession(spark._jsparkSession)


def cluster(path: str, planned: str | None) -> str:
    """Another writer's clustering: plan it, or carry a plan out; its instant."""
    spark = _to_commit()
    options = spark._jvm.java.util.HashMap()
    for name, value in {"hoodie.clustering.inline.max.commits": "1", "hoodie.embed.timeline.server": "false"}.items():
        options.put(name, value)
    given = spark._jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(options)
    nothing = spark._jvm.scala.Option.empty()
    client = spark._jvm.org.apache.hudi.HoodieCLIUtils.createHoodieWriteClient(
        spark._jsparkSession, path, given, nothing
    )
    try:
        if planned is None:
            return str(client.scheduleClustering(spark._jvm.org.apache.hudi.common.util.Option.empty()).get())
        client.cluster(planned)
        return planned
    finally:
        client.close()


def serve(address: str) -> None:
    tasks = {"write": write, "service": service, "read": read, "columns": columns, "append": append}
    tasks |= {"verify": verify, "read_all": read_all, "schema": schema, "decode": decode}
    tasks |= {"restore": restore, "cluster": cluster, "where": where}
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
