"""Encodes columns as a record's key or value with Spark's functions: the counterpart of converters.

As with Confluent's serializers, data with a registered schema begins with a zero byte and the schema's id.

`docs/kafka-sink.md` shows how to write an encoder: a class with the one method `encode`, named in the pipeline file as
`module:Class`.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final, Protocol

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

from sluice.errors import ActionRequiredError
from sluice.identifiers import quoted
from sluice.rows.files import on_every_machine
from sluice.rows.json_text import as_json
from sluice.rows.user_code import user_code
from sluice.schemas.registry.protobuf import message_prefixes
from sluice.sinks.kafka.schemas import connect_schema


@dataclass(frozen=True)
class EncoderContext:
    """An encoder's input beside the row.

    Attributes:
        name: key or value: which of a record's parts it makes.
        spark: the session.
        type: the row's type, which has the part's columns in the order of the pipeline file.
        options: the pipeline file's options for this encoder.
    """

    name: str
    spark: SparkSession
    type: StructType
    options: Mapping[str, str]


@dataclass(frozen=True)
class Encoded:
    """An encoder's answer.

    Attributes:
        data: BINARY: the bytes; anything where there is a problem. A null is a problem, too: a record without a value
            is a delete.
        problem: STRING: why the row can't be encoded, in words for people; null where it can.
    """

    data: Column
    problem: Column


class Encoder(Protocol):
    """Turns a row into bytes. Made without arguments."""

    def encode(self, row: Column, given: EncoderContext) -> Encoded:
        """The bytes of the struct `row`, always the same for the same row. No Python may run for a single record."""


def encoded(
    spark: SparkSession,
    encoder: str,
    names: Sequence[str],
    kind: StructType,
    pinned: Mapping[str, Any],
    part: str = "value",
) -> Column:
    """Columns, encoded as bytes.

    Args:
        spark: the session.
        encoder: the encoder's name in the section.
        names: the columns to encode.
        kind: a struct with the columns' types.
        pinned: START-COMMIT's entry for the schema: `id` and `text`, and for Protobuf also `message` and `indexes`; for
            Connect's JSON `name` and `decimals`; of a user's encoder its `options`; empty if it needs nothing.
        part: key or value, for a user's encoder.

    Raises:
        ActionRequiredError: the user's encoder can't be imported, or makes something else than bytes.
    """
    struct = StructType([kind[name] for name in names])
    if encoder not in _ENCODERS:
        made = _own(spark, encoder, names, struct, pinned, part)
        found = spark.createDataFrame([], struct).select(made.data).schema[0].dataType
        if not isinstance(found, BinaryType):
            raise ActionRequiredError(
                f"The encoder {encoder} makes {found.simpleString().upper()} of a row, and a record has BINARY.",
                next_step="correct its `encode`: bytes of a text are `text.cast('binary')`.",
                part=part,
            )
        return F.when(made.problem.isNull(), made.data)
    return _ENCODERS[encoder](spark, names, struct, pinned)


def unfit(
    spark: SparkSession,
    encoder: str,
    names: Sequence[str],
    kind: StructType,
    pinned: Mapping[str, Any],
    part: str = "value",
) -> Column | None:
    """The reason why a row can't be encoded, null for other rows; None if all rows can be encoded.

    Protobuf has no nulls in lists and maps; a user's encoder has reasons of its class. `encoded` is null for such a
    row.

    Args: as `encoded`.

    Raises:
        ActionRequiredError: the user's encoder can't be imported.
    """
    if encoder not in _ENCODERS:
        return _own(spark, encoder, names, StructType([kind[name] for name in names]), pinned, part).problem
    if encoder != "protobuf":
        return None
    checks = [(name, _has_null(F.col(quoted(name)), kind[name].dataType)) for name in names]
    words = [
        F.when(check, F.lit(f"its column {name} has a null in a list or a map, which Protobuf doesn't have"))
        for name, check in checks
        if check is not None
    ]
    return F.coalesce(*words) if words else None


def _own(
    spark: SparkSession, encoder: str, names: Sequence[str], kind: StructType, pinned: Mapping[str, Any], part: str
) -> Encoded:
    """By a user's class; a row of which it makes a null has a problem."""
    own: Encoder = user_code(encoder, "encoder")()
    made = own.encode(_struct(names), EncoderContext(part, spark, kind, pinned.get("options", {})))
    return Encoded(made.data, F.coalesce(made.problem, F.when(made.data.isNull(), F.lit(f"its {part} is null"))))


