"""Resolve the class paths with the Ivy that PySpark ships: no Maven, and no `spark.jars.packages`.

`spark.jars.packages` resolves at every start, and fails where `~/.m2` is half filled. Here the jars are
fetched once, into the project's folder, and the class path stays the same file for file, which
class-data-sharing archives depend on. Each jar is compared with its checksum, as pip does with the lock file's.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from importlib.resources import as_file, files
from pathlib import Path

from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_exponential

from sluice import runtime
from sluice.local.errors import LOCAL_EXTRA, LocalRuntimeError
from sluice.local.home import SluiceHome
from sluice.local.java import ensure_base_archive, java_command, java_home
from sluice.local.truststore import network_options

CLASS_PATHS = ("spark", "coordinator", "local", "broker")
CHECKSUMS = "jars.sha256"
"""SHA-256 of every jar of this version, as `sha256sum` writes and checks them; lies beside this module."""

_STAMP = "ivy.sha256"
_INPUTS = ("ivy.xml", CHECKSUMS)


class _IvyFailedError(Exception):
    """One attempt failed; the next may not, as most failures are a repository's bad minute."""


def jars_ready(home: SluiceHome) -> bool:
    """Whether the class paths on disk match this version's."""
    stamp = home.jars / _STAMP
    return stamp.is_file() and stamp.read_text().strip() == _wanted_stamp()


def class_path(home: SluiceHome, name: str) -> list[Path]:
    """The jars of one class path, sorted: archives of shared classes want the same order every time.

    Raises:
        LocalRuntimeError: They are missing.
    """
    found = sorted((home.jars / name).glob("*.jar"))
    if not found:
        raise LocalRuntimeError(
            f"The class path '{name}' is missing from {home.jars}.",
            next_step=f"run `{runtime.command('install')}`.",
        )
    return found


def ensure_jars(home: SluiceHome, on_output: Callable[[str], object] = str) -> bool:
    """Fetch the class paths if they are missing or outdated; safe to call from many processes at once.

    Args:
        home: Where they go.
        on_output: Called with each line that Ivy writes, to show progress.

    Returns:
        Whether anything had to be fetched.

    Raises:
        LocalRuntimeError: They could not be resolved, or aren't the ones that this version was tested with.
    """
    with home.locked("jars"):
        ensure_base_archive(java_home())
        if jars_ready(home):
            return False
        partial = _fetched(home, on_output)
        verify(partial, files("sluice.local").joinpath(CHECKSUMS).read_text())
        (partial / _STAMP).write_text(_wanted_stamp() + "\n")
        _replace(home.jars, partial)
        return True


def checksums(home: SluiceHome) -> str:
    """The checksums of what `ivy.xml` resolves to now, for `jars.sha256`: to be looked at before they are believed.

    Raises:
        LocalRuntimeError: The jars could not be resolved.
    """
    with home.locked("jars"):
        fetched = _fetched(home, str)
        lines = [f"{_sha256(jar)}  {jar.relative_to(fetched).as_posix()}\n" for jar in sorted(fetched.glob("*/*.jar"))]
        shutil.rmtree(fetched)
    return "".join(lines)


def verify(folder: Path, expected: str) -> None:
    """Check that a folder's jars match a list exactly, byte for byte.

    Raises:
        LocalRuntimeError: They aren't; the files are named.
    """
    wanted = {name: digest for digest, name in (line.split(maxsplit=1) for line in expected.splitlines())}
    found = {jar.relative_to(folder).as_posix(): _sha256(jar) for jar in folder.glob("*/*.jar")}
    wrong = sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))
    if wrong:
        raise LocalRuntimeError(
            f"Jars differ from the ones that this version was tested with: {', '.join(wrong)}. Nothing was installed.",
            next_step="compare them with Maven Central's; a mirror or a proxy may have changed them. Where ivy.xml was "
            f"changed on purpose, renew {CHECKSUMS} (`python -m sluice.local checksums`).",
        )


def _sha256(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _fetched(home: SluiceHome, on_output: Callable[[str], object]) -> Path:
    partial = home.root / "jars.partial"
    shutil.rmtree(partial, ignore_errors=True)
    _resolve(home, partial, on_output)
    return partial


def _resolve(home: SluiceHome, target: Path, on_output: Callable[[str], object]) -> None:
    log = home.logs / "jars.log"
    try:
        _run_ivy(home, target, log, on_output)
    except _IvyFailedError as error:
        raise LocalRuntimeError(
            "The jars could not be fetched from Maven Central.",
            next_step=f"check the network, or name a mirror in SLUICE_IVY_SETTINGS, and repeat; see {log}.",
            detail=str(error),
        ) from error
    incomplete = [name for name in CLASS_PATHS if not any((target / name).glob("*.jar"))]
    if incomplete:
        raise LocalRuntimeError(
            f"Ivy ended well, but left nothing in {', '.join(incomplete)}.", next_step=f"see {log}."
        )


@retry(
    retry=retry_if_exception_type(_IvyFailedError),
    stop=stop_after_attempt(3),
    wait=wait_exponential(multiplier=2, max=20),
    reraise=True,
)
def _run_ivy(home: SluiceHome, target: Path, log: Path, on_output: Callable[[str], object]) -> None:
    package = files("sluice.local")
    with as_file(package / "ivy.xml") as module, as_file(package / "ivysettings.xml") as settings:
        command = [
            java_command(),
            *network_options(home.java),
            f"-Divy.default.ivy.user.dir={home.root / 'ivy'}",
            *("-jar", str(_ivy_jar())),
            *("-settings", os.environ.get("SLUICE_IVY_SETTINGS") or str(settings)),
            *("-ivy", str(module), "-cache", str(home.root / "ivy" / "cache")),
            *("-confs", *CLASS_PATHS),
            # snappy-java and others are published as bundles, and left out without a word if unnamed.
            *("-types", "jar", "bundle"),
            *("-retrieve", f"{target}/[conf]/[artifact]-[revision].[ext]"),
        ]
        with (
            log.open("w") as record,
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as ivy,
        ):
            lines = []
            for line in ivy.stdout or ():
                record.write(line)
                lines.append(line.rstrip())
                on_output(line.rstrip())
    if ivy.returncode != 0:
        raise _IvyFailedError("\n".join(lines[-15:]))


def _ivy_jar() -> Path:
    """PySpark's own copy, found without importing PySpark."""
    import importlib.util

    spec = importlib.util.find_spec("pyspark")
    folders = spec.submodule_search_locations if spec else None
    for folder in folders or ():
        for jar in Path(folder, "jars").glob("ivy-*.jar"):
            return jar
    raise LocalRuntimeError("PySpark's Ivy was not found.", next_step=LOCAL_EXTRA)


def _replace(current: Path, partial: Path) -> None:
    """Swap by renaming: a reader sees the old jars, for an instant none, or all of the new ones."""
    outdated = current.with_name("jars.outdated")
    shutil.rmtree(outdated, ignore_errors=True)
    if current.exists():
        current.rename(outdated)
    partial.rename(current)
    shutil.rmtree(outdated, ignore_errors=True)


def _wanted_stamp() -> str:
    package = files("sluice.local")
    return hashlib.sha256(b"".join(package.joinpath(name).read_bytes() for name in _INPUTS)).hexdigest()
