"""The dialect of a database that only its JDBC driver knows. Pure.

It is for sources. As a target no type fits: what such a database makes of a transaction was never tried.
"""

from __future__ import annotations

from types import MappingProxyType

from sluice.databases.dialect import DatabaseColumn, Dialect
from sluice.databases.fits import Fit
from sluice.databases.stored import Stored
from sluice.identifiers import dotted, sql_quoted
from sluice.records.structs import Type

DRIVER_CLASS = "driver_class"
"""The setting in a connection's extra field that names the driver's class, as Airflow's JDBC provider has it."""


class AnyDatabase(Dialect):
    """A database by the part of its JDBC URL after `jdbc:`.

    Args:
        subprotocol: that part, such as `oracle`.
        driver: the class of the driver; empty for the one that takes the URL.
    """

    properties = MappingProxyType({})
    settings = ()
    connection_types = ()
    isolation = "READ_COMMITTED"
    one_writer = False
    lock_row = ""

    def __init__(self, subprotocol: str, driver: str = "") -> None:
        self.subprotocol = subprotocol
        self.name = subprotocol
        self.driver = driver

    def stored(self, kind: Type, column: DatabaseColumn, zone: str) -> Stored | None:  # noqa: ARG002
        """See `Dialect`. Nothing is known to be stored as it was sent."""
        return None

    def url(self, host: str, port: int | None, schema: str, login: str) -> str:  # noqa: ARG002
        """The host is the whole URL."""
        return host

    def refused(self, said: str, code: int, state: str) -> str:  # noqa: ARG002
        """See `Dialect`. Where its texts quote values isn't known."""
        return f"error {code}, SQLSTATE {state or 'none'}"

    def table(self, schema: str, name: str) -> str:
        """See `Dialect`."""
        return ".".join(sql_quoted(one) for one in (schema, name) if one)

    def canonical(self, schema: str, name: str) -> str:
        """See `Dialect`."""
        return dotted(*(one for one in (schema, name) if one))

    def made(self, kind: Type, in_key: int = 0) -> str | None:  # noqa: ARG002
        """See `Dialect`. None."""
        return None

    def fit(self, value: str, kind: Type, column: DatabaseColumn, zone: str) -> Fit | str:  # noqa: ARG002
        """See `Dialect`. None does."""
        return self.misfit(kind, column)
