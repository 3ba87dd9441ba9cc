"""The JDBC sink keeps what `sluice.testing` asks of every sink, on each database, killed at each statement."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from sluice.connectors.data import write_gathered, writer_of
from sluice.databases.connection import address_of
from sluice.identifiers import sql_quoted
from sluice.pipeline import Jdbc, Kafka, Pipeline, Sink, Source
from sluice.protocol.committable import Committable
from sluice.protocol.messages import StartCommit
from sluice.sinks.jdbc.database import Database, connected
from sluice.sinks.jdbc.options.names import DELETED, LOG, OFFSET, staging_table
from sluice.sinks.jdbc.sink import JdbcSink
from sluice.sinks.jdbc.statements import Target
from sluice.testing import SinkConformance, UpsertConformance, Version

from .harness.databases import CONNECTION, Readable

CALLS = ((Database, "run"), (Database, "end_transaction"))


def name_of(folder: Path) -> str:
    return f"t_{hashlib.sha256(str(folder).encode()).hexdigest()[:16]}"


def pipeline_of(folder: Path, **section: Any) -> Pipeline:
    jdbc = Jdbc(connection=CONNECTION, table=name_of(folder), auto_create=True, **section)
    return Pipeline(name="t", source=Source(kafka=Kafka(topics=("t",))), sink=Sink(jdbc=jdbc))


@pytest.fixture(autouse=True)
def _known(database: Readable, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, value in database.environment().items():
        monkeypatch.setenv(variable, value)


class TestAppend(SinkConformance):
    """Staging tables are filled as a Spark job would fill them, without Spark."""

    calls = CALLS

    @pytest.fixture(autouse=True)
    def _places(self, database: Readable, shared_jvm) -> None:
        self._database, self._jvm = database, shared_jvm

    def pipeline(self, folder: Path) -> Pipeline:
        return pipeline_of(folder, schema_="id BIGINT")

    def sink(self, folder):
        return JdbcSink(self.pipeline(folder), self._jvm)

    def capabilities(self):
        return self.pipeline(Path("/any")).sink.capabilities

    def write(self, folder: Path, table, instant: str, attempt: str, rows: Sequence[int]) -> list[Committable]:
        with self._jvm() as jvm, connected(jvm.jvm, address_of(self._database.connection)) as database:
            dialect, schema = database.dialect, database.schema_of("")
            target = Target(dialect, schema, name_of(folder), ("id",))
            name = staging_table(dialect.canonical(schema, target.name), instant, attempt, 1)
            database.create_staging(target, name)
            columns = ", ".join(map(sql_quoted, ("id", LOG, OFFSET, DELETED)))
            for row in rows:
                database.run(f"INSERT INTO {target.own(name)} ({columns}) VALUES ({row}, 't[0]', {row}, 0)")
        return [Committable(rows=len(rows), path=name)]

    def rows(self, folder):
        table = name_of(folder)
        return [row for (row,) in self._database.query(f"SELECT id FROM {table}")] if self._has(table) else []

    def _has(self, table):
        return table in self._database.tables()


# PySpark leaves it to the garbage collector to close the socket that rows came by.
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
class TestUpsert(UpsertConformance):
    """Versions are written by the sink's own writer in Spark, and read by the database's own driver for Python."""

    # They are killed as an append's are; a Spark job for each of them would take minutes.
    calls = ()
    test_a_process_may_die_at_each_call_of_an_interval = None
    test_a_process_may_die_at_each_call_of_a_roll_back = None

    @pytest.fixture(autouse=True)
    def _places(self, database: Readable, shared_jvm, spark) -> Iterator[None]:
        self._database, self._jvm, self._spark = database, shared_jvm, spark
        with mock.patch.dict("os.environ", database.environment()):
            yield

    def pipeline(self, folder: Path) -> Pipeline:
        key = {"insert_mode": "upsert", "pk_mode": "record_value", "pk_fields": "id", "ordering_field": "ts"}
        return pipeline_of(folder, schema_="id BIGINT, ts BIGINT, v STRING", **key)

    def sink(self, folder):
        return JdbcSink(self.pipeline(folder), self._jvm)

    def capabilities(self):
        return self.pipeline(Path("/any")).sink.capabilities

    def write_versions(self, folder, table, instant, attempt, versions):
        rows = [(*v, "t", 0, offset) for offset, v in enumerate(versions)]
        return self._written(table, instant, attempt, lambda writer: writer.write(self._frame(rows)))

    def write_ranges(self, folder, table, instant, attempt, ranges):
        places = [(v, number, offset) for number, some in enumerate(ranges) for offset, v in enumerate(some)]
        frame = self._frame([(*v, "t", number, offset) for v, number, offset in places]).coalesce(1)
        return self._written(table, instant, attempt, lambda writer: write_gathered(writer, frame))

    def _frame(self, rows):
        columns = "id BIGINT, ts BIGINT, v STRING, _kafka_topic STRING, _kafka_partition INT, _kafka_offset BIGINT"
        return self._spark.createDataFrame(rows, columns)

    def _written(self, table, instant, attempt, write):
        start = StartCommit(
            table=table.writer.path, transaction=instant, epoch=1, dag_id="t", run_id="r", sender="coordinator",
            time=datetime.now(UTC), read_position=0, ranges=(), writer=table.writer,
        )  # fmt: skip
        return list(write(writer_of("jdbc")(self._spark, start, attempt)).committables)

    def versions(self, folder):
        if name_of(folder) not in self._database.tables():
            return []
        return [Version(*row) for row in self._database.query(f"SELECT id, ts, v FROM {name_of(folder)}")]
