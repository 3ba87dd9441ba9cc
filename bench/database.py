"""A PostgreSQL server of the benchmark's own, as the tests start theirs; its tables are gone before every run."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.cluster.servers import LOOPBACK, PostgreSql, missing, postgresql_programs

if TYPE_CHECKING:
    from collections.abc import Iterator

TABLE = "events"


class BenchDatabase:
    """A server that runs."""

    def __init__(self, server: PostgreSql) -> None:
        self._server = server

    @property
    def url(self) -> str:
        """For the driver, with the login that is good for this server only."""
        where = f"{LOOPBACK}:{self._server.port}/postgres"
        return f"jdbc:postgresql://{where}?user=airflow&password={self._server.password}"

    def clear(self) -> None:
        """Drop what a run has left, and write it to disk: the next run doesn't pay for it."""
        self._server.run("DROP SCHEMA public CASCADE")
        self._server.run("CREATE SCHEMA public")
        self._server.run("CHECKPOINT")


@contextmanager
def database() -> Iterator[BenchDatabase]:
    """Run a server for as long as the block.

    Raises:
        RuntimeError: PostgreSQL isn't installed.
    """
    lacks, programs = missing(), postgresql_programs()
    if lacks is not None or programs is None:
        raise RuntimeError(str(lacks))
    server = PostgreSql(programs)
    try:
        server.start()
        yield BenchDatabase(server)
    finally:
        server.stop()
