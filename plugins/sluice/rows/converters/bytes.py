"""Bytes as they are, as one column."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sluice.rows.converters import Converted, ConverterContext


class Converter:
    """Bytes as they are, as one column."""

    def convert(self, records: DataFrame, data: Column, given: ConverterContext) -> Converted:  # noqa: ARG002
        """The single value."""
        return Converted(records, data, F.lit(None).cast("string"))
