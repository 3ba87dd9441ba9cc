"""Values of every type, each type's edges among them, and how they are compared.

No code of Sluice's and none of Spark's is in here.
"""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

Row = dict[str, Any]


@dataclass(frozen=True)
class Array:
    """An ARRAY of a type."""

    of: Kind


@dataclass(frozen=True)
class Mapped:
    """A MAP from STRING to a type."""

    of: Kind


@dataclass(frozen=True)
class Fields:
    """A STRUCT, by its fields."""

    of: Mapping[str, Kind]

    def __hash__(self) -> int:
        return hash(tuple(self.of))


Kind = str | Array | Mapped | Fields
"""A type; one without parts is named as Spark's DDL has it."""

INNER: Final = Fields({"at": "TIMESTAMP", "list": Array("STRING")})
DEEP: Final = Fields(
    {"text": "STRING", "day": "DATE", "at": "TIMESTAMP", "exact": "DECIMAL(38,10)", "raw": "BINARY", "inner": INNER}
)
COLUMNS: Final[Mapping[str, Kind]] = {
    "yes": "BOOLEAN",
    "tiny": "TINYINT",
    "small": "SMALLINT",
    "whole": "INT",
    "big": "BIGINT",
    "single": "FLOAT",
    "double": "DOUBLE",
    "money": "DECIMAL(9,2)",
    "exact": "DECIMAL(38,10)",
    "digits": "DECIMAL(38,0)",
    "fraction": "DECIMAL(38,38)",
    "unsigned": "DECIMAL(20,0)",
    "text": "STRING",
    "raw": "BINARY",
    "day": "DATE",
    "at": "TIMESTAMP",
    "local": "TIMESTAMP_NTZ",
    "deep": DEEP,
    "days": Array("DATE"),
    "doubles": Array("DOUBLE"),
    "locals": Array("TIMESTAMP_NTZ"),
    "many": Array(Fields({"n": "BIGINT", "at": "TIMESTAMP", "m": "DECIMAL(38,10)"})),
    "sums": Array("DECIMAL(20,5)"),
    "texts": Array("STRING"),
    "numbers": Mapped("BIGINT"),
    "times": Mapped("TIMESTAMP"),
}
"""The table's columns, beside `id`."""


def ddl(kind: Kind) -> str:
    """A type as Spark's DDL."""
    if isinstance(kind, Array):
        return f"ARRAY<{ddl(kind.of)}>"
    if isinstance(kind, Mapped):
        return f"MAP<STRING, {ddl(kind.of)}>"
    if isinstance(kind, Fields):
        return f"STRUCT<{', '.join(f'{name}: {ddl(one)}' for name, one in kind.of.items())}>"
    return kind


def columns_ddl(columns: Mapping[str, Kind]) -> str:
    """Columns as Spark's DDL."""
    return ", ".join(f"{name} {ddl(kind)}" for name, kind in columns.items())


def numbers_of(kind: str) -> tuple[int, int]:
    """Precision and scale of a DECIMAL."""
    precision, _, scale = kind.removeprefix("DECIMAL(").removesuffix(")").partition(",")
    return int(precision), int(scale)


def decimal(unscaled: int, scale: int) -> Decimal:
    """A decimal of any number of digits: Python's own arithmetic rounds to 28."""
    digits = tuple(map(int, str(abs(unscaled))))
    return Decimal((int(unscaled < 0), digits, -scale))


def unscaled_of(number: Decimal, scale: int) -> int:
    """All digits as a whole number."""
    sign, digits, exponent = number.as_tuple()
    whole = int("".join(map(str, digits))) * 10 ** (int(exponent) + scale)
    return -whole if sign else whole


def single(number: float) -> float:
    """The number that 32 bits hold of it."""
    return float(struct.unpack("f", struct.pack("f", number))[0])


