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
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import pyspark
from tenacity import Retrying, stop_after_delay, wait_fixed

from sluice.local.java import java_home
from sluice.local.postgresql import installed_programs
from sluice.local.process import Daemon, free_port

LOOPBACK = "127.0.0.1"


def postgresql_programs() -> Path | None:
    """The folder of `initdb` and `postgres`, as the demo finds it."""
    return installed_programs()


def missing() -> str | None:
    """What this machine lacks for these tests, and how to get it."""
    modules = [module for module in ("psycopg2", "asyncpg") if find_spec(module) is None]
    if modules:
        return f"{', '.join(modules)} missing: install the extra `postgres`"
    if postgresql_programs() is None:
        return "PostgreSQL's server (initdb, postgres) is missing: on Debian it is in the package `postgresql`"
    return None


def mariadb_programs() -> tuple[Path, Path] | None:
    """MariaDB's server, and what makes its first files. Debian keeps the former off an ordinary user's path."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"])
    found = [shutil.which(name, path=path) for name in ("mariadbd", "mariadb-install-db")]
    return (Path(found[0]), Path(found[1])) if found[0] and found[1] else None


def missing_mariadb() -> str | None:
    """What this machine lacks for tests of MariaDB, and how to get it."""
    if find_spec("pymysql") is None:
        return "pymysql missing: install the extra `dev`"
    if mariadb_programs() is None:
        return "MariaDB's server (mariadbd, mariadb-install-db) is missing: on Debian it is in `mariadb-server-core`"
    return None


class MariaDb:
    """A MariaDB server of its own on the loopback interface, with a password, gone without a trace at the end.

    Args:
        programs: of `mariadb_programs`.
        settings: more of the server's.
    """

    def __init__(self, programs: tuple[Path, Path], **settings: str | int) -> None:
        self._programs, self._settings = programs, settings
        self._folder = Path(tempfile.mkdtemp(prefix="sluice-mariadb-"))
        self._server: subprocess.Popen[bytes] | None = None
        self._account = _unprivileged("mysql")
        self.data = self._folder / "data"
        self.log = self._folder / "log"
        self.port = free_port()
        self.password = secrets.token_urlsafe(16)

    def start(self) -> None:
        if self._account:
            shutil.chown(self._folder, self._account, pwd.getpwnam(self._account).pw_gid)
        # Its first statements are in a file: a command line shows to all users of the machine.
        first = self._folder / "first.sql"
        with first.open("x") as file:
            first.chmod(0o600)
            file.write(
                "CREATE DATABASE lake;\n"  # one a line
                f"CREATE USER 'sluice'@'%' IDENTIFIED BY '{self.password}';\n"
                "GRANT ALL ON *.* TO 'sluice'@'%' WITH GRANT OPTION;\n"
            )
        if self._account:
            shutil.chown(first, self._account)
        made = [self._programs[1], "--no-defaults", f"--datadir={self.data}", "--skip-test-db", "--skip-name-resolve"]
        subprocess.run(made, check=True, capture_output=True, timeout=300, **_as_of(self._account, self._folder))
        self._start([f"--init-file={first}"])
        first.unlink()

    def restart(self) -> None:
        """Start it again after it was killed."""
        self._start([])

    def replica(self) -> MariaDb:
        """A server that follows this one from its beginning, which has to have a binary log; it is to be stopped."""
        made = MariaDb(self._programs, **{**self._settings, "server-id": 2})
        made.password = self.password
        made.start()
        where = f"master_host = '{LOOPBACK}', master_port = {self.port}, master_user = 'sluice'"
        with contextlib.closing(made.connect()) as connection, connection.cursor() as cursor:
            cursor.execute("SET sql_log_bin = 0")
            cursor.execute(
                f"CHANGE MASTER TO {where}, master_password = '{self.password}', master_use_gtid = slave_pos"
            )
            ((position,),) = self.query("SELECT @@global.gtid_binlog_pos")
            cursor.execute(f"SET GLOBAL gtid_slave_pos = '{position}'")
            cursor.execute("START SLAVE")
        return made

    def kill(self) -> None:
        """As a crash ends it."""
        assert self._server is not None
        self._server.kill()
        self._server.wait()

    def connect(self) -> Any:
        """A connection of PyMySQL's, which takes names in quotes as the SQL of other databases does."""
        import pymysql

        return pymysql.connect(
            host=LOOPBACK, port=self.port, user="sluice", password=self.password, database="lake", autocommit=True,
            init_command="SET sql_mode = 'STRICT_ALL_TABLES,ANSI_QUOTES'",
        )  # fmt: skip

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        with contextlib.closing(self.connect()) as connection, connection.cursor() as cursor:
            cursor.execute(sql)
            return list(cursor.fetchall())

    def stop(self) -> None:
        if self._server is not None:
            self._server.terminate()
            try:
                self._server.wait(20)
            except subprocess.TimeoutExpired:
                self._server.kill()
                self._server.wait()
        shutil.rmtree(self._folder)

    def _start(self, more: list[str]) -> None:
        settings = {
            "datadir": self.data, "port": self.port, "bind-address": LOOPBACK, "socket": self._folder / "socket",
            "pid-file": self._folder / "pid", "innodb-flush-log-at-trx-commit": 0, "skip-name-resolve": 1,
            "character-set-server": "latin1", **self._settings,
        }  # fmt: skip
        options = [f"--{name}={value}" for name, value in settings.items()]
        with self.log.open("ab") as log:
            command = [self._programs[0], "--no-defaults", *options, *more]
            process = _as_of(self._account, self._folder)
            self._server = subprocess.Popen(command, stdout=log, stderr=log, **process)
        try:
            Retrying(wait=wait_fixed(0.1), stop=stop_after_delay(60), reraise=True)(self.query, "SELECT 1")
        except Exception as error:
            raise AssertionError(self.log.read_text()[-3000:]) from error


