"""Let Java trust this machine's authorities.

The packaged Java brings its own list of certificate authorities. Behind a proxy that inspects TLS, the one
authority that matters is only in the machine's list, and every download would fail.
"""

from __future__ import annotations

import os
import ssl
import urllib.request
import warnings
from pathlib import Path
from urllib.parse import urlsplit

# Not a secret: a trust store holds public certificates, and Java wants a password for the file format's sake.
_STORE_PASSWORD = "changeit"

# The variables by which pip and requests find further authorities; OpenSSL reads SSL_CERT_FILE by itself.
_BUNDLE_VARIABLES = ("PIP_CERT", "REQUESTS_CA_BUNDLE")


def network_options(folder: Path) -> list[str]:
    """JVM options that give Java this machine's certificate authorities and proxy.

    Args:
        folder: Where the trust store is written.
    """
    return [*_trust_options(folder), *_proxy_options()]


def _trust_options(folder: Path) -> list[str]:
    authorities = _machine_authorities()
    if not authorities:  # a bare container: Java's own list is the better one
        return []
    store = folder / "trust.p12"
    _write_store(store, authorities)
    return [
        f"-Djavax.net.ssl.trustStore={store}",
        "-Djavax.net.ssl.trustStoreType=PKCS12",
        f"-Djavax.net.ssl.trustStorePassword={_STORE_PASSWORD}",
    ]


def _machine_authorities() -> list[bytes]:
    context = ssl.create_default_context()
    for variable in _BUNDLE_VARIABLES:
        bundle = os.environ.get(variable, "")
        if Path(bundle).is_file():
            context.load_verify_locations(cafile=bundle)
    return context.get_ca_certs(binary_form=True)


def _write_store(store: Path, authorities: list[bytes]) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12
    from cryptography.utils import CryptographyDeprecationWarning

    certificates = []
    with warnings.catch_warnings():
        # Some old authorities have serial numbers that today's rules forbid; trusting them is the
        # machine's choice.
        warnings.simplefilter("ignore", CryptographyDeprecationWarning)
        for number, encoded in enumerate(authorities):
            try:
                certificate = x509.load_der_x509_certificate(encoded)
            except ValueError:
                continue
            certificates.append(pkcs12.PKCS12Certificate(certificate, f"ca-{number}".encode()))
        content = pkcs12.serialize_java_truststore(certificates, BestAvailableEncryption(_STORE_PASSWORD.encode()))
    store.parent.mkdir(parents=True, exist_ok=True)
    store.write_bytes(content)


def _proxy_options() -> list[str]:
    """Java ignores `https_proxy`. Host and port only: a command line is no place for a password."""
    options = []
    proxies = urllib.request.getproxies()
    for scheme in ("http", "https"):
        address = urlsplit(proxies.get(scheme, ""))
        if address.hostname:
            options += [
                f"-D{scheme}.proxyHost={address.hostname}",
                f"-D{scheme}.proxyPort={address.port or (443 if address.scheme == 'https' else 80)}",
            ]
    return options
