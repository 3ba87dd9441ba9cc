"""Windows of tables as a write job reads them, by Spark's own JDBC source: what START-COMMIT has pinned."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import groupby
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sluice.connectors.connections import connection
from sluice.errors import ActionRequiredError, RetryableError, SluiceError
from sluice.protocol.messages import PlannedRange, StartCommit
from sluice.sinks.jdbc.address import JdbcAddress, address_of
from sluice.sources.jdbc.engine import Engine
from sluice.sources.jdbc.engines import engine_of
from sluice.sources.jdbc.tables import TABLES

_AT, _OFFSET, _SPLIT = "_sluice_at", "_sluice_offset", "_sluice_split"
_HEADERS = "CAST(NULL AS ARRAY<STRUCT<key: STRING, value: BINARY>>) AS headers"


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
        address = address_of(connection(self._reading["connection"]))
        tables = json.loads(self._reading[TABLES])
        frames = [
            self._table(address, topic, tables[topic], list(group), headers=headers)
            for topic, group in groupby(ranges, key=lambda r: r.topic)
        ]
        return reduce(DataFrame.union, frames)

    def _table(
        self, address: JdbcAddress, topic: str, table: Mapping[str, Any], ranges: list[PlannedRange], *, headers: bool
    ) -> DataFrame:
        engine = engine_of(address)
        columns = table["columns"]
        selected = [f"{sql} AS c{i}" for i, (_, sql, _, _) in enumerate(columns)]
        types = [f"c{i} {fetched}" for i, (_, _, fetched, _) in enumerate(columns)]
        if table["at"]:
            selected += [f"{table['offset']} AS {_OFFSET}", f"{table['at']} AS {_AT}"]
            selected += [f"{table['split'] or 0} AS {_SPLIT}"]
            types += [f"{_OFFSET} BIGINT", f"{_AT} STRING", f"{_SPLIT} INT"]
        else:  # of one snapshot all rows have its number
            (snapshot,) = ranges
            selected += [f"{snapshot.start} AS {_OFFSET}", f"0 AS {_SPLIT}"]
            types += [f"{_OFFSET} BIGINT", f"{_SPLIT} INT"]
        rows = self._spark.read.options(customSchema=", ".join(types)).jdbc(
            address.url,
            f"(SELECT {', '.join(selected)} FROM {table['from']}) sluice_rows",
            predicates=[self._window(engine, table, r) for r in ranges],
            properties={
                **address.properties,
                **engine.properties,
                "driver": address.dialect.driver,
                "fetchsize": self._reading["fetch_size"],
            },
        )
        timed = self._reading["time"] == "True"
        offset = f"`{_OFFSET}`"
        if int(self._reading["overlap"]):  # what is read again is in the window that reads it
            starts = min(r.start for r in ranges)
            offset = f"greatest({offset}, {starts}L)"
        value = [F.expr(v.format(f"c{i}")).alias(name) for i, (name, _, _, v) in enumerate(columns)]
        return rows.select(
            F.lit(topic).alias("topic"),
            F.expr(f"coalesce({_SPLIT}, -1)").alias("partition"),
            F.expr(f"coalesce(CAST({offset} AS BIGINT), -1L)").alias("offset"),
            F.expr(f"timestamp_micros({offset})" if timed else "CAST(NULL AS TIMESTAMP)").alias("timestamp"),
            F.lit(0 if timed else -1).alias("timestampType"),
            self._key(table).alias("key"),
            F.struct(*value).alias("value"),
            *([F.expr(_HEADERS)] if headers else []),
        )

    @staticmethod
    def _key(table: Mapping[str, Any]) -> Any:
        """The primary key as JSON; null of a table that has none."""
        names = [name for name, *_ in table["columns"]]
        values = {name: F.expr(v.format(f"c{names.index(name)}")) for name, _, _, v in table["columns"]}
        if not table["key"]:
            return F.lit(None).cast("binary")
        return F.to_json(F.struct(*(values[name].alias(name) for name in table["key"]))).cast("binary")

    def _window(self, engine: Engine, table: Mapping[str, Any], r: PlannedRange) -> str:
        if not table["at"]:
            return "1 = 1"
        start = max(0, r.start - int(self._reading["overlap"]))
        from_, to = (engine.literal(value, table["bound"], self._reading["zone"]) for value in (start, r.end))
        mine = f" AND {_SPLIT} = {r.partition}" if table["split"] else ""
        return f"{_AT} >= {from_} AND {_AT} < {to}{mine}"

    def classified(self, error: Exception, start: StartCommit, ranges: Sequence[PlannedRange]) -> SluiceError | None:
        """What the database has said; its texts may quote addresses, which are left out."""
        text = str(error)
        if not self._reading:
            return None
        if "SQLException" not in text and "PSQLException" not in text:
            return None
        reason = next((line.strip() for line in text.splitlines() if "SQLException" in line), "")
        reason = address_of(connection(self._reading["connection"])).hidden(reason)[:500]
        place = {"table": start.table, "instant": start.transaction, "reason": reason}
        offsets = ", ".join(map(str, ranges))
        if any(
            word in text
            for word in ("does not exist", "Unknown column", "no such column", "no such table", "doesn't exist")
        ):
            return RetryableError(
                "A table has changed since the interval was planned: a column that was to be read is gone.",
                next_step="nothing of this interval was committed. Run the next one, which plans with the table's "
                "columns of then.",
                offsets=offsets,
                **place,
            )
        return RetryableError(
            "The database failed while rows were read.",
            next_step="the task is retried; if it comes back, correct what the database names.",
            offsets=offsets,
            **place,
        )
