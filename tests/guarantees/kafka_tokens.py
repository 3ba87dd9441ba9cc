"""A connection's `oauth_cb`: signs a token itself, as AWS's signer does for MSK. Drivers import it by its name."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.serialization import load_pem_private_key

USER, AUDIENCE = "sluice", "kafka"
_LIFETIME = 900  # seconds, as MSK's have


def base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def sign(config: str) -> tuple[str, float]:
    """A token that the listener JWT takes; `config` says where the key is: key=PATH."""
    key = load_pem_private_key(Path(config.partition("=")[2]).read_bytes(), None)
    assert isinstance(key, rsa.RSAPrivateKey)
    now = int(time.time())
    claims = {"sub": USER, "aud": AUDIENCE, "iat": now - 1, "exp": now + _LIFETIME}
    signed = ".".join(base64url(json.dumps(part).encode()) for part in ({"alg": "RS256", "kid": "k"}, claims))
    signature = key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
    return f"{signed}.{base64url(signature)}", now + _LIFETIME
