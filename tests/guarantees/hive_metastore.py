"""A real Hive metastore on embedded Derby, from the jars that PySpark ships: `HiveMetaStore` in a JVM of its own."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sluice import runtime
from sluice.jvm.gateway import HudiJvm
from sluice.local.process import free_port

from .harness import wait_for

_SITE = """<configuration>
<property><name>javax.jdo.option.ConnectionURL</name>
  <value>jdbc:derby:;databaseName={folder}/derby;create=true</value></property>
<property><name>datanucleus.schema.autoCreateAll</name><value>true</value></property>
<property><name>hive.metastore.schema.verification</name><value>false</value></property>
<property><name>hive.metastore.warehouse.dir</name><value>{folder}/warehouse</value></property>
<property><name>hive.metastore.event.db.notification.api.auth</name><value>false</value></property>
<property><name>hive.async.log.enabled</name><value>false</value></property>
</configuration>"""
_OPENED = ("java.lang", "java.net", "java.util", "java.util.concurrent")


class HiveMetastore:
    """Started on a port of its own; it can be stopped and started again with what it held."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()
        (folder / "hive-site.xml").write_text(_SITE.format(folder=folder))
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def uris(self) -> str:
        return f"thrift://127.0.0.1:{self._port}"

    def start(self) -> HiveMetastore:
        jars = [str(jar) for jar in runtime.spark_jars()]
        command = [str(runtime.java_home() / "bin" / "java"), "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        command += [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED]
        command += [f"-Dderby.stream.error.file={self._folder}/derby.log", *runtime.QUIET]
        command += ["-cp", os.pathsep.join([str(self._folder), *jars])]
        command += ["org.apache.hadoop.hive.metastore.HiveMetaStore", "-p", str(self._port)]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, cwd=self._folder, stdout=log, stderr=subprocess.STDOUT)
        wait_for(lambda: self._answers() or self._process.poll() is not None, "the metastore", pause=0.1)
        assert self._process.poll() is None, (self._folder / "log").read_text()[-4000:]
        return self

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(30)

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._port)) == 0

    def look(self, jvm: HudiJvm, database: str, table: str) -> tuple[dict[str, str], list[str]]:
        """Columns and partitions of a table, by the metastore's own client."""
        with self._client(jvm) as client:
            found = client.getTable(database, table)
            columns = {str(c.getName()): str(c.getType()) for c in found.getSd().getCols()}
            return columns, sorted(str(p) for p in client.listPartitionNames(database, table, -1))

    def comments(self, jvm: HudiJvm, database: str, table: str) -> dict[str, str]:
        """The comments on a table's columns, by the columns' names."""
        with self._client(jvm) as client:
            columns = client.getTable(database, table).getSd().getCols()
            return {str(c.getName()): str(c.getComment()) for c in columns if c.getComment()}

    @contextmanager
    def _client(self, jvm: HudiJvm) -> Iterator[Any]:
        configuration = jvm.jvm.org.apache.hadoop.hive.conf.HiveConf()
        configuration.set("hive.metastore.uris", self.uris)
        client = jvm.jvm.org.apache.hadoop.hive.metastore.HiveMetaStoreClient(configuration)
        try:
            yield client
        finally:
            client.close()
