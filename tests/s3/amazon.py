"""Amazon's own host names, answered here: a proxy that ends TLS with a certificate of its own, in front of Moto.

Processes find it by HTTPS_PROXY, as behind any proxy, and ask sts.us-east-1.amazonaws.com and a bucket's host without
one setting of an endpoint. It does what Moto leaves out: it knows which logins it gave for which web identity, refuses
others, and refuses each when its time has come.
"""

from __future__ import annotations

import re
import ssl
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import NameOID

REGION = "us-east-1"
ROLE = "arn:aws:iam::111122223333:role/sluice"
_HOSTS = ("*.amazonaws.com", f"*.{REGION}.amazonaws.com", f"*.s3.{REGION}.amazonaws.com", "*.s3.amazonaws.com")
_PASSWORD = "changeit"  # of a file that holds no secret
_DENIED = "<Error><Code>{code}</Code><Message>{code}</Message><RequestId>r</RequestId></Error>"
_OF_STS = (
    "<ErrorResponse><Error><Type>Sender</Type><Code>{code}</Code><Message>{message}</Message></Error></ErrorResponse>"
)
_MESSAGES = {  # of STS, as AWS has them
    "AccessDenied": "Not authorized to perform sts:AssumeRoleWithWebIdentity",
    "InvalidIdentityToken": "No OpenIDConnect provider found in your account for https://oidc.example/id/1",
}
_LOGINS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE")
_EARLY = timedelta(seconds=60)  # so long before its end AWS's SDK for Java renews a login while a request waits for it


@dataclass
class Login:
    """What STS gave."""

    key: str
    token: str
    role: str
    until: float
    requests: int = 0


