"""Servers on the loopback interface, each a JVM, and the class paths with their drivers as a user puts them there."""

from __future__ import annotations

import os
import shutil
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

from tests.ivy import ensure

from sluice import runtime
from sluice.connectors.connections import ConnectionSettings
from sluice.jvm.gateway import HudiJvm
from sluice.local.home import SluiceHome
from sluice.local.java import java_command
from sluice.local.process import Daemon, free_port

from ..guarantees.harness import wait_for

_JVM = ("-Xms16m", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
_DRIVERS = ("h2.jar", "derbyclient.jar")


def ensure_databases(home: SluiceHome) -> Path:
    """The folder of the jars, fetched if they aren't there."""
    return ensure(home, "databases-in-java", Path(__file__).with_name("ivy.xml"), ("jar",))


def class_paths(home: SluiceHome, folder: Path) -> Path:
    """The product's class paths, with the drivers beside Sluice's own jars."""
    jars = ensure_databases(home)
    shutil.copytree(runtime.home() / "class-paths", folder, symlinks=False, copy_function=_link)
    for name in ("coordinator", "spark"):
        for driver in _DRIVERS:
            (folder / name / driver).symlink_to(jars / driver)
    return folder


def _link(source: str, target: str) -> None:
    Path(target).symlink_to(Path(source).resolve())


class JavaServer(ABC):
    """A server with one database. As a context manager it is stopped at the end.

    Args:
        jars: what `ensure_databases` returns.
        data: a folder of its own.
        jvm: opens a JVM with its driver, by which a test asks it.
    """

    name: ClassVar[str]
    main: ClassVar[tuple[str, ...]]
    login, password = "sa", "a-secret-that-no-log-may-show"

    def __init__(self, jars: Path, data: Path, jvm: Callable[[], AbstractContextManager[HudiJvm]]) -> None:
        self._jars, self._data, self._jvm = jars, data, jvm
        self.port = free_port()
        data.mkdir()
        self._daemon = Daemon(self.name, data, data / "server.log")

    @property
    @abstractmethod
    def url(self) -> str: ...

    @property
    def connection(self) -> ConnectionSettings:
        """The connection, as Airflow has it for its JDBC hook."""
        return ConnectionSettings("shop", "jdbc", host=self.url, login=self.login, password=self.password)

    def run(self, *statements: str) -> None:
        """Each statement in a transaction of its own."""
        with self._connected() as connection:
            statement = connection.createStatement()
            for one in statements:
                statement.execute(one)

    def query(self, sql: str) -> list[tuple[str | None, ...]]:
        """What a query finds, as texts."""
        with self._connected() as connection:
            found = connection.createStatement().executeQuery(sql)
            number = range(1, found.getMetaData().getColumnCount() + 1)
            rows = []
            while found.next():
                rows.append(tuple(found.getString(i) for i in number))
            return rows

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        with self._jvm() as jvm:
            connection = jvm.jvm.java.sql.DriverManager.getConnection(self.url, self.login, self.password)
            try:
                yield connection
            finally:
                connection.close()

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True

    def __enter__(self) -> Self:
        jars = os.pathsep.join(map(str, sorted(self._jars.glob("*.jar"))))
        main = [word.format(port=self.port, data=self._data) for word in self.main]
        self._daemon.start([java_command(), *_JVM, "-cp", jars, *main], dict(os.environ), self._data)
        wait_for(self._answers, f"{self.name} to answer", timeout=120)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._daemon.kill()


class H2Server(JavaServer):
    """H2 2.2, whose CURRENT_TIMESTAMP has a zone."""

    name = "h2"
    main = ("org.h2.tools.Server", "-tcp", "-tcpPort", "{port}", "-ifNotExists", "-baseDir", "{data}")

    @property
    def url(self) -> str:
        return f"jdbc:h2:tcp://127.0.0.1:{self.port}/./shop"


class DerbyServer(JavaServer):
    """Derby 10.14, whose CURRENT_TIMESTAMP has none: that of its JVM, which isn't UTC."""

    name = "derby"
    main = (
        *("-Duser.timezone=Asia/Kolkata", "-Dderby.system.home={data}", "org.apache.derby.drda.NetworkServerControl"),
        *("start", "-h", "127.0.0.1", "-p", "{port}", "-noSecurityManager"),
    )

    @property
    def url(self) -> str:
        return f"jdbc:derby://127.0.0.1:{self.port}/shop;create=true"
