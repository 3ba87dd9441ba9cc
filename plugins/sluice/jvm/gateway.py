"""A lean JVM with Hudi's Java client in it, for the coordinator: no Spark session, up in about a second."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, NamedTuple

from py4j.java_gateway import GatewayClient, GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import REFERENCE_TYPE, get_return_value, is_error

from sluice import runtime
from sluice.jvm.s3_login import look_where_aws_does

_OPENED_PACKAGES = ("java.lang", "java.lang.invoke", "java.nio", "java.util", "sun.nio.ch")
ARCHIVE = "coordinator"


class HudiJvm:
    """The JVM's view for callers: `jvm` is Py4J's, `storage` Hudi's storage configuration."""

    def __init__(self, gateway: JavaGateway, hadoop: dict[str, str], pid: int) -> None:
        self.pid = pid
        self.jvm = gateway.jvm
        configuration = self.jvm.org.apache.hadoop.conf.Configuration()
        for name, value in {**runtime.local_disk(), **hadoop}.items():
            configuration.set(name, value)
        look_where_aws_does(configuration)
        self.storage = self.jvm.org.apache.hudi.storage.hadoop.HadoopStorageConfiguration(configuration)
        self.Option = self.jvm.org.apache.hudi.common.util.Option

    def nested(self, name: str) -> Any:
        """A nested Java class, whose name with `$` Python can't spell as an attribute."""
        return getattr(self.jvm, name)

    def properties(self, options: dict[str, str]) -> Any:
        """`java.util.Properties` of the options."""
        return java_properties(self.jvm, options)


def java_properties(jvm: Any, options: Mapping[str, str]) -> Any:
    """`java.util.Properties` of options, in the JVM of Py4J's view."""
    properties = jvm.java.util.Properties()
    for name, value in options.items():
        properties.setProperty(name, value)
    return properties


Jvm = Callable[[], AbstractContextManager[HudiJvm]]
"""Opens a JVM for as long as a block."""


_open: list[HudiJvm] = []
os.register_at_fork(after_in_child=_open.clear)  # a fork can't share a connection


@contextmanager
def shown(jvm: HudiJvm) -> Iterator[HudiJvm]:
    """Have `open_here` find the JVM for as long as the block."""
    _open.append(jvm)
    try:
        yield jvm
    finally:
        if jvm in _open:  # not in a fork
            _open.remove(jvm)


def open_here() -> HudiJvm | None:
    """A JVM that this process has open, such as the sink's while an interval begins; None if there is none."""
    return _open[-1] if _open else None


class LateJvm:
    """A JVM that is started on first use; many steps don't use it.

    Args:
        jvm: opens it.
        stack: it is open until this one is closed.
    """

    def __init__(self, jvm: Jvm, stack: ExitStack) -> None:
        self._open = jvm
        self._stack = stack
        self._found: HudiJvm | None = None

    def __getattr__(self, name: str) -> Any:
        if self._found is None:
            self._found = self._stack.enter_context(self._open())
        return getattr(self._found, name)


class JavaCommand(NamedTuple):
    """How a lean JVM is started. The first of its class path has Py4J in it."""

    java: str
    class_path: tuple[str, ...]
    options: tuple[str, ...]


def lean_command() -> JavaCommand:
    """How the lean JVM is started here.

    Raises:
        ActionRequiredError: Java or jars are missing.
    """
    jars = runtime.jars("coordinator") + runtime.local_jars() + runtime.spark_jars()
    py4j_jar = next(jar for jar in jars if jar.name.startswith("py4j-"))
    class_path = [str(jar) for jar in jars]
    if os.environ.get("HADOOP_CONF_DIR"):
        class_path.insert(0, os.environ["HADOOP_CONF_DIR"])
    options = ["-Xmx1g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"]
    options += [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED_PACKAGES]
    options += runtime.QUIET
    options += runtime.archive_options(ARCHIVE)
    return JavaCommand(str(runtime.java_home() / "bin" / "java"), (str(py4j_jar), *class_path), tuple(options))


class _Client(GatewayClient):  # type: ignore[misc]  # py4j has no types
    """A client that raises its JVM's exceptions itself.

    A Spark session replaces `py4j.java_gateway.get_return_value` for the whole process, and that one asks Spark's
    JVM for the class of each exception, those of other JVMs included: an object's id means another object there.
    """

    def send_command(self, command: str, retry: bool = True, binary: bool = False) -> Any:
        """See `GatewayClient`. Raises `Py4JJavaError` with the exception as this JVM holds it."""
        sent = super().send_command(command, retry, binary)
        answer = sent[0] if binary else sent
        if is_error(answer)[0] and answer[1:2] == REFERENCE_TYPE:
            target, method = (*command.split("\n")[1:3], "", "")[:2]
            get_return_value(answer, self, target, method)
        return sent


def gateway_to(port: int, token: str) -> JavaGateway:
    """Py4J's gateway to a JVM that is not Spark's."""
    parameters = GatewayParameters(port=port, auth_token=token, auto_convert=True)
    gateway = JavaGateway(gateway_parameters=parameters)
    gateway.set_gateway_client(_Client(gateway_parameters=parameters))
    return gateway


@contextmanager
def lean_jvm(hadoop: dict[str, str] | None = None) -> Iterator[HudiJvm]:
    """Start the JVM, yield it, and end it.

    Args:
        hadoop: Hadoop settings of the lake's file system (`fs.s3a.*`, `fs.defaultFS`), beside the settings of
            HADOOP_CONF_DIR.
    """
    command = lean_command()
    port, token, process = launch_gateway(
        jarpath=command.class_path[0],
        classpath=os.pathsep.join(command.class_path[1:]),
        javaopts=list(command.options),
        java_path=command.java,
        die_on_exit=True,
        enable_auth=True,
        return_proc=True,
    )
    gateway = gateway_to(port, token)
    try:
        with shown(HudiJvm(gateway, hadoop or {}, process.pid)) as jvm:
            yield jvm
    finally:
        gateway.shutdown()
        process.stdin.close()  # py4j's server ends with its parent's pipe
        process.wait()
