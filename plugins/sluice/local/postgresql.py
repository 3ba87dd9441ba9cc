"""A PostgreSQL server for the demo: the machine's own programs, or a wheel's, run without root."""

from __future__ import annotations

import contextlib
import hashlib
import os
import pwd
import secrets
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

from tenacity import RetryError, Retrying, retry_if_result, stop_after_delay, wait_fixed

from sluice.local.errors import LocalRuntimeError
from sluice.local.home import SluiceHome
from sluice.local.process import Daemon, free_port

LOOPBACK = "127.0.0.1"
LOGIN = "sluice"
DATABASE = "postgres"

_WHEEL = Path(__file__).with_name("pgserver.txt")
_DEBIAN = Path("/usr/lib/postgresql")  # Debian keeps them off the path, a folder for each version
_VISIBLE = Path("/var/tmp")  # it outlives a restart
_ENVIRONMENT = {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}  # none of the caller's PGDATA, PGPORT, …


def installed_programs() -> Path | None:
    """The folder of this machine's `initdb` and `postgres`, the newest where there are several."""
    on_path = shutil.which("initdb")
    folders = [Path(on_path).resolve().parent] if on_path else []
    folders += sorted(_DEBIAN.glob("*/bin"), key=lambda p: float(p.parent.name), reverse=True)
    return next((f for f in folders if (f / "initdb").exists() and (f / "postgres").exists()), None)


def unprivileged() -> str | None:
    """The account that a server runs as: PostgreSQL refuses to run as root. None means this process's."""
    if os.geteuid() != 0:
        return None
    known = {account.pw_name for account in pwd.getpwall()}
    return "postgres" if "postgres" in known else "nobody"


