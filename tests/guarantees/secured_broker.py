"""One embedded broker with a listener for each way to log in, and clients' settings for each of them."""

from __future__ import annotations

import base64
import json
import os
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from kafka_secrets import PASSWORD, Authority, Identity, written

from sluice.local.broker import LocalBroker
from sluice.local.home import SluiceHome
from sluice.local.process import free_port

from .kafka_tokens import AUDIENCE, USER, base64url, sign

SECRET = "s3cr3t-of-the-user"
_OAUTH = "org.apache.kafka.common.security.oauthbearer"
_LISTENERS = {"SCRAM": "SASL_SSL", "PLAIN": "SASL_SSL", "JWT": "SASL_SSL", "UNSIGNED": "SASL_SSL", "MUTUAL": "SSL"}


class TokenMaker:
    """Signs tokens that the listener JWT takes; its key lies in a file, for the Spark driver's side to sign with."""

    def __init__(self, folder: Path) -> None:
        self._key = rsa.generate_private_key(65537, 2048)
        numbers = self._key.public_key().public_numbers()
        n, e = (base64url(value.to_bytes((value.bit_length() + 7) // 8)) for value in (numbers.n, numbers.e))
        key = {"kty": "RSA", "kid": "k", "alg": "RS256", "use": "sig", "n": n, "e": e}
        self.jwks = folder / "jwks.json"
        self.jwks.write_text(json.dumps({"keys": [key]}))
        self.key_file = folder / "token.key"
        pem = self._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        self.key_file.write_bytes(pem)


class IdentityProvider:
    """A token endpoint as OIDC has it (client_credentials), over HTTPS, for one client."""

    def __init__(self, folder: Path, key_file: Path, identity: Identity) -> None:
        pair = folder / "idp.pem"
        pair.write_text(identity.key_pem() + identity.pem)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pair)
        self.asked = 0
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                login = base64.b64encode(f"{USER}:{SECRET}".encode()).decode()
                self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers["Authorization"] != f"Basic {login}":
                    self.send_error(401)
                    return
                provider.asked += 1
                answer = {"access_token": sign(f"key={key_file}")[0], "token_type": "Bearer", "expires_in": 3600}
                body = json.dumps(answer).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"https://127.0.0.1:{self._server.server_address[1]}/token"

    def start(self) -> None:
        Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class SecuredBroker:
    """The broker, and what its clients need."""

    def __init__(self, home: SluiceHome, folder: Path) -> None:
        self._home = home
        self._folder = folder
        self.authority = Authority()
        self.tokens = TokenMaker(folder)
        server, client = self.authority.identify("broker"), self.authority.identify(USER)
        self.files = written(
            folder,
            ca_pem=self.authority.pem,
            broker_pem=server.key_pem() + server.pem,
            client_pem=client.pem,
            client_key=client.key_pem(password=PASSWORD),
            client_p12=client.pkcs12(),
        )
        self._client = client
        self.provider = IdentityProvider(folder, self.tokens.key_file, self.authority.identify("idp"))
        self._ports = {name: free_port() for name in _LISTENERS}

    @property
    def plain_text(self) -> str:
        """`bootstrap.servers` of the listener that asks nothing, for the test's own producers."""
        return self._broker.bootstrap

    def settings(self, kind: str) -> dict[str, Any]:
        """A connection's extra field for a way to log in."""
        tls = {"ssl.ca.location": self.files["ca_pem"], "log_level": 0}
        sasl = {**tls, "security.protocol": "SASL_SSL", "sasl.username": USER, "sasl.password": SECRET}
        mutual = {**tls, "security.protocol": "SSL"}
        token = {**tls, "security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
        unsigned = {"enable.sasl.oauthbearer.unsecure.jwt": "true", "sasl.oauthbearer.config": f"principal={USER}"}
        files = {
            "ssl.certificate.location": self.files["client_pem"],
            "ssl.key.location": self.files["client_key"],
            "ssl.key.password": PASSWORD,
        }
        inline = {"ssl.certificate.pem": self._client.pem, "ssl.key.pem": self._client.key_pem()}
        pkcs12 = {"ssl.keystore.location": self.files["client_p12"], "ssl.keystore.password": PASSWORD}
        oidc = {
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": USER,
            "sasl.oauthbearer.client.secret": SECRET,
            "sasl.oauthbearer.token.endpoint.url": self.provider.url,
            "https.ca.location": self.files["ca_pem"],
        }
        function = {"oauth_cb": "kafka_tokens.sign", "sasl.oauthbearer.config": f"key={self.tokens.key_file}"}
        kinds: dict[str, tuple[str, Mapping[str, Any]]] = {
            "SCRAM-SHA-512": ("SCRAM", {**sasl, "sasl.mechanism": "SCRAM-SHA-512"}),
            "PLAIN": ("PLAIN", {**sasl, "sasl.mechanism": "PLAIN"}),
            "OAUTHBEARER unsigned": ("UNSIGNED", {**token, **unsigned}),
            "mutual TLS, PEM files": ("MUTUAL", {**mutual, **files}),
            "mutual TLS, inline PEM": ("MUTUAL", {**mutual, **inline, "ssl.ca.pem": self.authority.pem}),
            "mutual TLS, PKCS#12": ("MUTUAL", {**mutual, **pkcs12}),
            "OAUTHBEARER oidc": ("JWT", {**token, **oidc}),
            "OAUTHBEARER callable": ("JWT", {**token, **function}),
        }
        listener, found = kinds[kind]
        if "ssl.ca.pem" in found:
            found = {k: v for k, v in found.items() if k != "ssl.ca.location"}
        return {"bootstrap.servers": f"127.0.0.1:{self._ports[listener]}", **found}

    @contextmanager
    def running(self) -> Iterator[SecuredBroker]:
        data = self._folder / "broker"
        data.mkdir()
        client, controller = free_port(), free_port()
        (data / "ports.json").write_text(json.dumps([client, controller]))
        listeners = {"PLAINTEXT": client, "CONTROLLER": controller, **self._ports}
        self._broker = LocalBroker(self._home, data, settings=self._broker_settings(listeners))
        allowed = f"-D{'org.apache.kafka.sasl.oauthbearer.allowed.urls'}={self.tokens.jwks.as_uri()}"
        before = os.environ.get("JDK_JAVA_OPTIONS")
        os.environ["JDK_JAVA_OPTIONS"] = allowed
        try:
            self._broker.start()
        finally:
            if before is None:
                del os.environ["JDK_JAVA_OPTIONS"]
            else:
                os.environ["JDK_JAVA_OPTIONS"] = before
        self.provider.start()
        try:
            self._add_user()
            yield self
        finally:
            self.provider.stop()
            self._broker.stop()

    def _broker_settings(self, listeners: Mapping[str, int]) -> dict[str, str]:
        protocols = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT", **_LISTENERS}
        plain, scram = "org.apache.kafka.common.security.plain", "org.apache.kafka.common.security.scram"
        jwt, unsigned = "listener.name.jwt", "listener.name.unsigned"
        return {
            "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in listeners.items()),
            "listener.security.protocol.map": ",".join(f"{name}:{value}" for name, value in protocols.items()),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self.files["broker_pem"],
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.files["ca_pem"],
            "listener.name.mutual.ssl.client.auth": "required",
            "listener.name.scram.sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.scram.scram-sha-512.sasl.jaas.config": f"{scram}.ScramLoginModule required;",
            "listener.name.plain.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.plain.plain.sasl.jaas.config": f'{plain}.PlainLoginModule required user_{USER}="{SECRET}";',
            f"{jwt}.sasl.enabled.mechanisms": "OAUTHBEARER",
            f"{jwt}.oauthbearer.sasl.jaas.config": f"{_OAUTH}.OAuthBearerLoginModule required;",
            f"{jwt}.oauthbearer.sasl.server.callback.handler.class": f"{_OAUTH}.OAuthBearerValidatorCallbackHandler",
            f"{jwt}.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": self.tokens.jwks.as_uri(),
            f"{jwt}.oauthbearer.sasl.oauthbearer.expected.audience": AUDIENCE,
            f"{unsigned}.sasl.enabled.mechanisms": "OAUTHBEARER",
            f"{unsigned}.oauthbearer.sasl.jaas.config": f"{_OAUTH}.OAuthBearerLoginModule required;",
        }

    def _add_user(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.plain_text, "log_level": 0})
        way = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        change = UserScramCredentialUpsertion(USER, way, SECRET.encode())
        admin.alter_user_scram_credentials([change])[USER].result(30)
