"""What a timeline asks for that other writers share: no other table has anything of it to mend, finish or name."""

from __future__ import annotations

from collections.abc import Collection

from sluice.connectors.sink import SharedTimeline, Table
from sluice.logs import log


def warn_of_pending(table: Table, named: Collection[str]) -> None:
    """Warn of pending instants that no message names: no step of this pipeline will roll them back.

    Args:
        table: the table, held by the caller.
        named: the instants that the control topic names.
    """
    if isinstance(table, SharedTimeline):
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
    if isinstance(table, SharedTimeline):
        for missing in table.mend():
            log.warning("a part of the table that another writer left incomplete is made anew",
                        table=table.writer.path, missing=missing)  # fmt: skip


def finish_rollbacks(table: Table) -> list[str]:
    """Finish roll-backs that another process has left half done; returns the instants that they removed."""
    return table.finish_rollbacks() if isinstance(table, SharedTimeline) else []


def opened_in(table: Table, instant: str) -> set[str]:
    """Table partitions in which attempts at an interval have opened files, for a message to name."""
    return table.marker_partitions(instant) if isinstance(table, SharedTimeline) else set()
