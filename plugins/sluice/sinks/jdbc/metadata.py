"""A commit's metadata, as stored in a row of the sink's bookkeeping tables. Pure."""

from __future__ import annotations

from sluice.errors import ActionRequiredError
from sluice.sinks.jdbc.options.names import INSTANTS, POSITIONS
from sluice.untrusted import json_of


def kept_metadata(text: str | None) -> dict[str, str]:
    """The names and texts in a row's column `metadata`; empty if the column is.

    Raises:
        ActionRequiredError: it can't be read: another program writes to the sink's bookkeeping tables.
    """
    try:
        found = json_of(text or "{}")
        if not isinstance(found, dict) or not all(isinstance(one, str) for one in found.values()):
            raise ValueError("it is no JSON object of texts")
    except ValueError as error:
        raise ActionRequiredError(
            "The metadata of a commit in the database can't be read.",
            next_step=f"find out which other program writes to {POSITIONS} and {INSTANTS}, and restore the row from a "
            "backup.",
            reason=str(error)[:200],
        ) from error
    return found
