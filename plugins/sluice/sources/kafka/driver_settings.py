"""Kafka's settings for Spark's client, and, if Python makes the tokens, the endpoint from which it gets them.

A token is valid for minutes, a job may run for hours, and executors have no Python. So the driver is an identity
provider for its own job: an OAuth token endpoint (RFC 6749, section 4.4), which Kafka's own log-in handler calls over
TLS with the driver's own certificate. Its address, the certificate and a secret are in the JAAS entry that travels with
the job; nothing is written to disk.
"""

from __future__ import annotations

import hmac
import ipaddress
import json
import secrets
import ssl
import tempfile
import time
from base64 import b64encode
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from pyspark.sql import SparkSession

from sluice.errors import ActionRequiredError
from sluice.kafka.config import KafkaSettings
from sluice.kafka.java_settings import NEXT_STEP_WITHOUT_LOGIN, login_classes, token_login
from sluice.kafka.tokens import Token, ask
from sluice.logs import log

_CLIENT = "sluice"
_LONGEST_REQUEST = 4096  # bytes; Kafka's has 29 and a scope
_LIFETIME = timedelta(days=30)  # of the certificate: longer than any job


def java_settings(spark: SparkSession, kafka: KafkaSettings) -> dict[str, str]:
    """The settings of Spark's Kafka client.

    Raises:
        ActionRequiredError: something that secures the connection can't be carried over; it is named.
    """
    function = kafka.token_callable
    settings = kafka.java(_token_login(spark, kafka, function) if function else None)
    _require_classes(spark, settings, kafka.name)
    return settings


def _token_login(spark: SparkSession, kafka: KafkaSettings, function: str) -> dict[str, str]:
    conf: Any = spark.sparkContext.getConf()
    host = str(conf.get("spark.driver.host", "127.0.0.1"))
    config = str(kafka.librdkafka.get("sasl.oauthbearer.config", ""))
    endpoint = _endpoint(host, str(conf.get("spark.driver.bindAddress", host)), function, config, kafka.name)
    extensions = ask(function, config, kafka.name).extensions
    return token_login(endpoint.url, _CLIENT, endpoint.secret, endpoint.certificate, extensions)


def _require_classes(spark: SparkSession, settings: Mapping[str, str], connection: str) -> None:
    """Check for a third-party log-in's jar: without it Kafka's client only reports that it couldn't be created."""
    loader: Any = spark._jvm.java.lang.Thread.currentThread().getContextClassLoader()  # type: ignore[union-attr]
    for name in login_classes(settings):
        in_java = name.startswith("com.sun.")  # Java's own modules aren't files
        if not in_java and loader.getResource(f"{name.replace('.', '/')}.class") is None:
            raise ActionRequiredError(
                f"Spark has no class {name}, by which its client is to log in to Kafka.",
                next_step=NEXT_STEP_WITHOUT_LOGIN,
                connection=connection,
            )


@cache  # one for each driver, however many reads; it ends with the process
def _endpoint(host: str, bind: str, function: str, config: str, connection: str) -> TokenEndpoint:
    return TokenEndpoint(host, bind, lambda: ask(function, config, connection))


class TokenEndpoint:
    """An HTTPS server that gives a new token to clients that know its secret.

    Args:
        host: the name or address by which executors reach the driver.
        bind: the address to listen on.
        make: makes a token.
    """

    def __init__(self, host: str, bind: str, make: Callable[[], Token]) -> None:
        self.secret = secrets.token_urlsafe(32)
        self._make = make
        self._lock = Lock()
        server = _Server((bind, 0), _Handler)
        server.endpoint = self
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.certificate = _identify(context, host)
        server.context = context
        self.url = f"https://{f'[{host}]' if ':' in host else host}:{server.server_address[1]}/"
        Thread(target=server.serve_forever, name="sluice-tokens", daemon=True).start()

    def answer(self, authorization: str) -> bytes | None:
        """A token response (RFC 6749, section 5.1); None without the right secret."""
        wanted = b64encode(f"{_CLIENT}:{self.secret}".encode())
        if not hmac.compare_digest(authorization.encode(), b"Basic " + wanted):
            return None
        with self._lock:  # the function may not be thread-safe
            token = self._make()
        left = max(0, int(token.expires - time.time()))
        return json.dumps({"access_token": token.value, "token_type": "Bearer", "expires_in": left}).encode()


class _Server(ThreadingHTTPServer):
    endpoint: TokenEndpoint
    context: ssl.SSLContext
    daemon_threads = True

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Shake hands in the request's own thread, so that no client can block others."""
        request.settimeout(30)
        with suppress(OSError), self.context.wrap_socket(request, server_side=True) as secured:
            super().finish_request(secured, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_POST(self) -> None:  # http.server's name
        """Answer with a token."""
        asked = int(self.headers.get("Content-Length") or 0)
        self.rfile.read(min(asked, _LONGEST_REQUEST))
        try:
            body = self.server.endpoint.answer(self.headers.get("Authorization", ""))
        except Exception as error:
            log.error("no token for Kafka: oauth_cb failed", reason=f"{type(error).__name__}: {error}")
            self.send_error(503)
            return
        if body is None:
            self.send_error(401)
            return
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Cache-Control", "no-store")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Log nothing: the clients are this application's executors."""


def _identify(context: ssl.SSLContext, host: str) -> str:
    """Give the server a key and a certificate that it signs itself; returns the certificate in PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "sluice driver")])
    now = datetime.now(UTC)
    try:
        place: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        place = x509.DNSName(host)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number())
    # An executor's clock may be hours behind or ahead; that doesn't matter here.
    builder = builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + _LIFETIME)
    builder = builder.add_extension(x509.SubjectAlternativeName([place]), critical=False)
    certificate = builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    with tempfile.TemporaryDirectory(prefix="sluice-") as folder:  # Python's ssl reads keys from files only
        file = Path(folder) / "pair.pem"
        file.touch(0o600)
        file.write_bytes(private + certificate)
        context.load_cert_chain(file)
    return certificate.decode()
