"""A database's address and login. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sluice.databases.dialect import Dialect
from sluice.redact import HIDDEN, redact_text, secret_values


@dataclass(frozen=True)
class JdbcAddress:
    """A database's address; no part of it shows in a repr.

    Attributes:
        connection: the Airflow connection's id.
        dialect: the database's dialect.
        url: the URL for the driver, which may contain a password.
        properties: the driver's properties, including login and password.
    """

    connection: str
    dialect: Dialect
    url: str = field(repr=False)
    properties: Mapping[str, str] = field(repr=False)

    def hidden(self, text: str) -> str:
        """A driver's message, without any URL, login or password that it quotes."""
        secrets = {self.url, self.url.partition("?")[2], *secret_values(dict(self.properties))}
        for secret in sorted(filter(None, secrets), key=len, reverse=True):
            text = text.replace(secret, HIDDEN)
        return redact_text(text)
