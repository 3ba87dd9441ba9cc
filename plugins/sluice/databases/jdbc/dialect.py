"""The dialect of a database that only its JDBC driver knows: what the standard and JDBC have, and no more. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from sluice.databases.dialect import DatabaseColumn, Dialect, parts_of_type
from sluice.databases.fits import (
    INTEGERS,
    Fit,
    as_json,
    as_local_time,
    as_text,
    date_text,
    decimal_of,
    decimal_text,
    finite,
    fits_in_years,
    in_ascii,
    integer_in,
    not_empty,
    not_null,
    of_length,
    of_octets,
    within_decimal,
    within_microseconds,
    within_octets,
    within_units,
    without_nul,
)
from sluice.databases.jdbc.types import BYTES, DECIMALS, TEXTS, TIMES, ZONED
from sluice.databases.stored import Stored
from sluice.identifiers import dotted
from sluice.records.structs import Type

DRIVER_CLASS = "driver_class"
"""The setting in a connection's extra field that names the driver's class, as Airflow's JDBC provider has it."""
_BITS: Final = MappingProxyType({"tinyint": 8, "smallint": 16, "integer": 32, "bigint": 64})
_NATIONAL: Final = ("nchar", "nvarchar", "longnvarchar", "nclob")
_DOUBLE_BITS = 53
_WITH_SCALE = 2


@dataclass(frozen=True)
class Habits:
    """What a database does with values, beside what the standard says.

    Attributes:
        times: its types that keep a day or a time as it is written, in lower case.
        cast: SQL that makes a time of a text, with `{}` for the text and `{kind}` for the type.
        narrow: whether texts of types other than NCHAR, NVARCHAR and NCLOB may have fewer characters than Unicode has.
        empty_is_null: whether an empty text becomes null.
        strict_nulls: whether its driver takes Spark's null of a text for a CLOB alone, and that of bytes for a BLOB.
        largest: the size of a type that is written as MAX; 0 for none.
        unfit_query: see `Dialect`.
    """

    times: tuple[str, ...] = ("date", "timestamp", "timestamp without time zone", ZONED)
    cast: str = "CAST({} AS {kind})"
    narrow: bool = False
    empty_is_null: bool = False
    strict_nulls: bool = False
    largest: int = 0
    unfit_query: str | None = None


_SQL_SERVER = Habits(times=("date", "datetime2", "datetimeoffset"), narrow=True, largest=2**31 - 1)
HABITS: Final = MappingProxyType(
    {
        "derby": Habits(cast="CAST(CAST({} AS VARCHAR(40)) AS {kind})", strict_nulls=True),
        "jtds": _SQL_SERVER,
        "mysql": Habits(
            times=("date", "datetime"),  # a TIMESTAMP is converted by the session's zone
            unfit_query=(
                "SELECT CASE WHEN engine IN ('InnoDB', 'ndbcluster') THEN NULL ELSE concat('its engine is ', "
                "coalesce(engine, 'unknown'), ', which keeps no transactions') END FROM information_schema.tables "
                "WHERE table_schema = ? AND table_name = ?"
            ),
        ),
        "oracle": Habits(
            times=("timestamp",),  # its DATE is a time, too
            cast="CAST(TO_TIMESTAMP({}, 'YYYY-MM-DD HH24:MI:SS.FF6') AS {kind})",
            empty_is_null=True,
        ),
        "sqlserver": _SQL_SERVER,
    }
)
"""By the part of a JDBC URL after `jdbc:`; all but Derby's by the databases' manuals alone."""