# Values ---------------------------------------------------------------------------------------------------------------

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MOMENTS: Final = [
    datetime(1, 1, 1), datetime(1, 1, 1, 0, 0, 0, 1), datetime(999, 12, 31, 23, 59, 59, 999999),
    datetime(1582, 10, 4, 23, 59, 59, 999999), datetime(1582, 10, 5), datetime(1582, 10, 10, 12, 30),
    datetime(1582, 10, 14, 23, 59, 59), datetime(1582, 10, 15), datetime(1700, 2, 28, 23, 0, 1),
    datetime(1883, 11, 18, 17, 0, 0, 1), datetime(1899, 12, 31, 23, 59, 59, 999000), datetime(1900, 1, 1),
    datetime(1900, 2, 28, 23, 59, 59), datetime(1901, 12, 13, 20, 45, 51), datetime(1935, 3, 30, 2, 30),
    datetime(1969, 12, 31, 23, 59, 59, 999999), datetime(1970, 1, 1), datetime(1970, 1, 1, 0, 0, 0, 1),
    datetime(2000, 2, 29, 12), datetime(2006, 10, 29, 2, 1), datetime(2026, 3, 29, 1, 30), datetime(2026, 3, 29, 2, 30),
    datetime(2026, 10, 25, 0, 30), datetime(2026, 10, 25, 2, 30, 0, 500000), datetime(2026, 11, 1, 2, 0, 1),
    datetime(2038, 1, 19, 3, 14, 8), datetime(2262, 4, 11, 23, 47, 16, 854776), datetime(9999, 12, 31),
    datetime(9999, 12, 31, 23, 59, 59, 999999),
]  # fmt: skip
_TEXTS: Final = [
    "", " ", "a", "\0", "a\0b", "two\nlines", "cr\r", "\r\n", "tab\t", 'say "hi"', '"', '""', "it's", "back\\slash",
    "\\", "\\u0041", "\u2028\u2029", "\u0085", "😀🦀", "\U0001d4b3\U0010ffff", "\ufeff", "\uffff", "\x7f\x1f\x01",
    "e\u0301é", "ß漢", "null", "NULL", "\\N", "NaN", ",;|", "#", " both ", "true", "2020-01-01", "1e3", "{}", "[1]",
    "${x}", "'; DROP TABLE t; --", 'quote "\0" and nul', "x" * 5000, "é" * 3000,
]  # fmt: skip
_DOUBLES: Final = [
    0.0, -0.0, 1.0, -1.5, 0.1, 5e-324, -5e-324, 2.2250738585072014e-308, 1.7976931348623157e308,
    -1.7976931348623157e308, 1e16, 123456789012345680.0, 1e23, math.pi, 1 / 3, 2.0**53 + 2, 1e-7, 0.001, 1e7,
]  # fmt: skip
_SINGLES: Final = [
    0.0, -0.0, 1.0, -1.5, single(0.1), single(1.401298464324817e-45), single(1.1754943508222875e-38),
    3.4028234663852886e38, -3.4028234663852886e38, 16777216.0, single(1e10), single(math.pi), single(1e-7),
]  # fmt: skip
_NOT_FINITE: Final = [math.nan, math.inf, -math.inf]
_BITS: Final = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}


