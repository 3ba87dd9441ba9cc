"""Brings into order what other writers of a table may have left otherwise than a commit needs it."""

from __future__ import annotations

from collections.abc import Collection

from sluice.connectors.sink import Mends, ShowsPending, Table
from sluice.logs import log


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
