"""JSON objects, by Spark's own parser."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from sluice.spark.converters import Converted, Given
from sluice.spark.converters.json_checks import CORRUPT, OPTIONS, SEAL, problem_of, sealed, unsound


class Converter:
    """A record is one JSON object; fields that the type doesn't have are passed over."""

    def convert(self, records: DataFrame, data: Column, given: Given) -> Converted:
        """The object's fields."""
        assert isinstance(given.type, StructType)
        nullable = [StructField(f.name, f.dataType, True) for f in given.type.fields]
        wanted = StructType([*nullable, SEAL, CORRUPT])
        helper = f"_{given.name}_json"
        records = records.withColumn(helper, F.from_json(sealed(data), wanted, {**OPTIONS, **given.options}))
        parsed = F.col(helper)
        problem = F.coalesce(problem_of(data, parsed, given), unsound(parsed, given.type, given))
        return Converted(records, parsed, problem)
