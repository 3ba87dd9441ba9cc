"""Looks into PostgreSQL by psycopg, without a JVM."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from types import MappingProxyType
from urllib.parse import unquote

from sluice.databases.address import JdbcAddress
from sluice.databases.client import Asking, Look, Questions, driver_of, failed, server_of, url_parts, wrong_certificate
from sluice.databases.dialect import kind_of_state

_DRIVERS = ("psycopg", "psycopg2")
# Options that the JDBC driver and libpq name differently. Options that aren't here change how, not where.
_LIBPQ = MappingProxyType(
    {
        **{name: name for name in ("user", "password", "sslmode", "sslrootcert", "sslcert", "sslkey", "sslpassword")},
        "options": "options",
        "channelBinding": "channel_binding",
        "gssEncMode": "gssencmode",
        "ApplicationName": "application_name",
    }
)


@contextmanager
def connected(look: Look) -> Iterator[Asking]:
    """See `sluice.databases.client.Client`."""
    address = look.address
    driver = driver_of(look, "PostgreSQL", _DRIVERS, "pip install 'sluice[postgres]'")
    try:
        with closing(driver.connect(**libpq(address), connect_timeout=look.wait)) as connection:
            connection.autocommit = True
            if hasattr(connection, "prepare_threshold"):  # a pooler's next server connection hasn't what was prepared
                connection.prepare_threshold = None
            asking = _Asking(connection.cursor(), look)
            yield Asking(asking.ask, asking.describe)
    except driver.Error as error:
        state = str(getattr(error, "sqlstate", None) or getattr(error, "pgcode", None) or "")
        said = address.hidden(str(error))
        kind = kind_of_state(state) if state else "passing"
        if not state:  # libpq has none of a login that fails
            if any(words in said for words in _CERTIFICATE):
                raise wrong_certificate(look, said, "sslrootcert") from None
            kind = "login" if any(words in said for words in _FATAL) else kind
        raise failed(look, address.dialect.refused(said, 0, state) if kind == "data" else said, kind) from None


# OpenSSL's words for a certificate. Where its authority is only a namesake of the known one, libpq has the first error
# of several, which is of the signature itself: the kind of key decides on its words.
_CERTIFICATE = (
    "certificate verify failed",
    "does not match host name",
    "signature failure",
    "bad signature",
    "padding check failed",
    "invalid padding",
)
# PostgreSQL's words for a login, a database or a machine that it doesn't let in.
_FATAL = (
    "authentication failed",
    "does not exist",
    "no pg_hba.conf entry",
    "permission denied for database",
    "does not support SSL",
)


class _Asking(Questions):
    """Questions to PostgreSQL."""

    def describe(self, query: str) -> list[tuple[str, str]]:
        """See `Asking`."""
        columns = [(str(c[0]), int(c[1]), c[4], c[5]) for c in self._columns(query)]
        found = []
        for name, kind, precision, scale in columns:
            ((word,),) = self.ask("SELECT format_type(?::oid, NULL)", kind)
            sized = word == "numeric" and precision is not None and precision < 1001
            found.append((name, f"numeric({precision},{scale})" if sized else str(word)))
        return found

    @contextmanager
    def _question(self) -> Iterator[None]:
        begin = "BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY"
        self._cursor.execute(f"{begin}; SET LOCAL statement_timeout = '{self._look.wait}s'")
        self._cursor.execute("SELECT pg_postmaster_start_time()::text || coalesce(inet_server_addr()::text, '')")
        self._one_server.answered(self._cursor.fetchone())
        yield
        self._cursor.execute("COMMIT")


def libpq(address: JdbcAddress) -> Mapping[str, str]:
    """A JDBC URL and its properties as libpq has them.

    Raises:
        ActionRequiredError: the URL is none that libpq could go by.
    """
    servers, database, given = url_parts(address, "postgresql", "5432")
    found = {_LIBPQ[name]: value for name, value in given.items() if name in _LIBPQ}
    if given.get("ssl", "").lower() == "true":  # which the driver takes for the strictest way
        found.setdefault("sslmode", "verify-full")
    if any(address.dialect.is_of_the_writer(name, value) for name, value in given.items()):
        found["target_session_attrs"] = "read-write"  # libpq 10 and later; "primary" is of 14
    if "currentSchema" in given:
        found["options"] = (
            f"{found.get('options', '')} -c search_path={given['currentSchema'].replace(' ', '')}".strip()
        )
    hosts, ports = zip(*(server_of(one, "5432", address.connection) for one in servers.split(",")), strict=True)
    name = unquote(database) or found.get("user", "")
    return {**found, "host": ",".join(hosts), "port": ",".join(ports), "dbname": name}
