"""Small files that Spark's code opens by path, on the driver and on every executor."""

from __future__ import annotations

import atexit
import hashlib
import re
import tempfile
from functools import cache
from pathlib import Path

from pyspark.sql import SparkSession

from sluice.errors import ActionRequiredError


@cache
def _own_folder() -> Path:
    """A folder of this process that nobody else writes to, and that goes with it."""
    folder = tempfile.TemporaryDirectory(prefix="sluice-")
    atexit.register(folder.cleanup)
    return Path(folder.name)


def on_every_machine(spark: SparkSession, content: bytes, suffix: str) -> str:
    """A path under which the driver and all executors find this content; the same content is written once.

    Executors of a cluster find the files that travel with a job in their working folder, by name. The driver has to
    open it by the same path, so there it stands in its own working folder.

    Raises:
        ActionRequiredError: the driver's folder can't be written.
    """
    name = f"sluice-{hashlib.sha256(content).hexdigest()[:32]}.{suffix}"
    local = re.match(r"local(\[|$)", str(spark.sparkContext.master)) is not None  # and not local-cluster
    path = _own_folder() / name if local else Path(name)
    if not path.exists():
        try:
            partial = path.with_name(f"{name}.{hashlib.sha256(str(id(spark)).encode()).hexdigest()[:8]}.partial")
            partial.write_bytes(content)
            partial.rename(path)  # another job of the same schemas may open it meanwhile
        except OSError as error:
            raise ActionRequiredError(
                "A Protobuf schema can't be handed to Spark: its driver's working folder can't be written.",
                next_step="let the write task run in a folder that it may write to.",
                folder=str(path.parent.resolve()),
                reason=error.strerror,
            ) from None
    if not local:
        spark.sparkContext.addFile(str(path.resolve()))
    return str(path)
