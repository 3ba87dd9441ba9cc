"""What keeps many processes of the product cheap, for whoever starts dozens of them."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


def make_many_cheap() -> None:
    """Set this process's environment so; those that it starts have it from there."""
    # Some machines tell Python to keep no bytecode. Each of the processes would compile the package anew: a quarter of
    # a second of CPU for a coordinator, 0.8 s for a process of Airflow.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    # No JVM is to outlive a test. Those that are about kept ones say so.
    os.environ.setdefault("SLUICE_JVM_MINUTES", "0")
    # Spark drivers for a few records each. With the quick compiler alone each takes a sixth less CPU; who has set it
    # otherwise keeps it. Spark takes these beside a job's own options.
    os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")


@contextmanager
def kept_jvms() -> Iterator[dict[str, str]]:
    """The variables with which processes keep the JVMs of steps for each other; at the end no such JVM is left."""
    from sluice.jvm.kept import MINUTES, end_kept

    # A socket's path is short, and pytest's folders are long.
    with tempfile.TemporaryDirectory(prefix="sl") as folder, pytest.MonkeyPatch.context() as patch:
        yield {"XDG_RUNTIME_DIR": folder, MINUTES: "5"}
        patch.setenv("XDG_RUNTIME_DIR", folder)
        end_kept()
