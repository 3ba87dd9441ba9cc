"""Brings into order what other writers of a table may have left otherwise than a commit needs it."""

from __future__ import annotations

from collections.abc import Collection

from sluice.connectors.sink import ListsLeftovers, Mends, ShowsPending, Table
from sluice.logs import log


class Leftovers:
    """Of which intervals a table may have anything left, as looked at once, when this is made.

    What a process leaves after that look is found by the next one: it reads the control topic after it
    has opened an instant, and takes back what was superseded.

    Args:
        table: the table, held by the caller.
    """

    def __init__(self, table: Table) -> None:
        self._found = table.leftovers() if isinstance(table, ListsLeftovers) else None

    def __contains__(self, instant: str) -> bool:
        """Whether anything may be left of an interval: always, where the table can't say."""
        return self._found is None or instant in self._found


def warn_of_pending(table: Table, named: Collection[str]) -> None:
    """Warn of pending instants that no message names: no step of this pipeline will roll them back.

    Args:
        table: the table, held by the caller.
        named: the instants that the control topic names.
    """
    if isinstance(table, ShowsPending):
        for instant in table.pending_writes():
            if instant not in named:
                log.warning(
                    "an instant is pending that this control topic doesn't name: of another writer, or of an interval "
                    "that was open when the table was copied or control.topic was changed. It can hold up archiving; "
                    "if its writer is dead, roll it back with Hudi's own tools",
                    table=table.writer.path,
                    instant=instant,
                )


def mend(table: Table) -> None:
    """Mend a table that the caller holds, before anything is rolled back, opened or committed there.

    Raises:
        RetryableError: the storage doesn't answer.
        ActionRequiredError: the storage forbids it.
    """
    if isinstance(table, Mends):
        for missing in table.mend():
            log.warning("a part of the table that another writer left incomplete is made anew",
                        table=table.writer.path, missing=missing)  # fmt: skip