def _has_null(value: Column, kind: DataType) -> Column | None:
    """Whether a list or a map inside a value has a null; None if none can, by the type."""
    if isinstance(kind, StructType):
        inner = [_has_null(value.getField(f.name), f.dataType) for f in kind.fields]
        found = [F.coalesce(one, F.lit(False)) for one in inner if one is not None]
        return reduce(lambda one, other: one | other, found) if found else None
    if isinstance(kind, MapType):
        value, kind = F.map_values(value), ArrayType(kind.valueType, kind.valueContainsNull)
    if not isinstance(kind, ArrayType):
        return None
    element = kind.elementType

    def wrong(one: Column) -> Column:
        deeper = _has_null(one, element)
        return one.isNull() if deeper is None else one.isNull() | F.coalesce(deeper, F.lit(False))

    return F.exists(value, wrong)


def _protobuf(spark: SparkSession, names: Sequence[str], kind: StructType, pinned: Mapping[str, Any]) -> Column:
    """By Spark's encoder, with dates, times and decimals as plain messages: Spark would encode some differently."""
    jvm: Any = spark._jvm
    path = on_every_machine(spark, b64decode(str(pinned["text"])), "desc")
    row = F.struct(*(_message(F.col(quoted(f.name)), f.dataType).alias(f.name) for f in kind.fields))
    functions = jvm.org.apache.spark.sql.protobuf.functions
    made = Column(functions.to_protobuf(row._jc, str(pinned["message"]), path))
    place = message_prefixes(pinned["indexes"])[0]
    whole = F.concat(F.lit(bytearray(b"\0" + int(pinned["id"]).to_bytes(4, "big") + place)), made)
    wrong = unfit(spark, "protobuf", names, kind, pinned)
    return whole if wrong is None else F.when(wrong.isNull(), whole)


def _message(value: Column, kind: DataType) -> Column:
    """A value as a struct of its Protobuf message's fields."""
    if isinstance(kind, DateType):
        parts = {"year": F.year(value), "month": F.month(value), "day": F.dayofmonth(value)}
    elif isinstance(kind, TimestampType):
        nanos = F.pmod(F.unix_micros(value), F.lit(1_000_000)).cast("int") * 1000
        parts = {"seconds": F.unix_seconds(value), "nanos": nanos}
    elif isinstance(kind, DecimalType):
        precision, scale = F.lit(kind.precision), F.lit(kind.scale)
        parts = {"value": _unscaled(value, kind), "precision": precision, "scale": scale}
    elif isinstance(kind, StructType):
        parts = {f.name: _message(value.getField(f.name), f.dataType) for f in kind.fields}
    elif isinstance(kind, ArrayType):
        element = kind.elementType
        return value if _is_plain(element) else F.transform(value, lambda one: _message(one, element))
    elif isinstance(kind, MapType):
        inner = kind.valueType
        return value if _is_plain(inner) else F.transform_values(value, lambda _, one: _message(one, inner))
    else:
        return value
    return F.when(value.isNotNull(), F.struct(*(part.alias(name) for name, part in parts.items())))


def _struct(names: Sequence[str]) -> Column:
    return F.struct(*(F.col(quoted(name)) for name in names))


def _json(_: SparkSession, names: Sequence[str], kind: StructType, __: Mapping[str, Any]) -> Column:  # noqa: ARG001
    return as_json(_struct(names)).cast("binary")


def _json_with_schema(_: SparkSession, __: Sequence[str], kind: StructType, pinned: Mapping[str, Any]) -> Column:
    schema = connect_schema(kind.jsonValue(), name=str(pinned.get("name", "")))
    before = f'{{"schema":{json.dumps(schema, separators=(",", ":"), ensure_ascii=False)},"payload":'
    return F.concat(F.lit(before), _payload(kind, pinned), F.lit("}")).cast("binary")


def _json_without_schema(_: SparkSession, __: Sequence[str], kind: StructType, pinned: Mapping[str, Any]) -> Column:
    return _payload(kind, pinned).cast("binary")


