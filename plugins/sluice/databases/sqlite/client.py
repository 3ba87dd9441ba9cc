"""Looks into a file of SQLite, by Python's own library."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import quote

from sluice.databases.client import PAGE, Asking, Look, Row, failed
from sluice.databases.sqlite.engine import path_of
from sluice.errors import RetryableError


@contextmanager
def connected(look: Look) -> Iterator[Asking]:
    """See `sluice.databases.client.Client`."""
    address = look.address
    # Beside a writer, a read-only file can't be distinguished from one whose writer has died in the middle.
    mode = "ro" if look.who == PAGE else "rw"
    path = path_of(address.url)
    try:
        with closing(sqlite3.connect(f"file:{quote(path)}?mode={mode}", uri=True, timeout=look.wait)) as connection:
            connection.execute("PRAGMA query_only = ON")

            def ask(sql: str, *values: Any) -> list[Row]:
                return connection.execute(sql, values).fetchall()

            def describe(query: str) -> list[tuple[str, str]]:
                # The types of a view's columns are known, and those of a query aren't. A temporary one is in no file.
                connection.execute("PRAGMA query_only = OFF")
                connection.execute(f"CREATE TEMP VIEW sluice_query AS\n{query}")
                found = ask("SELECT name, type FROM pragma_table_xinfo('sluice_query') ORDER BY cid")
                connection.execute("DROP VIEW temp.sluice_query")
                connection.execute("PRAGMA query_only = ON")
                return [(str(name), str(kind)) for name, kind in found]

            yield Asking(ask, describe)
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_ERROR:
            raise failed(look, address.hidden(str(error)), "other") from None
        raise RetryableError(
            f"The file of SQLite can't be read: {address.hidden(str(error))}.",
            next_step="it has to be on a disk of this machine's, and readable for the user of "
            + ("Airflow's API server." if look.who == PAGE else "this process."),
            connection=address.connection,
        ) from None
