"""Table services, which keep a table small and quick to read. Each is a separate transaction. Pure."""

from __future__ import annotations

from typing import Final, Literal, get_args

Service = Literal["compaction", "clustering", "cleaning", "metadata_compaction", "archiving", "table_version"]
SERVICES: Final[tuple[Service, ...]] = get_args(Service)
"""All of them; a run of the table services does them in this order, but for `BY_HAND`."""
PLANNED: Final[tuple[Service, ...]] = ("compaction", "clustering")
"""Services planned under one instant and carried out by a separate job; the others are one step."""
BY_HAND: Final[tuple[Service, ...]] = ("table_version",)
"""Services of one step that run when a person asks for them, and no schedule: see `sink.ChangesVersion`."""
IN_ONE_STEP: Final[tuple[Service, ...]] = tuple(one for one in SERVICES if one not in (*PLANNED, *BY_HAND))
"""The others, which every table with `table_services` has, and which its sink carries out (`Maintenance.carry_out`)."""