class PostgreSql:
    """A PostgreSQL server of its own on the loopback interface, with a password, gone without a trace at the end."""

    def __init__(self, programs: Path, **settings: str | int) -> None:
        self._programs = programs
        self._settings = settings
        # Not below pytest's folder: where root runs the tests that is root's alone, and PostgreSQL refuses to be root.
        self._folder = Path(tempfile.mkdtemp(prefix="sluice-postgresql-"))
        self._server: subprocess.Popen[bytes] | None = None
        self._options: list[str] = []
        self._account = _unprivileged("postgres")
        self.data = self._folder / "data"
        self.log = self._folder / "log"
        self.port = free_port()
        self.password = secrets.token_urlsafe(16)

    @property
    def url(self) -> str:
        """The server's only database, as Airflow's setting wants it."""
        return f"postgresql+psycopg2://airflow:{self.password}@{LOOPBACK}:{self.port}/postgres"

    def owns(self, file: str) -> None:
        """Make a file the server's account's alone, as it wants its key to be."""
        Path(file).chmod(0o600)
        if self._account:
            shutil.chown(file, self._account)

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
        settings: dict[str, str | int] = {"port": self.port, "listen_addresses": LOOPBACK, "fsync": "off"}
        settings |= {"unix_socket_directories": "", **self._settings}
        self._options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        self.restart()

    def replica(self) -> PostgreSql:
        """A server that follows this one, and has the same logins; it is to be stopped."""
        made = PostgreSql(self._programs)
        made.password = self.password
        if made._account:
            shutil.chown(made._folder, made._account, pwd.getpwnam(made._account).pw_gid)
        process = made._process()
        process["env"] = {**process["env"], "PGPASSWORD": self.password}
        where = [f"--host={LOOPBACK}", f"--port={self.port}", "--username=airflow", "--checkpoint=fast", "--no-sync"]
        command = [self._programs / "pg_basebackup", "-D", made.data, "--write-recovery-conf", *where]
        subprocess.run(command, check=True, capture_output=True, timeout=300, **process)
        settings = {"port": made.port, "listen_addresses": LOOPBACK, "unix_socket_directories": "", "fsync": "off"}
        made._options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        made.restart()
        return made

    def restart(self) -> None:
        """Start it again after it was killed."""
        with self.log.open("ab") as log:
            command = [self._programs / "postgres", "-D", self.data, *self._options]
            self._server = subprocess.Popen(command, stdout=log, stderr=log, **self._process())
        Retrying(wait=wait_fixed(0.1), stop=stop_after_delay(300), reraise=True)(self.query, "SELECT 1")

    def kill(self) -> None:
        """As a crash ends it, all of its processes at once."""
        assert self._server is not None
        children = psutil.Process(self._server.pid).children(recursive=True)
        self._server.kill()
        self._server.wait()
        for child in children:
            with contextlib.suppress(psutil.Error):  # it has ended
                child.kill()
        psutil.wait_procs(children, 20)

    @contextlib.contextmanager
    def stands_still(self, process: str) -> Iterator[None]:
        """Stop one of its processes, by what the server calls it; all may be killed meanwhile."""
        assert self._server is not None
        children = psutil.Process(self._server.pid).children()
        (stopped,) = [child for child in children if process in " ".join(child.cmdline())]
        stopped.suspend()
        try:
            yield
        finally:
            with contextlib.suppress(psutil.NoSuchProcess):
                stopped.resume()

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

    def run(self, sql: str) -> None:
        """Carry out statements that answer nothing, each by itself."""
        import psycopg2

        where = {"host": LOOPBACK, "port": self.port, "dbname": "postgres"}
        with contextlib.closing(psycopg2.connect(**where, user="airflow", password=self.password)) as connection:
            connection.autocommit = True
            with connection.cursor() as cursor:
                cursor.execute(sql)

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
        return _as_of(self._account, self._folder)


