"""Databases that the JDBC sink writes to, as whoever reads their tables sees them."""

from __future__ import annotations

import json
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from sluice.connectors.connections import VARIABLE, ConnectionSettings

from ...cluster.servers import LOOPBACK, MariaDb, PostgreSql, mariadb_programs, missing_mariadb

CONNECTION = "warehouse"


class Readable(ABC):
    """A database that runs, and the Airflow connection to it."""

    name: str
    """Its name among the parameters of tests."""

    @property
    @abstractmethod
    def connection(self) -> ConnectionSettings:
        """The connection, as Airflow has it."""

    @abstractmethod
    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """What a reader finds."""

    @abstractmethod
    def run(self, sql: str) -> None:
        """What somebody does who owns the database."""

    @abstractmethod
    def tables(self) -> set[str]:
        """The names of its tables."""

    def environment(self) -> dict[str, str]:
        """What the product's processes know of it."""
        return {VARIABLE: json.dumps([asdict(self.connection)])}

    def staging(self) -> set[str]:
        """The staging tables that are there."""
        return {n for n in self.tables() if n.startswith("_sluice_")} - {"_sluice_positions", "_sluice_instants"}

    def drop_staging(self) -> None:
        """Drop the staging tables that are there, which tests of deaths leave behind."""
        for name in self.staging():
            self.run(f'DROP TABLE "{name}"')


class SqliteFile(Readable):
    """A file of SQLite's."""

    name = "sqlite"

    def __init__(self, file: Path) -> None:
        self.file = file

    @property
    def connection(self) -> ConnectionSettings:
        return ConnectionSettings(CONNECTION, "sqlite", host=str(self.file))

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.file, timeout=60)) as connection:
            return connection.execute(sql).fetchall()

    def run(self, sql: str) -> None:
        with closing(sqlite3.connect(self.file, timeout=60)) as connection, connection:
            connection.executescript(sql)

    def tables(self) -> set[str]:
        return {name for (name,) in self.query("SELECT name FROM sqlite_master WHERE type = 'table'")}


class PostgresDatabase(Readable):
    """The only database of a PostgreSQL server of the tests' own."""

    name = "postgresql"

    def __init__(self, server: PostgreSql, login: str = "airflow", password: str | None = None) -> None:
        self.server = server
        self.login, self.password = login, server.password if password is None else password

    @property
    def connection(self) -> ConnectionSettings:
        where = {"host": LOOPBACK, "port": self.server.port, "schema": "postgres"}
        return ConnectionSettings(CONNECTION, "postgres", **where, login=self.login, password=self.password)

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        return self.server.query(sql)

    def run(self, sql: str) -> None:
        self.server.run(sql)

    def tables(self) -> set[str]:
        return {name for (name,) in self.query("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")}


class MariaDatabase(Readable):
    """The only database of a MariaDB server of the tests' own."""

    name = "mariadb"

    def __init__(self, server: MariaDb) -> None:
        self.server = server

    @property
    def connection(self) -> ConnectionSettings:
        where = {"host": LOOPBACK, "port": self.server.port, "schema": "lake"}
        return ConnectionSettings(CONNECTION, "mysql", **where, login="sluice", password=self.server.password)

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        return self.server.query(sql)

    def run(self, sql: str) -> None:
        with closing(self.server.connect()) as connection, connection.cursor() as cursor:
            for statement in sql.split(";"):
                cursor.execute(statement)

    def tables(self) -> set[str]:
        return {n for (n,) in self.query("SELECT table_name FROM information_schema.tables WHERE table_schema='lake'")}


@contextmanager
def mariadb_server() -> Iterator[MariaDb]:
    """A MariaDB server for the length of the block; where none is installed, the test is skipped."""
    lacks, programs = missing_mariadb(), mariadb_programs()
    if lacks is not None or programs is None:
        pytest.skip(str(lacks))
    server = MariaDb(programs)
    try:
        server.start()
        yield server
    finally:
        server.stop()
