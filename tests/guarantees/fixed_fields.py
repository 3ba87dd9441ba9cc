"""The encoder of a user's own that docs/kafka-sink.md shows."""

from __future__ import annotations

from pyspark.sql import functions as F

from sluice.sinks.kafka.encoders import Encoded, EncoderContext


class FixedFields:
    """Fields of fixed widths, in the columns' order: `options: {widths: "3,5"}`."""

    def encode(self, row, given: EncoderContext) -> Encoded:
        widths = [int(width) for width in given.options["widths"].split(",")]
        fields, problems = [], []
        for name, width in zip(given.type.names, widths, strict=True):
            text = F.coalesce(row.getField(name).cast("string"), F.lit(""))
            fields.append(F.rpad(text, width, " "))
            problems.append(F.when(F.length(text) > width, f"its column {name} has more than {width} characters"))
        return Encoded(F.concat(*fields).cast("binary"), F.coalesce(*problems))
