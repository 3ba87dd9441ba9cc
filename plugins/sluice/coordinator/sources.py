"""The logs that a pipeline reads, of one cluster or of several, as one source to the coordinator's steps."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

from sluice.connectors.source import CleansUp, KeepsNotes, Source
from sluice.errors import SluiceError
from sluice.protocol.identity import Topic
from sluice.protocol.offsets import Checkpoint, TopicPartition
from sluice.protocol.redriven import Places
from sluice.protocol.state import ClusterState

AT_ONCE = 32
"""Clusters that are asked at the same time. An answer is a few round trips; a cluster that is down takes its time."""
_Answer = TypeVar("_Answer")


class Sources:
    """Asks all clusters at once, each for its partitions, and combines the answers.

    Args:
        of: the clusters' sources by their names.
        topics: the topics that are read of a cluster, by its name.
        skipped: clusters that are left out, since they don't answer.
        doubtful: those of them of which the table's time of completeness says nothing; see `streams.doubtful`.

    Raises (all methods):
        RetryableError: a cluster can't be reached.
        ActionRequiredError: a topic does not exist, or may not be read.
    """

    def __init__(
        self,
        of: Mapping[str, Source],
        topics: Callable[[str], tuple[str, ...]],
        skipped: Collection[str] = (),
        doubtful: Collection[str] = (),
    ) -> None:
        self._of = of
        self._topics = topics
        self._skipped = tuple(skipped)
        self._doubtful = frozenset(doubtful)

    @property
    def names(self) -> tuple[str, ...]:
        """The clusters' names in offsets."""
        return tuple(self._of)

    @property
    def topics(self) -> tuple[str, ...]:
        """The names of the topics that are read, whichever clusters they are on."""
        return tuple(dict.fromkeys(topic for name in self._of for topic in self._topics(name)))

    def topics_of(self, cluster: str) -> tuple[str, ...]:
        """The topics that are read of a cluster; none of one that isn't read."""
        return self._topics(cluster) if cluster in self._of else ()

    def cluster_ids(self) -> dict[str, str | None]:
        """The clusters' own ids by their names."""
        found: dict[str, str | None] = {}
        for answer in self._ask(self._of, lambda _name, source: source.cluster_ids()):
            found |= answer
        return found

    def state(
        self,
        window_end: datetime | None,
        window_start: datetime | None = None,
        *,
        max_future: timedelta | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> ClusterState:
        """The present bounds and identities of all topics' partitions; see `Source.state`."""
        state = _together(
            self._ask(
                self._of,
                lambda name, source: source.state(
                    self._topics(name), window_end, window_start, max_future=max_future, checkpoint=checkpoint
                ),
            )
        )
        if not self._skipped:
            return state
        known = checkpoint or Checkpoint()
        left_out = [
            tp for name in self._skipped for topic in self._topics(name) for tp in known.known_partitions(name, topic)
        ]
        read = {tp.cluster for tp in left_out if known.next_offset(tp) is not None}
        return replace(
            state,
            leaderless=(*state.leaderless, *left_out),
            skipped=self._skipped,
            unread=tuple(name for name in self._skipped if name not in read or name in self._doubtful),
        )

    def topic_ids(self, topics: Iterable[Topic]) -> dict[Topic, str | None]:
        """The id of each topic's present log."""
        wanted: dict[str, list[str]] = {}
        for cluster, topic in topics:
            wanted.setdefault(cluster, []).append(topic)

        def ask(name: str, source: Source) -> dict[Topic, str | None]:
            return {(name, topic): topic_id for topic, topic_id in source.topic_ids(wanted[name]).items()}

        return {topic: topic_id for answer in self._ask(wanted, ask) for topic, topic_id in answer.items()}

    def truncated_since(self, read: Mapping[TopicPartition, tuple[int, int]]) -> dict[TopicPartition, int]:
        """The partitions whose log has lost records that were read; see `Source.truncated_since`."""
        of_cluster: dict[str, dict[TopicPartition, tuple[int, int]]] = {name: {} for name in self._of}
        for tp, known in read.items():
            of_cluster[tp.cluster][tp] = known
        answers = self._ask(self._of, lambda name, source: source.truncated_since(of_cluster[name]))
        return {tp: at for answer in answers for tp, at in answer.items()}

    def sent_again(self, topic: str, table: str) -> Places:
        """The places of records that were set aside and sent to their partition again; topics' ids tell them apart."""
        places = Places()
        for answer in self._ask(self._of, lambda _name, source: source.sent_again(topic, table)):
            places.add_all(answer)
        return places

    def notes_there(self, topics: Collection[str]) -> dict[str, Mapping[str, str | None]]:
        """By cluster those of the topics with such notes that are there; see `KeepsNotes`."""

        def ask(name: str, source: Source) -> tuple[str, Mapping[str, str | None]]:
            return name, source.notes_there(topics) if isinstance(source, KeepsNotes) else {}

        return dict(self._ask([name for name, of in self._of.items() if isinstance(of, KeepsNotes)], ask))

    def copy_to_group(self, group: str, next_offsets: Mapping[TopicPartition, int]) -> dict[str, SluiceError]:
        """Publish next offsets for lag monitors, on each cluster for its partitions.

        Returns:
            Why a cluster has not taken them, by its name: the others have theirs.
        """
        of_cluster: dict[str, dict[TopicPartition, int]] = {name: {} for name in self._of}
        for tp, offset in next_offsets.items():
            if tp.cluster in of_cluster:  # a cluster that has left the mapping since has no monitor to tell
                of_cluster[tp.cluster][tp] = offset

        def copy(name: str, source: Source) -> dict[str, SluiceError]:
            try:
                source.copy_to_group(group, of_cluster[name])
            except SluiceError as error:
                return {name: error}
            return {}

        return {name: error for failed in self._ask(self._of, copy) for name, error in failed.items()}

    def clean_up(self, read_checkpoint: Callable[[], Checkpoint]) -> dict[str, SluiceError]:
        """Let sources take away what the table has; see `CleansUp`.

        Args:
            read_checkpoint: reads the table's, where a source wants it.

        Returns:
            Why a source can't, by its name.
        """
        failed: dict[str, SluiceError] = {}
        for name, source in self._of.items():
            if isinstance(source, CleansUp):
                try:
                    source.clean_up(self._topics(name), read_checkpoint)
                except SluiceError as error:
                    failed[name] = error
        return failed

    def _ask(self, names: Collection[str], question: Callable[[str, Source], _Answer]) -> list[_Answer]:
        if len(names) == 1:
            return [question(name, self._of[name]) for name in names]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            return list(pool.map(lambda name: question(name, self._of[name]), names))


def _together(states: Collection[ClusterState]) -> ClusterState:
    if len(states) == 1:
        return next(iter(states))

    def merged(maps: Iterable[Mapping[Any, Any]]) -> dict[Any, Any]:
        return {key: value for one in maps for key, value in one.items()}

    return ClusterState(
        partitions=[bounds for state in states for bounds in state.partitions],
        cluster_ids=merged(state.cluster_ids for state in states),
        topic_ids=merged(state.topic_ids for state in states),
        leaderless=tuple(tp for state in states for tp in state.leaderless),
        leader_epochs=merged(state.leader_epochs for state in states),
        truncated=merged(state.truncated for state in states),
        remarks=tuple(remark for state in states for remark in state.remarks),
        reading=merged(state.reading for state in states),
    )
