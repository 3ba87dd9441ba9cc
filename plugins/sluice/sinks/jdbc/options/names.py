"""Names of the sink's bookkeeping, staging and temporary tables, and of their columns. Pure."""

from __future__ import annotations

import hashlib
import re

from sluice.identifiers import dotted, parts

POSITIONS, INSTANTS = "_sluice_positions", "_sluice_instants"
"""The bookkeeping tables: one row per table with its position, and one row per interval."""
KEPT = 1000
"""How many committed intervals of a table are kept: without a limit each commit would be slower than the last."""
LATEST, ORDERED = "_sluice_latest", "_sluice_ordered"
"""A commit's temporary tables: the last version of each key, and all versions in order."""
LOG, OFFSET, DELETED = "_sluice_log", "_sluice_offset", "_sluice_deleted"
"""Additional columns of staging tables: topic and partition of a row's record, its offset, and whether it deletes its
key's row."""
NUMBER = "_sluice_number"
RANK, FIRST_LOG, LAST_LOG = "_sluice_rank", "_sluice_first_log", "_sluice_last_log"
LONGEST = 63
"""The maximum length of a name in PostgreSQL, in bytes; in MariaDB it is 64 characters."""
LONGEST_OWN = 55
"""The maximum length of the names of Sluice's tables, in characters: a staging table's, of 7 digits at its end."""
_MOST_PARTS = 2
_COLUMN = 200  # characters of a table's name among the positions
_FIRST_PRINTED = 32
_IN_QUOTES = 'write a name that has a dot between double quotes: public."orders.eu"'
_STAGING = re.compile(r"_sluice_[0-9a-f]{8}_(\d{14,17})_[0-9a-z]{1,12}_\d{1,9}")


def table_name(text: str) -> str:
    """A table's name in one spelling, with or without its schema.

    Raises:
        ValueError: no database allows such a name; the message says why.
    """
    names = parts(text)
    if len(names) > _MOST_PARTS:
        raise ValueError(f"{text!r} has more names than a schema's and a table's; {_IN_QUOTES}")
    for name in names:
        if len(name.encode()) > LONGEST:
            raise ValueError(f"{name!r} is longer than the {LONGEST} bytes that databases keep of a name")
        if name != name.strip() or any(ord(character) < _FIRST_PRINTED for character in name):
            raise ValueError(f"{name!r} begins or ends with a blank, or has a control character")
    found = dotted(*names)
    if len(found) > _COLUMN:
        raise ValueError(f"{text!r} is longer than {_COLUMN} characters")
    return found


def schema_and_name(table: str) -> tuple[str, str]:
    """The schema, empty if there is none, and the name, given a result of `table_name`."""
    *schema, name = parts(table)
    return (schema[0] if schema else ""), name


def staging_prefix(table: str, instant: str | None = None) -> str:
    """The prefix of the names of an interval's staging tables, or of those of all of a table's intervals.

    Args:
        table: the table's canonical name, since several tables of a schema may have intervals of the same instant.
        instant: the interval's instant; None for all.
    """
    of_table = f"_sluice_{hashlib.sha256(table.encode()).hexdigest()[:8]}_"
    return of_table if instant is None else f"{of_table}{instant}_"


def staging_table(table: str, instant: str, attempt: str, number: int) -> str:
    """The name of the staging table for one part of an attempt, within PostgreSQL's limit of 63 bytes."""
    short = re.sub(r"[^0-9a-z]", "", attempt.lower())[:12] or "0"
    return f"{staging_prefix(table, instant)}{short}_{number}"


def instant_of_staging(name: str) -> str | None:
    """The instant of a staging table's interval; None for the name of any other table."""
    found = _STAGING.fullmatch(name)
    return found[1] if found else None


def is_staging_of(name: str, table: str, instant: str) -> bool:
    """Whether a name, received in a message, is one of an interval's staging tables."""
    return name.startswith(staging_prefix(table, instant)) and _STAGING.fullmatch(name) is not None
