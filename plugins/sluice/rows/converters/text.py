"""Whether bytes are text, and the position of a byte in them: Guava's methods, called in generated code.

Spark 3.5 has no function for the first, and its own for the second take several times as long, which counts where every
record is scanned.
"""

from __future__ import annotations

from py4j.protocol import Py4JError
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from sluice.jvm.static_call import static_call

_GUAVA = "org.apache.hadoop.thirdparty.com.google.common"  # in the copy that every Hadoop client since 3.3 brings along


def is_utf8(data: Column) -> Column:
    """Whether BINARY data is UTF-8."""
    checked = _by_guava("base.Utf8", "isWellFormed", "BooleanType", data)
    # What isn't comes back from being decoded as other bytes; it takes four times as long to find out.
    return F.encode(F.decode(data, "UTF-8"), "UTF-8") == data if checked is None else checked


def first_of(data: Column, character: str) -> Column:
    """The first position of an ASCII character in BINARY data, in bytes; negative if it isn't there."""
    code = ord(character)
    found = _by_guava("primitives.Bytes", "indexOf", "IntegerType", data, F.lit(code).cast("byte"))
    if found is not None:
        return found
    before = F.substring_index(data.cast("string"), character, 1)
    return F.when(data.cast("string").contains(character), F.octet_length(before)).otherwise(-1)


def _by_guava(name: str, method: str, result: str, *arguments: Column) -> Column | None:
    """A call of a static method; None where this Spark's Hadoop has no such class."""
    spark = SparkSession.getActiveSession()
    assert spark is not None
    try:
        return static_call(spark, f"{_GUAVA}.{name}", method, result, *arguments)
    except Py4JError:
        return None