class AnyDatabase(Dialect):
    """A database by the part of its JDBC URL after `jdbc:`.

    Args:
        subprotocol: that part, such as `oracle`.
        driver: the class of the driver; empty for the one that takes the URL.
        mark: what the driver says is put around names.
    """

    properties = MappingProxyType({})
    settings = ()
    connection_types = ()
    isolation = "READ_COMMITTED"
    one_writer = False
    lock_row = ""
    creates = "CREATE TABLE"
    drops = "DROP TABLE"
    whole_number = "DECIMAL(19)"
    appends_only = True
    schema_query = None

    def __init__(self, subprotocol: str, driver: str = "", mark: str = '"') -> None:
        self.subprotocol = subprotocol
        self.name = subprotocol
        self.driver = driver
        self.mark = mark
        self.habits = HABITS.get(subprotocol, Habits())

    def stored(self, kind: Type, column: DatabaseColumn, zone: str) -> Stored | None:  # noqa: ARG002
        """See `Dialect`. Of texts, whole numbers and decimals, which each driver writes alike."""
        name = parts_of_type(column.type)[0]
        is_number = name.split()[0] in _BITS or name in DECIMALS.values()
        alike = name in TEXTS if kind == "string" else is_number and (kind in INTEGERS or decimal_of(kind) is not None)
        return Stored(self.quoted(column.name)) if alike else None

    def url(self, host: str, port: int | None, schema: str, login: str) -> str:  # noqa: ARG002
        """The host is the whole URL."""
        return host

    def refused(self, said: str, code: int, state: str) -> str:  # noqa: ARG002
        """See `Dialect`. Where its texts quote values isn't known."""
        return f"error {code}, SQLSTATE {state or 'none'}"

    def table(self, schema: str, name: str) -> str:
        """See `Dialect`."""
        return ".".join(self.quoted(one) for one in (schema, name) if one)

    def canonical(self, schema: str, name: str) -> str:
        """See `Dialect`."""
        return dotted(*(one for one in (schema, name) if one))

    def made(self, kind: Type, in_key: int = 0) -> str | None:  # noqa: ARG002
        """See `Dialect`. None."""
        return None

    def fit(self, value: str, kind: Type, column: DatabaseColumn, zone: str) -> Fit | str:
        """See `Dialect`. By the families of JDBC's types; days and times are sent as texts."""
        name, numbers = parts_of_type(column.type)
        if name in TEXTS:
            found = self._text(value, kind, name, numbers, zone)
        elif name in TIMES:
            found = _time(value, kind, name, numbers, zone)
        else:
            found = _plain(value, kind, name, numbers)
            if found is not None and self.habits.strict_nulls and kind == "binary" and name != "blob":
                found = not_null(found)
        return self.misfit(kind, column) if found is None else found

    def _text(self, value: str, kind: Type, name: str, numbers: list[int], zone: str) -> Fit | None:
        found = as_json(value) if isinstance(kind, Mapping) else as_text(value, kind, zone)
        if found is None:
            return None
        found = without_nul(found)
        if self.habits.empty_is_null:
            found = not_empty(found)
        if self.habits.narrow and not name.startswith(_NATIONAL):
            found = in_ascii(found)
        return of_length(found, numbers[0]) if name in ("char", "nchar") else within_units(found, numbers[0])


def _time(value: str, kind: Type, name: str, numbers: list[int], zone: str) -> Fit | None:
    """A day or a time as text, which the commit casts to the column's type."""
    if name == "date":
        return fits_in_years(date_text(value), value) if kind == "date" else None
    if name == ZONED and kind == "timestamp":
        found = Fit(f"concat({as_local_time(value, kind, 'UTC').value}, '+00:00')")
    elif name == "timestamp" and kind in ("timestamp", "timestamp_ntz"):
        found = as_local_time(value, kind, zone)
    else:
        return None
    return within_microseconds(fits_in_years(found, value), value, numbers[0])


def _plain(value: str, kind: Type, name: str, numbers: list[int]) -> Fit | None:
    """A number, a boolean or bytes."""
    if name in BYTES and kind == "binary":
        found = Fit(value)
        return of_octets(found, numbers[0]) if name == "binary" else within_octets(found, numbers[0])
    if name in ("boolean", "bit"):
        return Fit(value) if kind == "boolean" else None
    if name.split()[0] in _BITS:
        return integer_in(value, kind, _BITS[name.split()[0]], signed=not name.endswith("unsigned"))
    if name in DECIMALS.values() and len(numbers) == _WITH_SCALE and 0 <= numbers[1] <= numbers[0]:
        return decimal_text(value, numbers) if kind == "string" else within_decimal(value, kind, numbers)
    is_double = name == "double" or (name == "float" and numbers == [_DOUBLE_BITS])
    if kind == "float" or (kind == "double" and is_double):
        return finite(value, kind) if is_double or name == "real" else None
    return None
