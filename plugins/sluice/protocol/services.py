"""Table services, which keep a table small and quick to read. Each is a separate transaction. Pure."""

from __future__ import annotations

from typing import Final, Literal, get_args

Service = Literal["compaction", "clustering", "cleaning", "metadata_compaction", "archiving"]
SERVICES: Final[tuple[Service, ...]] = get_args(Service)
PLANNED: Final[tuple[Service, ...]] = ("compaction", "clustering")
"""Services planned under one instant and carried out by a separate job; the others are one step."""
