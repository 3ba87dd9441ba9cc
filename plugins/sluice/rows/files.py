"""Small files that Spark's code opens by path, on the driver and on every executor."""

from __future__ import annotations

import atexit
import hashlib
import tempfile
from functools import cache
from pathlib import Path

from pyspark.sql import SparkSession

from sluice.errors import ActionRequiredError
from sluice.runtime import is_local


@cache
def _own_folder() -> Path:
    """A folder that only this process writes to, deleted when it ends."""
    folder = tempfile.TemporaryDirectory(prefix="sluice-")
    atexit.register(folder.cleanup)
    return Path(folder.name)


def on_every_machine(spark: SparkSession, content: bytes, suffix: str) -> str:
    """A path at which the driver and all executors find this content, which is written once.

    A cluster's executors find the files that travel with a job in their working folders, by name. The driver must open
    the file by the same path, so it is in the driver's working folder, too, until the driver ends.

    Raises:
        ActionRequiredError: the driver's folder can't be written.
    """
    context = spark.sparkContext
    local = is_local(str(context.master))
    name = f"sluice-{hashlib.sha256(content).hexdigest()[:32]}"
    path = _own_folder() / f"{name}.{suffix}" if local else Path(f"{name}-{context.applicationId}.{suffix}")
    if path.exists():
        return str(path)
    try:
        path.write_bytes(content)
    except OSError as error:
        raise ActionRequiredError(
            "A Protobuf schema can't be handed to Spark: its driver's working folder can't be written.",
            next_step="let the write task run in a folder that it may write to.",
            folder=str(path.parent.resolve()),
            reason=error.strerror,
        ) from None
    if not local:
        atexit.register(path.resolve().unlink, missing_ok=True)
        context.addFile(str(path.resolve()))
    return str(path)
