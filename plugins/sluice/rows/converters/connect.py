"""The envelope of Kafka Connect's JSON converter: `{"schema": ..., "payload": ...}`, with its logical types.

Connect writes a Date as days, a Timestamp as milliseconds and a Decimal as bytes, or as a number (`decimal.format`),
Debezium its own times as days to nanoseconds, and the record's own schema alone says so. So fields that are DATE,
TIMESTAMP or DECIMAL in the table are read as what that schema calls them.
https://github.com/apache/kafka/blob/trunk/connect/json/src/main/java/org/apache/kafka/connect/json/JsonConverter.java
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
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
from sluice.records.times import Unit, reading
from sluice.rows.converters import ConverterContext
from sluice.rows.converters.logical import decimal_of_bytes
from sluice.rows.times import of_number, of_text

OPTION: Final = "schemas.enable"
DEFAULTS: Final = "replace.null.with.default"
"""Whether a null, or a missing field, takes the default that the record's own schema has for it."""
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
_NUMBER: Final = r"^-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?$"
_DIGITS: Final = 38
_OF_DOUBLE: Final = 16
"""Characters of a decimal that a DOUBLE has exactly, a dot among them."""


def is_enveloped(given: ConverterContext) -> bool:
    """Whether the pipeline expects records in the envelope.

    Raises:
        ActionRequiredError: the option is neither true nor false.
    """
    return _flag(given, OPTION)


def takes_defaults(given: ConverterContext) -> bool:
    """Whether a null takes the default of the record's own schema.

    Raises:
        ActionRequiredError: the option is neither true nor false.
    """
    return _flag(given, DEFAULTS)


