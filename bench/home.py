"""Where jars, Java and Spark are: by the rules that all of Sluice follows."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from sluice import runtime

PROJECT = Path(__file__).resolve().parent.parent


def sluice_home() -> Path:
    return runtime.home()


def jars(part: str) -> Path:
    """The folder of one class path, `spark` or `broker`. Raises FileNotFoundError if it holds no jar."""
    folder = sluice_home() / "class-paths" / part
    if not any(folder.glob("*.jar")):
        raise FileNotFoundError(f"no jars in {folder}: install them first, or set SLUICE_HOME to where they are")
    return folder


def java_home() -> Path:
    return runtime.java_home()


def java() -> str:
    return str(java_home() / "bin" / "java")


def spark_home() -> Path:
    """The Spark inside the PySpark that is installed; found without importing it."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("PySpark is not installed")
    return Path(spec.origin).parent
