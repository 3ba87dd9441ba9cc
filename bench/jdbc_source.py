"""What does reading a database's table cost, beside `spark.read.jdbc` of the same rows? And a look that finds nothing?

    python -m bench.jdbc_source                              # 1,000,000 rows, five rounds
    python -m bench.jdbc_source --rows 20000 --rounds 2      # does it work at all?
    python -m bench.jdbc_source --rows 0                     # the looks alone

A table of PostgreSQL's is read whole into Spark's sink that keeps nothing, by one connection and 10,000 rows at a time
on both sides, which take turns in each round. `sluice` is a write job's reader and record chain. `plain` is Spark's own
source with the driver's own types. Ratios are medians of the rounds' ratios. A look is START's at 100 tables without a
new row, of PostgreSQL's and, where it is installed, of MariaDB's.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from tests.cluster.servers import (
    LOOPBACK,
    MariaDb,
    PostgreSql,
    mariadb_programs,
    missing,
    missing_mariadb,
    postgresql_programs,
)
from tests.spark import session

from sluice.connectors.connections import ConnectionSettings, given
from sluice.protocol.messages import PlannedRange, TableSpec
from sluice.protocol.offsets import Checkpoint, ClusterCheckpoint, TopicCheckpoint
from sluice.records.plan import Format, RecordPlan
from sluice.rows.records import RecordChain, parse_ddl
from sluice.sources.jdbc.options import JdbcTables
from sluice.sources.jdbc.reader import JdbcReader
from sluice.sources.jdbc.rows import row_schema
from sluice.sources.jdbc.source import source_of

FETCHED = 10_000
ROWS = """CREATE TABLE events AS SELECT i AS id, 'N' || i % 5000 AS tailnum, (i % 7000)::int AS flight,
(i * 31 % 300)::float8 AS dep_delay, (i % 1000)::numeric(10,2) AS fare, i % 2 = 0 AS cancelled,
repeat('x', (i % 20)::int) AS note, TIMESTAMPTZ '2026-01-01' + i * interval '1 millisecond' AS changed
FROM generate_series(1::bigint, {}) i"""


def _timed(work: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def _write(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _sluice(spark: SparkSession, options: JdbcTables) -> Callable[[], None]:
    """A write job's read of all rows, decoded to the table's columns."""
    (bounds,) = source_of(options, None).state(options.topics, None).partitions
    told = row_schema(options, options.topics)
    kind = parse_ddl(spark, told.ddl).jsonValue()
    plan = RecordPlan(value=Format(converter=options.value.converter, options=dict(told.reading), struct=kind))
    nothing: dict[str, Any] = {"record_key": (), "partition_fields": (), "ordering_fields": (), "options": {}}
    writer = TableSpec(
        path="/", name="t", table_type="", operation="append", schema_ddl=told.ddl, schema_avro="", **nothing
    )
    planned = PlannedRange(**bounds.topic_partition._asdict(), start=0, end=bounds.window_end)
    reader = JdbcReader(spark, None).pinned(told.reading)

    def read() -> None:
        _write(RecordChain(spark, plan, writer, [planned]).rows(reader.read([planned], "read_committed")))

    return read


def load(server: PostgreSql, rows: int) -> None:
    """Make the table of so many rows."""
    server.run(ROWS.format(rows))
    server.run("ALTER TABLE events ALTER changed SET NOT NULL")
    server.run("ALTER TABLE events ALTER changed SET DEFAULT now()")
    server.run("CREATE INDEX ON events (changed)")
    server.run("ANALYZE events")


def _rounds(server: PostgreSql, rows: int, rounds: int) -> None:
    load(server, rows)
    timed: dict[str, Any] = {"mode": "timestamp", "timestamp_column": "changed", "max_records": 10 * rows}
    with session() as spark:
        read = _sluice(spark, JdbcTables(connection="bench", tables="events", **timed))
        login = {"user": "airflow", "password": server.password, "fetchsize": str(FETCHED)}
        url = f"jdbc:postgresql://{LOOPBACK}:{server.port}/postgres"
        properties = {**login, "driver": "org.postgresql.Driver"}
        sides = {"plain": lambda: _write(spark.read.jdbc(url, "events", properties=properties)), "sluice": read}
        for side in sides.values():  # warm
            side()
        found: dict[str, list[float]] = {name: [] for name in sides}
        for number in range(rounds):
            for name in list(sides)[:: 1 if number % 2 else -1]:
                found[name].append(_timed(sides[name]))
    for name, seconds in found.items():
        print(f"{name:8} {statistics.median(seconds):6.2f} s  ({min(seconds):.2f}-{max(seconds):.2f})")
    ratios = [one / other for one, other in zip(found["sluice"], found["plain"], strict=True)]
    print(f"sluice/plain {statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})")


def _looks_at_postgresql(server: PostgreSql, rounds: int) -> None:
    columns = "id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, changed TIMESTAMPTZ NOT NULL DEFAULT now()"
    for number in range(100):
        server.run(f"CREATE TABLE t{number} ({columns}, v TEXT)")
    _looks(r"public\.t\d+", rounds)


def _looks_at_mariadb(rounds: int) -> None:
    programs = mariadb_programs()
    if missing_mariadb() is not None or programs is None:
        print(f"not of MariaDB: {missing_mariadb()}")
        return
    server = MariaDb(programs)
    try:
        server.start()
        columns = "id BIGINT AUTO_INCREMENT PRIMARY KEY, changed TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)"
        with closing(server.connect()) as connection, connection.cursor() as cursor:
            for number in range(100):
                cursor.execute(f"CREATE TABLE t{number} ({columns}, v TEXT)")
        where: dict[str, Any] = {"host": LOOPBACK, "port": server.port, "schema": "lake"}
        with given([ConnectionSettings("bench", "mysql", **where, login="sluice", password=server.password)]):
            print("MariaDB:")
            _looks(r"lake\.t\d+", rounds)
    finally:
        server.stop()


def _looks(tables: str, rounds: int) -> None:
    by: dict[str, dict[str, Any]] = {
        "times": {"mode": "timestamp", "timestamp_column": "changed"},
        "numbers": {"mode": "incrementing"},
    }
    for name, section in by.items():
        options = JdbcTables(connection="bench", table_include=tables, **section)
        source, seconds = source_of(options, None), []
        for _ in range(rounds):
            begun = time.perf_counter()
            topics = source.topics_like(str(options.topics_pattern))
            known = {topic: TopicCheckpoint(partitions={0: 0}) for topic in topics}
            source.state(topics, None, checkpoint=Checkpoint(clusters={"bench": ClusterCheckpoint(topics=known)}))
            seconds.append(time.perf_counter() - begun)
        print(f"an empty look at 100 tables by {name}: {statistics.median(seconds):.2f} s (to {max(seconds):.2f})")


def main() -> None:
    """Measure, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    lacks, programs = missing(), postgresql_programs()
    if lacks is not None or programs is None:
        raise SystemExit(str(lacks))
    server = PostgreSql(programs)
    try:
        server.start()
        where: dict[str, Any] = {"host": LOOPBACK, "port": server.port, "schema": "postgres"}
        known = ConnectionSettings("bench", "postgres", **where, login="airflow", password=server.password)
        with given([known]):
            _looks_at_postgresql(server, arguments.rounds)
            if arguments.rows:
                _rounds(server, arguments.rows, arguments.rounds)
    finally:
        server.stop()
    _looks_at_mariadb(arguments.rounds)


if __name__ == "__main__":
    main()