class LocalPostgreSql:
    """One server on the loopback interface, with a password; its data stay when it stops.

    Args:
        home: where the wheel's programs are kept.
        folder: its data, password, log and pid file.
    """

    def __init__(self, home: SluiceHome, folder: Path) -> None:
        self._folder = folder
        self._daemon = Daemon("postgresql", folder, folder / "postgresql.log")
        self._account = unprivileged()
        # A home is its owner's alone. Where that is root the server, which is not, needs a place that it can reach.
        near = folder if self._account is None else _VISIBLE / f"sluice-postgresql-{_digest(folder)}"
        self._data = near / "data"
        self._fetched = home.root / "postgresql" if self._account is None else near / "programs"

    @classmethod
    def of_home(cls, home: SluiceHome) -> Self:
        """The database server of a runtime folder."""
        return cls(home, home.root / "demo" / "postgresql")

    @property
    def running(self) -> bool:
        """Whether its parent process is alive."""
        return self._daemon.running()

    @property
    def port(self) -> int:
        """The port that it was last started on."""
        return int((self._folder / "port").read_text())

    @property
    def password(self) -> str:
        """Its login's, drawn at the first start."""
        return (self._folder / "password").read_text()

    def start(self, timeout: float = 120.0) -> None:
        """Start it and wait until it takes connections; harmless if it runs.

        Raises:
            LocalRuntimeError: this machine has no programs that can be run, or the server ended.
        """
        if self.running:
            return
        self._daemon.kill()
        self._folder.mkdir(parents=True, exist_ok=True)
        self._make_reachable()
        programs = self._programs()
        if not (self._data / "PG_VERSION").exists() or not (self._folder / "password").exists():
            self._create(programs)
        port = free_port(self.port if (self._folder / "port").exists() else None)
        (self._folder / "port").write_text(str(port))
        settings = {"port": port, "listen_addresses": LOOPBACK, "unix_socket_directories": ""}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        server = [str(programs / "postgres"), "-D", str(self._data), *options]
        self._daemon.start(server, _ENVIRONMENT, self._data, **self._user())
        attempts = Retrying(
            retry=retry_if_result(lambda ready: not ready), wait=wait_fixed(0.2), stop=stop_after_delay(timeout)
        )
        try:
            attempts(self._ready)
        except RetryError:
            self.stop()
            raise self._failed(f"took no connection within {timeout:.0f} s") from None

    def stop(self) -> None:
        """Stop it; without a connection left it ends at once."""
        self._daemon.stop()

    @contextlib.contextmanager
    def connected(self) -> Iterator[Any]:
        """A connection of psycopg, closed at the end."""
        import psycopg

        with contextlib.closing(
            psycopg.connect(host=LOOPBACK, port=self.port, user=LOGIN, password=self.password, dbname=DATABASE)
        ) as connection:
            yield connection

    def _ready(self) -> bool:
        import psycopg

        if not self.running:
            raise self._failed("ended while it was starting")
        try:
            with self.connected():
                return True
        except psycopg.OperationalError:
            return False

    def _make_reachable(self) -> None:
        near = self._data.parent
        with contextlib.suppress(FileExistsError):
            near.mkdir(mode=0o711)
        found = near.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            raise LocalRuntimeError(f"{near} belongs to another user.", next_step="find its owner, and remove it.")

    def _programs(self) -> Path:
        installed = installed_programs()
        if installed is not None:
            return installed
        programs = self._fetched / "pgserver" / "pginstall" / "bin"
        if not (programs / "postgres").exists():
            options = ["--no-deps", "--only-binary=:all:", "--require-hashes", "--disable-pip-version-check", "--quiet"]
            pip = [sys.executable, "-m", "pip", "install", *options, "--target", str(self._fetched)]
            done = subprocess.run([*pip, "--requirement", str(_WHEEL)], capture_output=True, text=True)
            if done.returncode != 0:
                raise LocalRuntimeError(
                    "PostgreSQL isn't on this machine, and no package with its programs could be fetched for it.",
                    next_step="install PostgreSQL's server.",
                    detail=done.stderr,
                )
        return programs

    def _create(self, programs: Path) -> None:
        shutil.rmtree(self._data, ignore_errors=True)  # of a start that was cut off
        self._data.mkdir(mode=0o700)
        password = self._folder / "password"
        password.touch(mode=0o600)
        password.write_text(secrets.token_urlsafe(16))
        handed = self._data.parent / "password.initdb"  # initdb reads it as the account that it runs as
        handed.unlink(missing_ok=True)
        handed.touch(mode=0o600)
        handed.write_text(self.password)
        if self._account:
            for path in (self._data, handed):
                shutil.chown(path, self._account, pwd.getpwnam(self._account).pw_gid)
        login = [f"--username={LOGIN}", "--auth=scram-sha-256", f"--pwfile={handed}"]
        command = [str(programs / "initdb"), "-D", str(self._data), *login, "--no-locale", "--encoding=UTF8"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, cwd="/", env=_ENVIRONMENT, **self._user())
        except PermissionError as error:
            raise self._out_of_reach(str(error)) from error
        finally:
            handed.unlink()
        if done.returncode != 0:
            raise self._out_of_reach(done.stderr)

    def _out_of_reach(self, detail: str) -> LocalRuntimeError:
        who = f"the account {self._account}, since PostgreSQL refuses root" if self._account else "this account"
        return LocalRuntimeError(
            f"PostgreSQL's data could not be made in {self._data} by {who}.",
            next_step="use another account or folder.",
            detail=detail,
        )

    def _failed(self, what: str) -> LocalRuntimeError:
        return LocalRuntimeError(
            f"PostgreSQL {what}.", next_step=f"read its log, {self._daemon.log}.", detail=self._daemon.log_tail()
        )

    def _user(self) -> dict[str, Any]:
        if self._account is None:
            return {}
        return {"user": self._account, "group": pwd.getpwnam(self._account).pw_gid, "extra_groups": []}


def _digest(folder: Path) -> str:
    return hashlib.sha256(str(folder).encode()).hexdigest()[:12]
