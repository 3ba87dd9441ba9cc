"""A cluster that names no broker: the answer of one whose brokers are all fenced, as a busy broker is for a while."""

from __future__ import annotations

import os
import signal
import socket
import socketserver
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from sluice.control import clients
from sluice.control.topic import ControlTopic
from sluice.errors import RetryableError
from sluice.kafka.config import KafkaSettings
from sluice.sources.kafka import cluster
from sluice.sources.kafka.cluster import KafkaCluster

_API_VERSIONS, _METADATA = 18, 3
_UNSUPPORTED_VERSION = 35


class _Broker(socketserver.ThreadingTCPServer):
    """Answers ApiVersions in version 0, and Metadata in version 4 without topics: once with itself, then without."""

    daemon_threads = True
    fenced = False

    def metadata(self) -> bytes:
        host, port = self.server_address[:2]
        own = struct.pack(">ih", 1, len(host)) + str(host).encode() + struct.pack(">ih", port, -1)
        brokers, self.fenced = (struct.pack(">i", 0) if self.fenced else struct.pack(">i", 1) + own), True
        return struct.pack(">i", 0) + brokers + struct.pack(">h", 3) + b"cid" + struct.pack(">ii", 1, 0)


class _Connection(socketserver.BaseRequestHandler):
    server: _Broker

    def handle(self) -> None:
        with suppress(ConnectionError):  # the client has ended
            self._answer()

    def _answer(self) -> None:
        while head := self.request.recv(4, socket.MSG_WAITALL):
            request = self.request.recv(struct.unpack(">i", head)[0], socket.MSG_WAITALL)
            key, version, correlation = struct.unpack(">hhi", request[:8])
            if key == _METADATA:
                body = self.server.metadata()
            else:
                error = _UNSUPPORTED_VERSION if version else 0
                body = struct.pack(">hi", error, 2) + struct.pack(">hhhhhh", _API_VERSIONS, 0, 0, _METADATA, 4, 4)
            self.request.sendall(struct.pack(">ii", 4 + len(body), correlation) + body)


@pytest.fixture
def address() -> Iterator[str]:
    with _Broker(("127.0.0.1", 0), _Connection) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_the_source_is_asked_again(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "TIMEOUT", 1.0)
    source = KafkaCluster(KafkaSettings("k", {"bootstrap.servers": address}))
    with pytest.raises(RetryableError, match="asking for the cluster's id"):
        source.cluster_ids()


def test_the_control_topic_is_asked_again(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "TIMEOUT", 1.0)
    topic = ControlTopic(KafkaSettings("k", {"bootstrap.servers": address}), "sluice-control-t")
    with pytest.raises(RetryableError, match="asking for the control topic's offsets"):
        topic.end()


def test_librdkafka_still_aborts_a_process_that_asks_for_the_cluster(address: str) -> None:
    """Where this fails, `sluice.kafka.metadata` may ask by `describe_cluster` again."""
    code = (
        "import sys; from confluent_kafka.admin import AdminClient; "
        "admin = AdminClient({'bootstrap.servers': sys.argv[1]}); admin.describe_cluster(request_timeout=5).result()"
    )
    done = subprocess.run([sys.executable, "-c", code, address], capture_output=True, text=True, env=dict(os.environ))
    assert (done.returncode, "rko_result" in done.stderr) == (-signal.SIGABRT, True), done.stderr
