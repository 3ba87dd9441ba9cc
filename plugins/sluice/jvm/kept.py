"""A lean JVM that the next steps find running, of this machine and this user: a step then spends no second on a start.

One step at a time owns it. It is found only by steps that would start the very same: same jars, Java, options, Hadoop
settings, environment and release, since Hadoop keeps file systems and their credentials for the whole JVM. `keeper.py`
describes its end when a step dies.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import stat
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JError

from sluice import __version__, process, runtime
from sluice.errors import ActionRequiredError
from sluice.jvm.gateway import HudiJvm, JavaCommand, gateway_to, lean_command, lean_jvm, shown
from sluice.jvm.keeper import is_there, read_line

MINUTES = "SLUICE_JVM_MINUTES"
WAITING = "SLUICE_JVMS"
_DEFAULT_MINUTES, _DEFAULT_WAITING = 0.0, 2
_AGE = 3600.0  # seconds after which a JVM isn't lent again
_USES = 200
_ANSWERS_WITHIN = 1.0  # seconds: a keeper or a JVM that takes longer is left, and the step starts its own
_LONGEST_ADDRESS = 100  # bytes: Linux takes 107 for a socket's path, macOS 103
_KEEPER = Path(__file__).with_name("keeper.py")
_WHOLE = 1 << 20  # bytes of a settings file that is compared by its content

# Variables that differ from step to step, or hold what no JVM reads. It is started without them, so that it can't know
# them either.
_NOT_JAVAS = (
    *("_", "PWD", "OLDPWD", "SHLVL", "TERM", "COLUMNS", "LINES", "INVOCATION_ID", "JOURNAL_STREAM", "XDG_SESSION_ID"),
    *("TRACEPARENT", "TRACESTATE", "SLUICE_FAILPOINT", "SLUICE_SPARK_PRIVATE", "SLUICE_SOURCE_CONNECTIONS"),
    *("SLUICE_SCHEMA_REGISTRY", MINUTES, WAITING),
)
_NOT_JAVAS_BEGIN = ("AIRFLOW_CTX_", "_AIRFLOW", "__AIRFLOW", "PYTEST_", "SSH_", "SLUICE_KAFKA_")

_leases: weakref.WeakSet[socket.socket] = weakref.WeakSet()
_keepers: list[subprocess.Popen[bytes]] = []


def _leave_leases_to_the_parent() -> None:
    """In a fork: the JVM belongs to the process that took it, and has to die with that one."""
    for lease in list(_leases):
        lease.close()


os.register_at_fork(after_in_child=_leave_leases_to_the_parent)


@contextmanager
def kept_jvm(hadoop: dict[str, str] | None = None, known: Mapping[str, str] | None = None) -> Iterator[HudiJvm]:
    """A JVM for the length of the block and its exclusive use; it may have served other steps before.

    It is returned if the block ends without an error, and killed otherwise, so that no work continues in it.

    Args:
        hadoop: as `sluice.jvm.gateway.lean_jvm` has it.
        known: settings that Java's classes keep for their JVM's lifetime; other settings get another JVM.

    Raises:
        ActionRequiredError: Java or jars are missing, or a setting can't be read.
    """
    lease = _lease(hadoop or {}, known or {})
    if lease is None:
        with lean_jvm(hadoop) as own:
            yield own
        return
    try:
        with shown(HudiJvm(lease.gateway, hadoop or {}, lease.pid)) as jvm:
            yield jvm
    except BaseException:
        lease.give_up()
        raise
    lease.hand_back()


def end_kept() -> int:
    """End the JVMs that wait for a step, of this user and this `SLUICE_HOME`; returns how many there were."""
    folder = _folder()
    ended = 0
    for path in sorted(folder.glob("*.jvm")) if folder is not None else ():
        connection = _connected(path)
        if connection is not None:
            with connection:
                connection.sendall(b"end\n")
                with suppress(OSError):
                    read_line(connection)  # until it has closed it
            ended += 1
    return ended


class _Lease:
    """This process's hold on a JVM."""

    def __init__(self, connection: socket.socket, port: int, token: str, pid: int) -> None:
        self._connection = connection
        self.gateway: JavaGateway = gateway_to(port, token)
        self.pid = pid
        _leases.add(connection)

    def hand_back(self) -> None:
        """Return the JVM in its original state, for the next step."""
        try:
            _forget_objects(self.gateway)
            _disconnect(self.gateway)
            self._connection.sendall(b"back\n")
        except (Py4JError, OSError):
            self.give_up()
            return
        self._await_close()  # it is to be found by a step that begins now

    def give_up(self) -> None:
        """Have the JVM killed, and wait until it is."""
        _disconnect(self.gateway)
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_WR)
        self._await_close()

    def _await_close(self) -> None:
        with suppress(OSError):
            self._connection.settimeout(5 * _ANSWERS_WITHIN)
            read_line(self._connection)
        self._connection.close()


def _forget_objects(gateway: JavaGateway) -> None:
    """Release this process's objects in the JVM, and Hudi's state of the last table."""
    timeline = gateway.jvm.org.apache.hudi.common.table.timeline.HoodieInstantTimeGenerator
    timeline.setCommitTimeZone(gateway.jvm.org.apache.hudi.common.model.HoodieTimelineTimeZone.LOCAL)
    bindings = gateway.java_gateway_server.getGateway().getBindings()
    bindings.keySet().retainAll(["j", "t", "GATEWAY_SERVER"])  # py4j's own names


def _disconnect(gateway: JavaGateway) -> None:
    gateway.close(keep_callback_server=True)
    gateway._gateway_client.is_connected = False  # what Python forgets later is of no concern to the JVM's next owner


