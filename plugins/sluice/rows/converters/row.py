"""Values that are rows already, of a source that has columns (capability `rows`)."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sluice.connectors.data import UNREADABLE
from sluice.rows.conform import conform
from sluice.rows.converters import Converted, ConverterContext


class Converter:
    """The struct's own fields, converted to the table's types; missing fields are null."""

    def convert(self, records: DataFrame, data: Column, given: ConverterContext) -> Converted:
        """The struct of the given type; unreadable only where the source says so."""
        value = conform(data, records.schema[given.name].dataType, given.type)
        problem = F.col(UNREADABLE) if UNREADABLE in records.columns else F.lit(None).cast("string")
        return Converted(records, value, problem)
