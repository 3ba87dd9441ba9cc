"""Hadoop's own MiniDFSCluster as a process of its own: a name node and a data node."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.ivy import ensure

from sluice.local.home import SluiceHome
from sluice.local.java import java_command
from sluice.local.process import Daemon, free_port

_JVM = ("-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
_MAIN = "org.apache.hadoop.test.MiniDFSClusterManager"


def ensure_hdfs(home: SluiceHome) -> Path:
    """The folder of its jars, fetched if they aren't there."""
    return ensure(home, "hdfs", Path(__file__).with_name("ivy.xml"), ("jar", "bundle"))


class LocalHdfs:
    """A cluster on the loopback interface. As a context manager it is stopped at the end.

    Args:
        jars: the folder of its jars.
        data: a folder of its own.
    """

    def __init__(self, jars: Path, data: Path) -> None:
        self._jars = jars
        self._data = data
        self._daemon = Daemon("hdfs", data, data / "hdfs.log")
        self._port = free_port()

    @property
    def uri(self) -> str:
        return f"hdfs://127.0.0.1:{self._port}"

    def start(self, timeout: float = 300.0) -> Self:
        """Start it, with what it held if it ran before, and wait until its data node has reported."""
        details = self._data / "details.json"
        details.unlink(missing_ok=True)
        format_it = [] if (self._data / "dfs").exists() else ["-format"]
        command = [
            *(java_command(), *_JVM, f"-Dhadoop.log.dir={self._data}", f"-Dtest.build.data={self._data / 'dfs'}"),
            *("-cp", os.pathsep.join(map(str, sorted(self._jars.glob("*.jar")))), _MAIN),
            *(*format_it, "-datanodes", "1", "-nnport", str(self._port), "-writeDetails", str(details)),
            # With one data node, and without the half minute of safe mode that a large cluster waits for its nodes.
            *("-D", "dfs.replication=1", "-D", "dfs.namenode.safemode.extension=0"),
        ]
        self._daemon.start(command, dict(os.environ), self._data)
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            if details.is_file() and details.read_text().strip():
                json.loads(details.read_text())
                return self
            if not self._daemon.running():
                raise RuntimeError(f"HDFS ended while it was starting:\n{self._daemon.log_tail(40)}")
            time.sleep(0.1)
        self._daemon.kill()
        raise TimeoutError(f"HDFS did not start within {timeout:.0f} s:\n{self._daemon.log_tail(40)}")

    def stop(self) -> None:
        """End it at once, as a machine does that fails."""
        self._daemon.kill()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
