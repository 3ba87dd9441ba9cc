"""A broker whose clients see no topic ids, as before Kafka 2.8: until it is upgraded.

A real broker behind a proxy that takes the newer versions of two requests out of what the broker says it knows: of
Metadata, which gives the ids, and of Fetch, which goes by them.
"""

from __future__ import annotations

import asyncio
import struct
from contextlib import suppress
from pathlib import Path
from threading import Thread

from sluice.local.broker import LocalBroker
from sluice.local.home import SluiceHome
from sluice.local.process import free_port

_API_VERSIONS = 18
_NEWEST = {3: 9, 1: 12}  # of Metadata and Fetch, without ids (KIP-516)
_CLUSTER_ID = "c2x1aWNlLW9sZC0wMDAwMDY"


class BrokerWithoutIds:
    """The broker. As a context manager it is stopped at the end."""

    def __init__(self, home: SluiceHome, folder: Path) -> None:
        self._port = free_port()
        self.bootstrap = f"127.0.0.1:{self._port}"
        advertised = {"advertised.listeners": f"PLAINTEXT://{self.bootstrap}"}
        self._broker = LocalBroker(home, folder, settings=advertised, cluster_id=_CLUSTER_ID)
        self._has_ids = False
        self._connections: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._over = asyncio.Event()
        self._proxy = Thread(target=self._run, name="proxy", daemon=True)

    def __enter__(self) -> BrokerWithoutIds:
        self._proxy.start()
        self._broker.start(120)
        return self

    def __exit__(self, *_: object) -> None:
        self._broker.kill()
        self._loop.call_soon_threadsafe(self._over.set)
        self._proxy.join()

    def upgrade(self) -> None:
        """Have clients see ids: all of them have to connect anew."""

        def close_all() -> None:
            for connection in self._connections:
                connection.close()

        self._has_ids = True
        self._loop.call_soon_threadsafe(close_all)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        async with await asyncio.start_server(self._accept, "127.0.0.1", self._port) as server:
            await self._over.wait()
            # Accept no more, but leave the server open: a connection that has been accepted and isn't served yet fails
            # on a closed server, and leaves its socket open. All of them end by themselves, as the broker is gone.
            for listener in server.sockets:
                self._loop.remove_reader(listener.fileno())
            for connection in self._connections:
                connection.transport.abort()
            while under_way := asyncio.all_tasks() - {asyncio.current_task()}:
                await asyncio.wait(under_way)

    async def _accept(self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        both = {to_client}
        self._connections.add(to_client)
        try:
            port = int(self._broker.bootstrap.rpartition(":")[2])
            from_broker, to_broker = await asyncio.open_connection("127.0.0.1", port)
            both.add(to_broker)
            self._connections.add(to_broker)
            asked: dict[int, int] = {}  # versions of the requests for versions, by their number
            await asyncio.gather(
                self._pass_on(from_client, to_broker, asked, is_request=True),
                self._pass_on(from_broker, to_client, asked, is_request=False),
            )
        except OSError:
            pass  # the broker is gone, and its clients learn it by the end of their connections
        finally:
            for one in both:  # while the loop runs: afterwards nothing closes them
                one.close()
            self._connections -= both

    async def _pass_on(
        self, of: asyncio.StreamReader, to: asyncio.StreamWriter, asked: dict[int, int], *, is_request: bool
    ) -> None:
        with suppress(asyncio.IncompleteReadError, OSError):
            while True:
                frame = bytearray(await of.readexactly(int.from_bytes(size := await of.readexactly(4))))
                if is_request:
                    kind, version, number = struct.unpack_from(">hhi", frame)
                    if kind == _API_VERSIONS:
                        asked[number] = version
                elif (number := int.from_bytes(frame[:4])) in asked and not self._has_ids:
                    _forget_ids(frame, asked.pop(number))
                to.write(size + frame)
                await to.drain()
        to.close()


def _forget_ids(answer: bytearray, version: int) -> None:
    """Lower the newest versions in an ApiVersions response: number, error, and an array of key, oldest and newest."""
    is_flexible = version >= 3 and answer[4:6] == b"\0\0"  # an unsupported version is answered in version 0
    count, at, width = (answer[6] - 1, 7, 7) if is_flexible else (int.from_bytes(answer[6:10]), 10, 6)
    for start in range(at, at + count * width, width):
        key, _, newest = struct.unpack_from(">hhh", answer, start)
        struct.pack_into(">h", answer, start + 4, min(newest, _NEWEST.get(key, newest)))
