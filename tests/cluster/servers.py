"""What a production set-up has that a laptop's hasn't: PostgreSQL and a Spark cluster, each as plain processes."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
import threading
import urllib.request
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import pyspark
from tenacity import Retrying, stop_after_delay, wait_fixed

from sluice.local.java import java_home
from sluice.local.process import Daemon, free_port

LOOPBACK = "127.0.0.1"


def postgresql_programs() -> Path | None:
    """The folder of `initdb` and `postgres`: Debian keeps it off the path. The newest where there are several."""
    on_path = shutil.which("initdb")
    folders = [Path(on_path).resolve().parent] if on_path else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda p: float(p.parent.name), reverse=True)
    return next((f for f in folders if (f / "initdb").exists() and (f / "postgres").exists()), None)


def missing() -> str | None:
    """What this machine lacks for these tests, and how to get it."""
    modules = [module for module in ("psycopg2", "asyncpg") if find_spec(module) is None]
    if modules:
        return f"{', '.join(modules)} missing: install the extra `postgres`"
    if postgresql_programs() is None:
        return "PostgreSQL's server (initdb, postgres) is missing: on Debian it is in the package `postgresql`"
    return None


class PostgreSql:
    """A PostgreSQL server of its own on the loopback interface, with a password, gone without a trace at the end."""

    def __init__(self, programs: Path) -> None:
        self._programs = programs
        # Not below pytest's folder: where root runs the tests that is root's alone, and PostgreSQL refuses to be root.
        self._folder = Path(tempfile.mkdtemp(prefix="sluice-postgresql-"))
        self._server: subprocess.Popen[bytes] | None = None
        self._account = _unprivileged()
        self.data = self._folder / "data"
        self.log = self._folder / "log"
        self.port = free_port()
        self.password = secrets.token_urlsafe(16)

    @property
    def url(self) -> str:
        """The server's only database, as Airflow's setting wants it."""
        return f"postgresql+psycopg2://airflow:{self.password}@{LOOPBACK}:{self.port}/postgres"

    def start(self) -> None:
        password = self._folder / "password"
        password.write_text(self.password)
        if self._account:
            for path in (self._folder, password):
                shutil.chown(path, self._account, pwd.getpwnam(self._account).pw_gid)
        login = ["--username=airflow", "--auth=scram-sha-256", f"--pwfile={password}"]
        command = [self._programs / "initdb", "-D", self.data, *login, "--no-locale", "--encoding=UTF8", "--no-sync"]
        subprocess.run(command, check=True, capture_output=True, timeout=300, **self._process())
        password.unlink()
        self.run()

    def run(self) -> None:
        """Start the server on what it has, and wait until it answers."""
        settings = {"port": self.port, "listen_addresses": LOOPBACK, "unix_socket_directories": "", "fsync": "off"}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with self.log.open("ab") as log:
            command = [self._programs / "postgres", "-D", self.data, *options]
            self._server = subprocess.Popen(command, stdout=log, stderr=log, **self._process())
        Retrying(wait=wait_fixed(0.2), stop=stop_after_delay(300), reraise=True)(self.query, "SELECT 1")

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        import psycopg2

        connection = psycopg2.connect(
            host=LOOPBACK, port=self.port, user="airflow", password=self.password, dbname="postgres"
        )
        try:
            with connection.cursor() as cursor:
                cursor.execute(sql)
                return cursor.fetchall()
        finally:
            connection.close()

    def crash(self) -> None:
        """End it at once with all its sessions: its next start recovers by its log, and empties unlogged tables."""
        if self._server is not None:
            self._server.send_signal(signal.SIGQUIT)
            self._server.wait()

    def stop(self) -> None:
        if self._server is not None:
            self._server.send_signal(signal.SIGINT)  # PostgreSQL's fast shutdown
            try:
                self._server.wait(20)
            except subprocess.TimeoutExpired:
                self._server.kill()
                self._server.wait()
        shutil.rmtree(self._folder)

    def _process(self) -> dict[str, Any]:
        environment = {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}  # none of the caller's PGDATA, PGPORT, …
        account = {"user": self._account, "group": pwd.getpwnam(self._account).pw_gid} if self._account else {}
        return {**account, "extra_groups": [] if account else None, "env": environment, "cwd": self._folder}


def _unprivileged() -> str | None:
    """Whom the server runs as: PostgreSQL refuses root. None means as we are."""
    if os.geteuid() != 0:
        return None
    known = {account.pw_name for account in pwd.getpwall()}
    return "postgres" if "postgres" in known else "nobody"


class SparkCluster:
    """Master and one worker of Spark's standalone cluster, from the jars of the PySpark wheel.

    Their environment has nothing of Sluice: what executors need has to come with the job.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port, self._ui = free_port(), free_port()
        self._master = Daemon("master", folder, folder / "master.log")
        self._worker = Daemon("worker", folder, folder / "worker.log")
        self.work = folder / "work"

    @property
    def url(self) -> str:
        return f"spark://{LOOPBACK}:{self._port}"

    def start(self) -> None:
        ports = ["--port", str(self._port), "--webui-port", str(self._ui)]
        self._start(self._master, "org.apache.spark.deploy.master.Master", *ports)
        size = ["--cores", "1", "--memory", "1g", "--work-dir", str(self.work), "--webui-port", str(free_port())]
        self._start(self._worker, "org.apache.spark.deploy.worker.Worker", *size, self.url)

    def await_worker(self, timeout: float = 300) -> None:
        """Wait until the worker has registered with the master."""

        def look() -> None:
            assert self.state()["aliveworkers"] == 1, self._worker.log_tail()

        Retrying(wait=wait_fixed(0.5), stop=stop_after_delay(timeout), reraise=True)(look)

    def state(self) -> dict[str, Any]:
        """The master's page as JSON: its workers and applications."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"http://{LOOPBACK}:{self._ui}/json/", timeout=10) as response:
            found: dict[str, Any] = json.load(response)
        return found

    def executor_log(self, application: str) -> str:
        """What the application's executors wrote on the worker."""
        return "".join(path.read_text() for path in sorted((self.work / application).glob("*/stderr")))

    def stop(self) -> None:
        self._worker.stop(grace=10)
        self._master.stop(grace=10)

    def _start(self, daemon: Daemon, main: str, *arguments: str) -> None:
        spark_home = Path(pyspark.__file__).parent
        environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "JAVA_HOME": str(java_home()),
            "SPARK_HOME": str(spark_home),
            "SPARK_LOCAL_IP": LOOPBACK,
            "SPARK_DAEMON_MEMORY": "192m",
            "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        }
        command = [str(spark_home / "bin" / "spark-class"), main, "--host", LOOPBACK, *arguments]
        daemon.start(command, environment, self._folder)


class CommandLines:
    """All command lines that show on this machine meanwhile, as any of its users could see them."""

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="command-lines", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(0.2):
            for process in psutil.process_iter():
                with contextlib.suppress(psutil.Error):  # it has ended
                    self.seen.add(" ".join(process.cmdline()))
