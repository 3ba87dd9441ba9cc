"""Certificates and keys as librdkafka takes them, for Kafka's Java client: as PEM inside of its settings.

The Java client reads PEM in a setting (KIP-651), so that executors need none of the files. It knows private keys in
PKCS#8 only; librdkafka takes older formats, and PKCS#12, too. The library that reads them is imported only for
    connections that have some: every step imports this module.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from sluice.errors import ActionRequiredError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)


def truststore(given: Mapping[str, str], connection: str) -> dict[str, str]:
    """The client's trusted authorities, from `ssl.ca.location` (a file or folder) or `ssl.ca.pem`; empty by default.

    Raises:
        ActionRequiredError: they can't be read, or hold no certificate.
    """
    found = authorities(given, "ssl.ca", connection)
    return {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": found} if found else {}


def authorities(given: Mapping[str, str], prefix: str, connection: str) -> str | None:
    """The certificates that `<prefix>.location` or `<prefix>.pem` name, as PEM.

    Raises:
        ActionRequiredError: as `truststore`.
    """
    if given.get(f"{prefix}.pem"):
        return _certificates(given[f"{prefix}.pem"], f"{prefix}.pem", connection)
    name = f"{prefix}.location"
    if not given.get(name):
        return None
    path = Path(given[name])
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.is_file())
        texts = [_read(file, name, connection).decode(errors="replace") for file in files]
        return _certificates("\n".join(texts), name, connection)
    return _certificates(_read(path, name, connection).decode(errors="replace"), name, connection)


def keystore(given: Mapping[str, str], connection: str) -> dict[str, str]:
    """The client's certificate and key, from PEM (`ssl.certificate.*` with `ssl.key.*`) or PKCS#12 (`ssl.keystore.*`).

    The key is unlocked here: where it travels its password would have to travel beside it.

    Raises:
        ActionRequiredError: they can't be read or unlocked, or one of the two is missing.
    """
    pair = _from_pkcs12(given, connection) if given.get("ssl.keystore.location") else _from_pem(given, connection)
    if pair is None:
        return {}
    chain, key = pair
    return {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": chain, "ssl.keystore.key": key}


def _from_pem(given: Mapping[str, str], connection: str) -> tuple[str, str] | None:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

    certificate, key = _first(given, "ssl.certificate"), _first(given, "ssl.key")
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        there, missing = ("ssl.key", "ssl.certificate") if certificate is None else ("ssl.certificate", "ssl.key")
        raise ActionRequiredError(
            f"The Kafka connection has {there}.* but no {missing}.*: a certificate and its key go together.",
            next_step=f"add {missing}.location or {missing}.pem to its extra field.",
            connection=connection,
        )
    chain = _certificates(_content(given, certificate, connection).decode(errors="replace"), certificate, connection)
    password = given.get("ssl.key.password")
    data = _content(given, key, connection)
    try:
        private = load_pem_private_key(data, password.encode() if password else None)
    except TypeError:  # a password for a key that has none, which librdkafka doesn't mind; or the other way round
        private = _without_password(data, key, connection)
    except ValueError:
        raise _locked(key, "ssl.key.password", connection) from None
    return chain, private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def _without_password(data: bytes, name: str, connection: str) -> PrivateKeyTypes:
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        return load_pem_private_key(data, None)
    except (TypeError, ValueError):
        raise _locked(name, "ssl.key.password", connection) from None


def _from_pkcs12(given: Mapping[str, str], connection: str) -> tuple[str, str]:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12

    name = "ssl.keystore.location"
    data = _read(Path(given[name]), name, connection)
    try:
        key, certificate, more = pkcs12.load_key_and_certificates(
            data, given.get("ssl.keystore.password", "").encode() or None
        )
    except ValueError:
        raise _locked(name, "ssl.keystore.password", connection) from None
    if key is None or certificate is None:
        raise ActionRequiredError(
            "The keystore holds no certificate with its key.",
            next_step=f"export both into one PKCS#12 file, and name it in {name}.",
            connection=connection,
        )
    chain = [c.public_bytes(Encoding.PEM).decode() for c in (certificate, *more)]
    return "".join(chain), key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def _first(given: Mapping[str, str], prefix: str) -> str | None:
    return next((name for name in (f"{prefix}.pem", f"{prefix}.location") if given.get(name)), None)


def _content(given: Mapping[str, str], name: str, connection: str) -> bytes:
    return given[name].encode() if name.endswith(".pem") else _read(Path(given[name]), name, connection)


def _read(path: Path, name: str, connection: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ActionRequiredError(
            f"The file that {name} names can't be read: {error.strerror}.",
            next_step="put it there on every Airflow worker, or put its content into the connection's extra field "
            f"({name.removesuffix('location')}pem).",
            connection=connection,
            file=path,
        ) from None


def _certificates(text: str, name: str, connection: str) -> str:
    found = _CERTIFICATE.findall(text)
    if not found:
        raise ActionRequiredError(
            f"What {name} names holds no certificate in PEM (-----BEGIN CERTIFICATE-----).",
            next_step="correct it in the connection's extra field.",
            connection=connection,
        )
    return "\n".join(found) + "\n"


def _locked(name: str, password: str, connection: str) -> ActionRequiredError:
    return ActionRequiredError(
        f"The key in {name} can't be read: it is damaged, or {password} doesn't open it.",
        next_step="correct either in the connection's extra field.",
        connection=connection,
    )
