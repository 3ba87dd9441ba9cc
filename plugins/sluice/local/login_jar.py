"""The one Java class of Sluice's own, compiled with the compiler that Spark brings for its generated code (Janino)."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from sluice import runtime
from sluice.local.errors import LocalRuntimeError
from sluice.local.java import java_command

NAME = "sluice-kafka-login.jar"
SOURCE = "DriverTokenHandler.java"
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip file can say: the same class makes the same file


def build_login_jar(jars: Sequence[Path], target: Path) -> None:
    """Compile `DriverTokenHandler.java`, by which Spark's Kafka client gets tokens from its driver.

    Args:
        jars: what it is compiled against: Kafka's client.
        target: the jar.

    Raises:
        LocalRuntimeError: it can't be compiled.
    """
    from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
    from py4j.protocol import Py4JJavaError

    spark = runtime.spark_jars()
    port, token, process = launch_gateway(
        jarpath=str(next(jar for jar in spark if jar.name.startswith("py4j-"))),
        classpath=os.pathsep.join(map(str, [*jars, *spark])),
        javaopts=["-XX:TieredStopAtLevel=1"],
        java_path=java_command(),
        die_on_exit=True,
        enable_auth=True,
        return_proc=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
    try:
        compiler: Any = gateway.jvm.org.codehaus.janino.SimpleCompiler()
        compiler.cook(files("sluice.local").joinpath(SOURCE).read_text())
        classes = {str(name): bytes(code) for name, code in dict(compiler.getBytecodes()).items()}
    except Py4JJavaError as error:
        raise LocalRuntimeError(
            f"{SOURCE} could not be compiled.",
            next_step="run `python -m sluice.local jars` with the Java and the jars of this version.",
            detail=str(error.java_exception),
        ) from error
    finally:
        gateway.shutdown()
        process.stdin.close()
        process.wait()
    with zipfile.ZipFile(target, "w") as jar:
        for name, code in sorted(classes.items()):
            jar.writestr(zipfile.ZipInfo(f"{name.replace('.', '/')}.class", _EPOCH), code)
