"""JSON whose schema a registry knows, or a file gives: the schema says the columns, and is not checked otherwise."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from sluice.records.plan import WriterSchema
from sluice.records.structs import is_struct, names
from sluice.rows.converters import Converted, ConverterContext
from sluice.rows.converters.by_schema import HEADER, WRAPPED, BySchema, parsed_type
from sluice.rows.converters.json_checks import CORRUPT, SEAL, lost_text, options, sealed, strange, unsound


class Converter(BySchema):
    """Spark's own JSON parser, given the type of the record's schema."""

    language = "JSON"

    def convert(self, records: DataFrame, data: Column, given: ConverterContext) -> Converted:
        """As any other with a schema; a text that Spark would read as another one is a bad record."""
        converted = super().convert(records, data, given)
        payload = F.substring(data, HEADER + 1, 2**31 - 1) if given.registered else data
        lost = [converted.problem, lost_text(payload, given), unsound(converted.value, given.type, given)]
        known = dict.fromkeys(
            name for schema in _schemas(given) if is_struct(schema.struct) for name in names(schema.struct)
        )
        if known and isinstance(given.type, StructType):
            lost.append(strange(payload.cast("string"), converted.value, [*known], given))
        return replace(converted, problem=F.coalesce(*lost))

    def decode(self, payload: Column, schema: WriterSchema, given: ConverterContext) -> Column:
        """The schema's fields, and the text of unreadable values; any value but an object is a struct's only field."""
        kind = parsed_type(schema)
        assert isinstance(kind, StructType)
        if not is_struct(schema.struct):
            payload = F.concat(F.lit(f'{{"{WRAPPED}":'.encode()), payload, F.lit(b"}"))
        wanted = StructType([*kind.fields, SEAL, CORRUPT])
        return F.from_json(sealed(payload), wanted, options(given.options))

    def is_record(self, decoded: Column, schema: WriterSchema) -> Column:  # noqa: ARG002
        """Whether it was an object, and nothing of it was left over."""
        whole = decoded.getField(SEAL.name).isNotNull()
        return decoded.isNotNull() & decoded.getField(CORRUPT.name).isNull() & whole


def _schemas(given: ConverterContext) -> tuple[WriterSchema, ...]:
    return (*given.schemas, *(schema for of in given.by_cluster for schema in of.schemas))
