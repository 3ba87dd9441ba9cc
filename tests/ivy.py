"""Fetches what only tests need from Maven Central, with PySpark's Ivy, and keeps it in SLUICE_HOME."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from sluice.local.home import SluiceHome
from sluice.local.jars import _ivy_jar
from sluice.local.java import java_command
from sluice.local.truststore import network_options

_SETTINGS = Path(__file__).parents[1] / "plugins" / "sluice" / "local" / "ivysettings.xml"


def ensure(
    home: SluiceHome, name: str, module: Path, types: tuple[str, ...], unpack: Callable[[Path], None] | None = None
) -> Path:
    """The folder of what an Ivy file's configuration of that name asks for; test workers take turns.

    Args:
        home: where it is kept.
        name: the configuration's name, and the folder's.
        module: the Ivy file; when it changes, all is fetched anew.
        types: the types of artifacts that are wanted.
        unpack: what is done with the folder before it is used.
    """
    stamp = hashlib.sha256(module.read_bytes()).hexdigest()
    folder = home.root / name
    with home.locked(name):
        if (folder / "stamp").is_file() and (folder / "stamp").read_text() == stamp:
            return folder
        partial = home.root / f"{name}.partial"
        for outdated in (partial, folder):
            shutil.rmtree(outdated, ignore_errors=True)
        partial.mkdir()
        _fetch(home, name, module, types, partial)
        if unpack is not None:
            unpack(partial)
        (partial / "stamp").write_text(stamp)
        partial.rename(folder)
        return folder


def _fetch(home: SluiceHome, name: str, module: Path, types: tuple[str, ...], folder: Path) -> None:
    command = [
        *(java_command(), *network_options(home.java), f"-Divy.default.ivy.user.dir={home.root / 'ivy'}"),
        *("-jar", str(_ivy_jar()), "-settings", os.environ.get("SLUICE_IVY_SETTINGS") or str(_SETTINGS)),
        *("-ivy", str(module), "-cache", str(home.root / "ivy" / "cache"), "-confs", name),
        *("-types", *types, "-retrieve", f"{folder}/[artifact].[ext]"),
    ]
    for _ in range(3):  # most failures are a repository's bad minute
        done = subprocess.run(command, capture_output=True, text=True, timeout=400)
        if done.returncode == 0 and any(folder.iterdir()):
            return
    raise RuntimeError(f"Ivy could not fetch {name} (3 times):\n{done.stdout[-2000:]}{done.stderr}")
