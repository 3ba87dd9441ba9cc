"""An address that leads to one server after another, as a proxy's, a load balancer's or a DNS name's does."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

from ...cluster.servers import LOOPBACK


class Switched:
    """A TCP port on this machine; each connection is led to the server that is set when it is made.

    Attributes:
        port: of the address.
        to: the port of the server behind it.
    """

    def __init__(self, to: int) -> None:
        self.to = to
        self._listens = socket.create_server((LOOPBACK, 0))
        self.port: int = self._listens.getsockname()[1]
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, name="switched", daemon=True)]
        self._threads[0].start()

    def close(self) -> None:
        """End the address and all of its connections."""
        with suppress(OSError):
            self._listens.shutdown(socket.SHUT_RDWR)  # which ends the wait for connections
        for one in [self._listens, *self._open]:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(20)
        for one in [self._listens, *self._open]:
            one.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listens.accept()
            except OSError:  # it was closed
                return
            server = socket.create_connection((LOOPBACK, self.to))
            self._open += [client, server]
            for ends in ((client, server), (server, client)):
                self._threads.append(threading.Thread(target=self._copy, args=ends, name="switched", daemon=True))
                self._threads[-1].start()

    @staticmethod
    def _copy(from_: socket.socket, to: socket.socket) -> None:
        with suppress(OSError):
            while data := from_.recv(1 << 16):
                to.sendall(data)
        with suppress(OSError):
            to.shutdown(socket.SHUT_WR)
