"""Converts parsed values to their logical types, for formats that write one type as another."""

from __future__ import annotations

import json

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    MapType,
    StructType,
    TimestampType,
)

from sluice.rows.times import of_number

_UNSIGNED_32 = 2**32
_UNSIGNED_64 = str(2**64)  # text, since no LONG holds it


def logical(value: Column, parsed: DataType, wanted: DataType) -> Column:
    """The value as the wanted type, which has the parsed one's shape.

    A whole number becomes a DATE as days and a TIMESTAMP as milliseconds since 1970, as Kafka Connect writes them;
    bytes a DECIMAL as its unscaled value, the largest first; and a number of 32 or 64 bits that is read with a sign the
    larger type as one without.
    """
    if parsed == wanted:
        return value
    if isinstance(parsed, StructType) and isinstance(wanted, StructType):
        pairs = zip(parsed.fields, wanted.fields, strict=True)
        fields = [logical(value.getField(p.name), p.dataType, w.dataType).alias(w.name) for p, w in pairs]
        return F.when(value.isNotNull(), F.struct(*fields))
    if isinstance(parsed, ArrayType) and isinstance(wanted, ArrayType):
        return F.transform(value, lambda e: logical(e, parsed.elementType, wanted.elementType))
    if isinstance(parsed, MapType) and isinstance(wanted, MapType):
        keyed = F.transform_keys(value, lambda k, _: logical(k, parsed.keyType, wanted.keyType))
        return F.transform_values(keyed, lambda _, e: logical(e, parsed.valueType, wanted.valueType))
    return _atom(value, parsed, wanted)


def _atom(value: Column, parsed: DataType, wanted: DataType) -> Column:
    if isinstance(wanted, DateType):
        return of_number(value, "days")
    if isinstance(wanted, TimestampType):
        return of_number(value, "milliseconds")
    if isinstance(wanted, DecimalType) and isinstance(parsed, BinaryType):
        return decimal_of_bytes(value, wanted)
    if isinstance(wanted, LongType) and isinstance(parsed, IntegerType):
        return value.cast("long").bitwiseAND(F.lit(_UNSIGNED_32 - 1))
    if isinstance(wanted, DecimalType) and isinstance(parsed, LongType):
        signed = value.cast("decimal(20,0)")
        return F.when(value < 0, (signed + F.lit(_UNSIGNED_64).cast("decimal(20,0)")).cast(wanted)).otherwise(signed)
    return value


def decimal_of_bytes(value: Column, wanted: DecimalType) -> Column:
    """A decimal's unscaled value as bytes, as Avro reads it: Spark has no other way from bytes to a decimal.

    Its length precedes it in Avro's encoding, which is one byte for less than 64; a DECIMAL has at most 16 bytes.
    """
    schema = {
        "type": "bytes",
        "logicalType": "decimal",
        "precision": wanted.precision,
        "scale": wanted.scale,
    }
    record = {"type": "record", "name": "d", "fields": [{"name": "d", "type": schema}]}
    fits = (F.length(value) > 0) & (F.length(value) < 64)
    avro = F.concat(F.unhex(F.hex(F.length(value) * 2)), value)
    return from_avro(F.when(fits, avro), json.dumps(record), {"mode": "PERMISSIVE"}).getField("d")