def _flag(given: ConverterContext, option: str) -> bool:
    said = given.options.get(option, "false")
    if said not in ("true", "false"):
        raise ActionRequiredError(
            f"The option {option} is neither true nor false: {said}.",
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
    defaults = takes_defaults(given)
    if defaults or _has_logical(given.type):
        fields.append(StructField("schema", _schema_type(given.type, defaults=defaults)))
    return StructType(fields)


@dataclass(frozen=True)
class Payload:
    """The payload of records in the envelope.

    Attributes:
        data: the records' bytes.
        envelope: what was parsed of them, by `envelope_type`.
        kind: the wanted type.
        defaults: see `takes_defaults`.
        numbers: the result of `numbers_of`, as a separate column.
    """

    data: Column
    envelope: Column
    kind: DataType
    defaults: bool
    numbers: Column


def numbers_of(data: Column, envelope: Column, kind: StructType) -> Column:
    """A record's decimals that are JSON numbers, with all digits; null where there are none.

    Spark makes a DOUBLE's text of a number that it reads as STRING, so such records are parsed once more.
    """
    wanted = _numbers_type(kind)
    if wanted is None:
        return F.lit(None).cast("string")
    there = [F.coalesce(text.rlike(_NUMBER), F.lit(False)) for text in _decimals(envelope.getField("payload"), kind)]
    some = reduce(lambda one, other: one | other, there)
    kind = StructType([StructField("payload", wanted)])
    return F.when(some, F.from_json(data.cast("string"), kind, reading({})))


def payload_of(given: Payload) -> tuple[Column, Column]:
    """The payload as the wanted type, and whether each of its logical fields could be read."""
    known = given.defaults or _has_logical(given.kind)
    schema = given.envelope.getField("schema") if known else None
    failed: list[Column] = []
    value = _value(given.envelope.getField("payload"), given.kind, _At(given, schema, ()), failed)
    read = F.lit(True)
    for one in failed:
        read &= ~one
    return value, read


@dataclass(frozen=True)
class _At:
    """A place in the payload: the schema there, and the names that lead to it."""

    of: Payload
    schema: Column | None
    path: tuple[str, ...]

    def field(self, name: str, kind: DataType) -> _At:
        known = self.schema is not None and (self.of.defaults or _has_logical(kind))
        schema = _field_schema(self.schema, name) if known and self.schema is not None else None
        return _At(self.of, schema, (*self.path, name))

    def number(self) -> Column:
        """The DECIMAL that is a JSON number there."""
        found = self.of.numbers.getField("payload")
        for name in self.path:
            found = found.getField(name)
        return found

    def in_quotes(self) -> Column:
        """Whether what is there is a text; null where a name can't be in a path of Spark's."""
        path = "".join(f"['{name}']" for name in ("payload", *self.path))
        whole = F.concat(F.lit("["), self.of.data.cast("string"), F.lit("]"))
        return F.get_json_object(whole, f"$[*]{path}").startswith('"')  # with a wildcard, texts keep their quotes


def _value(text: Column, kind: DataType, at: _At, failed: list[Column]) -> Column:
    defaults = at.of.defaults
    if isinstance(kind, StructType) and at.schema is not None and (defaults or _has_logical(kind)):
        fields = []
        for field in kind.fields:
            inner = at.field(field.name, field.dataType)
            made = _value(text.getField(field.name), field.dataType, inner, failed)
            if defaults and inner.schema is not None:
                said = inner.schema.getField("default")
                default = _default(said, field.dataType, inner)
                missing = text.isNotNull() & text.getField(field.name).isNull()
                failed.append(missing & said.isNotNull() & default.isNull())
                made = F.coalesce(made, default)
            fields.append(made.alias(field.name))
        return F.when(text.isNotNull(), F.struct(*fields))
    if at.schema is None or not isinstance(kind, _LOGICAL):
        return text
    made = _atom(text, kind, at)
    failed.append(text.isNotNull() & made.isNull())
    return made


def _default(text: Column, kind: DataType, at: _At) -> Column:
    """A schema's default, whose text is JSON unless it is a string, as the column's type."""
    if isinstance(kind, _LOGICAL):
        return _atom(text, kind, at, of_default=True)
    if isinstance(kind, StringType):
        return text
    if isinstance(kind, BinaryType):
        return F.unbase64(text)
    if isinstance(kind, ArrayType | MapType):
        return F.from_json(text, kind.json(), reading({}))
    # Connect's own converter can't read a struct's default.
    return F.lit(None).cast(kind) if isinstance(kind, StructType) else text.cast(kind)


def _atom(text: Column, kind: DataType, at: _At, *, of_default: bool = False) -> Column:
    assert at.schema is not None
    name = at.schema.getField("name")
    if not isinstance(kind, DecimalType):
        number = F.when(text.rlike(_WHOLE), text.cast("long"))
        # A number without a unit in its schema is no text of a time either, and so a bad record.
        made = of_text(text, kind)
        for unit, names in _UNITS[kind.typeName()].items():
            made = F.when(name.isin(*names), of_number(number, unit)).otherwise(made)
        return made
    scale = at.schema.getField("parameters").getField("scale")
    unscaled = decimal_of_bytes(F.unbase64(text), kind)
    if of_default:  # where a number's digits could be base64 as well, it is neither
        short = text.rlike(_NUMBER) & (F.length(text) <= _OF_DOUBLE)
        either = ~text.rlike("[.-]") & (F.length(text) % 4 == 0)
        same = F.when(short & ~either, text.cast(kind)).when(~text.rlike(_NUMBER), unscaled)
        return F.when(name == f"{_DATA}Decimal", F.when(scale == str(kind.scale), same)).otherwise(text.cast(kind))
    is_number = text.rlike(_NUMBER)
    number = at.number()
    exact = F.when(number.cast(kind) == number, number.cast(kind))
    # Bytes in base64 have no dot and no minus, and four characters for three bytes.
    surely = is_number & (text.rlike("[.-]") | (F.length(text) % 4 != 0))
    same = F.when(surely, exact).when(~is_number, unscaled)
    same = same.otherwise(F.when(at.in_quotes(), unscaled).when(~at.in_quotes(), exact))
    plain = F.when(is_number, number.cast(kind)).otherwise(text.cast(kind))
    # With a scale other than the column's the bytes mean another number: better none than a wrong one.
    return F.when(name == f"{_DATA}Decimal", F.when(scale == str(kind.scale), same)).otherwise(plain)


def _numbers_type(kind: StructType) -> StructType | None:
    """The decimals of a type, with some digits more, so that none is rounded unseen; None if it has none."""
    fields = []
    for field in kind.fields:
        inner: DataType | None = None
        if isinstance(field.dataType, StructType):
            inner = _numbers_type(field.dataType)
        elif isinstance(field.dataType, DecimalType):
            whole = field.dataType.precision - field.dataType.scale
            inner = DecimalType(_DIGITS, min(_DIGITS - whole, field.dataType.scale + 10))
        if inner is not None:
            fields.append(StructField(field.name, inner))
    return StructType(fields) if fields else None


def _decimals(text: Column, kind: StructType) -> Iterator[Column]:
    for field in kind.fields:
        inner = text.getField(field.name)
        if isinstance(field.dataType, StructType):
            yield from _decimals(inner, field.dataType)
        elif isinstance(field.dataType, DecimalType):
            yield inner


def _field_schema(schema: Column, name: str) -> Column:
    return F.filter(schema.getField("fields"), lambda field: field.getField("field") == name).getItem(0)


def _schema_type(kind: DataType, *, defaults: bool) -> StructType:
    """As much of Connect's schema as logical fields and defaults need, as deep as they are."""
    fields = [StructField("field", StringType()), StructField("name", StringType())]
    fields.append(StructField("parameters", MapType(StringType(), StringType())))
    fields += [StructField("default", StringType())] if defaults else []
    within = [f.dataType for f in kind.fields] if isinstance(kind, StructType) else []
    deeper = [d for d in within if defaults or _has_logical(d)]
    if deeper:
        deepest = max((_schema_type(d, defaults=defaults) for d in deeper), key=_depth)
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
