"""Certificates and keys for tests, each in the forms that people have them in."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import NameOID

PASSWORD = "pw-of-the-key"


@dataclass(frozen=True)
class Identity:
    """A certificate with its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @cached_property
    def pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    def key_pem(self, form: PrivateFormat = PrivateFormat.PKCS8, password: str | None = None) -> str:
        lock: KeySerializationEncryption = BestAvailableEncryption(password.encode()) if password else NoEncryption()
        return self.key.private_bytes(Encoding.PEM, form, lock).decode()

    def pkcs12(self, password: str = PASSWORD) -> bytes:
        lock = BestAvailableEncryption(password.encode())
        return pkcs12.serialize_key_and_certificates(b"client", self.key, self.certificate, None, lock)


class Authority:
    """A certificate authority that lives for one test."""

    def __init__(self, name: str = "test authority") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = self._certificate(self._name, self._key, x509.BasicConstraints(ca=True, path_length=0))
        self.identity = Identity(certificate.sign(self._key, hashes.SHA256()), self._key)

    @property
    def pem(self) -> str:
        return self.identity.pem

    def identify(self, name: str, *, of_host: str | None = None) -> Identity:
        """A certificate for a server on the loopback interface, or of another host, or for a client of that name."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = self._certificate(subject, key, x509.BasicConstraints(ca=False, path_length=None))
        here = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        places = [x509.DNSName(of_host)] if of_host else here
        certificate = certificate.add_extension(x509.SubjectAlternativeName(places), critical=False)
        return Identity(certificate.sign(self._key, hashes.SHA256()), key)

    def _certificate(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, constraints: x509.BasicConstraints
    ) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        builder = x509.CertificateBuilder().subject_name(subject).issuer_name(self._name).public_key(key.public_key())
        builder = builder.serial_number(x509.random_serial_number())
        builder = builder.not_valid_before(now - timedelta(hours=1)).not_valid_after(now + timedelta(days=1))
        return builder.add_extension(constraints, critical=True)


def written(folder: Path, **files: str | bytes) -> dict[str, str]:
    """The files, under their names with `_` for `.`, as paths."""
    paths = {}
    for name, content in files.items():
        path = folder / name.replace("_", ".")
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        paths[name] = str(path)
    return paths
