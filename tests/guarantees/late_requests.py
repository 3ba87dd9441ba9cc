"""A network between clients and a broker that delivers a request late, after the client has sent it again."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress

_PRODUCE, _END_TXN = 0, 26
_FLEXIBLE = 3  # from this version on an answer's header and fields may be followed by tags


class SlowNetwork:
    """Forwards each client to the broker, and holds one request back that ends a transaction.

    The client's connection breaks then, as in a network that loses it, so that the client sends the request again by
    another one. What was held back arrives right behind the next records that a transaction adds.

    Args:
        broker: the broker's own port.
    """

    def __init__(self, broker: int) -> None:
        self._broker = broker
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self._marks: tuple[bytes, bytes] | None = None
        self._held: bytes | None = None
        self._is_ended = False
        self._connections: list[_Connection] = []
        self.answer: int | None = None
        """Kafka's error code to the request that came late: 0 where it ended what it wasn't meant for."""
        threading.Thread(target=self._accept, daemon=True).start()

    def hold_back(self, transactional_id: str, topic: str) -> None:
        """Hold the next end of a transaction of this id back, until records of the topic are sent in another one."""
        self._held, self._is_ended, self.answer = None, False, None
        self._marks = (transactional_id.encode(), topic.encode())

    def close(self) -> None:
        """Take no more clients."""
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for one in self._connections:
            one.close()

    def _accept(self) -> None:
        with suppress(OSError):  # it was closed
            while True:
                client, _ = self._server.accept()
                try:
                    broker = socket.create_connection(("127.0.0.1", self._broker))
                except OSError:  # it has ended, and the client finds out
                    client.close()
                    continue
                self._connections = [one for one in self._connections if not one.is_closed]
                self._connections.append(_Connection(client, broker, self._seen, self._behind))
                self._connections[-1].start()

    def _seen(self, request: bytes) -> bool:
        """Whether a request goes through now."""
        if self._marks is None or not _is(request, _END_TXN) or self._marks[0] not in request:
            return True
        if self._held is None:
            self._held = request
            return False
        self._is_ended = True
        return True

    def _behind(self, request: bytes) -> None:
        """What arrives once a request was answered."""
        if self._marks is None or self._held is None or not self._is_ended or not _is(request, _PRODUCE):
            return
        if all(mark in request for mark in self._marks):
            self._marks = None
            with socket.create_connection(("127.0.0.1", self._broker)) as late:
                late.sendall(self._held)
                answer = _frame(late)
            assert answer is not None
            version = struct.unpack_from(">h", self._held, 6)[0]
            (self.answer,) = struct.unpack_from(">h", answer, 12 + (version >= _FLEXIBLE))


class _Connection:
    """One client's connection; requests and answers pass whole."""

    def __init__(
        self,
        client: socket.socket,
        broker: socket.socket,
        seen: Callable[[bytes], bool],
        behind: Callable[[bytes], None],
    ) -> None:
        self._client, self._server, self._seen, self._behind = client, broker, seen, behind
        self._answered = threading.Condition()
        self._last: bytes = b""
        self._broken = threading.Barrier(2, action=self._close)

    def start(self) -> None:
        self._threads = [
            threading.Thread(target=self._until_it_breaks, args=(work,), daemon=True)
            for work in (self._requests, self._answers)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def is_closed(self) -> bool:
        return self._client.fileno() < 0

    def close(self) -> None:
        self._break()
        for thread in self._threads:
            thread.join()

    def _until_it_breaks(self, work: Callable[[], None]) -> None:
        with suppress(OSError):
            work()
        self._break()
        self._broken.wait()  # the other thread's end, which closes both

    def _break(self) -> None:
        for one in (self._client, self._server):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _close(self) -> None:
        self._client.close()
        self._server.close()

    def _requests(self) -> None:
        while (request := _frame(self._client)) is not None:
            if not self._seen(request):
                return
            self._server.sendall(request)
            if _is(request, _PRODUCE):
                with self._answered:
                    self._answered.wait_for(lambda own=request[8:12]: self._last == own, 10)
                self._behind(request)

    def _answers(self) -> None:
        while (answer := _frame(self._server)) is not None:
            self._client.sendall(answer)
            with self._answered:
                self._last = answer[4:8]
                self._answered.notify_all()


def _is(request: bytes, api: int) -> bool:
    return int(struct.unpack_from(">h", request, 4)[0]) == api


def _frame(source: socket.socket) -> bytes | None:
    """The next request or answer with its length before it; None at the end."""
    found = b""
    wanted = 4
    while len(found) < wanted:
        part = source.recv(wanted - len(found))
        if not part:
            return None
        found += part
        if len(found) == 4:
            wanted = 4 + int(struct.unpack(">i", found)[0])
    return found
