"""The envelope of Kafka Connect's JSON converter: `{"schema": ..., "payload": ...}`, with its logical types.

Connect writes a Date as days, a Timestamp as milliseconds and a Decimal as bytes, Debezium its own times as days to
nanoseconds, and the record's own schema alone says so. So fields that are DATE, TIMESTAMP or DECIMAL in the table are
read as what that schema calls them.
https://github.com/apache/kafka/blob/trunk/connect/json/src/main/java/org/apache/kafka/connect/json/JsonConverter.java
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    DecimalType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from sluice.errors import ActionRequiredError
from sluice.records.times import Unit
from sluice.rows.converters import ConverterContext
from sluice.rows.converters.logical import decimal_of_bytes
from sluice.rows.times import of_number, of_text

OPTION: Final = "schemas.enable"
_DATA: Final = "org.apache.kafka.connect.data."
_DEBEZIUM: Final = "io.debezium.time."
_LOGICAL: Final = (DateType, TimestampType, DecimalType)
_UNITS: Final[Mapping[str, Mapping[Unit, tuple[str, ...]]]] = {
    "date": {"days": (f"{_DATA}Date", f"{_DEBEZIUM}Date")},
    "timestamp": {
        "milliseconds": (f"{_DATA}Timestamp", f"{_DEBEZIUM}Timestamp"),
        "microseconds": (f"{_DEBEZIUM}MicroTimestamp",),
        "nanoseconds": (f"{_DEBEZIUM}NanoTimestamp",),
    },
}
"""A number's unit, by the column's type and the name in its schema.
https://debezium.io/documentation/reference/stable/connectors/postgresql.html#postgresql-temporal-types"""
_WHOLE: Final = r"^-?[0-9]{1,19}$"


def is_enveloped(given: ConverterContext) -> bool:
    """Whether the pipeline expects records in the envelope.

    Raises:
        ActionRequiredError: the option is neither true nor false.
    """
    said = given.options.get(OPTION, "false")
    if said not in ("true", "false"):
        raise ActionRequiredError(
            f"The option {OPTION} is neither true nor false: {said}.",
            next_step=f"correct the source's `{given.name}.options`.",
        )
    return said == "true"


def envelope_type(given: ConverterContext) -> StructType:
    """The type as which the envelope is parsed: logical fields as text.

    Raises:
        ActionRequiredError: a logical type is inside an array or map, which is not supported.
    """
    assert isinstance(given.type, StructType)
    hidden = [f.name for f in given.type.fields if _hides_logical(f.dataType, inside=False)]
    if hidden:
        raise ActionRequiredError(
            f"A DATE, TIMESTAMP or DECIMAL in an array or map can't be read from an envelope: {', '.join(hidden)}.",
            next_step=f"give the source's `{given.name}.schema` with BIGINT or STRING there, and a transform.",
        )
    fields = [StructField("payload", _as_text(given.type))]
    if _has_logical(given.type):
        fields.append(StructField("schema", _schema_type(given.type)))
    return StructType(fields)


def payload_of(envelope: Column, kind: DataType) -> tuple[Column, Column]:
    """The payload as the wanted type, and whether each of its logical fields could be read."""
    schema = envelope.getField("schema") if _has_logical(kind) else None
    failed: list[Column] = []
    value = _value(envelope.getField("payload"), kind, schema, failed)
    read = F.lit(True)
    for one in failed:
        read &= ~one
    return value, read


def _value(text: Column, kind: DataType, schema: Column | None, failed: list[Column]) -> Column:
    if isinstance(kind, StructType) and schema is not None and _has_logical(kind):
        fields = []
        for field in kind.fields:
            has = _has_logical(field.dataType)
            said = _field_schema(schema, field.name) if has else None
            fields.append(_value(text.getField(field.name), field.dataType, said, failed).alias(field.name))
        return F.when(text.isNotNull(), F.struct(*fields))
    if schema is None or not isinstance(kind, _LOGICAL):
        return text
    made = _atom(text, kind, schema)
    failed.append(text.isNotNull() & made.isNull())
    return made


def _atom(text: Column, kind: DataType, schema: Column) -> Column:
    name = schema.getField("name")
    if not isinstance(kind, DecimalType):
        number = F.when(text.rlike(_WHOLE), text.cast("long"))
        # A number without a unit in its schema is no text of a time either, and so a bad record.
        made = of_text(text, kind)
        for unit, names in _UNITS[kind.typeName()].items():
            made = F.when(name.isin(*names), of_number(number, unit)).otherwise(made)
        return made
    scale = schema.getField("parameters").getField("scale")
    same = decimal_of_bytes(F.unbase64(text), kind)
    # With a scale other than the column's the bytes mean another number: better none than a wrong one.
    return F.when(name == f"{_DATA}Decimal", F.when(scale == str(kind.scale), same)).otherwise(text.cast(kind))


def _field_schema(schema: Column, name: str) -> Column:
    return F.filter(schema.getField("fields"), lambda field: field.getField("field") == name).getItem(0)


def _schema_type(kind: DataType) -> StructType:
    """As much of Connect's schema as logical fields need, as deep as they are."""
    fields = [StructField("field", StringType()), StructField("name", StringType())]
    fields.append(StructField("parameters", MapType(StringType(), StringType())))
    deeper = [f.dataType for f in kind.fields if _has_logical(f.dataType)] if isinstance(kind, StructType) else []
    if deeper:
        deepest = max((_schema_type(d) for d in deeper), key=_depth)
        fields.append(StructField("fields", ArrayType(deepest)))
    return StructType(fields)


def _depth(kind: DataType) -> int:
    if isinstance(kind, ArrayType):
        return _depth(kind.elementType)
    return 1 + max((_depth(f.dataType) for f in kind.fields), default=0) if isinstance(kind, StructType) else 0


def _as_text(kind: DataType) -> DataType:
    if isinstance(kind, StructType):
        return StructType([StructField(f.name, _as_text(f.dataType)) for f in kind.fields])
    return StringType() if isinstance(kind, _LOGICAL) else kind


def _has_logical(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return any(_has_logical(f.dataType) for f in kind.fields)
    return isinstance(kind, _LOGICAL)


def _hides_logical(kind: DataType, *, inside: bool) -> bool:
    if isinstance(kind, StructType):
        return any(_hides_logical(f.dataType, inside=inside) for f in kind.fields)
    if isinstance(kind, ArrayType):
        return _hides_logical(kind.elementType, inside=True)
    if isinstance(kind, MapType):
        return _hides_logical(kind.valueType, inside=True)
    return inside and isinstance(kind, _LOGICAL)
