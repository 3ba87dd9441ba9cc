"""What tells people and programs, received: a mail server, a webhook and a StatsD socket of the tests' own."""

from __future__ import annotations

import email
import email.policy
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from sluice.local.process import free_port

HOOK_PATH = "services/T0001/s3cr3t-path-of-the-webhook"


@dataclass
class Inbox:
    """What was received."""

    mails: list[tuple[list[str], EmailMessage]] = field(default_factory=list)
    posts: list[dict[str, Any]] = field(default_factory=list)
    metrics: list[str] = field(default_factory=list)

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:  # noqa: N802  # aiosmtpd's name
        message = email.message_from_bytes(envelope.content, policy=email.policy.default)
        self.mails.append((envelope.rcpt_tos, message))
        return "250 OK"

    def posted(self, pipeline: str) -> list[dict[str, Any]]:
        """What the webhook got of one pipeline."""
        return [post for post in self.posts if post["pipeline"] == pipeline]

    def mailed(self, to: str) -> list[EmailMessage]:
        """What one person got."""
        return [message for recipients, message in self.mails if recipients == [to]]


@contextmanager
def mail_server(inbox: Inbox) -> Iterator[int]:
    """A mail server; its port."""
    from aiosmtpd.controller import Controller

    controller = Controller(inbox, hostname="127.0.0.1", port=free_port(2525))
    controller.start()
    try:
        yield controller.port
    finally:
        controller.stop()


@contextmanager
def webhook(inbox: Inbox) -> Iterator[str]:
    """A server that takes posts at one path, from who has logged in; its address with that path."""

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            right = self.path == f"/{HOOK_PATH}" and self.headers["Authorization"].startswith("Basic ")
            if right:
                inbox.posts.append(json.loads(body))
            self.send_response(200 if right else 404)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hook)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/{HOOK_PATH}"
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def statsd(inbox: Inbox) -> Iterator[int]:
    """A socket that takes metrics; its port."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    listener.bind(("127.0.0.1", 0))

    def receive() -> None:
        while packet := listener.recv(65536):
            inbox.metrics.append(packet.decode())

    thread = threading.Thread(target=receive, daemon=True)
    thread.start()
    port = listener.getsockname()[1]
    try:
        yield port
    finally:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as last:
            last.sendto(b"", ("127.0.0.1", port))  # an empty packet ends the thread
        thread.join(5)
        listener.close()
