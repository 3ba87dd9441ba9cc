"""Looks into MariaDB by PyMySQL, without a JVM."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from types import MappingProxyType
from typing import Any
from urllib.parse import unquote

from sluice.databases.address import JdbcAddress
from sluice.databases.client import Asking, Look, Questions, driver_of, failed, server_of, url_parts, wrong_certificate
from sluice.errors import ActionRequiredError

_DRIVERS = ("pymysql",)


@contextmanager
def connected(look: Look) -> Iterator[Asking]:
    """See `sluice.databases.client.Client`."""
    address = look.address
    driver = driver_of(look, "MariaDB", _DRIVERS, "pip install 'sluice[mariadb]'")
    session = f"SET {address.dialect.properties['sessionVariables']}"
    waits = dict.fromkeys(("connect_timeout", "read_timeout", "write_timeout"), look.wait)
    try:
        with closing(driver.connect(**pymysql(address), **waits, init_command=session, autocommit=True)) as connection:
            asking = _Asking(connection.cursor(), look)
            yield Asking(asking.ask, asking.describe, asking.together)
    except driver.Error as error:
        code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
        kind = address.dialect.kind_of(code) or "passing"
        said = str(error.args[-1] if error.args else error) if kind == "data" else str(error)
        said = address.hidden(said)
        if isinstance(getattr(error, "original_exception", None), ssl.SSLCertVerificationError):
            raise wrong_certificate(look, said, "serverSslCert") from None
        raise failed(look, address.dialect.refused(said, code, "") if kind == "data" else said, kind) from None


class _Asking(Questions):
    """Questions to MariaDB.

    A proxy that sends each statement where it pleases leaves those of a transaction together.
    """

    def __init__(self, cursor: Any, look: Look) -> None:
        super().__init__(cursor, look)
        self._begun = False

    def describe(self, query: str) -> list[tuple[str, str]]:
        """See `Asking`."""
        return [(str(c[0]), _type(c[1], c[4], c[5])) for c in self._columns(query)]

    @contextmanager
    def together(self, begin: Sequence[str]) -> Iterator[None]:
        """See `Asking`."""
        for statement in begin:
            self._cursor.execute(statement)
        self._require_one_server()
        self._begun = True
        try:
            yield
        finally:
            self._begun = False
            self._cursor.execute("ROLLBACK")

    @contextmanager
    def _question(self) -> Iterator[None]:
        if self._begun:
            yield
            return
        self._cursor.execute("START TRANSACTION READ ONLY")
        self._require_one_server()
        yield
        self._cursor.execute("COMMIT")

    def _limited(self, sql: str) -> str:
        return f"SET STATEMENT max_statement_time={self._look.wait} FOR {sql}"

    def _require_one_server(self) -> None:
        self._cursor.execute("SELECT @@global.hostname, @@global.port, @@global.server_id, @@global.datadir")
        self._one_server.answered(self._cursor.fetchone())


# https://mariadb.com/kb/en/result-set-packets/: the types of the protocol's columns.
_TYPES = MappingProxyType(
    {
        1: "tinyint", 2: "smallint", 3: "int", 4: "float", 5: "double", 7: "timestamp(6)", 8: "bigint", 9: "mediumint",
        10: "date", 11: "time", 12: "datetime(6)", 13: "year", 16: "bit",
    }
)  # fmt: skip


def _type(code: int, length: int, scale: int) -> str:
    if code in (0, 246):  # its length has the sign, and the point where there is one
        return f"decimal({length - 1 - (scale > 0)},{scale})"
    return _TYPES.get(code, "text")


def pymysql(address: JdbcAddress) -> Mapping[str, Any]:
    """A JDBC URL of MariaDB's and its properties as PyMySQL has them; of several servers the first.

    Raises:
        ActionRequiredError: the URL is none that PyMySQL could go by.
    """
    servers, database, given = url_parts(address, "mariadb", "3306")
    host, port = server_of(servers.partition(",")[0], "3306", address.connection)
    found: dict[str, Any] = {"host": host, "port": int(port), "database": unquote(database) or None}
    found |= {name: given[name] for name in ("user", "password") if name in given}
    mode = given.get("sslMode", "disable").lower()
    if mode not in _WITHOUT_TLS:
        found["ssl"] = _tls(mode, given.get("serverSslCert"), address.connection)
    return found


# The driver's words, https://mariadb.com/docs/connectors/mariadb-connector-j/using-tls-ssl-with-mariadb-connector-j.
_WITHOUT_TLS = ("disable", "disabled", "false", "0")
_UNCHECKED = ("trust", "required", "no_verification")
_NAME_UNCHECKED = ("verify-ca", "verify_ca")


def _tls(mode: str, authority: str | None, connection: str) -> ssl.SSLContext:
    """How the server is checked: as the JDBC driver does, by any other mode as strictly as possible.

    PyMySQL's own settings don't have the server's name checked where they name no authority's certificate.

    Raises:
        ActionRequiredError: the authority's certificate can't be read.
    """
    inline = authority is not None and authority.lstrip().startswith("-----BEGIN ")
    try:
        context = ssl.create_default_context(cafile=None if inline else authority, cadata=authority if inline else None)
    except (OSError, ValueError):  # ssl.SSLError among them
        raise ActionRequiredError(
            "The certificate of the database's authority can't be read.",
            next_step="`serverSslCert` of the connection names a PEM file that Airflow's machines have, or is PEM.",
            connection=connection,
        ) from None
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # certificates that a server has generated don't pass it
    context.check_hostname = mode not in (*_UNCHECKED, *_NAME_UNCHECKED)
    context.verify_mode = ssl.CERT_NONE if mode in _UNCHECKED else ssl.CERT_REQUIRED
    return context
