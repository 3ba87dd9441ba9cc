"""The types of `java.sql.Types` by their names, as columns have them here. Pure.

https://docs.oracle.com/en/java/javase/17/docs/api/java.sql/java/sql/Types.html
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

INTEGERS: Final = MappingProxyType({-6: "tinyint", 5: "smallint", 4: "integer", -5: "bigint"})
DECIMALS: Final = MappingProxyType({2: "numeric", 3: "decimal"})
ZONED: Final = "timestamp with time zone"
NAMES: Final = MappingProxyType(
    {
        -7: "bit", 16: "boolean", 6: "float", 7: "real", 8: "double", 1: "char", 12: "varchar", -1: "longvarchar",
        -15: "nchar", -9: "nvarchar", -16: "longnvarchar", 2005: "clob", 2011: "nclob", 91: "date", 92: "time",
        93: "timestamp", 2013: "time with time zone", 2014: ZONED, -2: "binary", -3: "varbinary",
        -4: "longvarbinary", 2004: "blob",
        # Oracle's and SQL Server's own, which Spark's dialects know.
        100: "real", 101: "double", -101: ZONED, -102: ZONED, -155: ZONED,
    }
)  # fmt: skip
UNREADABLE: Final = "of a type that Spark can't read: "
"""The beginning of the name of any other type."""
OTHER: Final = "of the type "
"""The beginning of the words for a column's type that no value is known to fit."""
TEXTS: Final = ("char", "varchar", "longvarchar", "nchar", "nvarchar", "longnvarchar", "clob", "nclob")
BYTES: Final = ("binary", "varbinary", "longvarbinary", "blob")
TIMES: Final = ("date", "timestamp", ZONED)
# Parts of databases' own names of types. Drivers call enumerations texts, too, UUIDs bytes, and years dates.
_OF_TEXTS = ("char", "text", "clob", "string")
_OF_BYTES = ("binary", "blob", "bit data", "bytea", "raw", "image")
_LONG_TEXTS: Final = (2005, -1, 2011, -16, 12)  # java.sql.Types
_SECONDS = len("2026-01-01 00:00:00.")


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


@dataclass(frozen=True)
class TypeThere:
    """A type of a database, as `DatabaseMetaData.getTypeInfo` has it.

    Attributes:
        name: the database's name of it.
        code: the number in `java.sql.Types`, or one of the driver's.
        size: the largest number of its characters, bytes or digits.
        parameters: what a declaration has in parentheses, in the driver's words; empty if nothing.
        unsigned: whether it has no negative numbers.
    """

    name: str
    code: int
    size: int = 0
    parameters: str = ""
    unsigned: bool = False


@dataclass(frozen=True)
class ColumnThere:
    """A table's column, as `DatabaseMetaData.getColumns` has it.

    Attributes:
        name: its name.
        code: its type's number in `java.sql.Types`, or one of the driver's.
        type: the database's name of its type.
        size: the number of its characters, bytes or digits, or the characters of a time; 0 if there is none.
        digits: the digits behind the point, also of a time's seconds; None if the driver says none.
        nullable: whether it may be null.
        filled: whether the database fills it if a row has no value for it.
        generated: whether only the database may fill it.
    """

    name: str
    code: int
    type: str
    size: int = 0
    digits: int | None = None
    nullable: bool = True
    filled: bool = False
    generated: bool = False

    @property
    def family(self) -> str:
        """The name of its type among JDBC's; empty for other types and other forms of them."""
        return NAMES.get(self.code) or INTEGERS.get(self.code) or DECIMALS.get(self.code) or ""

    @property
    def second_digits(self) -> int:
        """How many digits of a second it keeps."""
        return self.digits if self.digits is not None else max(self.size - _SECONDS, 0)

    def in_words(self, types: Sequence[TypeThere], times: Collection[str]) -> str:
        """Its type with its sizes, by which values are fitted; the database's own name where it isn't known.

        Args:
            types: the database's types.
            times: the database's names of the types that keep a day or a time as it is written.
        """
        own, family = self.type.lower(), self.family
        known = {
            **dict.fromkeys(TEXTS, any(part in own for part in _OF_TEXTS)),
            **dict.fromkeys(BYTES, any(part in own for part in _OF_BYTES)),
            **dict.fromkeys(TIMES, own.partition("(")[0] + own.partition(")")[2] in times),
        }
        if not known.get(family, True):
            return f"{OTHER}{own}"
        if family in (*TEXTS, *BYTES):
            return f"{family}({self.size})"
        if family == "float":
            return f"float({self.size})"
        if family == "timestamp":
            return f"timestamp({self.second_digits})"
        if family == ZONED:
            return f"timestamp({self.second_digits}) with time zone"
        unsigned = "unsigned" in own or any(one.unsigned for one in types if one.name.lower() == own)
        words = name_of(self.code, self.type, self.size, self.digits or 0, signed=not unsigned)
        is_other = words.startswith(UNREADABLE) or (unsigned and family in DECIMALS.values())
        return f"{OTHER}{own}" if is_other else words

    def declared(self, types: Sequence[TypeThere], largest: int = 0) -> str:
        """SQL of its type, for another column of the same type.

        Args:
            types: the database's types.
            largest: the size that is written as MAX; 0 for none.
        """
        name = self.type.removesuffix(" identity")  # SQL Server's
        if "(" in name and "()" not in name:
            return name
        family = self.family
        if family in (*TEXTS, *BYTES):
            numbers = "MAX" if largest and self.size >= largest else str(self.size)
        elif family in DECIMALS.values():
            numbers = f"{self.size},{self.digits or 0}"
        elif family in TIMES and family != "date":
            numbers = str(self.second_digits)
        else:
            return name
        if "()" in name:
            return name.replace("()", f"({numbers})")
        there = [one for one in types if one.name.lower() == name.lower()]
        sized = any(_takes_numbers(one.parameters) for one in there) if there else family in _SIZED
        first, zone, rest = name.partition(" ") if family in TIMES else (name, "", "")  # TIMESTAMP(6) WITH TIME ZONE
        return f"{first}({numbers}){zone}{rest}" if sized else name


_SIZED = ("char", "varchar", "nchar", "nvarchar", "binary", "varbinary", "numeric", "decimal")
"""Families whose types have a size, where the driver doesn't list a type."""


def _takes_numbers(parameters: str) -> bool:
    """Whether a type's parameters are numbers, and not MariaDB's `[CHARACTER SET …]`."""
    words = parameters.strip().lower()
    return bool(words) and not words.startswith("[character")


def long_text(types: Sequence[TypeThere]) -> str | None:
    """The type for texts of any length: the largest of the first family that there is; None if there is none."""
    for code in _LONG_TEXTS:
        found = [one for one in types if one.code == code and any(part in one.name.lower() for part in _OF_TEXTS)]
        if found:
            one = max(found, key=lambda one: one.size)
            return f"{one.name}({one.size})" if code == _LONG_TEXTS[-1] else one.name
    return None
