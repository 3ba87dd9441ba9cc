"""A source as the coordinator sees it when it plans, and when it has committed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol

from sluice.connectors.options import SourceOptions
from sluice.protocol.offsets import Checkpoint, TopicPartition
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
        """The cluster, as offsets name it."""
        ...

    def topics_like(self, pattern: str, but_not: Collection[str | None] = ()) -> tuple[str, ...]:
        """The topics whose whole name matches a regular expression, without some and without the cluster's own."""
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
        """Bounds and identities of the topics' partitions, all asked for now.

        Args:
            topics: the pipeline's topics.
            window_end: records with a time before this belong to the window; None takes all there is.
            window_start: records with a time before this don't belong to it; None takes all there is.
            max_future: records that are dated further ahead of now bound no window; None lets all of them.
            checkpoint: what the table knows of the logs, to see whether one was truncated since; None of nothing.
        """
        ...

    def topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        """The id of each topic's present log; a topic that was made again has another one."""
        ...

    def truncated_since(self, read: Mapping[TopicPartition, tuple[int, int]]) -> dict[TopicPartition, int]:
        """The partitions whose log has lost records that were read, each with the offset at which it was truncated.

        Args:
            read: of each partition up to which offset it was read, and its leader epoch before that.
        """
        ...

    def sent_again(self, topic: str, table: str) -> Places:
        """Where the records stand that were set aside and sent to their partition again.

        Args:
            topic: the topic that remembers.
            table: whose records they are.
        """
        ...

    def copy_to_group(self, group: str, next_offsets: Mapping[TopicPartition, int]) -> None:
        """Copy next offsets to where lag monitors look. Nothing reads them back."""
        ...


class MakesSource(Protocol):
    """What a section's `connector` names."""

    def __call__(self, options: SourceOptions, settings: Any) -> Source:
        """The source of one pipeline.

        Args:
            options: its section.
            settings: of its connection, where it has one.
        """
        ...
