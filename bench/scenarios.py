"""What is compared: the scenarios, who takes part in each, and the targets."""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING

from bench import participants as who
from bench.records import Window

if TYPE_CHECKING:
    from pathlib import Path

    from bench.participants import Participant

SMALL = 1_000
FILES = 40


@dataclass(frozen=True)
class Scenario:
    """What one comparison is.

    `seeded` is written untimed, once for each participant, and put back before every run; `window` is what
    the timed part reads; with `ends_only` the first and last process count alone. With `files`, the records lie in so
    many files of a folder, and not in Kafka.
    """

    name: str
    says: str
    operation: str
    participants: tuple[Participant, ...]
    window: Window | None
    seeded: Window | None = None
    ends_only: bool = False
    files: int = 0

    @property
    def windows(self) -> tuple[Window, ...]:
        return tuple(w for w in (self.seeded, self.window) if w is not None)

    def counted(self, steps: list[dict[str, float | int]]) -> list[dict[str, float | int]]:
        """The processes that count: all of them, or the first and the last of several (the coordinator's)."""
        return [steps[0], steps[-1]] if self.ends_only and len(steps) > 1 else steps


def scenarios(records: int, onto_empty: bool = False, before: Path | None = None) -> dict[str, Scenario]:
    """All of them, by name.

    Args:
        records: of append and upsert.
        onto_empty: upsert is a first load, not half updates and half inserts.
        before: another checkout of Sluice that takes part.
    """
    half = records // 2
    seeded = None if onto_empty else Window(0, records)
    upserted = Window(0, records) if onto_empty else Window(half, half + records, version=1)
    listed = (
        Scenario(
            "append",
            f"{records:,} records into a new copy-on-write table",
            "bulk_insert",
            (who.SLUICE, who.STREAMING, who.FOREACH_BATCH, who.DATASOURCE, who.PARQUET),
            Window(0, records),
        ),
        Scenario(
            "upsert",
            f"{records:,} records into a new merge-on-read table"
            if onto_empty
            else f"{records:,} records, half of them updates, into a merge-on-read table of {records:,} rows",
            "upsert",
            (who.SLUICE, who.STREAMING, who.FOREACH_BATCH, who.DATASOURCE),
            upserted,
            seeded,
        ),
        Scenario(
            "files",
            f"{records:,} records into Parquet files, partitioned by a field",
            "bulk_insert",
            (who.SLUICE_FILES, who.PARQUET),
            Window(0, records),
        ),
        Scenario(
            "folder",
            f"{records:,} JSON lines of {FILES} files into a new copy-on-write table",
            "bulk_insert",
            (who.SLUICE, who.STREAMING, who.FOREACH_BATCH),
            Window(0, records),
            files=FILES,
        ),
        Scenario(
            "jdbc",
            f"{records:,} records into a new table of PostgreSQL",
            "bulk_insert",
            (who.SLUICE_JDBC, who.JDBC, who.JDBC_REWRITTEN),
            Window(0, records),
        ),
        Scenario(
            "small",
            f"{SMALL:,} records into a new copy-on-write table",
            "bulk_insert",
            (who.SLUICE, who.STREAMING, who.FOREACH_BATCH, who.DATASOURCE),
            Window(0, SMALL),
        ),
        Scenario(
            "empty",
            f"a window without records, on a table of {SMALL:,} rows",
            "bulk_insert",
            (who.SLUICE, who.DATASOURCE, who.SKIP_EMPTY),
            None,
            seeded=Window(0, SMALL),
        ),
        Scenario(
            "coordinator",
            f"Sluice's start and commit alone, on a table of {SMALL:,} rows",
            "bulk_insert",
            (who.SLUICE, who.BARE),
            Window(SMALL, 2 * SMALL),
            seeded=Window(0, SMALL),
            ends_only=True,
        ),
    )
    if before is not None:
        earlier = who.before(before)
        listed = tuple(replace(s, participants=(s.participants[0], earlier, *s.participants[1:])) for s in listed)
    return {s.name: s for s in listed}


@dataclass(frozen=True)
class Target:
    """Sluice's median of `metric` is to be at most `factor` times that of the best of `against`."""

    scenario: str
    metric: str
    against: tuple[Participant, ...]
    factor: float

    @property
    def says(self) -> str:
        rivals = " or ".join(p.title.split()[0] for p in self.against)
        better = "the better of " if len(self.against) > 1 else ""
        return f"{self.metric} ≤ {self.factor:g} times {better}{rivals}"

    def ratio(self, medians: dict[str, dict[str, float]]) -> float | None:
        """Sluice's median over the best rival's; None while one of them has no valid run."""
        ours, rivals = (
            medians.get(who.SLUICE.name),
            [medians[p.name] for p in self.against if p.name in medians],
        )
        if ours is None or len(rivals) < len(self.against):
            return None
        return ours[self.metric] / min(r[self.metric] for r in rivals)


TARGETS = (
    Target("append", "wall", (who.STREAMING,), 0.6),
    Target("append", "cpu", (who.STREAMING,), 0.7),
    Target("append", "wall", (who.DATASOURCE,), 1.0),
    Target("append", "cpu", (who.DATASOURCE,), 1.0),
    Target("upsert", "wall", (who.STREAMING, who.DATASOURCE), 0.6),
    Target("upsert", "cpu", (who.STREAMING, who.DATASOURCE), 0.6),
    Target("files", "wall", (who.PARQUET,), 1.1),
    Target("files", "cpu", (who.PARQUET,), 1.1),
    Target("folder", "wall", (who.STREAMING, who.FOREACH_BATCH), 1.0),
    Target("folder", "cpu", (who.STREAMING, who.FOREACH_BATCH), 1.0),
    Target("jdbc", "wall", (who.JDBC,), 1.1),
    Target("jdbc", "cpu", (who.JDBC,), 1.1),
    Target("small", "wall", (who.STREAMING,), 0.7),
    Target("small", "cpu", (who.STREAMING,), 0.7),
    Target("empty", "wall", (who.DATASOURCE,), 0.15),
    Target("empty", "cpu", (who.DATASOURCE,), 0.15),
    Target("coordinator", "wall", (who.BARE,), 1.0),
    Target("coordinator", "cpu", (who.BARE,), 1.0),
)


def spread(values: list[float]) -> tuple[float, float, float]:
    """Median, least and greatest."""
    return median(values), min(values), max(values)
