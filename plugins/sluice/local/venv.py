"""This process's Python environment, for processes that look for it on PATH."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def command(name: str, *arguments: str) -> list[str]:
    """The command line of a script that was installed beside this Python, whether or not PATH has it."""
    return [str(_scripts() / name), *arguments]


def search_path(*packages: Path) -> dict[str, str]:
    """Variables that select this environment's `airflow`, `spark-submit` and Spark's Python.

    Args:
        packages: Folders for PYTHONPATH, which `spark-submit` needs; Airflow adds its own by itself.
    """
    python_path = [*map(str, packages), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        "PATH": os.pathsep.join([str(_scripts()), os.environ.get("PATH", os.defpath)]),
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(python_path)),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }


def _scripts() -> Path:
    # Not resolved: in a virtual environment `python` is a link to a Python that has none of its packages.
    return Path(sys.executable).parent
