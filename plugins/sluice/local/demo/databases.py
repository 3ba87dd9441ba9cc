"""The database of `make demo-connectors`, at both ends: PostgreSQL, or SQLite where that can't be run."""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

from sluice.local.demo.fingerprint import Columns
from sluice.local.home import SluiceHome
from sluice.local.postgresql import DATABASE, LOGIN, LOOPBACK, LocalPostgreSql

CONNECTION = "demo_database"
"""The id of the Airflow connection to it."""
_WAIT = 60.0  # seconds for others that write


class Database(ABC):
    """A database with two tables of interest.

    Attributes:
        name: for names of pipelines.
        title: for people.
        source: the table that the demo's first pipeline fills, and the next one reads.
        table: the table that the demo's last pipeline fills.
        reader: what its rows are read by.
        how_to_look: a command to show the table.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    reader: ClassVar[str]
    source: ClassVar[str]
    table: str

    @abstractmethod
    def connection(self) -> Mapping[str, Any]:
        """Its fields as an Airflow connection."""

    @abstractmethod
    def make_source(self, columns: Columns) -> bool:
        """Make the table `source`, with a number for each row, where it isn't there; True if it was made."""

    @abstractmethod
    def rows(self, table: str, columns: Columns) -> Iterator[Mapping[str, Any]]:
        """All rows of a table."""

    @property
    @abstractmethod
    def how_to_look(self) -> str:
        """A command for a shell."""


class PostgreSql(Database):
    """The demo's own server, which keeps running.

    Args:
        home: where its data are.
    """

    name, title, reader = "postgresql", "PostgreSQL", "psycopg"
    source, table = "public.departures_log", "public.departures"
    _TYPES: ClassVar[Mapping[type, str]] = {int: "INT", float: "DOUBLE PRECISION", str: "TEXT"}

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

    def make_source(self, columns: Columns) -> bool:
        """Its rows are numbered by a sequence."""
        kinds = ", ".join(f'"{name}" {self._TYPES[kind]}' for name, kind in columns.items())
        with self._server.connected() as connection:
            (found,) = connection.execute("SELECT to_regclass(%s)", [self.source]).fetchone()
            if found is None:
                number = "id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"
                connection.execute(f"CREATE TABLE {self.source} ({number}, {kinds})")
                connection.commit()
        return found is None

    def rows(self, table: str, columns: Columns) -> Iterator[Mapping[str, Any]]:
        """Some thousand at a time, by a cursor of the server's."""
        names = ", ".join(f'"{name}"' for name in columns)
        with self._server.connected() as connection, connection.cursor("demo") as cursor:
            for row in cursor.execute(f"SELECT {names} FROM {table}"):
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

    name, title, reader = "sqlite", "SQLite", "sqlite3"
    source, table = "departures_log", "departures"
    _TYPES: ClassVar[Mapping[type, str]] = {int: "INTEGER", float: "REAL", str: "TEXT"}

    def __init__(self, file: Path) -> None:
        self._file = file
        file.parent.mkdir(parents=True, exist_ok=True)

    def connection(self) -> Mapping[str, Any]:
        """The file's path."""
        return {"conn_type": "sqlite", "host": str(self._file)}

    def make_source(self, columns: Columns) -> bool:
        """Its rows are numbered, and no number is given twice."""
        kinds = ", ".join(f'"{name}" {self._TYPES[kind]}' for name, kind in columns.items())
        with closing(sqlite3.connect(self._file, timeout=_WAIT)) as connection, connection:
            found = connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", [self.source]).fetchone()
            if found is None:
                connection.execute(f"CREATE TABLE {self.source} (id INTEGER PRIMARY KEY AUTOINCREMENT, {kinds})")
        return found is None

    def rows(self, table: str, columns: Columns) -> Iterator[Mapping[str, Any]]:
        """As the file has them."""
        names = ", ".join(f'"{name}"' for name in columns)
        with closing(sqlite3.connect(self._file)) as connection:
            for row in connection.execute(f"SELECT {names} FROM {table}"):
                yield dict(zip(columns, row, strict=True))

    @property
    def how_to_look(self) -> str:
        """By the shell that comes with SQLite."""
        return f"sqlite3 {self._file} 'SELECT count(*) FROM {self.table}'"
