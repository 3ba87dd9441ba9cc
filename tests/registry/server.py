"""Apicurio Registry as a process of its own: fetched by PySpark's Ivy, its schemas in memory."""

from __future__ import annotations

import os
import re
import tarfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.ivy import ensure

from sluice.local.home import SluiceHome
from sluice.local.java import java_command
from sluice.local.process import Daemon, free_port
from sluice.schemas.registry.config import RegistrySettings

_API = "/apis/ccompat/v7"
_REQUEST = re.compile(rf"SLUICE-ACCESS (\w+) {_API}(/\S*)")
_JVM = ("-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")


def ensure_registry(home: SluiceHome) -> Path:
    """The folder of the unpacked registry, fetched if it isn't there."""
    return ensure(home, "registry", Path(__file__).with_name("ivy.xml"), ("tar.gz",), _unpack)


def _unpack(folder: Path) -> None:
    (packed,) = folder.glob("*.tar.gz")
    with tarfile.open(packed) as archive:
        archive.extractall(folder, filter="data")
    packed.unlink()


class LocalRegistry:
    """A registry on the loopback interface. As a context manager it is stopped at the end."""

    def __init__(self, folder: Path, data: Path) -> None:
        self._jar = next(folder.glob("*-runner.jar"))
        self._data = data
        self._daemon = Daemon("registry", data, data / "registry.log")
        self._port = free_port()
        self._counted = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}{_API}"

    @property
    def settings(self) -> RegistrySettings:
        return RegistrySettings("schema_registry_default", {"url": self.url})

    def start(self, timeout: float = 600.0) -> Self:
        """Start it and wait until it answers; its schemas are those of this start."""
        properties = {
            "quarkus.http.host": "127.0.0.1",
            "quarkus.http.port": self._port,
            "quarkus.http.access-log.enabled": "true",
            "quarkus.http.access-log.pattern": "SLUICE-ACCESS %m %R",
        }
        options = [f"-D{name}={value}" for name, value in properties.items()]
        self._daemon.start([java_command(), *_JVM, *options, "-jar", str(self._jar)], dict(os.environ), self._data)
        try:
            self._await(timeout)
        except BaseException:
            self._daemon.kill()
            raise
        return self

    def _await(self, timeout: float) -> None:
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            if not self._daemon.running():
                raise RuntimeError(f"the registry ended while it was starting:\n{self._daemon.log_tail(40)}")
            try:
                with urllib.request.urlopen(f"{self.url}/subjects", timeout=5):
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(0.1)
        raise TimeoutError(f"the registry did not answer within {timeout:.0f} s:\n{self._daemon.log_tail(40)}")

    def stop(self) -> None:
        self._daemon.stop()

    def requests(self) -> list[str]:
        """What it was asked since the last call, as `GET /subjects/orders-value/versions/1`."""
        found = _REQUEST.findall(self._daemon.log.read_text())
        new = [f"{method} {path}" for method, path in found[self._counted :]]
        self._counted = len(found)
        return new

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
