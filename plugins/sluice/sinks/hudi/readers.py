"""Which readers see which rows of a Hudi table: what is known of them, and what a table has.

What each reader knows was read by it where `tried` says so (tests/guarantees/test_readers.py); else it is what its
documentation says. docs/how-to/read-the-tables.md shows the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import MappingProxyType

from sluice.connectors.views import Sees, Timeline, Verdict
from sluice.errors import ActionRequiredError
from sluice.sinks.hudi.options import FIRST_OF_UPSERTS, NEWEST_VERSION, needs_newest_version
from sluice.sinks.hudi.timeline import TimelineFiles
from sluice.sinks.hudi.versions import NOTE
from sluice.sinks.reading import file_system

_PROPERTIES = ".hoodie/hoodie.properties"


@dataclass(frozen=True)
class Reader:
    """A kind of reader.

    Attributes:
        title: its name for people.
        versions: the table versions that it knows.
        log_files: whether it sees file groups that have log files alone, as those have that were never compacted.
        tried: whether Sluice's tests have read tables with it.
    """

    title: str
    versions: tuple[int, ...]
    log_files: bool = True
    tried: bool = True


READERS = MappingProxyType(
    {
        "spark-hudi-0.15": Reader("Spark 3.5 with Hudi 0.15", (6,)),
        "spark-hudi-1.0": Reader("Spark 3.5 with Hudi 1.0.2", (6, 8)),
        "spark-hudi-1.1": Reader("Spark 3.5 with Hudi 1.1.1", (6, 8, 9)),
        "spark-hudi-1.2": Reader("Spark 3.5 with Hudi 1.2", (6, 8, 9)),
        "hudi-rs": Reader("hudi-rs, as for DuckDB", (6, 8, 9), log_files=False),
        "emr": Reader("EMR 7, by Hudi 1.0", (6, 8), tried=False),
        "glue": Reader("Glue 5, by Hudi 1.0", (6, 8), tried=False),
        "athena": Reader("Athena, by Hudi 0.15", (6,), tried=False),
    }
)
"""By the names for `sluice doctor --reader`."""


@dataclass(frozen=True)
class Facts:
    """What a table has.

    Attributes:
        version: its table version.
        merges: whether it is a table of merge on read.
        uncompacted: the number of commits since its last compaction, whose rows are in log files.
        newest_needed: whether an earlier table version than the newest can't have it.
    """

    version: int
    merges: bool
    uncompacted: int
    newest_needed: bool


def verdicts(path: str) -> list[Verdict]:
    """What each known reader sees of the table at a path; see `sluice.connectors.views.TellsReaders`."""
    facts = _facts(path)
    return [verdict(name, facts) for name in READERS]


def verdict(name: str, facts: Facts) -> Verdict:
    """What one reader sees of a table, and what would have to change for it to see all rows."""
    reader, needed = READERS[name], list(_needed(READERS[name], facts))
    knows = facts.version in reader.versions
    sees: Sees = "nothing" if not knows else "some rows" if needed else "all rows"
    return Verdict(name, reader.title, sees, reader.tried, tuple(needed))


def _needed(reader: Reader, facts: Facts) -> Iterator[str]:
    if facts.version not in reader.versions:
        possible = [one for one in reader.versions if one >= FIRST_OF_UPSERTS or not facts.merges]
        if facts.newest_needed or not possible:
            upserts = f"upserts, which needs version {FIRST_OF_UPSERTS}"
            why = f"needs version {NEWEST_VERSION}" if facts.newest_needed else upserts
            yield f"the table {why}, which this reader doesn't know: use another reader, or a copy of the table"
        else:
            yield (
                f"it doesn't know table version {facts.version}: set table_version to {max(possible)}, and run "
                "`sluice service table_version`"
            )
    if facts.uncompacted and not reader.log_files:
        yield (
            f"it doesn't see file groups that have log files alone, and {facts.uncompacted} commits since the last "
            "compaction may have made some: `table_services.compaction` compacts the table"
        )


def _facts(path: str) -> Facts:
    files = TimelineFiles(path)
    timeline = files.read()
    if timeline is None:
        raise ActionRequiredError(
            "There is no table yet.",
            next_step="run the pipeline once; docs/how-to/read-the-tables.md says which reader knows which tables.",
            table=path,
        )
    properties = _properties(files)
    if NOTE in properties:
        raise ActionRequiredError(
            "The table's version is being changed, or the change was interrupted: until it is done, no reader sees it "
            "right.",
            next_step="if no `sluice service table_version` is running, run it again: it completes the change.",
            table=path,
        )
    merges = properties.get("hoodie.table.type") == "MERGE_ON_READ"
    ordering_fields = properties.get("hoodie.table.ordering.fields", "").split(",")
    return Facts(
        version=int(properties.get("hoodie.table.version", "0")),  # the first version names none
        merges=merges,
        uncompacted=_uncompacted(timeline) if merges else 0,
        newest_needed=needs_newest_version(properties, ordering_fields),
    )


def _properties(files: TimelineFiles) -> dict[str, str]:
    """The table's settings, which Java has written: a line each, with colons and equals signs escaped in values."""
    try:
        storage, root = file_system(files.path)
        text = storage.cat_file(f"{root}/{_PROPERTIES}").decode("latin-1")
    except Exception as error:  # each file system has its own kinds
        raise files.failed(error) from error
    lines = (line.partition("=") for line in text.splitlines() if line and not line.startswith("#"))
    return {name: value.replace("\\", "") for name, _, value in lines}


def _uncompacted(timeline: Timeline) -> int:
    """The commits to log files after the last compaction, which is a `commit` of a table of merge on read."""
    done = [one for one in timeline.instants.values() if not one.pending]
    compacted = max((one.requested for one in done if one.action == "commit"), default="")
    return sum(one.action == "deltacommit" and one.requested > compacted for one in done)
