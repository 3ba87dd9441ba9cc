"""Table services, which keep a table small and quick to read. Each is a separate transaction. Pure."""

from __future__ import annotations

from typing import Final, Literal, get_args

Service = Literal["compaction", "clustering", "cleaning", "metadata_compaction", "archiving"]
SERVICES: Final[tuple[Service, ...]] = get_args(Service)
"""All of them, in the order in which a run of the table services does them."""
PLANNED: Final[tuple[Service, ...]] = ("compaction", "clustering")
"""Services planned under one instant and carried out by a separate job; the others are one step."""
IN_ONE_STEP: Final[tuple[Service, ...]] = tuple(one for one in SERVICES if one not in PLANNED)
"""The others, which every table with `table_services` has, and which its sink carries out (`Maintenance.carry_out`)."""
