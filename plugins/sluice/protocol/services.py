"""Table services: what keeps a table small and quick to read. Each is a transaction of its own. Pure."""

from __future__ import annotations

from typing import Final, Literal, get_args

Service = Literal["compaction", "clustering", "cleaning", "metadata_compaction", "archiving"]
SERVICES: Final[tuple[Service, ...]] = get_args(Service)
PLANNED: Final[tuple[Service, ...]] = ("compaction", "clustering")
"""Those that are planned under one instant and carried out by a job of their own; the others are one step."""