@dataclass
class Amazon:
    """The proxy. As a context manager it is stopped at the end.

    Attributes:
        moto: where Moto listens.
        folder: for certificates.
        lasts: how many seconds a login holds. STS says a minute more, as clients renew a login before its end.
        voided: web identity tokens that STS refuses.
        refused: the error that services answer with, by the beginning of an action or of a request, as `PUT /lake`.
        logins: what STS gave, in order.
        asked: the hosts that were asked.
        keys: other access keys that are known, each with the number of its requests.
    """

    moto: str
    folder: Path
    lasts: float = 3600.0
    voided: set[str] = field(default_factory=set)
    refused: dict[str, str] = field(default_factory=dict)
    logins: list[Login] = field(default_factory=list)
    asked: set[str] = field(default_factory=set)
    keys: dict[str, int] = field(default_factory=dict)

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True)
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.amazon, self._server.context = self, _certified(self.folder)
        threading.Thread(target=self._server.serve_forever, name="amazon", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def forget(self) -> None:
        """As it was at first, for the next test."""
        self.lasts = 3600.0
        for one in (self.voided, self.refused, self.logins, self.asked, self.keys):
            one.clear()

    @property
    def environment(self) -> dict[str, str]:
        """Of processes that are to ask here."""
        port = self._server.server_address[1]
        java = {
            "javax.net.ssl.trustStore": self.folder / "trust.p12",
            "javax.net.ssl.trustStorePassword": _PASSWORD,
            "http.proxyHost": "127.0.0.1",  # AWS's SDK 2 for Java takes this one for requests by https, too
            "http.proxyPort": port,
        }
        return {
            "HTTPS_PROXY": f"http://127.0.0.1:{port}",
            "AWS_CA_BUNDLE": str(self.folder / "ca.pem"),
            "JAVA_TOOL_OPTIONS": " ".join(f"-D{name}={value}" for name, value in java.items()),
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
        }

    def gives(self) -> tuple[str, str, str]:
        """A login that somebody got from STS elsewhere: key, secret, session token."""
        self.logins.append(Login(f"ASIA{len(self.logins):016}", "", "", time.time() + self.lasts))
        return self.logins[-1].key, "its-secret", "its-token"

    def answer(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, Any, bytes]:
        """Moto's answer, unless the login isn't right: status, headers, content."""
        form = parse_qs(body.decode("latin-1")) if headers.get("Host", "").startswith("sts.") else {}
        action = form.get("Action", [headers.get("X-Amz-Target", "").rpartition(".")[2] or f"{method} {path}"])[0]
        unsigned = action == "AssumeRoleWithWebIdentity"
        with self._lock:
            self.asked.add(headers.get("Host", ""))
            code = next((code for name, code in self.refused.items() if action.startswith(name)), None)
            if code is None and not unsigned:
                code = self._refusal(headers)
            elif code is None and self._token(form) in self.voided:
                code = "InvalidIdentityToken"
        if code is not None:
            return _refused(code, headers)
        status, given, content = self._forward(method, path, headers, body)
        if action in ("AssumeRoleWithWebIdentity", "AssumeRole") and status == 200:
            content = self._noted(content.decode(), form)
            given = [("Content-Type", "text/xml")]
        return status, given, content

    def _token(self, form: Mapping[str, list[str]]) -> str:
        return form.get("WebIdentityToken", [""])[0]

    def _refusal(self, headers: Mapping[str, str]) -> str | None:
        """Why a signed request is refused, in S3's word; None if it isn't."""
        found = re.search(r"Credential=([^/]+)/", headers.get("Authorization", ""))
        key = found[1] if found else ""
        if key in self.keys:
            self.keys[key] += 1
            return None
        for login in self.logins:
            if login.key == key:
                if time.time() > login.until or headers.get("X-Amz-Security-Token") is None:
                    return "ExpiredToken"
                login.requests += 1
                return None
        return "InvalidAccessKeyId"

    def _noted(self, text: str, form: Mapping[str, list[str]]) -> bytes:
        now = time.time()
        key = re.search("<AccessKeyId>([^<]+)<", text)
        assert key is not None, text
        with self._lock:
            self.logins.append(Login(key[1], self._token(form), form["RoleArn"][0], now + self.lasts))
        said = datetime.fromtimestamp(now + self.lasts, UTC) + _EARLY
        return re.sub("<Expiration>[^<]+<", f"<Expiration>{said:%Y-%m-%dT%H:%M:%S.000Z}<", text).encode()

    def _forward(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, Any, bytes]:
        moto = HTTPConnection(urlsplit(self.moto).netloc, timeout=60)
        try:
            passed = {k: v for k, v in headers.items() if k.lower() not in ("expect", "connection", "content-length")}
            moto.request(method, path, body, passed)
            answer = moto.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            moto.close()


def _refused(code: str, headers: Mapping[str, str]) -> tuple[int, Any, bytes]:
    status = 400 if code in ("ExpiredToken", "InvalidIdentityToken") else 403
    if "X-Amz-Target" in headers:
        return status, [("Content-Type", "application/x-amz-json-1.1")], f'{{"__type": "{code}"}}'.encode()
    form = _OF_STS if headers.get("Host", "").startswith("sts.") else _DENIED
    return status, [("Content-Type", "text/xml")], form.format(code=code, message=_MESSAGES.get(code, code)).encode()


class _Server(ThreadingHTTPServer):
    amazon: Amazon
    context: ssl.SSLContext
    daemon_threads = True


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"

    def do_CONNECT(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.flush()
        try:
            self.connection = self.server.context.wrap_socket(self.connection, server_side=True)
        except (OSError, ssl.SSLError):
            self.close_connection = True
            return
        self.rfile = self.connection.makefile("rb")
        self.wfile = self.connection.makefile("wb")
        self.close_connection = False

    def finish(self) -> None:
        super().finish()
        self.connection.close()  # the server closes the socket that it had before TLS

    def _answer(self) -> None:
        body = self._body()
        status, headers, content = self.server.amazon.answer(self.command, self.path, self.headers, body)
        self.send_response(status)
        for name, value in headers:
            if name.lower() not in ("server", "date", "connection", "transfer-encoding", "content-length"):
                self.send_header(name, value)
        length = next((v for k, v in headers if k.lower() == "content-length"), len(content))
        self.send_header("Content-Length", str(length if self.command == "HEAD" else len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)
        self.wfile.flush()

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return b"".join(parts)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("do_"):
            return self._answer
        raise AttributeError(name)

    def log_message(self, *_: Any) -> None:
        """Nobody reads it."""


def _certified(folder: Path) -> ssl.SSLContext:
    """A server's side of TLS; what clients have to trust is `ca.pem` and, for Java, `trust.p12` in the folder."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "amazon of the tests")])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=7))
    builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(one) for one in _HOSTS]), critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    certificate = builder.sign(key, hashes.SHA256())
    (folder / "ca.pem").write_bytes(certificate.public_bytes(Encoding.PEM))
    trusted = [pkcs12.PKCS12Certificate(certificate, b"amazon")]
    store = pkcs12.serialize_java_truststore(trusted, BestAvailableEncryption(_PASSWORD.encode()))
    (folder / "trust.p12").write_bytes(store)
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (folder / "pair.pem").write_bytes(private + certificate.public_bytes(Encoding.PEM))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "pair.pem")
    return context


def become_pod(patch: pytest.MonkeyPatch, amazon: Amazon, token: Path) -> None:
    """Have this process and its children be a pod of EKS: they have the web identity in a file, and no other login."""
    for name in _LOGINS:
        patch.delenv(name, raising=False)
    pod = {"AWS_WEB_IDENTITY_TOKEN_FILE": str(token), "AWS_ROLE_ARN": ROLE, "AWS_STS_REGIONAL_ENDPOINTS": "regional"}
    for name, value in {**amazon.environment, **pod}.items():
        patch.setenv(name, value)
