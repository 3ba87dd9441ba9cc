"""Looks into a database without a JVM: what the clients of all kinds of database share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from importlib import import_module
from typing import Any
from urllib.parse import parse_qsl

from sluice.databases.address import JdbcAddress
from sluice.databases.dialect import Kind
from sluice.errors import ActionRequiredError, RetryableError
from sluice.identifiers import percent_marks

PAGE = "the page"
_LONGEST_REASON = 500  # characters
Row = tuple[Any, ...]


Ask = Callable[..., list[Row]]
"""A query with `?` for each value, and the values."""


@dataclass(frozen=True)
class Asking:
    """A connection that answers queries."""

    run: Ask
    describe: Callable[[str], list[tuple[str, str]]]
    begun: Callable[[Sequence[str]], AbstractContextManager[None]] = lambda _: nullcontext()

    def __call__(self, sql: str, *values: Any) -> list[Row]:
        """What a query with `?` for each value finds."""
        return self.run(sql, *values)

    def described(self, query: str) -> list[tuple[str, str]]:
        """The names and types of a query's columns, as far as its database says them; no row is fetched."""
        return self.describe(query)

    def together(self, *begin: str) -> AbstractContextManager[None]:
        """Questions of one transaction, which these statements begin; it changes nothing."""
        return self.begun(begin)


@dataclass(frozen=True)
class Look:
    """A look into a database.

    Attributes:
        address: the database's.
        wait: how many seconds a connection and each query may take.
        who: who asks, for errors.
    """

    address: JdbcAddress
    wait: int
    who: str


Client = Callable[[Look], AbstractContextManager[Asking]]
"""Connects to one kind of database, for as long as the block.

Raises:
    ActionRequiredError: this process has no driver for it, or the database refuses.
    RetryableError: it doesn't answer.
"""


class OneServer:
    """Refuses answers of a second server."""

    def __init__(self, look: Look) -> None:
        self._look = look
        self._server: Row | None = None

    def answered(self, server: Row) -> None:
        """Take note of the server that answers.

        Raises:
            RetryableError: it is another one than before.
        """
        if self._server not in (None, server):
            raise RetryableError(
                f"Two servers answer {self._look.who}, so the answers of one can't be taken together with the other's.",
                next_step="the step is retried; if it comes back, have the connection lead to one server.",
                connection=self._look.address.connection,
            )
        self._server = server


class Questions(ABC):
    """Questions to a server by a cursor of PEP 249, each in a separate transaction, and all to one server.

    What limits a question is set for no longer than its transaction: a pooler hands the session on to others as it is.
    """

    def __init__(self, cursor: Any, look: Look) -> None:
        self._cursor, self._look = cursor, look
        self._one_server = OneServer(look)

    def ask(self, sql: str, *values: Any) -> list[Row]:
        """See `Asking`."""
        with self._question():
            self._cursor.execute(self._limited(percent_marks(sql) if values else sql), values or None)
            return list(self._cursor.fetchall())

    def _columns(self, query: str) -> Sequence[Any]:
        """A query's columns, as the driver describes them; no row is fetched."""
        with self._question():
            self._cursor.execute(self._limited(f"SELECT * FROM (\n{query}\n) sluice_query LIMIT 0"))
            return list(self._cursor.description)

    def _limited(self, sql: str) -> str:
        """A statement that takes no longer than a look may wait, where its transaction doesn't see to that."""
        return sql

    @abstractmethod
    def _question(self) -> AbstractContextManager[None]:
        """The transaction of one question, for as long as the block; another server than before is refused."""


def failed(look: Look, said: str, kind: Kind) -> ActionRequiredError | RetryableError:
    """The error of a look that failed.

    Args:
        look: the look.
        said: what the database or its driver says, without secrets and without values of rows.
        kind: the kind of the database's error.
    """
    reason = {"connection": look.address.connection, "reason": " ".join(said.split())[:_LONGEST_REASON]}
    page = look.who == PAGE
    if kind in ("data", "other"):
        return ActionRequiredError(
            f"The database can't answer {look.who}: it finds a mistake in what it is asked.",
            next_step="correct what the database names: a `query` of the pipeline's, a column, or a value that an "
            "expression of it can't take.",
            **reason,
        )
    if kind != "passing":
        grants = (
            "or grant it SELECT on `_sluice_instants`; the server may also admit tasks' machines only, and not the API "
            "server's."
        )
        return ActionRequiredError(
            f"The database refuses {look.who}'s look at the table.",
            next_step="correct login or password of the Airflow connection, "
            + (grants if page else "or grant it what docs/jdbc-source.md names under `Rights`."),
            **reason,
        )
    return RetryableError(
        f"The database doesn't answer {look.who}.",
        next_step="check that it can be reached from Airflow's "
        + ("API server." if page else "workers; the step is retried."),
        **reason,
    )


def wrong_certificate(look: Look, said: str, setting: str) -> ActionRequiredError:
    """The error of a look whose server has a certificate that isn't accepted.

    Args:
        look: the look.
        said: what the driver says, without secrets.
        setting: the connection's setting that names the authority's certificate.
    """
    return ActionRequiredError(
        f"The database's certificate isn't one that {look.who} accepts.",
        next_step="look whether the server of the Airflow connection is the right one. If it is, give it a certificate "
        f"of its host's name that is valid, or name the certificate of its authority in `{setting}`.",
        connection=look.address.connection,
        reason=" ".join(said.split())[:_LONGEST_REASON],
    )


def driver_of(look: Look, database: str, names: Sequence[str], install: str) -> Any:
    """A driver for Python (PEP 249), the first that is installed.

    Args:
        look: the look.
        database: the kind of database, for the error.
        names: the drivers' modules, in order of preference.
        install: the command that installs one.

    Raises:
        ActionRequiredError: none is installed.
    """
    for name in names:
        try:
            return import_module(name)
        except ImportError:
            continue
    page = f"beside Airflow's API server: `{install}`. Till then the page shows the control topic's transactions alone."
    raise ActionRequiredError(
        f"This process has no client for {database}.",
        next_step=f"install {names[0]} {page if look.who == PAGE else f'beside Airflow: `{install}`.'}",
        connection=look.address.connection,
    )


def url_parts(address: JdbcAddress, kind: str, port: str) -> tuple[str, str, dict[str, str]]:
    """The servers of a JDBC URL, its database, and what URL and connection say besides.

    Raises:
        ActionRequiredError: the URL is of another kind, or names no server.
    """
    where, _, query = address.url.partition("?")
    scheme, _, rest = where.partition("//")
    servers, _, database = rest.partition("/")
    if scheme != f"jdbc:{kind}:" or not servers:
        raise ActionRequiredError(
            "The connection's URL names no server.",
            next_step=f"write it as jdbc:{kind}://host:{port}/database.",
            connection=address.connection,
        )
    return servers, database, {**address.properties, **dict(parse_qsl(query))}


def server_of(text: str, standard: str, connection: str) -> tuple[str, str]:
    """Host and port of one server of a JDBC URL.

    Args:
        text: the server as the URL names it.
        standard: the port where it names none.
        connection: the connection's id, for the error.

    Raises:
        ActionRequiredError: the port is no number.
    """
    host, colon, port = text.rpartition(":")
    if not colon or port.endswith("]"):
        host, port = text, standard
    if not (port.isascii() and port.isdigit() and len(port) <= 5):
        raise ActionRequiredError(
            "The connection's URL has a port that is no number.",
            next_step=f"write its server as host:{standard}.",
            connection=connection,
        )
    return host.strip("[]"), port
