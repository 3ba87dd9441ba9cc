"""Names of the sink's own tables, and names in statements. Pure."""

from __future__ import annotations

import hashlib
import re

POSITIONS, INSTANTS = "_sluice_positions", "_sluice_instants"
"""Where each table stands, a row a table; and its intervals, a row each."""
KEPT = 1000
"""Committed intervals that the table of intervals keeps: without a bound each commit would be slower than the last."""
LATEST, ORDERED = "_sluice_latest", "_sluice_ordered"
"""Temporary tables of a commit: the last version of each key, and all versions in order."""
LOG, OFFSET, DELETED = "_sluice_log", "_sluice_offset", "_sluice_deleted"
"""Columns of staging tables beside the table's own: topic and partition of a row's record, its offset, and whether it
deletes the row of its key."""
NUMBER = "_sluice_number"
RANK, FIRST_LOG, LAST_LOG = "_sluice_rank", "_sluice_first_log", "_sluice_last_log"
_STAGING = re.compile(r"_sluice_[0-9a-f]{8}_(\d{14,17})_[0-9a-z]{1,12}_\d{1,9}")


def quoted(name: str) -> str:
    """A name as SQL."""
    return '"' + name.replace('"', '""') + '"'


def staging_prefix(table: str, instant: str) -> str:
    """What the names of an interval's staging tables begin with.

    Args:
        table: the table's canonical name; several tables of a schema may have an interval of the same instant.
        instant: the interval's.
    """
    return f"_sluice_{hashlib.sha256(table.encode()).hexdigest()[:8]}_{instant}_"


def staging_table(table: str, instant: str, attempt: str, number: int) -> str:
    """The staging table of one part of an attempt; within the 63 bytes that PostgreSQL keeps of a name."""
    short = re.sub(r"[^0-9a-z]", "", attempt.lower())[:12] or "0"
    return f"{staging_prefix(table, instant)}{short}_{number}"


def instant_of_staging(name: str) -> str | None:
    """The instant of a staging table's interval; None if it is no staging table's name."""
    found = _STAGING.fullmatch(name)
    return found[1] if found else None


def is_staging_of(name: str, table: str, instant: str) -> bool:
    """Whether a name, which has come in a message, is one of an interval's staging tables."""
    return name.startswith(staging_prefix(table, instant)) and _STAGING.fullmatch(name) is not None
