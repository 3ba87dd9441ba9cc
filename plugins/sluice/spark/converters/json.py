"""JSON objects, by Spark's own parser."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from sluice.spark.converters import Converted, Given

_CORRUPT: Final = "_sluice_corrupt"


class Converter:
    """A record is one JSON object; fields that the type doesn't have are passed over."""

    def convert(self, records: DataFrame, data: Column, given: Given) -> Converted:
        """The object's fields."""
        assert isinstance(given.type, StructType)
        text = data.cast("string")
        nullable = [StructField(f.name, f.dataType, True) for f in given.type.fields]
        wanted = StructType([*nullable, StructField(_CORRUPT, StringType())])
        options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT, **given.options}
        helper = f"_{given.name}_json"
        records = records.withColumn(helper, F.from_json(text, wanted, options))
        parsed = F.col(helper)
        trimmed = F.trim(text)
        problem = F.when(~(trimmed.startswith("{") & trimmed.endswith("}")), "the value is not one JSON object").when(
            parsed.isNull() | parsed[_CORRUPT].isNotNull(),
            "the value is not JSON, or a field is not of its column's type",
        )
        return Converted(records, parsed, problem)
