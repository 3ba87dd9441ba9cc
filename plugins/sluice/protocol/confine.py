"""Confines control messages to their table: they may name nothing outside of it. Pure, so that all readers agree.

Otherwise write access to the topic would be enough to delete files, to write to other tables, or to choose the sink's
options. Three rules confine a message to its table:

- each reader checks each message with `Confinement.refusal`: instants, files, file groups and table partitions must be
  names inside the table. A message that names anything else doesn't count, as if it were not there;
- `start_digest` travels from the coordinator to its write jobs outside the topic, so that they take the plan, the
  schema and the sink's options from that START-COMMIT and no other;
- a coordinator takes the paths and options of table and quarantine from its pipeline, and only the schema from a START.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from sluice.errors import IntervalError
from sluice.protocol.committable import Committable
from sluice.protocol.messages import AbortCommit, ControlMessage, EndCommit, StartCommit, TableSpec, WriteStatus

INSTANT = re.compile(r"\d{14,17}")
"""The form of an instant, matched whole."""
_SCHEME = re.compile(r"[A-Za-z][\w+.\-]*:/")
_FILE_GROUP = re.compile(r"[\w.\-]{1,200}")
Refusals = Callable[[Committable, str], Iterator[str]]
"""Why a committable of an instant doesn't count; nothing if it names nothing outside its table."""


@dataclass(frozen=True)
class Confinement:
    """What a control message may name, by the rules for all tables and one sink's additions.

    Its verdict depends on the message and its key alone, not on the sink. The START-COMMIT names the sink, but a reader
    may begin after it, and a forged one may name another.

    Attributes:
        inner_folders: folders at the top of a table that are no table partitions.
        inline: judges the committables whose payload is the message's own object (`Committable.inline`), which nothing
            else confines.
    """

    inner_folders: frozenset[str]
    inline: Refusals

    def refusal(self, message: ControlMessage, table: str) -> str | None:
        """Why a message doesn't count; None if it names nothing outside its table.

        Args:
            message: the message.
            table: the message's key.
        """
        return next(self._refusals(message, table), None)

    def is_inside(self, partition: str) -> bool:
        """Whether a table partition's path is below the table, and not one of the inner folders."""
        parts = partition.split("/")
        plain = not any(part in (".", "..") for part in parts) and not any(ord(c) < 32 for c in partition)
        rooted = partition.startswith("/") or _SCHEME.match(partition) is not None
        return plain and not rooted and parts[0] not in self.inner_folders

    def _refusals(self, message: ControlMessage, table: str) -> Iterator[str]:
        if message.table != table:
            yield f"it is keyed by {table} and says that it is of {message.table}"
        if not INSTANT.fullmatch(message.transaction):
            yield f"{message.transaction!r} is no instant"
        if isinstance(message, StartCommit):
            yield from self._of_start(message)
        elif isinstance(message, AbortCommit | EndCommit):
            yield from self._of_partitions(message.table_partitions)
        elif isinstance(message, WriteStatus):
            for one in (*message.stats, *message.quarantine_stats):
                yield from self._of_committable(one, message.transaction)

    def _of_start(self, start: StartCommit) -> Iterator[str]:
        if start.writer.path != start.table:
            yield f"it would write to {start.writer.path}"
        if start.replays is not None and not INSTANT.fullmatch(start.replays):
            yield f"{start.replays!r} is no instant"
        yield from self._of_partitions(start.replaced_file_groups)
        for groups in start.replaced_file_groups.values():
            yield from (f"{group!r} is no file group" for group in groups if not _FILE_GROUP.fullmatch(group))

    def _of_partitions(self, partitions: Iterable[str]) -> Iterator[str]:
        outside = (partition for partition in partitions if not self.is_inside(partition))
        return (f"{partition!r} is no partition of the table" for partition in outside)

    def _of_committable(self, one: Committable, instant: str) -> Iterator[str]:
        yield from self._of_partitions([one.partition])
        if one.inline:
            yield from self.inline(one, instant)
        elif one.path and not self.is_inside(one.path):
            yield f"{one.path!r} is no file of the table"


def start_digest(start: StartCommit) -> str:
    """SHA-256 in hex of a START-COMMIT's content without defaults, however it is packed."""
    said = start.model_dump(exclude_defaults=True, exclude_none=True)
    return hashlib.sha256(json.dumps(said, sort_keys=True, default=str).encode()).hexdigest()


def require_digest(start: StartCommit, digest: str | None) -> None:
    """Check that the START-COMMIT is the coordinator's.

    Args:
        start: the message in the control topic.
        digest: the coordinator's digest; None from an earlier release, which had none.

    Raises:
        IntervalError: it is another one.
    """
    if digest is not None and start_digest(start) != digest:
        raise IntervalError(
            "The START-COMMIT in the control topic is not the one that this interval's start_commit has sent.",
            next_step="run it anew; if all of its tasks ran on one release, find who else writes to the control topic.",
            table=start.table,
            instant=start.transaction,
        )


def with_schema_of(start: TableSpec, own: TableSpec) -> TableSpec:
    """The pipeline's own table settings, with the schema that a START-COMMIT pinned.

    Rows missing in an interval are deleted only if both agree: it may have been planned before the file was changed.
    """
    settings = own.mirroring(own.mirrors and start.mirrors)
    return settings.model_copy(update={"schema_ddl": start.schema_ddl, "schema_avro": start.schema_avro})