def edges(kind: str, *, finite: bool) -> list[Any]:
    """What is at the end of a type, or is known to be mistaken."""
    if kind in _BITS:
        most = 2 ** (_BITS[kind] - 1) - 1
        return [0, 1, -1, most, -most - 1]
    if kind.startswith("DECIMAL"):
        precision, scale = numbers_of(kind)
        most = 10**precision - 1
        if kind == COLUMNS["unsigned"]:
            return [decimal(one, 0) for one in (0, 1, 2**63 - 1, 2**63, 2**64 - 1)]
        more = (10 ** (precision - 1), -(10 ** (precision // 2)))
        return [decimal(one, scale) for one in (0, 1, -1, most, -most, *more)]
    return {
        "BOOLEAN": [True, False],
        "FLOAT": [*_SINGLES, *([] if finite else _NOT_FINITE)],
        "DOUBLE": [*_DOUBLES, *([] if finite else _NOT_FINITE)],
        "STRING": _TEXTS,
        "BINARY": [b"", b"\0", b"\xff", bytes(range(256)), b"\x80\x81", b"[B@1234", b"text"],
        "DATE": [one.date() for one in _MOMENTS],
        "TIMESTAMP": [one.replace(tzinfo=UTC) for one in _MOMENTS],
        "TIMESTAMP_NTZ": list(_MOMENTS),
    }[kind]


class Wild(random.Random):
    """Draws values, the same in each run.

    Args:
        seed: decides which.
        finite: no NaN and no infinity, for formats that have neither.
        full: no null in a list or a map, and no list or map that is null itself, as Protobuf has it.
    """

    def __init__(self, seed: int, *, finite: bool = False, full: bool = False) -> None:
        super().__init__(seed)
        self._finite, self._full = finite, full

    def row(self, columns: Mapping[str, Kind], number: int) -> Row:
        """The first rows have each column's edges, one after the other; the very first has nothing."""
        return {name: self._column(kind, number) for name, kind in columns.items()}

    def _column(self, kind: Kind, number: int) -> Any:
        if number == 0:
            return self._nothing(kind)
        known = edges(kind, finite=self._finite) if isinstance(kind, str) else self._shapes(kind)
        if number <= len(known):
            return known[number - 1]
        return self._maybe(kind, 0.1)

    def _nothing(self, kind: Kind) -> Any:
        return type(self._shapes(kind)[0])() if self._full and isinstance(kind, Array | Mapped) else None

    def _shapes(self, kind: Kind) -> list[Any]:
        if isinstance(kind, Array):
            return [[], *([] if self._full else [[None], [None, self._value(kind.of), None]])]
        if isinstance(kind, Mapped):
            return [{}, {"": self._value(kind.of)}, *([] if self._full else [{"a.b": None, "`": None}])]
        assert isinstance(kind, Fields)
        return [{name: self._nothing(one) for name, one in kind.of.items()}]

    def _maybe(self, kind: Kind, nulls: float = 0.15) -> Any:
        return self._nothing(kind) if self.random() < nulls else self._value(kind)

    def _element(self, kind: Kind) -> Any:
        return self._value(kind) if self._full else self._maybe(kind)

    def _value(self, kind: Kind) -> Any:
        if isinstance(kind, Array):
            return [self._element(kind.of) for _ in range(self.choice([0, 1, 3]))]
        if isinstance(kind, Mapped):
            return {self._short(): self._element(kind.of) for _ in range(self.choice([0, 1, 3]))}
        if isinstance(kind, Fields):
            return {name: self._maybe(one) for name, one in kind.of.items()}
        if self.random() < 0.4:
            return self.choice(edges(kind, finite=self._finite))
        return self._scalar(kind)

    def _scalar(self, kind: str) -> Any:
        if kind in _BITS:
            most = 2 ** (_BITS[kind] - 1)
            return self.randrange(-most, most)
        if kind.startswith("DECIMAL"):
            precision, scale = numbers_of(kind)
            most, least = 10**precision, 1 - 10**precision
            return decimal(self.randrange(2**64) if kind == COLUMNS["unsigned"] else self.randrange(least, most), scale)
        micros = self.randrange(-62_135_596_800_000_000, 253_402_300_800_000_000)
        moment = EPOCH + timedelta(microseconds=micros)
        made: Mapping[str, Callable[[], Any]] = {
            "BOOLEAN": lambda: self.random() < 0.5,
            "FLOAT": lambda: self._fraction("f", "I", 32),
            "DOUBLE": lambda: self._fraction("d", "Q", 64),
            "STRING": self._short,
            "BINARY": lambda: self.randbytes(self.choice([1, 5, 63, 64, 300])),
            "DATE": moment.date,
            "TIMESTAMP": lambda: moment,
            "TIMESTAMP_NTZ": lambda: moment.replace(tzinfo=None),
        }
        return made[kind]()

    def _fraction(self, code: str, whole: str, bits: int) -> float:
        """Of any bits; NaN is one number here."""
        (found,) = struct.unpack(code, struct.pack(whole, self.getrandbits(bits)))
        if math.isfinite(found):
            return float(found)
        return 0.5 if self._finite else math.nan if math.isnan(found) else float(found)

    def _short(self) -> str:
        letters = "abc ,;\"'\\\n\r\t\0{}[]:ä漢😀\u2028`$"
        return "".join(self.choice(letters) for _ in range(self.choice([1, 4, 12])))


# Comparison -----------------------------------------------------------------------------------------------------------


def bits(value: Any) -> Any:
    """A value as it is compared: floats by their bits, so that nothing is nearly the same; NaN is one number."""
    if isinstance(value, dict):
        return {name: bits(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [bits(one) for one in value]
    if isinstance(value, float):
        return "nan" if math.isnan(value) else struct.pack(">d", value)
    return bytes(value) if isinstance(value, bytearray | memoryview) else value


def differences(found: Mapping[int, Row], wanted: Mapping[int, Row], columns: Sequence[str]) -> list[str]:
    """Where rows aren't as they should be, in words, one for each column at most."""
    said = [f"{len(found)} rows, not {len(wanted)}"] if found.keys() != wanted.keys() else []
    for name in columns:
        pairs = ((number, found[number][name], row[name]) for number, row in wanted.items() if number in found)
        wrong = [(number, has, needs) for number, has, needs in pairs if bits(has) != bits(needs)]
        if wrong:
            number, has, needs = wrong[0]
            said.append(f"{name}, {len(wrong)} rows, as {number}: {has!r:.200}, not {needs!r:.200}")
    return said
