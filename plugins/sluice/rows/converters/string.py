"""Text in UTF-8, as one column."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sluice.rows.converters import Converted, ConverterContext
from sluice.rows.converters.text import is_utf8


class Converter:
    """Text in UTF-8, as one column."""

    def convert(self, records: DataFrame, data: Column, given: ConverterContext) -> Converted:
        """The single value."""
        return Converted(records, data.cast("string"), F.when(~is_utf8(data), f"the {given.name} is not UTF-8"))
