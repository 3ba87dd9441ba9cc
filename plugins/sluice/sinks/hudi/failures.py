"""Turns exceptions of Hudi and of the file system into Sluice's errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError

from sluice.errors import ActionRequiredError, RetryableError
from sluice.jvm.causes import causes, is_refused

_PATH = ("UnsupportedFileSystemException", "No FileSystem for scheme", "UnknownHostException", "Mkdirs failed",
         "NoSuchBucket", "Not a directory", "ParentNotDirectoryException", "NotDirectoryException")  # fmt: skip


@contextmanager
def hudi_errors(doing: str, **where: Any) -> Iterator[None]:
    """Turn a Java exception inside the block into a SluiceError with the failed action and its place."""
    try:
        yield
    except Py4JJavaError as error:
        chain = causes(error.java_exception)
        text = " <- ".join(chain)
        if is_refused(text):
            raise ActionRequiredError(
                f"No permission on the table's path ({doing}).",
                next_step="grant the user of Airflow's workers and of Spark read and write access to the path.",
                reason=chain[-1],
                **where,
            ) from error
        if any(sign in text for sign in _PATH):
            raise ActionRequiredError(
                f"The table's path can't be used ({doing}).",
                next_step="correct sink.hudi.path, or the Hadoop settings of its file system.",
                reason=chain[-1],
                **where,
            ) from error
        raise RetryableError(
            f"Hudi failed ({doing}).",
            next_step="the step is retried; if the error comes back, look at the reason and at the table's timeline.",
            reason=text[:2000],
            **where,
        ) from error
    except Py4JError as error:
        raise RetryableError(
            f"The coordinator's JVM was lost ({doing}).",
            next_step="the step is retried; if the error comes back, look for an out-of-memory kill on the worker.",
            **where,
        ) from error
