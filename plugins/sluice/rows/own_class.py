"""Classes that a pipeline file names as `module:Class`."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from sluice.errors import ActionRequiredError


def made_by(name: str, what: str) -> Any:
    """An instance of a class, made without arguments.

    Args:
        name: the class, as `module:Class`.
        what: what it is, for the error: `converter`.

    Raises:
        ActionRequiredError: it isn't on the Python path.
    """
    module, _, attribute = name.partition(":")
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:  # ValueError: no module is named
        raise ActionRequiredError(
            f"The {what} {name} can't be imported.",
            next_step="put its module on the Python path of the workers, where Spark's driver runs.",
            reason=str(error),
        ) from error
    return found()
