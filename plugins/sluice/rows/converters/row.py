"""Values that are rows already, of a source that has columns (capability `rows`)."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sluice.rows.conform import conform
from sluice.rows.converters import Converted, ConverterContext


class Converter:
    """The struct's own fields, brought to the table's types; those that it lacks are null."""

    def convert(self, records: DataFrame, data: Column, given: ConverterContext) -> Converted:
        """The struct of the given type. A row can't be unreadable."""
        value = conform(data, records.schema[given.name].dataType, given.type)
        return Converted(records, value, F.lit(None).cast("string"))