def _lease(hadoop: Mapping[str, str], known: Mapping[str, str]) -> _Lease | None:
    """A waiting JVM, or a new one that will be kept; None if keeping is off, or its keeper can't be started."""
    minutes = _number(MINUTES, _DEFAULT_MINUTES)
    folder = _folder() if minutes > 0 else None
    if folder is None:
        return None
    command, environment = lean_command(), _environment()
    name = _name(command, environment, hadoop, known)
    if len(os.fsencode(folder / f"{name}.{2**22}.jvm")) > _LONGEST_ADDRESS:
        return None
    for path in sorted(folder.glob(f"{name}.*.jvm")):
        found = _acquire_idle(path)
        if found is not None:
            return found
    java = [command.java, "-classpath", os.pathsep.join(command.class_path), *command.options]
    return _start_new(
        {
            "command": [*java, "py4j.GatewayServer", "--die-on-broken-pipe", "--enable-auth", "0"],
            "folder": str(folder),
            "name": name,
            "idle": minutes * 60,
            "age": _AGE,
            "uses": _USES,
            "waiting": int(_number(WAITING, _DEFAULT_WAITING)),
        },
        environment,
    )


def _acquire_idle(path: Path) -> _Lease | None:
    """The JVM that waits there, unless another step has it by now, or it doesn't answer."""
    connection = _connected(path)
    if connection is None:
        return None
    try:
        connection.sendall(b"take\n")
        answer = json.loads(read_line(connection) or b"null")
    except OSError:
        answer = None
    if answer is None or not is_there(answer["port"], answer["token"], _ANSWERS_WITHIN):
        connection.close()  # its keeper kills it, once it runs again
        return None
    connection.settimeout(None)
    return _Lease(connection, **answer)


def _connected(path: Path) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(_ANSWERS_WITHIN)
    try:
        connection.connect(str(path))
    except ConnectionRefusedError:  # its keeper was killed
        connection.close()
        path.unlink(missing_ok=True)
        return None
    except OSError:
        connection.close()
        return None
    return connection


def _start_new(settings: Mapping[str, Any], environment: Mapping[str, str]) -> _Lease | None:
    _keepers[:] = [one for one in _keepers if one.poll() is None]
    ours, its = socket.socketpair()
    with its:
        keeper = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_KEEPER), str(its.fileno())],
            pass_fds=[its.fileno()], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
    _keepers.append(keeper)
    try:
        ours.sendall(json.dumps(settings).encode() + b"\n")
        answer = json.loads(read_line(ours) or b"null")
    except OSError:
        answer = None
    if answer is None:
        ours.close()
        return None
    return _Lease(ours, **answer)


def _number(variable: str, default: float) -> float:
    try:
        return float(os.environ.get(variable) or default)
    except ValueError:
        raise ActionRequiredError(
            f"The variable {variable} is no number.", next_step="correct it in this process's environment."
        ) from None


def _folder() -> Path | None:
    """The private folder of the sockets; None if there is none to which only this user can write."""
    run = os.environ.get("XDG_RUNTIME_DIR")
    base = Path(run if run and os.access(run, os.W_OK) else tempfile.gettempdir())
    home = hashlib.sha256(os.fsencode(runtime.home().resolve())).hexdigest()[:8]
    own = base / f"sluice-{os.getuid()}"
    for folder in (own, own / home):
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            found = folder.lstat()
        except OSError:
            return None
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
            return None
    return own / home


def _environment() -> dict[str, str]:
    return {n: v for n, v in os.environ.items() if n not in _NOT_JAVAS and not n.startswith(_NOT_JAVAS_BEGIN)}


def _name(
    command: JavaCommand, environment: Mapping[str, str], hadoop: Mapping[str, str], known: Mapping[str, str]
) -> str:
    """A digest of everything that could make this JVM differ from another."""
    home = Path(os.environ.get("HOME") or "/")
    named = [value.removeprefix("FILE:") for value in (*environment.values(), *hadoop.values())]
    files = [value for value in named if value.startswith("/") and len(value) < 4096]  # key tabs, tokens, profiles
    files += [f"/tmp/krb5cc_{os.getuid()}", str(home / ".aws" / "credentials"), str(home / ".aws" / "config")]
    options = [part for option in command.options for part in option.split("=", 1)[1:] if part.startswith("/")]
    java = Path(command.java)
    parts = [
        __version__,
        command,
        [_identity(path) for path in (*map(Path, (*command.class_path, *options)), java, java.parents[1] / "release")],
        [_file_identity(Path(file)) for file in files],
        sorted(environment.items()),
        sorted(hadoop.items()),
        sorted(known.items()),
        [Path.cwd(), os.getgid(), sorted(os.getgroups()), _umask()],
        process.identity(1),  # of this boot, and of these namespaces: what listens here is not there
        _network(),
    ]
    return hashlib.sha256(json.dumps(parts, default=str).encode()).hexdigest()[:20]


def _identity(path: Path) -> Any:
    """A file by its size and times; a folder by its files, small files by their content."""
    if not path.is_dir():
        return _file_identity(path)
    inside = sorted(one for one in path.rglob("*") if one.is_file())
    return [(str(one), _content(one) if one.stat().st_size <= _WHOLE else _file_identity(one)) for one in inside]


def _content(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _file_identity(path: Path) -> Any:
    try:
        found = path.stat()
    except (OSError, ValueError):
        return None
    return [found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns] if stat.S_ISREG(found.st_mode) else None


def _umask() -> str:
    with suppress(OSError):
        return next((line for line in Path("/proc/self/status").read_text().splitlines() if "Umask" in line), "")
    return ""


def _network() -> str:
    with suppress(OSError):
        return str(Path("/proc/self/ns/net").readlink())
    return ""
