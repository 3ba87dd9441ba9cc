"""The admin's password, the keys of a local Airflow and its secrets: drawn once, kept in files of mode 0600."""

from __future__ import annotations

import base64
import json
import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Credentials:
    """Log-in and keys. The secrets are left out of its text, so that a log line can't give them away."""

    passwords_file: Path
    password: str = field(repr=False)
    fernet_key: str = field(repr=False)
    api_secret_key: str = field(repr=False)
    jwt_secret: str = field(repr=False)
    control_secret: str = field(repr=False)

    @classmethod
    def of(cls, airflow_home: Path) -> Self:
        """The credentials of an `AIRFLOW_HOME`, generated at the first call."""
        airflow_home.mkdir(parents=True, exist_ok=True)
        keys_file = airflow_home / "keys.json"
        passwords_file = airflow_home / "simple_auth_manager_passwords.json.generated"
        if not keys_file.exists():
            _write_private(keys_file, _draw_keys())
        keys = json.loads(keys_file.read_text())
        if "control_secret" not in keys:  # an earlier release generated none: it has another file there
            control_file = airflow_home / "control_secret.json"
            if not control_file.exists():
                _write_private(control_file, {"control_secret": secrets.token_urlsafe(32)})
            keys |= json.loads(control_file.read_text())
        if not passwords_file.exists():
            _write_private(passwords_file, {ADMIN: keys["password"]})
        return cls(passwords_file=passwords_file, **keys)

    def variables(self) -> dict[str, str]:
        """The keys as Airflow's settings, the same for all of its processes and for every start."""
        return {
            "AIRFLOW__CORE__FERNET_KEY": self.fernet_key,
            "AIRFLOW__API__SECRET_KEY": self.api_secret_key,
            "AIRFLOW__API_AUTH__JWT_SECRET": self.jwt_secret,
        }


def _draw_keys() -> dict[str, str]:
    return {
        "password": secrets.token_urlsafe(16),
        "fernet_key": base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
        "api_secret_key": secrets.token_urlsafe(32),
        "jwt_secret": secrets.token_urlsafe(64),
        "control_secret": secrets.token_urlsafe(32),
    }


def _write_private(path: Path, content: dict[str, str]) -> None:
    """Write it under another name, then link: of two processes at once, both end with the first's."""
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            json.dump(content, file)
        try:
            os.link(draft, path)
        except FileExistsError:
            return
    finally:
        draft.unlink(missing_ok=True)
