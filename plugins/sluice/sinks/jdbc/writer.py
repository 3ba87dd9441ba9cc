"""Writes an interval's rows to staging tables of this attempt alone, with Spark's JDBC writer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from sluice.connectors.connections import connection
from sluice.connectors.data import SinkWriter, Written
from sluice.databases.connection import address_of
from sluice.databases.dialect import DatabaseColumn, Dialect
from sluice.databases.fits import Fit
from sluice.databases.thrown import is_of_reading, sql_exception
from sluice.errors import ActionRequiredError
from sluice.failpoints import reach
from sluice.identifiers import quoted
from sluice.jvm.sql import columns, literal
from sluice.protocol.committable import Committable
from sluice.protocol.messages import StartCommit
from sluice.records.changes import unavailable_sql
from sluice.rows.changes import CHANGE, DELETES
from sluice.rows.observed import observed
from sluice.rows.records import fails_with, parse_ddl
from sluice.sinks.jdbc.columns import RowColumn, matched, row_columns, sent
from sluice.sinks.jdbc.database import Database, connected
from sluice.sinks.jdbc.failures import classified
from sluice.sinks.jdbc.options.names import DELETED, LOG, OFFSET, schema_and_name, staging_table
from sluice.sinks.jdbc.options.pinned import PinnedJdbc
from sluice.sinks.jdbc.shape import target_of
from sluice.sinks.jdbc.statements import Target

_STAGED = "sluice_staged"
_STAGED_BY_ONE = 1_000_000  # more staging tables than an attempt ever makes for one table
_STATEMENT, _COLUMN = 1024, 32  # upper bounds for a packet's bytes besides a row's values, and besides each value
_WRITER = "org.apache.spark.sql.execution.datasources.jdbc"


@dataclass(frozen=True)
class _Staging:
    """A staging table, the Spark SQL of the values sent to it, by the database's columns, and that one's dialect."""

    name: str
    table: str
    values: Mapping[str, str]
    dialect: Dialect


class JdbcWriter(SinkWriter):
    """The writer of one attempt. Neither the table's readers nor other attempts see its rows."""

    any_order = True  # the commit merges staged rows by their offsets

    def __init__(self, spark: SparkSession, start: StartCommit, attempt: str) -> None:
        self._spark = spark
        self._jvm: Any = spark._jvm
        self._start, self._writer, self._attempt = start, start.writer, attempt
        self._pinned = PinnedJdbc.of(start.writer)
        self._address = address_of(connection(self._pinned.connection))
        self._written = 0

    def write(self, rows: DataFrame, emptied_at: str | None = None, *, truncates: bool = False) -> Written:  # noqa: ARG002
        """Write rows to a staging table; see `sluice.connectors.data.SinkWriter`.

        Raises:
            ActionRequiredError: the table has changed since the interval was planned, or the database refuses rows.
            RetryableError: the database doesn't answer.
        """
        self._written += 1
        with connected(self._jvm, self._address) as database:
            staging = self._create(database, self._written)
        changes = CHANGE in rows.columns
        deleted = f"CASE WHEN {CHANGE} IN ({', '.join(map(literal, DELETES))}) THEN 1 ELSE 0 END" if changes else "0"
        frame = rows.selectExpr(
            *(f"{value} AS {quoted(name)}" for name, value in staging.values.items()),
            f"concat(_kafka_topic, '[', _kafka_partition, ']') AS {LOG}",
            f"_kafka_offset AS {OFFSET}",
            f"{deleted} AS {DELETED}",
        )
        frame = frame.observe(_STAGED, *columns([f"count_if({DELETED} = 0) AS rows", f"sum({DELETED}) AS deletes"]))
        reach("jdbc.before_staging")
        self._save(frame, staging)
        counts = observed(frame._jdf, _STAGED)
        staged = Committable(
            rows=int(counts["rows"]),
            deletes=int(counts["deletes"] or 0),
            path=staging.name,
            table=self._writer.name if self._pinned.first_table is not None else "",
        )
        return Written((staged,), frame._jdf)

    def _create(self, database: Database, number: int) -> _Staging:
        """Create the staging table of a part of this attempt."""
        writer, dialect = self._writer, database.dialect
        zone = self._pinned.db_timezone
        schema, name = schema_and_name(self._pinned.table)
        schema = database.schema_of(schema)
        rows = row_columns(writer, parse_ddl(self._spark, writer.schema_ddl).jsonValue()["fields"])
        found = matched(dialect, rows, database.columns(schema, name), zone)
        if found.missing or found.problems:
            words = [*found.problems, *(f"there is no `{row.name}`" for row in found.missing)]
            raise ActionRequiredError(
                f"The database's table has changed since the interval was planned: {'; '.join(words)}.",
                next_step="correct the table, and run the interval again.",
                table=writer.path,
                instant=self._start.transaction,
            )
        target = target_of(Target(dialect, schema, name), writer, found)
        # The names of all staging tables of an interval derive from its first table, by which the commit finds them.
        _, first = schema_and_name(self._pinned.first_table or self._pinned.table)
        number += (self._pinned.number or 0) * _STAGED_BY_ONE
        staged = staging_table(dialect.canonical(schema, first), self._start.transaction, self._attempt, number)
        database.create_staging(target, staged)
        values = self._values(rows, found.found, dialect, database.row_limit())
        return _Staging(staged, target.own(staged), values, dialect)

    def _values(
        self,
        rows: Sequence[RowColumn],
        table: Mapping[str, DatabaseColumn],
        dialect: Dialect,
        row_limit: int | None,
    ) -> dict[str, str]:
        """The values to send, by column; the first one fails the job if any value of a row doesn't fit."""
        zone = self._pinned.db_timezone
        fits = {row.name: sent(dialect, row, table[row.name], zone) for row in rows}
        problems = [fit.problem for fit in fits.values() if fit.problem is not None]
        problems += [words for row in rows for words in self._refused(row, table[row.name])]
        values = {table[name].name: fit.value for name, fit in fits.items()}
        if row_limit is not None:
            problems += self._too_long(rows, fits, row_limit)
        if problems:
            first = next(iter(values))
            problem = f"coalesce({', '.join(problems)})" if len(problems) > 1 else problems[0]
            values[first] = f"CASE WHEN {problem} IS NOT NULL THEN {fails_with(problem)} ELSE {values[first]} END"
        return values

    @staticmethod
    def _too_long(rows: Sequence[RowColumn], fits: Mapping[str, Fit], limit: int) -> list[str]:
        """The check that a row's texts and bytes fit into one statement, as Spark SQL; empty if none is needed."""
        long = [
            fits[row.name].value for row in rows if isinstance(row.kind, Mapping) or row.kind in ("string", "binary")
        ]
        if not long:
            return []
        octets = " + ".join(f"coalesce(octet_length({value}), 0)" for value in long)
        room = limit - _STATEMENT - _COLUMN * len(rows)
        words = f"its row is longer than the {limit} bytes of the database's max_allowed_packet"
        return [f"CASE WHEN {octets} > {room} THEN {literal(words)} END"]

    def _refused(self, row: RowColumn, column: DatabaseColumn) -> list[str]:
        """Further reasons why a row is refused, as Spark SQL of messages: nulls, and values that were not logged."""
        found = []
        keeps = f"{CHANGE} NOT IN ({', '.join(map(literal, DELETES))}) AND " if self._start.records.changes else ""
        if not column.nullable:
            words = f"the column {column.name} must not be null in the database"
            found.append(f"CASE WHEN {keeps}{row.value} IS NULL THEN {literal(words)} END")
        placeholder = self._pinned.unavailable_value
        there = unavailable_sql(row.value, row.kind, placeholder) if placeholder else None
        if there is not None:
            words = (
                f"the database did not log the value of {row.name}, and this sink can't keep the old one; with REPLICA "
                "IDENTITY FULL PostgreSQL logs it"
            )
            found.append(f"CASE WHEN {keeps}{there} THEN {literal(words)} END")
        return found

    def _save(self, frame: DataFrame, staging: _Staging) -> None:
        """Execute the frame once, with Spark's JDBC batch writer, so that its counts are those of `frame`."""
        dialect = staging.dialect
        options = {
            **self._address.properties,
            **dialect.batch_properties,
            "url": self._address.url,
            "dbtable": staging.table,
            "driver": dialect.driver,
            "batchsize": str(self._pinned.batch_size),
            "isolationLevel": dialect.isolation,
        }
        if dialect.one_writer:
            options["numPartitions"] = "1"
        jvm = self._jvm
        writer = getattr(jvm, f"{_WRITER}.JdbcOptionsInWrite")
        given = jvm.java.util.HashMap()
        for name, value in options.items():
            given.put(name, value)
        to_scala = jvm.org.apache.spark.api.python.PythonUtils.toScalaMap
        run = frame._jdf.queryExecution().toRdd()
        rows = self._spark._jsparkSession.internalCreateDataFrame(run, frame._jdf.schema(), False)
        try:
            # Not through DataFrameWriter, which first reads the table's types, and doesn't know all of them.
            utils = getattr(jvm, f"{_WRITER}.JdbcUtils")
            utils.saveTable(rows, jvm.scala.Option.empty(), True, writer(to_scala(given)))
        except Py4JJavaError as error:
            raise self._failed(error) from None  # the driver's message may quote rows and addresses

    def _failed(self, error: Py4JJavaError) -> Exception:
        found = sql_exception(self._jvm, error.java_exception)
        if found is None or is_of_reading(str(error)):
            unchanged: Exception = error
            return unchanged
        where = {"table": self._writer.path, "instant": self._start.transaction}
        return classified(found, "writing to a staging table", self._address, **where)
