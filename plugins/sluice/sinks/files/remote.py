"""The storage for a path that isn't on this machine."""

from __future__ import annotations

from typing import Any

from sluice.sinks.files.hadoop import HadoopStorage
from sluice.sinks.files.s3 import S3Storage

OBJECTS = "s3a://"


def remote_storage(jvm: Any, configuration: Any, root: str) -> HadoopStorage | S3Storage:
    """The storage of a table's folder.

    Args:
        jvm: Py4J's view of a JVM with Hadoop's client.
        configuration: Hadoop's configuration.
        root: the folder, with its scheme.

    Raises:
        ActionRequiredError, RetryableError: it can't be reached.
    """
    kind = S3Storage if root.startswith(OBJECTS) else HadoopStorage
    return kind(jvm, configuration, root)