def pgbouncer_program() -> Path | None:
    """PgBouncer, which Debian keeps off an ordinary user's path."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"])
    found = shutil.which("pgbouncer", path=path)
    return Path(found) if found else None


class PgBouncer:
    """A pooler before a PostgreSQL server, which gives its sessions to one client after another by transactions.

    Args:
        program: of `pgbouncer_program`.
        server: the server.
        sessions: how many sessions of the server it has.
    """

    def __init__(self, program: Path, server: PostgreSql, sessions: int) -> None:
        self._program, self._of, self.sessions = program, server, sessions
        self._folder = Path(tempfile.mkdtemp(prefix="sluice-pgbouncer-"))
        self._account = _unprivileged("postgres")
        self._server: subprocess.Popen[bytes] | None = None
        self.port = free_port()
        self.password = server.password

    def start(self) -> None:
        users, settings = self._folder / "users", self._folder / "pgbouncer.ini"
        users.write_text(f'"airflow" "{self.password}"\n')
        users.chmod(0o600)
        settings.write_text(
            f"[databases]\npostgres = host={LOOPBACK} port={self._of.port}\n[pgbouncer]\nlisten_addr = {LOOPBACK}\n"
            f"listen_port = {self.port}\nauth_type = scram-sha-256\nauth_file = {users}\npool_mode = transaction\n"
            f"default_pool_size = {self.sessions}\nmin_pool_size = {self.sessions}\nunix_socket_dir =\n"
            "ignore_startup_parameters = extra_float_digits\nserver_idle_timeout = 0\n"
        )
        if self._account:
            for path in (self._folder, users, settings):
                shutil.chown(path, self._account, pwd.getpwnam(self._account).pw_gid)
        with (self._folder / "log").open("ab") as log:
            process = _as_of(self._account, self._folder)
            self._server = subprocess.Popen([self._program, settings], stdout=log, stderr=log, **process)
        try:
            Retrying(wait=wait_fixed(0.1), stop=stop_after_delay(60), reraise=True)(self._look)
        except Exception as error:
            raise AssertionError((self._folder / "log").read_text()[-3000:]) from error

    def connect(self) -> Any:
        import psycopg2

        return psycopg2.connect(
            host=LOOPBACK, port=self.port, user="airflow", password=self.password, dbname="postgres"
        )

    def stop(self) -> None:
        if self._server is not None:
            self._server.kill()
            self._server.wait()
        shutil.rmtree(self._folder)

    def _look(self) -> None:
        with contextlib.closing(self.connect()) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT 1")


def _as_of(account: str | None, folder: Path) -> dict[str, Any]:
    """How a process of that account is started."""
    environment = {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}  # none of the caller's PGDATA, PGPORT, …
    who = {"user": account, "group": pwd.getpwnam(account).pw_gid} if account else {}
    return {**who, "extra_groups": [] if who else None, "env": environment, "cwd": folder}


def _unprivileged(account: str) -> str | None:
    """Whom the server runs as: PostgreSQL and MariaDB refuse root. None means as we are."""
    if os.geteuid() != 0:
        return None
    known = {one.pw_name for one in pwd.getpwall()}
    return account if account in known else "nobody"


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
