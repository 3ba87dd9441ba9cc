"""Keeps one coordinator's JVM between steps; run as a separate script, with Python's standard library only.

A step starts it with one end of a socket, over which it sends the JVM's command, and gets its port and token. That
socket is the lease: while it is open, the JVM belongs to that step alone. A successful step sends `back`; if the socket
closes without it, or the process is gone, the step has died, and the JVM is killed, so that no work continues for a
dead step. A returned JVM waits at a socket in a private folder, from which the next step acquires it. The socket exists
only while the JVM waits, so of two steps that connect one gets it.

The JVM ends with this process, too: it reads from a pipe of it (py4j's `--die-on-broken-pipe`).
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

ANSWERS_WITHIN = 5.0  # seconds that a returned JVM may take to answer
_ASKS_WITHIN = 1.0  # seconds in which a connecting process has to send its request
_LINE = 1 << 20  # bytes: a class path of hundreds of jars


def read_line(connection: socket.socket) -> bytes:
    """The bytes up to the end of a line; fewer if the peer has closed."""
    text = b""
    while not text.endswith(b"\n") and len(text) < _LINE:
        more = connection.recv(65536)
        if not more:
            break
        text += more
    return text


def is_there(port: int, token: str, within: float) -> bool:
    """Whether a JVM's gateway answers: the kernel also connects to a frozen one, which then doesn't answer."""
    try:
        with socket.create_connection(("127.0.0.1", port), within) as connection:
            connection.sendall(f"A\n{token}\ne\n".encode())
            return read_line(connection).startswith(b"!y")
    except OSError:
        return False


class Keeper:
    """One JVM, owned by one step at a time.

    Args:
        lease: the first owner's socket.
    """

    def __init__(self, lease: socket.socket) -> None:
        self._lease = lease
        given = json.loads(read_line(lease))
        self._folder = Path(given["folder"])
        self._name: str = given["name"]
        self._idle: float = given["idle"]
        self._most_uses: int = given["uses"]
        self._most_waiting: int = given["waiting"]
        self._until = time.monotonic() + given["age"]
        self._uses = 0
        self._java = subprocess.Popen(
            given["command"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        os.umask(0o077)  # of this process's own files; Java has the step's
        self._port, self._token = 0, ""

    def run(self) -> None:
        """Serve one owner after the other, until no step connects any more or the JVM must not be used again."""
        try:
            if self._has_started():
                while self._serve():
                    pass
        finally:
            self._java.kill()
            self._java.wait()
            self._lease.close()  # after its end: a step that gave it up waits for this

    def _has_started(self) -> bool:
        out = self._java.stdout
        assert out is not None
        if out.fileno() not in _first_of([out.fileno(), self._lease.fileno()]):  # the step has died already
            return False
        port, token = out.readline(), out.readline()
        if not token:
            return False
        self._port, self._token = int(port), token.decode().rstrip("\n")
        return True

    def _serve(self) -> bool:
        """Lend the JVM to the owner; once it is back, wait for the next one. False where there will be none."""
        self._uses += 1
        answer = {"port": self._port, "token": self._token, "pid": self._java.pid}
        try:
            self._lease.sendall(json.dumps(answer).encode() + b"\n")
        except OSError:
            return False
        if not self._is_back() or self._uses >= self._most_uses or time.monotonic() >= self._until:
            return False
        return is_there(self._port, self._token, ANSWERS_WITHIN) and self._waits()

    def _is_back(self) -> bool:
        """Whether the owner has handed the JVM back, rather than died or given it up."""
        with _Process(_peer(self._lease)) as owner, _Process(self._java.pid) as java:
            gone = [one.descriptor for one in (owner, java) if one.descriptor is not None]
            # A fork of the owner may hold its socket open: the end of the process itself counts as well.
            ready = _first_of([self._lease.fileno(), *gone])
            if self._lease.fileno() not in ready:
                return False
        try:
            return read_line(self._lease) == b"back\n"
        except OSError:
            return False

    def _waits(self) -> bool:
        """Wait at a socket for the next owner; False if none came in time, or the JVM isn't wanted."""
        listener = socket.socket(socket.AF_UNIX)
        path = self._folder / f"{self._name}.{os.getpid()}.jvm"
        if not self._offer(listener, path):
            return False
        wall = time.time()
        self._lease.close()  # informs the last owner that the next step will find it
        try:
            with _Process(self._java.pid) as java:
                ended = [java.descriptor] if java.descriptor is not None else []
                wait = max(0.0, min(self._idle, self._until - time.monotonic()))
                if listener.fileno() not in _first_of([listener.fileno(), *ended], wait):
                    return False
            self._lease, _ = listener.accept()
        finally:
            path.unlink(missing_ok=True)
            listener.close()
        if time.time() < wall:  # the clock was set back: Hudi in there would wait until it reaches the old time again
            return False
        self._lease.settimeout(_ASKS_WITHIN)
        try:
            wanted = read_line(self._lease)
        except OSError:
            return False
        self._lease.settimeout(None)
        return wanted == b"take\n"

    def _offer(self, listener: socket.socket, path: Path) -> bool:
        """Listen at the path, unless enough JVMs wait already; the path appears only once it accepts connections."""
        with (self._folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if sum(map(_is_kept, self._folder.glob("*.jvm"))) >= self._most_waiting:
                return False
            hidden = path.with_suffix(".new")
            hidden.unlink(missing_ok=True)
            listener.bind(str(hidden))
            listener.listen(8)
            hidden.rename(path)
        return True


def _is_kept(path: Path) -> bool:
    """Whether the keeper that listens there still runs; what one has left that was killed is removed."""
    try:
        os.kill(int(path.suffixes[-2][1:]), 0)
    except ProcessLookupError:
        path.unlink(missing_ok=True)
        return False
    return True


class _Process:
    """A process to wait for: readable once it has ended. Nothing to wait for where the system has no such thing."""

    def __init__(self, pid: int) -> None:
        self.descriptor: int | None = None
        with suppress(OSError):
            self.descriptor = os.pidfd_open(pid) if pid > 0 else None

    def __enter__(self) -> _Process:
        return self

    def __exit__(self, *_: object) -> None:
        if self.descriptor is not None:
            os.close(self.descriptor)


def _first_of(descriptors: list[int], seconds: float | None = None) -> set[int]:
    """The descriptors that are readable, or whose peer is gone."""
    found = select.poll()
    for descriptor in descriptors:
        found.register(descriptor, select.POLLIN)
    return {descriptor for descriptor, _ in found.poll(None if seconds is None else seconds * 1000)}


def _peer(connection: socket.socket) -> int:
    """The process at the other end of a socket, 0 where this one can't see it."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return 0
    pid, _, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, option, struct.calcsize("3i")))
    return int(pid)


if __name__ == "__main__":
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # a terminal that closes is not its step's end
    try:
        Keeper(socket.socket(fileno=int(sys.argv[1]))).run()
    except KeyboardInterrupt:
        sys.exit(1)
