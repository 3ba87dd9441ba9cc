"""Turns exceptions of Hudi and of the file system into Sluice's errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError

from sluice.errors import RetryableError
from sluice.jvm.causes import causes
from sluice.storages import storage_error

SETTING = "sink.hudi.path"


@contextmanager
def hudi_errors(doing: str, **where: Any) -> Iterator[None]:
    """Turn a Java exception inside the block into a SluiceError with the failed action and its place."""
    try:
        yield
    except Py4JJavaError as error:
        chain = causes(error.java_exception)
        known = storage_error(chain, str(where.get("table", "")), SETTING, doing, **where)
        if known.recovery != "retry":
            raise known from error
        raise RetryableError(
            f"Hudi failed ({doing}).",
            next_step="the step is retried; if the error comes back, look at the reason and at the table's timeline.",
            reason=" <- ".join(chain)[:2000],
            **where,
        ) from error
    except Py4JError as error:
        raise RetryableError(
            f"The coordinator's JVM was lost ({doing}).",
            next_step="the step is retried; if the error comes back, look for an out-of-memory kill on the worker.",
            **where,
        ) from error
