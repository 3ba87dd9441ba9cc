"""Moto's server as a process of its own, and the class paths with Hadoop's S3A as a user puts it there.

Moto keeps what it is given in memory, checks no signatures, and keeps the condition of a PUT. It has libraries of its
own, which are not those of the product: some ask for other versions.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

import requests
from requests.adapters import HTTPAdapter
from tests.ivy import ensure
from urllib3.util import Retry

from sluice import runtime
from sluice.local.home import SluiceHome
from sluice.local.process import Daemon, free_port

from ..guarantees.harness import wait_for

_REQUIREMENTS = Path(__file__).with_name("requirements.txt")
_GLUE = Path(__file__).with_name("glue.txt")
_EXTRAS = Path(__file__).parents[2] / "requirements-aws.lock"
_JARS = Path(__file__).parents[2] / "docker" / "s3" / "ivy.xml"
_BUCKET = "lake"
_NAMES = {"s3": "http://s3.amazonaws.com/doc/2006-03-01/"}


def ensure_s3(home: SluiceHome) -> Path:
    """The folder of the server's libraries, installed if they aren't there."""
    return _ensure(home, "s3-server", _REQUIREMENTS)


def ensure_glue(home: SluiceHome) -> Path:
    """The folder of what the server needs beside that to answer for Glue."""
    return _ensure(home, "glue-server", _GLUE)


def ensure_extras(home: SluiceHome) -> Path:
    """The folder of what the extras s3, msk and glue ask for, which isn't among the packages of tests."""
    return _ensure(home, "extras-of-aws", _EXTRAS)


def _ensure(home: SluiceHome, name: str, requirements: Path) -> Path:
    stamp = hashlib.sha256(requirements.read_bytes()).hexdigest()
    folder = home.root / name
    with home.locked(name):
        if (folder / "stamp").is_file() and (folder / "stamp").read_text() == stamp:
            return folder
        shutil.rmtree(folder, ignore_errors=True)
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        subprocess.run([*pip, "--require-hashes", "-r", str(requirements), "--target", str(folder)], check=True)
        (folder / "stamp").write_text(stamp)
        return folder


def class_paths(home: SluiceHome, folder: Path) -> Path:
    """The product's class paths, with the two jars that docs/production.md names beside Sluice's own."""
    jars = ensure(home, "s3", _JARS, ("jar", "bundle"))
    shutil.copytree(runtime.home() / "class-paths", folder, symlinks=False, copy_function=_link)
    for name in ("coordinator", "spark"):
        for jar in jars.glob("*.jar"):
            (folder / name / jar.name).symlink_to(jar)
    return folder


def _link(source: str, target: str) -> None:
    Path(target).symlink_to(Path(source).resolve())


class LocalS3:
    """A server on the loopback interface, with one bucket. As a context manager it is stopped at the end.

    Args:
        libraries: what `ensure_s3` returns.
        data: a folder of its own.
        more: further folders of libraries, such as what `ensure_glue` returns.
    """

    key, secret = "AKIATESTTESTTEST", "a-secret-that-no-log-may-show"
    _signed: ClassVar = {
        "Authorization": f"AWS4-HMAC-SHA256 Credential={key}/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, "
        "Signature=unchecked"
    }

    def __init__(self, libraries: Path, data: Path, *more: Path) -> None:
        self._libraries = (libraries, *more)
        self._data = data
        self._daemon = Daemon("s3", data, data / "s3.log")
        self._port = free_port()
        self._session = requests.Session()
        # As S3's own clients do: this server may answer 500 to a listing while objects come and go.
        again = Retry(total=5, backoff_factor=0.1, status_forcelist=(500, 503), allowed_methods=("GET",))
        self._session.mount("http://", HTTPAdapter(max_retries=again))

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def uri(self) -> str:
        return f"s3a://{_BUCKET}"

    @property
    def settings(self) -> dict[str, str]:
        """Hadoop's, but for the login."""
        return {
            "fs.s3a.endpoint": self.endpoint,
            "fs.s3a.endpoint.region": "us-east-1",
            "fs.s3a.path.style.access": "true",
            "fs.s3a.attempts.maximum": "2",
        }

    @property
    def extra(self) -> dict[str, Any]:
        """The extra field of an Airflow connection that leads here."""
        style = {"s3": {"addressing_style": "path"}}
        return {"endpoint_url": self.endpoint, "region_name": "us-east-1", "config_kwargs": style}

    def was_asked_for_a_login(self) -> bool:
        """Whether a role was assumed: requests of S3's go to a bucket, those of STS to nothing."""
        return '"POST / HTTP' in (self._data / "s3.log").read_text()

    @property
    def login(self) -> dict[str, str]:
        return {"fs.s3a.access.key": self.key, "fs.s3a.secret.key": self.secret}

    def __enter__(self) -> Self:
        path = os.pathsep.join([*map(str, self._libraries), os.environ.get("PYTHONPATH", "")])
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self._port)]
        self._daemon.start(command, {**os.environ, "PYTHONPATH": path}, self._data)
        wait_for(self._answers, "S3")
        self._ask("put")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._daemon.kill()

    def _answers(self) -> bool:
        assert self._daemon.running(), self._daemon.log_tail(40)
        try:
            return requests.get(self.endpoint, timeout=30).ok
        except requests.ConnectionError:
            return False

    # What a reader sees, who knows nothing of Sluice

    def listing(self, folder: str) -> dict[str, int]:
        """Objects below a folder, by their names relative to it, with their sizes."""
        return {key.removeprefix(f"{folder}/"): size for key, size in self._objects(f"{folder}/")}

    def read(self, key: str) -> bytes:
        return self._ask("get", f"/{key}").content

    def put(self, key: str, content: bytes) -> None:
        self._ask("put", f"/{key}", data=content)

    def delete(self, key: str) -> None:
        self._ask("delete", f"/{key}")

    def _ask(self, method: str, path: str = "", **more: Any) -> requests.Response:
        url = f"{self.endpoint}/{_BUCKET}{path}"
        found = self._session.request(method, url, headers=self._signed, timeout=30, **more)
        found.raise_for_status()
        return found

    def _objects(self, prefix: str) -> Iterator[tuple[str, int]]:
        token: dict[str, str] = {}
        while True:
            asked = {"list-type": "2", "prefix": prefix, **token}
            page = ET.fromstring(self._ask("get", params=asked).content)
            for one in page.iterfind("s3:Contents", _NAMES):
                yield str(one.findtext("s3:Key", None, _NAMES)), int(one.findtext("s3:Size", "0", _NAMES))
            following = page.findtext("s3:NextContinuationToken", None, _NAMES)
            if not following:
                return
            token = {"continuation-token": following}
