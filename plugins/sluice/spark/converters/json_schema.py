"""JSON whose schema a registry knows, or a file gives: the schema says the columns, and is not checked otherwise."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from sluice.records.plan import WriterSchema
from sluice.records.structs import is_struct
from sluice.spark.converters import Given
from sluice.spark.converters.by_schema import WRAPPED, BySchema, parsed_type

_CORRUPT: Final = "_sluice_corrupt"


class Converter(BySchema):
    """Spark's own JSON parser, told the type that the record's schema describes."""

    language = "JSON"

    def decode(self, payload: Column, schema: WriterSchema, given: Given) -> Column:
        """The schema's fields, and the text of what can't be read; no object is the one field of one."""
        kind = parsed_type(schema)
        assert isinstance(kind, StructType)
        wanted = StructType([*kind.fields, StructField(_CORRUPT, StringType())])
        text = payload.cast("string")
        if not is_struct(schema.struct):
            text = F.concat(F.lit(f'{{"{WRAPPED}":'), text, F.lit("}"))
        options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT, **given.options}
        trimmed = F.trim(text)
        whole = trimmed.startswith("{") & trimmed.endswith("}")
        return F.when(whole, F.from_json(text, wanted, options))

    def well(self, decoded: Column) -> Column:
        """Whether it was an object, and nothing of it was left over."""
        return decoded.isNotNull() & decoded.getField(_CORRUPT).isNull()
