"""A table's version, and the note in its settings that it is being changed.

Hudi rewrites the timeline's files before it notes the new version in `hoodie.properties`. A table between the two can't
be read right: its timeline may look empty, as if nothing had been loaded. So `hoodie.properties` names a change from
before its first step until after its last, and such a table is opened for nothing but to complete the change.
"""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from sluice.connectors.sink import VersionChangingError
from sluice.errors import ActionRequiredError
from sluice.protocol.version_change import BegunChange
from sluice.untrusted import first_mistake

NOTE = "sluice.table.version.change"
"""The setting of the table that holds a `BegunChange`."""
_VERSION = "hoodie.table.version"


def version_of(meta: Any) -> int:
    """A table's version as its settings have it; it may be one that Hudi's classes here don't know."""
    config = meta.getTableConfig()
    found = config.getProps().getProperty(_VERSION)
    return int(config.getTableVersion().versionCode()) if found is None else int(found)


def begun_change(meta: Any) -> BegunChange | None:
    """The change that has begun and not ended, if there is one.

    Raises:
        ActionRequiredError: the note of it can't be read.
    """
    note = meta.getTableConfig().getProps().getProperty(NOTE)
    try:
        return None if note is None else BegunChange.model_validate_json(str(note))
    except ValidationError as error:
        raise ActionRequiredError(
            f"The table's setting {NOTE} can't be read: {first_mistake(error, 'the note')}.",
            next_step="complete the change of the table's version by the release of Sluice that has begun it.",
            table=str(meta.getBasePath()),
        ) from error


def require_no_change(meta: Any, table: str) -> None:
    """Refuse a table whose version is being changed.

    Raises:
        VersionChangingError: it is, or the change was interrupted.
    """
    begun = begun_change(meta)
    if begun is None:
        return
    error = VersionChangingError(
        f"The table's version is being changed to {begun.to}, or the change was interrupted: until it is done, the "
        "table can't be read.",
        next_step="if no `sluice service table_version` is running, run it again: it completes the change.",
        table=table,
    )
    error.begun = begun
    raise error
