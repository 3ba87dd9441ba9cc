"""The types of `java.sql.Types` by their names, as columns have them here. Pure.

https://docs.oracle.com/en/java/javase/17/docs/api/java.sql/java/sql/Types.html
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

INTEGERS: Final = MappingProxyType({-6: "tinyint", 5: "smallint", 4: "integer", -5: "bigint"})
DECIMALS: Final = MappingProxyType({2: "numeric", 3: "decimal"})
_ZONED: Final = "timestamp with time zone"
NAMES: Final = MappingProxyType(
    {
        -7: "bit", 16: "boolean", 6: "float", 7: "real", 8: "double", 1: "char", 12: "varchar", -1: "longvarchar",
        -15: "nchar", -9: "nvarchar", -16: "longnvarchar", 2005: "clob", 2011: "nclob", 91: "date", 92: "time",
        93: "timestamp", 2013: "time with time zone", 2014: _ZONED, -2: "binary", -3: "varbinary",
        -4: "longvarbinary", 2004: "blob",
        # Oracle's and SQL Server's own, which Spark's dialects know.
        100: "real", 101: "double", -101: _ZONED, -102: _ZONED, -155: _ZONED,
    }
)  # fmt: skip
UNREADABLE: Final = "of a type that Spark can't read: "
"""The beginning of the name of any other type."""


def name_of(code: int, there: str, precision: int, scale: int, *, signed: bool) -> str:
    """A column's type in words, of which `Engine.reading` makes out how it is read.

    Args:
        code: the number in `java.sql.Types`, or one of the driver's.
        there: the database's name of the type.
        precision: the number of its digits, bits or characters.
        scale: the digits behind the point.
        signed: whether it has negative numbers.
    """
    own = there.lower()
    if code in INTEGERS:
        return INTEGERS[code] if signed else f"{INTEGERS[code]} unsigned"
    if code in DECIMALS:  # DECFLOAT has its point anywhere; Oracle's NUMBER without a precision has 0 digits
        return DECIMALS[code] if "float" in own or precision <= 0 else f"{DECIMALS[code]}({precision},{scale})"
    if own in ("uuid", "uniqueidentifier"):  # to JDBC bytes, or a text
        return "uuid"
    several = code == -7 and precision > 1  # MySQL's BIT(8)
    return NAMES[code] if code in NAMES and not several else f"{UNREADABLE}{own}"
