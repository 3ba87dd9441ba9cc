"""One number of a fixed width, big-endian, as one column: the format of Kafka's serializers of numbers."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sluice.jvm.static_call import static_call
from sluice.rows.converters import Converted, ConverterContext

_GUAVA = "org.apache.hadoop.thirdparty.com.google.common.primitives"
_WHOLE: Final = {
    "short": ("Shorts", "ShortType", 2), "integer": ("Ints", "IntegerType", 4), "long": ("Longs", "LongType", 8)
}  # fmt: skip
# Java makes a fraction of the bits of a whole number of the same width.
_BITS: Final = {
    "float": ("integer", "java.lang.Float", "intBitsToFloat", "FloatType"),
    "double": ("long", "java.lang.Double", "longBitsToDouble", "DoubleType"),
}


class Converter:
    """One number, as one column.

    Args:
        kind: short, integer, long, float or double.
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def convert(self, records: DataFrame, data: Column, given: ConverterContext) -> Converted:
        """The single value; bytes of another length are no such number."""
        whole, java, method, result = _BITS.get(self._kind, (self._kind, "", "", ""))
        module, kind, width = _WHOLE[whole]
        number = static_call(given.spark, f"{_GUAVA}.{module}", "fromByteArray", kind, data)
        if java:
            number = static_call(given.spark, java, method, result, number)
        fits = F.octet_length(data) == width
        length = F.octet_length(data).cast("string")
        words = F.concat(F.lit(f"the {given.name} has "), length, F.lit(f" bytes, and {width} are needed"))
        return Converted(records, F.when(fits, number), F.when(~fits, words))
