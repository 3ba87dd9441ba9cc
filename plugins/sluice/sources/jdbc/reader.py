"""Windows of tables as a write job reads them, by Spark's own JDBC source: what START-COMMIT has pinned."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import groupby
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F

from sluice.connectors.connections import connection
from sluice.connectors.data import UNREADABLE
from sluice.databases.address import JdbcAddress
from sluice.databases.connection import address_of, engine_of
from sluice.databases.engine import ELSEWHERE, Engine, risen
from sluice.databases.jdbc.client import no_driver
from sluice.databases.thrown import kind_of, refusal_of, sql_exception
from sluice.errors import ActionRequiredError, IntervalError, RetryableError, SluiceError
from sluice.identifiers import quoted
from sluice.jvm.jdbc import driver_of
from sluice.protocol.messages import PlannedRange, StartCommit
from sluice.rows.json_text import as_json
from sluice.sources.jdbc.tables import CONTINUED, SERVER, TABLES

_AT, _OFFSET, _SPLIT = "sluice_at", "sluice_offset", "sluice_split"
_GONE = (
    *("does not exist", "Unknown column", "no such column", "no such table", "doesn't exist"),
    *('" not found; SQL statement', "is either not in any table"),  # H2, Derby
)
_THROWN = re.compile(r"SQL\w*Exception")  # JDBC has a class for each kind of error, and drivers have further ones
_MISTAKE = (
    "The database can't answer the query that reads the rows, and won't in a retry.",
    "nothing of this interval was committed. Correct what the database names: a `query` of the pipeline's, or a value "
    "that an expression of it can't take.",
)
_RIGHTS = (
    "The database refuses to have the rows read.",
    "correct login or password of the Airflow connection, or grant it what docs/jdbc-source.md names under `Rights`.",
)
_REFUSALS = {"login": _RIGHTS, "refused": _RIGHTS, "data": _MISTAKE, "other": _MISTAKE}
_HEADERS = "CAST(NULL AS ARRAY<STRUCT<key: STRING, value: BINARY>>) AS headers"


def _elsewhere(connection: str) -> RetryableError:
    return RetryableError(
        "The rows would have been read of another server than the one that START has looked at, or of one that lacks "
        "what that had.",
        next_step="nothing was read. The task is retried; if it comes back, have the connection lead to the one server "
        "that writes, or the one file, or run the next interval, which looks at the server of then.",
        connection=connection,
    )


class JdbcReader:
    """Reads one database in one Spark session; see `sluice.connectors.data.SourceReader`."""

    def __init__(self, spark: SparkSession, settings: Any, reading: Mapping[str, str] | None = None) -> None:
        self._spark, self._settings = spark, settings
        self._reading = reading or {}

    def pinned(self, reading: Mapping[str, str]) -> JdbcReader:
        """The reader of one interval; see `sluice.connectors.data.ReadsAsPinned`."""
        return JdbcReader(self._spark, self._settings, reading)

    def read(self, ranges: Sequence[PlannedRange], isolation_level: str, *, headers: bool = False) -> DataFrame:  # noqa: ARG002
        """Each range is one query, and one Spark partition; only committed rows are read, whatever the level.

        The columns are named: one that is gone since the interval was planned fails the read.
        """
        if TABLES not in self._reading:
            raise ActionRequiredError(
                "Rows of tables can't be read again without their interval: a query shows them as they are now.",
                next_step="compare the table with its source by a query in the database.",
            )
        self._require_one_server()
        address = address_of(connection(self._reading["connection"]))
        tables = json.loads(self._reading[TABLES])
        frames = [
            self._table(address, topic, tables[topic], list(group), headers=headers)
            for topic, group in groupby(ranges, key=lambda r: r.topic)
        ]
        return reduce(DataFrame.union, frames)

    def _require_one_server(self) -> None:
        """Check that START has planned by the bounds of the server that it compared with the last one's."""
        looked_at, continued = (json.loads(self._reading.get(name, "{}")) for name in (SERVER, CONTINUED))
        if continued and {**continued, "log": ""} != {**looked_at, "log": ""}:
            raise IntervalError(
                "Two servers have answered START, so it isn't known whether rows continue where the last ones ended.",
                next_step="nothing was read. Run the next interval; if it comes back, have the connection lead to one "
                "server.",
                connection=self._reading["connection"],
            )

    def _table(
        self, address: JdbcAddress, topic: str, table: Mapping[str, Any], ranges: list[PlannedRange], *, headers: bool
    ) -> DataFrame:
        engine = engine_of(address)
        columns = table["columns"]
        selected = [f"{sql} AS c{i}" for i, (_, sql, *_) in enumerate(columns)]
        types = [f"c{i} {fetched}" for i, (_, _, fetched, *_) in enumerate(columns)]
        if table["at"]:
            fetched, offset = table.get("position", ("BIGINT", "{}"))
            selected += [f"{table['offset']} AS {_OFFSET}", f"{table['split'] or 0} AS {_SPLIT}"]
            types += [f"{_OFFSET} {fetched}", f"{_SPLIT} INT"]
            if not engine.inside:
                selected += [f"{table['at']} AS {_AT}"]
                types += [f"{_AT} STRING"]
        else:  # of one snapshot all rows have its number
            (snapshot,), offset = ranges, "{}"
            selected += [f"{snapshot.start} AS {_OFFSET}", f"0 AS {_SPLIT}"]
            types += [f"{_OFFSET} BIGINT", f"{_SPLIT} INT"]
        options = {"customSchema": ", ".join(types)}
        server = json.loads(self._reading.get(SERVER, "{}"))
        if not engine.is_here(address.url, server):
            raise _elsewhere(address.connection)
        guard = engine.guard(server)
        if guard:  # PostgreSQL's dialect turns autocommit off before: the rows come in the same transaction
            options["sessionInitStatement"] = guard
        rows = self._rows(
            engine,
            self._spark.read.options(**options),
            address.url,
            f"SELECT {', '.join(selected)} FROM {engine.guarded(table['from'], server)}",
            [self._window(engine, table, r) for r in ranges],
            {
                **address.properties,
                **engine.properties,
                "driver": self._driver(address),
                "fetchsize": self._reading["fetch_size"],
            },
        )
        timed = self._reading["time"] == "True"
        offset = offset.format(quoted(_OFFSET))
        if int(self._reading["overlap"]):  # what is read again is in the window that reads it
            starts = min(r.start for r in ranges)
            offset = f"greatest({offset}, {starts}L)"
        value = [F.expr(v.format(f"c{i}")).alias(name) for i, (name, _, _, v, *_) in enumerate(columns)]
        return rows.select(
            F.lit(topic).alias("topic"),
            F.expr(f"coalesce({_SPLIT}, -1)").alias("partition"),
            F.expr(f"coalesce(CAST({offset} AS BIGINT), -1L)").alias("offset"),
            F.expr(f"timestamp_micros({offset})" if timed else "CAST(NULL AS TIMESTAMP)").alias("timestamp"),
            F.lit(0 if timed else -1).alias("timestampType"),
            self._key(table).alias("key"),
            F.struct(*value).alias("value"),
            self._unreadable(table).alias(UNREADABLE),
            *([F.expr(_HEADERS)] if headers else []),
        )

    @staticmethod
    def _rows(
        engine: Engine,
        reader: DataFrameReader,
        url: str,
        query: str,
        windows: Sequence[str],
        properties: dict[str, str],
    ) -> DataFrame:
        """The rows of each window, a Spark partition each."""
        if engine.inside:
            inside = [f"({query} WHERE {window}) sluice_rows" for window in windows]
            return reduce(DataFrame.union, [reader.jdbc(url, one, properties=properties) for one in inside])
        return reader.jdbc(url, f"({query}) sluice_rows", predicates=list(windows), properties=properties)

    def _driver(self, address: JdbcAddress) -> str:
        """The class of the driver, which Spark's tasks load by its name."""
        if address.dialect.driver:
            return address.dialect.driver
        found = driver_of(self._spark._jvm, address.url)
        if found is None:
            raise no_driver(address)
        return str(found.getClass().getName())

    @staticmethod
    def _key(table: Mapping[str, Any]) -> Any:
        """The primary key as JSON; null of a table that has none."""
        names = [name for name, *_ in table["columns"]]
        values = {name: F.expr(v.format(f"c{names.index(name)}")) for name, _, _, v, *_ in table["columns"]}
        if not table["key"]:
            return F.lit(None).cast("binary")
        return as_json(F.struct(*(values[name].alias(name) for name in table["key"]))).cast("binary")

    @staticmethod
    def _unreadable(table: Mapping[str, Any]) -> Any:
        """What is wrong with the first value that can't be read, in words; an older START says nothing of it."""
        words = [
            F.expr(one.format(f"c{i}"))
            for i, (_, _, _, _, *problem) in enumerate(table["columns"])
            for one in problem
            if one
        ]
        return F.coalesce(*words, F.lit(None).cast("string"))

    def _window(self, engine: Engine, table: Mapping[str, Any], r: PlannedRange) -> str:
        if not table["at"]:
            return "1 = 1"
        start = max(0, r.start - int(self._reading["overlap"]))
        if table["bound"] == "local" and start < r.start:
            start = max(0, risen(start, self._reading["zone"]))
        from_, to = (engine.literal(value, table["bound"], self._reading["zone"]) for value in (start, r.end))
        at, split = (table["at"], table["split"]) if engine.inside else (_AT, _SPLIT)
        mine = f" AND {split} = {r.partition}" if table["split"] else ""
        return f"{at} >= {from_} AND {at} < {to}{mine}"

    def classified(self, error: Exception, start: StartCommit, ranges: Sequence[PlannedRange]) -> SluiceError | None:
        """What the database has said; its texts may quote addresses, which are left out."""
        text = str(error)
        if not self._reading:
            return None
        address = address_of(connection(self._reading["connection"]))
        if address.dialect.driver and f"ClassNotFoundException: {address.dialect.driver}" in text:
            return no_driver(address)
        if not _THROWN.search(text):
            return None
        reason = next(line.strip() for line in text.splitlines() if _THROWN.search(line))
        reason = address.hidden(reason)[:500]
        place = {"table": start.table, "instant": start.transaction, "offsets": ", ".join(map(str, ranges))}
        if ELSEWHERE in text:
            error = _elsewhere(address.connection)
            error.locate(**place)
            return error
        if any(word in text for word in _GONE):
            return RetryableError(
                "A table has changed since the interval was planned: a column that was to be read is gone.",
                next_step="nothing of this interval was committed. Run the next one, which plans with the table's "
                "columns of then.",
                **place,
                reason=reason,
            )
        thrown = self._thrown(error)
        kind = "passing" if thrown is None else kind_of(thrown, address.dialect)
        if kind != "passing":
            what, next_step = _REFUSALS[kind]
            if kind == "data" and thrown is not None:
                reason = refusal_of(thrown, address.dialect, address.hidden(str(thrown.getMessage())))[:500]
            return ActionRequiredError(what, next_step=next_step, **place, reason=reason)
        return RetryableError(
            "The database failed while rows were read.",
            next_step="the task is retried; if it comes back, look whether the database can be reached, and what it "
            "names.",
            **place,
            reason=reason,
        )

    def _thrown(self, error: Exception) -> Any | None:
        """The database's own exception; None where the JVM is gone, or has none."""
        cause = error.__cause__ if isinstance(error.__cause__, Py4JJavaError) else error
        origin = cause.java_exception if isinstance(cause, Py4JJavaError) else getattr(error, "_origin", None)
        try:
            return None if origin is None else sql_exception(self._spark._jvm, origin)
        except (Py4JError, OSError):
            return None
