"""The database that `make demo-connectors` loads: PostgreSQL, or SQLite where that can't be run."""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

from sluice.demo.fingerprint import Columns
from sluice.local.home import SluiceHome
from sluice.local.postgresql import DATABASE, LOGIN, LOOPBACK, LocalPostgreSql

CONNECTION = "demo_database"
"""The id of the Airflow connection to it."""


class Database(ABC):
    """A database with one table of interest.

    Attributes:
        name: for names of pipelines.
        title: for people.
        table: the table that the demo's pipeline fills.
        reader: what its rows are read by.
        how_to_look: a command with which a person looks at the table.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    reader: ClassVar[str]
    table: str

    @abstractmethod
    def connection(self) -> Mapping[str, Any]:
        """Its fields as an Airflow connection."""

    @abstractmethod
    def rows(self, columns: Columns) -> Iterator[Mapping[str, Any]]:
        """All rows of the table."""

    @property
    @abstractmethod
    def how_to_look(self) -> str:
        """A command for a shell."""


class PostgreSql(Database):
    """A server of the demo's own, which goes on running.

    Args:
        home: where its data are.
    """

    name, title, reader, table = "postgresql", "PostgreSQL", "psycopg", "public.departures"

    def __init__(self, home: SluiceHome) -> None:
        self._server = LocalPostgreSql.of_home(home)

    def start(self) -> None:
        """Start it, if it doesn't run.

        Raises:
            LocalRuntimeError: it can't be had on this machine.
        """
        self._server.start()

    @property
    def port(self) -> int:
        """Where it listens."""
        return self._server.port

    def connection(self) -> Mapping[str, Any]:
        """With the password, which Airflow encrypts."""
        where = {"conn_type": "postgres", "host": LOOPBACK, "port": self.port, "schema": DATABASE}
        return {**where, "login": LOGIN, "password": self._server.password}

    def rows(self, columns: Columns) -> Iterator[Mapping[str, Any]]:
        """Some thousand at a time, by a cursor of the server's."""
        names = ", ".join(f'"{name}"' for name in columns)
        with self._server.connected() as connection, connection.cursor("demo") as cursor:
            for row in cursor.execute(f"SELECT {names} FROM {self.table}"):
                yield dict(zip(columns, row, strict=True))

    @property
    def how_to_look(self) -> str:
        """The password is asked for; it lies in a file."""
        return f"psql -h {LOOPBACK} -p {self.port} -U {LOGIN} {DATABASE} -c 'SELECT count(*) FROM {self.table}'"


class Sqlite(Database):
    """One file.

    Args:
        file: it; made by its first interval.
    """

    name, title, reader, table = "sqlite", "SQLite", "sqlite3", "departures"

    def __init__(self, file: Path) -> None:
        self._file = file
        file.parent.mkdir(parents=True, exist_ok=True)

    def connection(self) -> Mapping[str, Any]:
        """The file's path."""
        return {"conn_type": "sqlite", "host": str(self._file)}

    def rows(self, columns: Columns) -> Iterator[Mapping[str, Any]]:
        """As the file has them."""
        names = ", ".join(f'"{name}"' for name in columns)
        with closing(sqlite3.connect(self._file)) as connection:
            for row in connection.execute(f"SELECT {names} FROM {self.table}"):
                yield dict(zip(columns, row, strict=True))

    @property
    def how_to_look(self) -> str:
        """By the shell that comes with SQLite."""
        return f"sqlite3 {self._file} 'SELECT count(*) FROM {self.table}'"
