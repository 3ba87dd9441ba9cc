"""The converter of a user's own that docs/converters.md shows."""

from __future__ import annotations

from pyspark.sql import functions as F

from sluice.rows.converters import Converted, ConverterContext


class FixedWidth:
    """Fields of fixed widths, in the type's order: `options: {widths: "3,5"}`."""

    def convert(self, records, data, given: ConverterContext) -> Converted:
        widths = [int(width) for width in given.options["widths"].split(",")]
        fields, start = [], 1
        for field, width in zip(given.type.fields, widths, strict=True):
            text = F.trim(F.substring(data, start, width).cast("string"))
            fields.append(text.cast(field.dataType).alias(field.name))
            start += width
        total = sum(widths)
        problem = F.when(F.length(data) != total, f"the {given.name} is not {total} bytes long")
        return Converted(records, F.struct(*fields), problem)
