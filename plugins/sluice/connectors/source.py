"""The coordinator's view of a source, when it plans and after it has committed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol, runtime_checkable

from sluice.connectors.options import SourceOptions
from sluice.errors import ActionRequiredError
from sluice.protocol.offsets import Checkpoint, OffsetSync, TopicPartition
from sluice.protocol.redriven import Places
from sluice.protocol.state import ClusterState


class Source(Protocol):
    """The logs of one cluster.

    Raises (all methods):
        RetryableError: the cluster can't be reached.
        ActionRequiredError: a topic does not exist, or may not be read.
    """

    @property
    def name(self) -> str:
        """The cluster's name in offsets."""
        ...

    def cluster_ids(self) -> dict[str, str | None]:
        """The cluster's own id, by `name`: by it a cluster is recognized under another name. None if it has none."""
        ...

    def topics_like(self, pattern: str, but_not: Collection[str | None] = ()) -> tuple[str, ...]:
        """The topics whose whole names match a regular expression, except `but_not` and the cluster's own."""
        ...

    def state(
        self,
        topics: Sequence[str],
        window_end: datetime | None,
        window_start: datetime | None = None,
        *,
        max_future: timedelta | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> ClusterState:
        """The present bounds and identities of the topics' partitions.

        Args:
            topics: the pipeline's topics.
            window_end: records with an earlier time belong to the window; None sets no bound.
            window_start: records with an earlier time don't belong to it; None sets no bound.
            max_future: records dated further ahead of now don't bound a window; None means that all do.
            checkpoint: the table's knowledge of the logs, to detect truncated ones; None if it has none.
        """
        ...

    def topic_ids(self, topics: Sequence[str]) -> Mapping[str, str | None]:
        """The id of each topic's present log, which changes when a topic is recreated; None where there is none."""
        ...

    def truncated_since(self, read: Mapping[TopicPartition, tuple[int, int]]) -> dict[TopicPartition, int]:
        """The partitions whose log has lost records that were read, with the offset at which it was truncated.

        Args:
            read: for each partition the offset up to which it was read, and the leader epoch before that.
        """
        ...

    def sent_again(self, topic: str, table: str) -> Places:
        """The places of records that were set aside and sent to their partition again.

        Args:
            topic: the topic with the notes of sent records.
            table: the table whose records they are.
        """
        ...

    def copy_to_group(self, group: str, next_offsets: Mapping[TopicPartition, int]) -> None:
        """Publish next offsets for lag monitors; Sluice never reads them back."""
        ...


@runtime_checkable
class KeepsNotes(Protocol):
    """A cluster in which topics keep the notes of records that were sent again."""

    def notes_there(self, topics: Collection[str]) -> Mapping[str, str | None]:
        """Those of the topics that are there and may be looked at, each with the id of its log, None without ids.

        Raises:
            RetryableError: the cluster can't be reached.
        """
        ...


@runtime_checkable
class UsesJvm(Protocol):
    """A source that looks at a storage by Hadoop's client, with the write jobs' settings of it."""

    def use_jvm(self, jvm: Callable[[], AbstractContextManager[Any]]) -> None:
        """Take what opens a JVM for as long as a block: a `sluice.jvm.gateway.HudiJvm`."""
        ...


@runtime_checkable
class CleansUp(Protocol):
    """A source that can take away what a table has."""

    def clean_up(self, topics: Collection[str], read_checkpoint: Callable[[], Checkpoint]) -> None:
        """Take away what is committed, if the pipeline says so. COMMIT asks for it, and is complete without.

        Args:
            topics: the pipeline's topics.
            read_checkpoint: reads the table's, with its committed offsets.

        Raises:
            RetryableError: it is tried again after the next commit.
            ActionRequiredError: a person has to make it possible.
        """
        ...


OffsetSyncs = Mapping[str, Mapping[int, Sequence[OffsetSync]]]
"""A mirror's offset syncs in their order, by topic of the cluster that it copies from, and by partition."""


@runtime_checkable
class MirrorReader(Protocol):
    """A cluster that holds MirrorMaker 2's offset syncs."""

    def offset_syncs(self, topic: str) -> OffsetSyncs:
        """Which offsets of two clusters belong together.

        Args:
            topic: MirrorMaker's topic of them.

        Raises:
            RetryableError: the cluster can't be reached.
            ActionRequiredError: there is no such topic, it may not be read, or has something else in it.
        """
        ...

    def next_records(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The offset of each partition's first record from an offset on; without partitions that have none.

        Raises:
            RetryableError: the cluster can't be reached.
            ActionRequiredError: a topic may not be read.
        """
        ...


def mirror_reader(source: Source) -> MirrorReader:
    """The cluster, to be asked for its mirror's offsets.

    Raises:
        ActionRequiredError: it is none that has any.
    """
    if not isinstance(source, MirrorReader):
        raise ActionRequiredError(
            "The source can't be asked which offsets of a mirror belong together.",
            next_step="move the stream without `mirror`, or from a Kafka cluster.",
            cluster=source.name,
        )
    return source


@dataclass(frozen=True)
class RowSchema:
    """The columns of a source's rows.

    Attributes:
        ddl: their names and types, as Spark DDL.
        reading: how they are read: START-COMMIT has it among the value's options, and the reader gets it there.
    """

    ddl: str
    reading: Mapping[str, str]


class TellsRows(Protocol):
    """The type of a section's `row_schema`, of a source whose values are rows (capability `rows`)."""

    def __call__(self, options: SourceOptions, topics: Sequence[str], last: Mapping[str, str]) -> RowSchema:
        """The columns that the rows of these topics have now.

        Args:
            options: the source's section.
            topics: the topics that are read.
            last: `RowSchema.reading` of the table's last START, by which an earlier release's way to read a value is
                kept; empty if there is none, or it isn't known any more.

        Raises:
            RetryableError: the source can't be reached.
            ActionRequiredError: a topic doesn't exist, or two have a column of different types.
        """
        ...


class MakesSource(Protocol):
    """The type of a section's `connector`."""

    def __call__(self, options: SourceOptions, settings: Any) -> Source:
        """The source of one pipeline.

        Args:
            options: the source's section.
            settings: its connection's settings, if it has one.
        """
        ...
