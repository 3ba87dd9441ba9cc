"""Classes and functions that a pipeline file names as `module:name`."""

from __future__ import annotations

from typing import Any

from sluice.connectors.registry import load
from sluice.errors import ActionRequiredError


def user_code(name: str, what: str) -> Any:
    """The class or the function.

    Args:
        name: `module:Class` or `module:function`.
        what: what it is, for the error: `converter`.

    Raises:
        ActionRequiredError: it isn't on the Python path.
    """
    try:
        return load(name)
    except (ImportError, AttributeError, ValueError) as error:  # ValueError: no module is named
        raise ActionRequiredError(
            f"The {what} {name} can't be imported.",
            next_step="put its module on the Python path of the workers, where Spark's driver runs.",
            reason=str(error),
        ) from error
