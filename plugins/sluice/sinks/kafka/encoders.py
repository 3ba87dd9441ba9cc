"""Columns as a record's key or value, by Spark's own functions: the converters' counterpart.

What a registry's schema describes has, as Confluent's serializers write it, a zero byte and the schema's id in front.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import to_avro
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DateType,
    DecimalType,
    MapType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from sluice.records.transforms import quoted
from sluice.sinks.kafka.schemas import connect_schema

_TIMES: Final = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS][XXX]",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS]",
    "ignoreNullFields": "false",
}
"""Spark writes milliseconds else, and leaves fields out that are null."""


def encoded(
    spark: SparkSession, encoder: str, names: Sequence[str], kind: StructType, pinned: Mapping[str, Any]
) -> Column:
    """The bytes of some columns.

    Args:
        spark: the session.
        encoder: its name in the section.
        names: the columns.
        kind: their types, under their names.
        pinned: what START-COMMIT says of the schema: `id` and `text`, of Protobuf also `message`; empty without one.
    """
    return _ENCODERS[encoder](spark, names, StructType([kind[name] for name in names]), pinned)


def _struct(names: Sequence[str]) -> Column:
    return F.struct(*(F.col(quoted(name)) for name in names))


def _json(_: SparkSession, names: Sequence[str], kind: StructType, __: Mapping[str, Any]) -> Column:  # noqa: ARG001
    return F.to_json(_struct(names), _TIMES).cast("binary")


def _json_with_schema(_: SparkSession, __: Sequence[str], kind: StructType, ___: Mapping[str, Any]) -> Column:
    payload = F.struct(*(_logical(F.col(quoted(f.name)), f.dataType).alias(f.name) for f in kind.fields))
    before = f'{{"schema":{json.dumps(connect_schema(kind.jsonValue()), separators=(",", ":"))},"payload":'
    return F.concat(F.lit(before), F.to_json(payload, _TIMES), F.lit("}")).cast("binary")


def _logical(value: Column, kind: DataType) -> Column:
    """A value as Connect's JSON converter writes it: Date in days, Timestamp in milliseconds, Decimal in bytes."""
    if isinstance(kind, DateType):
        return F.unix_date(value)
    if isinstance(kind, TimestampType):
        return F.unix_millis(value)
    if isinstance(kind, TimestampNTZType):
        return F.unix_millis(F.to_utc_timestamp(value.cast("timestamp"), F.current_timezone()))
    if isinstance(kind, DecimalType):
        logical = {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
        # Avro's bytes with their length in front, which is one byte: 38 digits have 16. Null stays null.
        avro = to_avro(value, json.dumps(["null", logical]))
        return F.when(value.isNotNull(), avro.substr(F.lit(3), F.lit(1 << 30)))
    if isinstance(kind, StructType):
        fields = [_logical(value.getField(f.name), f.dataType).alias(f.name) for f in kind.fields]
        return F.when(value.isNotNull(), F.struct(*fields))
    if isinstance(kind, ArrayType):
        element = kind.elementType
        return value if _is_plain(element) else F.transform(value, lambda one: _logical(one, element))
    if isinstance(kind, MapType):
        inner = kind.valueType
        return value if _is_plain(inner) else F.transform_values(value, lambda _, one: _logical(one, inner))
    return value


def _is_plain(kind: DataType) -> bool:
    return not isinstance(
        kind, DateType | TimestampType | TimestampNTZType | DecimalType | StructType | ArrayType | MapType
    )


def _avro(_: SparkSession, names: Sequence[str], __: StructType, pinned: Mapping[str, Any]) -> Column:
    return F.concat(_frame(pinned), to_avro(_struct(names), str(pinned["text"])))


def _json_schema(spark: SparkSession, names: Sequence[str], kind: StructType, pinned: Mapping[str, Any]) -> Column:
    return F.concat(_frame(pinned), _json(spark, names, kind, {}))


def _frame(pinned: Mapping[str, Any]) -> Column:
    return F.lit(bytearray(b"\0" + int(pinned["id"]).to_bytes(4, "big")))


def _string(_: SparkSession, names: Sequence[str], kind: StructType, __: Mapping[str, Any]) -> Column:
    value = F.col(quoted(names[0]))
    return value if isinstance(kind[0].dataType, BinaryType) else value.cast("string").cast("binary")


def _bytes(_: SparkSession, names: Sequence[str], __: StructType, ___: Mapping[str, Any]) -> Column:
    return F.col(quoted(names[0]))


_Encodes = Callable[[SparkSession, Sequence[str], StructType, Mapping[str, Any]], Column]
_ENCODERS: Final[Mapping[str, _Encodes]] = {
    "json": _json,
    "json_with_schema": _json_with_schema,
    "avro": _avro,
    "json_schema": _json_schema,
    "string": _string,
    "bytes": _bytes,
}
