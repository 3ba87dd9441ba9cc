"""JSON objects, by Spark's own parser; in Connect's envelope where the option `schemas.enable` says so."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from sluice.spark.converters import Converted, Given
from sluice.spark.converters.connect import OPTION, envelope_type, is_enveloped, payload_of

_CORRUPT: Final = "_sluice_corrupt"


class Converter:
    """A record is one JSON object; fields that the type doesn't have are passed over."""

    def convert(self, records: DataFrame, data: Column, given: Given) -> Converted:
        """The object's fields; options are those of Spark's JSON, and `schemas.enable`."""
        assert isinstance(given.type, StructType)
        enveloped = is_enveloped(given)
        text = data.cast("string")
        fields = envelope_type(given).fields if enveloped else given.type.fields
        nullable = [StructField(f.name, f.dataType, True) for f in fields]
        wanted = StructType([*nullable, StructField(_CORRUPT, StringType())])
        own = {name: value for name, value in given.options.items() if name != OPTION}
        options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT, **own}
        helper = f"_{given.name}_json"
        records = records.withColumn(helper, F.from_json(text, wanted, options))
        parsed = F.col(helper)
        trimmed = F.trim(text)
        problem = F.when(
            ~(trimmed.startswith("{") & trimmed.endswith("}")), f"the {given.name} is not one JSON object"
        ).when(
            parsed.isNull() | parsed[_CORRUPT].isNotNull(),
            f"the {given.name} is not JSON, or a field is not of its column's type",
        )
        if not enveloped:
            return Converted(records, parsed, problem)
        value, read = payload_of(parsed, given.type)
        records = records.withColumn(f"_{given.name}_payload", value)
        problem = problem.when(parsed["payload"].isNull(), "the envelope has no payload, or its payload is null").when(
            ~read, "a DATE, TIMESTAMP or DECIMAL of the payload is not what the column or the record's schema says"
        )
        return Converted(records, F.col(f"_{given.name}_payload"), problem)
