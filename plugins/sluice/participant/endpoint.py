"""A worker's HTTP endpoint: `/health` and `/ready` for probes, `/metrics` for Prometheus. It changes nothing."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

from prometheus_client.exposition import choose_encoder

from sluice.errors import ActionRequiredError
from sluice.logs import log
from sluice.participant.vitals import Vitals


@contextmanager
def answering(host: str, port: int, vitals: Vitals) -> Iterator[int]:
    """Answer requests for the length of the block, and give the port.

    Args:
        host: the address to listen on.
        port: the port; 0 for any that is free.
        vitals: what is known of the worker.

    Raises:
        ActionRequiredError: the port is in use, or there is no such address here.
    """
    try:
        server = _Server(host, port, vitals)
    except (OSError, OverflowError) as error:
        raise ActionRequiredError(
            "The worker can't listen on its port.",
            next_step="give each worker of a machine a separate port by --port, and an address of this machine by "
            "--host; then start the worker again.",
            host=host,
            port=port,
            reason=str(error),
        ) from error
    bound = server.socket.getsockname()[1]
    with server:
        Thread(target=server.serve_forever, name="sluice-endpoint", daemon=True).start()
        log.info("the worker answers", host=host, port=bound, paths=["/health", "/ready", "/metrics"])
        try:
            yield bound
        finally:
            server.shutdown()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    server_bind = TCPServer.server_bind  # HTTPServer's asks DNS for the name of this machine, and may wait for it

    def __init__(self, host: str, port: int, vitals: Vitals) -> None:
        self.vitals = vitals
        if ":" in host:
            self.address_family = socket.AF_INET6
        super().__init__((host, port), _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version, sys_version = "sluice", ""
    timeout = 10  # seconds for a client to send its request

    def do_GET(self) -> None:  # http.server's name
        """Answer."""
        vitals, path = self.server.vitals, urlsplit(self.path).path
        if path == "/health":
            self._judge(vitals.health_problem())
        elif path == "/ready":
            self._judge(vitals.readiness_problem(), claims=vitals.claims())
        elif path == "/metrics":
            encode, content_type = choose_encoder(self.headers.get("Accept", ""))
            self._answer(HTTPStatus.OK, encode(vitals.figures.registry), content_type)
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def _judge(self, problem: str | None, **more: Any) -> None:
        status = HTTPStatus.OK if problem is None else HTTPStatus.SERVICE_UNAVAILABLE
        body = json.dumps({"ok": problem is None, "reason": problem, **more}).encode()
        self._answer(status, body, "application/json")

    def _answer(self, status: HTTPStatus, body: bytes, content_type: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Cache-Control", "no-store")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Log nothing: probes ask every few seconds."""