def _payload(kind: StructType, pinned: Mapping[str, Any]) -> Column:
    """Columns as Connect's JSON converter writes them, byte for byte."""
    numeric = pinned.get("decimals") == "numeric"
    fields = [_logical(F.col(quoted(f.name)), f.dataType, numeric=numeric).alias(f.name) for f in kind.fields]
    return _escaped(as_json(F.struct(*fields)))


def _escaped(text: Column) -> Column:
    """JSON text with characters beyond U+FFFF as two escapes, as Connect's has them: equal keys are equal bytes."""
    beyond = r"[\x{10000}-\x{10FFFF}]"
    parts = F.regexp_extract_all(text, F.lit(rf"({beyond}|[^\x{{10000}}-\x{{10FFFF}}]+)"), F.lit(1))

    def escaped(part: Column) -> Column:
        code = F.hex(F.encode(part, "UTF-16BE"))
        both = F.concat(F.lit("\\u"), code.substr(1, 4), F.lit("\\u"), code.substr(5, 4))
        return F.when(part.rlike(beyond), both).otherwise(part)

    return F.when(text.rlike(beyond), F.array_join(F.transform(parts, escaped), "")).otherwise(text)


def _logical(value: Column, kind: DataType, *, numeric: bool = False) -> Column:
    """A value as Connect's JSON converter writes it: Date in days, Timestamp in milliseconds, Decimal in bytes.

    Args:
        value: the value.
        kind: its type.
        numeric: whether a Decimal is a number.
    """
    if isinstance(kind, DateType):
        return F.unix_date(value)
    if isinstance(kind, TimestampType):
        return F.unix_millis(value)
    if isinstance(kind, TimestampNTZType):
        return F.unix_millis(F.to_utc_timestamp(value.cast("timestamp"), F.current_timezone()))
    if isinstance(kind, DecimalType):
        return value if numeric else _unscaled(value, kind)
    if isinstance(kind, StructType):
        fields = [_logical(value.getField(f.name), f.dataType, numeric=numeric).alias(f.name) for f in kind.fields]
        return F.when(value.isNotNull(), F.struct(*fields))
    if isinstance(kind, ArrayType):
        element = kind.elementType
        if _is_plain(element):
            return value
        return F.transform(value, lambda one: _logical(one, element, numeric=numeric))
    if isinstance(kind, MapType):
        inner = kind.valueType
        if _is_plain(inner):
            return value
        return F.transform_values(value, lambda _, one: _logical(one, inner, numeric=numeric))
    return value


def _unscaled(value: Column, kind: DecimalType) -> Column:
    """A decimal's unscaled value as bytes, the largest first: Spark has no other way than by Avro."""
    logical = {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    # Avro's bytes after the union's index and their length, one byte each: 38 digits take 16 bytes. Null stays so.
    avro = to_avro(value, json.dumps(["null", logical]))
    return F.when(value.isNotNull(), avro.substr(F.lit(3), F.lit(1 << 30)))


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


def as_text(name: str, kind: DataType) -> Column:
    """A column as text in UTF-8, and bytes as they are: the value of `string`, and of a header.

    Structs, arrays and maps are JSON: in Spark's own text of them one value looks like another.
    """
    value = F.col(quoted(name))
    if isinstance(kind, BinaryType):
        return value
    text = as_json(value) if isinstance(kind, StructType | ArrayType | MapType) else value.cast("string")
    return text.cast("binary")


def _string(_: SparkSession, names: Sequence[str], kind: StructType, __: Mapping[str, Any]) -> Column:
    return as_text(names[0], kind[0].dataType)


def _bytes(_: SparkSession, names: Sequence[str], __: StructType, ___: Mapping[str, Any]) -> Column:
    return F.col(quoted(names[0]))


_Encodes = Callable[[SparkSession, Sequence[str], StructType, Mapping[str, Any]], Column]
_ENCODERS: Final[Mapping[str, _Encodes]] = {
    "json": _json,
    "json_with_schema": _json_with_schema,
    "json_without_schema": _json_without_schema,
    "avro": _avro,
    "protobuf": _protobuf,
    "json_schema": _json_schema,
    "string": _string,
    "bytes": _bytes,
}
