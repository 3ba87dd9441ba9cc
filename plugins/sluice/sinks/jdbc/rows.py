"""Reads the rows of a database's table in Spark, for comparisons with the source's records."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructField

from sluice.connectors.connections import connection
from sluice.connectors.data import PLACE
from sluice.databases.connection import address_of
from sluice.databases.stored import Stored
from sluice.errors import ActionRequiredError
from sluice.protocol.messages import TableSpec
from sluice.records.times import reading
from sluice.rows.records import parse_ddl
from sluice.sinks.jdbc.columns import PLACE_TYPES, matched, row_columns
from sluice.sinks.jdbc.database import connected
from sluice.sinks.jdbc.options.names import schema_and_name
from sluice.sinks.jdbc.options.pinned import PinnedJdbc
from sluice.sinks.jdbc.statements import Target

_FETCHED = "10000"  # rows at a time: by default PostgreSQL's driver fetches the whole table at once


def table_rows(
    spark: SparkSession,
    writer: TableSpec,
    instants: Collection[str] | None = None,  # noqa: ARG001 - rows in a database have no instants
) -> DataFrame:
    """All rows, read by one query; see `sluice.connectors.data.ReadsRows`.

    Each column is read as text, so that neither time zones nor the driver's types affect its value. With pk_mode kafka
    each row has its record's topic, partition and offset.

    Raises:
        ActionRequiredError: the table lacks a column of the rows.
        RetryableError: the database doesn't answer.
    """
    pinned = PinnedJdbc.of(writer)
    address = address_of(connection(pinned.connection))
    fields = {field.name: field for field in parse_ddl(spark, writer.schema_ddl)}
    rows = row_columns(writer, [field.jsonValue() for field in fields.values()])
    jvm: Any = spark._jvm
    with connected(jvm, address) as database:
        schema, name = schema_and_name(pinned.table)
        schema = database.schema_of(schema)
        dialect, zone = database.dialect, pinned.db_timezone
        found = matched(dialect, rows, database.columns(schema, name), zone)
    if found.missing:
        raise ActionRequiredError(
            f"The table lacks columns that its rows have: {', '.join(row.name for row in found.missing)}.",
            next_step="compare the table with its source by other means.",
            table=writer.path,
        )
    places = dict(zip(pinned.place_fields, PLACE, strict=False))
    read: list[tuple[str, Stored, DataType | str]] = []
    for row in rows:
        kind = dict(zip(PLACE, PLACE_TYPES, strict=True))[places[row.name]] if row.name in places else row.kind
        how = dialect.stored(kind, found.found[row.name], zone)
        if how is not None:
            to = places.get(row.name, row.name)
            read.append((to, how, _type(fields.get(row.name), kind)))
    selected = ", ".join(f"{how.text} AS c{i}" for i, (_, how, _) in enumerate(read))
    options = {
        **address.properties,
        "url": address.url,
        "driver": dialect.driver,
        "query": f"SELECT {selected or '1 AS c0'} FROM {Target(dialect, schema, name).sql}",
        "customSchema": ", ".join(f"c{i} STRING" for i in range(len(read))) or "c0 STRING",
        "fetchsize": _FETCHED,
    }
    if dialect.reading_session:
        options["sessionInitStatement"] = dialect.reading_session
    texts = spark.read.format("jdbc").options(**options).load()
    return texts.select(*(_value(f"c{i}", how, kind).alias(to) for i, (to, how, kind) in enumerate(read)))


def _type(field: StructField | None, kind: Any) -> DataType | str:
    return field.dataType if field is not None else {"integer": "int", "long": "bigint"}.get(kind, kind)


def _value(column: str, how: Stored, kind: DataType | str) -> Column:
    if how.is_json:
        return F.from_json(F.col(column), kind, reading({}))  # type: ignore[arg-type] # a nested type is never a name
    return F.expr(how.value.format(column)).cast(kind)
