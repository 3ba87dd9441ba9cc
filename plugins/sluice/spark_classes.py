"""Looks for a class among the jars of Spark's driver, before a write job begins that would fail without it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Final
from zipfile import ZipFile

from sluice import runtime
from sluice.private import PrivateSettings

_MORE_JARS: Final = ("spark.jars", "spark.jars.packages", "spark.driver.extraClassPath")
_OWN_SPARK: Final = ("SPARK_HOME", "SPARK_CONF_DIR")  # an installation whose spark-defaults.conf may name jars


def missing_class(names: Iterable[str], conf: Mapping[str, str], likely: str) -> str | None:
    """The first of some classes that is in none of Spark's jars.

    None if there is none, and where settings or another Spark than PySpark's may add jars: the write job then says it.

    Args:
        names: the classes, with their packages.
        conf: the pipeline's settings of Spark.
        likely: what the names of jars that have them contain: these are opened first.

    Raises:
        ActionRequiredError: Spark's jars are missing altogether.
    """
    entries = {f"{name.replace('.', '/')}.class": name for name in names}
    known = {**conf, **PrivateSettings.from_environment().conf}
    if not entries or any(name in known for name in _MORE_JARS) or any(name in os.environ for name in _OWN_SPARK):
        return None
    for jar in sorted(runtime.jars("spark") + runtime.spark_jars(), key=lambda one: likely not in one.name):
        with ZipFile(jar) as opened:
            there = set(opened.namelist())
        entries = {entry: name for entry, name in entries.items() if entry not in there}
        if not entries:
            return None
    return next(iter(entries.values()))
