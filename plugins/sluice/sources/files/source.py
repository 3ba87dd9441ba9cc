"""A folder's files as a source: START adds the new ones to the files' log, and plans by it."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from sluice.connectors.options import SourceOptions
from sluice.errors import ActionRequiredError, RetryableError, SluiceError
from sluice.jvm.gateway import Jvm, lean_jvm
from sluice.kafka.config import KafkaSettings
from sluice.logs import log
from sluice.protocol.offsets import Checkpoint, TopicPartition
from sluice.protocol.redriven import Places
from sluice.protocol.state import ClusterState, PartitionBounds, Remark
from sluice.sources.files.cleaning import Cleaning
from sluice.sources.files.disk import Disk
from sluice.sources.files.entries import (
    BITS,
    Entry,
    Found,
    Logged,
    Storage,
    changed,
    new_lines,
    require_rows,
    whole_file,
)
from sluice.sources.files.hadoop import storage_of
from sluice.sources.files.known import Compared, Known
from sluice.sources.files.log import Appending, ensure_log, entries
from sluice.sources.files.options import DISK, FilesOfFolder
from sluice.sources.kafka.cluster import KafkaCluster

_CLEANED_AT_ONCE = 10_000  # files of a COMMIT: a minute on a slow disk
_FAILED_AT_ONCE = 100


def source_of(options: SourceOptions, settings: KafkaSettings) -> FilesSource:
    """The source that a pipeline's section names; see `sluice.connectors.source.MakesSource`."""
    if not isinstance(options, FilesOfFolder):
        raise TypeError(f"{type(options).__name__} is no section of files")
    return FilesSource(options, settings)


class FilesSource:
    """The files of one folder; see `sluice.connectors.source.Source`."""

    def __init__(self, options: FilesOfFolder, settings: KafkaSettings) -> None:
        self._options, self._settings = options, settings
        self._cluster = KafkaCluster(settings)
        self._disk = Disk()
        self._jvm: Jvm = lean_jvm

    def use_jvm(self, jvm: Jvm) -> None:
        """See `sluice.connectors.source.UsesJvm`. A disk needs none."""
        self._jvm = jvm

    @property
    def name(self) -> str:
        """The name of the cluster with the log."""
        return self._cluster.name

    def cluster_ids(self) -> dict[str, str | None]:
        """That cluster's id."""
        return self._cluster.cluster_ids()

    def topics_like(self, pattern: str, but_not: Collection[str | None] = ()) -> tuple[str, ...]:  # noqa: ARG002
        """None: the section names its log."""
        raise ActionRequiredError("Logs of files are named, not matched.", next_step="name the source's `log`.")

    def state(
        self,
        topics: Sequence[str],
        window_end: datetime | None,  # noqa: ARG002 - no window is bounded by time
        window_start: datetime | None = None,  # noqa: ARG002
        *,
        max_future: timedelta | None = None,  # noqa: ARG002
        checkpoint: Checkpoint | None = None,
    ) -> ClusterState:
        """What the log has; before a START, which knows the table's checkpoint, the folder's new files are added.

        Raises:
            ActionRequiredError: a file was replaced, the folder isn't there, or the log can't be used.
            RetryableError: another START adds files at the same time; Kafka or the storage doesn't answer.
        """
        (topic,) = topics
        partitions = ensure_log(self._settings, topic, self._options.splits)
        listed_at = datetime.now(UTC)
        truncated: dict[TopicPartition, int] = {}
        remarks: tuple[Remark, ...] = ()
        if checkpoint is not None:
            truncated = self._truncated(topic, checkpoint)
            if not truncated:  # else files would be added again whose entries are gone
                remarks = self._add_new(topic, partitions, listed_at)
        of_log = self._cluster.state(topics, None)
        known = checkpoint or Checkpoint()
        bounds = [self._bounds(one, known, listed_at - self._options.min_age) for one in of_log.partitions]
        return replace(
            of_log,
            partitions=bounds,
            truncated=truncated,
            remarks=remarks,
            waits=any(one.window_end < one.log_end for one in bounds),
        )

    def topic_ids(self, topics: Sequence[str]) -> Mapping[str, str | None]:
        """Of the log: an entry's number means a file only in it."""
        return self._cluster.topic_ids(topics)

    def truncated_since(self, read: Mapping[TopicPartition, tuple[int, int]]) -> dict[TopicPartition, int]:
        """The partitions of the log that have lost entries that were read."""
        whole = {tp: (-(-end >> BITS), epoch) for tp, (end, epoch) in read.items()}
        return {tp: at << BITS for tp, at in self._cluster.truncated_since(whole).items()}

    def sent_again(self, topic: str, table: str) -> Places:  # noqa: ARG002
        """None: a file's lines can't be sent again."""
        return Places()

    def copy_to_group(self, group: str, next_offsets: Mapping[TopicPartition, int]) -> None:
        """Offsets of lines are none of the log's, so no consumer group has them."""

    def clean_up(self, topics: Collection[str], read_checkpoint: Callable[[], Checkpoint]) -> None:
        """Take files out of the folder whose lines the table has; see `sluice.connectors.source.CleansUp`.

        Raises:
            ActionRequiredError: a person has to make it possible.
            RetryableError: Kafka or the disk doesn't answer.
        """
        options = self._options
        if options.clean_source == "keep":
            return
        (topic,), checkpoint = topics, read_checkpoint()
        if not self._is_log_of(topic, checkpoint) or self._truncated(topic, checkpoint):
            return  # the checkpoint's numbers mean other files
        cleaning = self._cleaning()
        cleaning.require_separate()
        before = int((datetime.now(UTC) - options.clean_after).timestamp() * 1e3)
        with Known(grows=False) as known:
            for tp in checkpoint.known_partitions(self.name, topic):
                known.learn(entries(self._settings, topic, tp.partition, 0))
                # Not what is below the position: that may have been passed over.
                known.cover(tp.partition, ((-(-start >> BITS), end >> BITS) for start, end in checkpoint.covered(tp)))
            known.see(self._disk.listing(options.path, options.include, options.exclude))
            cleaning.finish(known.is_committed)
            failed: list[SluiceError] = []
            cleaned = 0
            for found in known.committed(before):
                try:
                    cleaned += cleaning.clean(found)
                except (ActionRequiredError, RetryableError) as error:
                    failed.append(error)
                if cleaned == _CLEANED_AT_ONCE or len(failed) == _FAILED_AT_ONCE:
                    break
        log.info("took committed files out of their folder", folder=options.path, files=cleaned)
        if failed:
            raise failed[0]

    # Planning

    def _is_log_of(self, topic: str, checkpoint: Checkpoint) -> bool:
        """Whether the log is the very one, and in the very cluster, that the checkpoint is of."""
        same, cluster = checkpoint.topic(self.name, topic), checkpoint.cluster_ids.get(self.name)
        if same is None or same.topic_id is None or cluster is None:
            return False
        now = self._cluster.log_ids((topic,))
        return (same.topic_id, cluster) == (now.topics.get((self.name, topic)), now.clusters.get(self.name))

    def _cleaning(self) -> Cleaning:
        options = self._options
        return Cleaning(options.path, options.archive_path, options.include, options.exclude)

    def _restore(self, known: Known, tp: TopicPartition) -> tuple[Remark, ...]:
        """Put back what a process that died in cleaning up has left aside, though no line waits if that fails."""
        if self._options.grows or not self._options.path.startswith(DISK):
            return ()
        try:
            waiting = self._cleaning().restore(known.is_listed)
        except (ActionRequiredError, RetryableError) as error:
            return (Remark(tp, f"files that a clean-up had moved aside wait there: {error}"),)
        return tuple(
            Remark(tp, f"{path} isn't read until it is moved to a name that the source reads") for path in waiting
        )

    def _truncated(self, topic: str, checkpoint: Checkpoint) -> dict[TopicPartition, int]:
        read = {}
        for tp in checkpoint.known_partitions(self.name, topic):
            end, epoch = checkpoint.next_offset(tp), checkpoint.leader_epoch(tp)
            if end and epoch is not None:
                read[tp] = (end, epoch)
        same = checkpoint.topic(self.name, topic)
        if not read or same is None or same.is_another(self.topic_ids((topic,)).get(topic)):
            return {}
        return self.truncated_since(read)

    def _bounds(self, one: PartitionBounds, checkpoint: Checkpoint, through: datetime) -> PartitionBounds:
        """The bounds as offsets of lines, and how much of it an interval reads."""
        tp = one.topic_partition
        position = checkpoint.next_offset(tp) or one.log_start << BITS
        end = one.log_end << BITS
        limited = min(end, self._limited(tp, position >> BITS, one.log_end) << BITS)
        return PartitionBounds(tp, one.log_start << BITS, end, max(limited, min(position, end)), through, end)

    def _limited(self, tp: TopicPartition, position: int, end: int) -> int:
        """The number of the first entry that is too much for an interval."""
        if position >= end:
            return end
        files, size = 0, 0
        for _, number, _, entry in entries(self._settings, tp.topic, tp.partition, position, end):
            files, size = files + 1, size + entry.end - entry.start
            too_large = self._options.max_bytes is not None and size > self._options.max_bytes
            if files > self._options.max_files or (too_large and files > 1):
                return number
        return end

    # Listing

    def _add_new(self, topic: str, partitions: Collection[int], now: datetime) -> tuple[Remark, ...]:
        options = self._options
        with Known(grows=options.grows) as known:
            positions = dict.fromkeys(partitions, 0)

            def extend() -> int:
                learned = 0
                for partition in partitions:
                    learned += known.learn(self._read_on(topic, positions, partition))
                return learned

            appending = Appending(self._settings, topic, extend)  # fences others, before the log is read
            extend()
            remarks = self._restore(known, TopicPartition(self.name, topic, min(partitions)))
            oldest = int((now - options.min_age).timestamp() * 1e6)
            with self._storage() as storage:
                listing = storage.listing(options.path, options.include, options.exclude)
                known.see(found for found in listing if found.modified <= oldest)
            new = ((one, entry) for one in known.compared() if (entry := self._entry(one)) is not None)
            appending.append((self._partition(one, len(partitions)), entry) for one, entry in new)
            return remarks

    def _partition(self, one: Compared, partitions: int) -> int:
        """The partition of the log for a file's next entry: always the same one for a file."""
        if one.partition is not None:
            return one.partition
        known_by = one.found.id if self._options.grows else one.found.path
        return zlib.crc32(known_by.encode()) % partitions

    @contextmanager
    def _storage(self) -> Iterator[Storage]:
        path = self._options.path
        if path.startswith(DISK):
            yield self._disk
            return
        with self._jvm() as jvm:
            yield storage_of(jvm.jvm, jvm.storage.unwrap(), path)

    def _read_on(self, topic: str, positions: dict[int, int], partition: int) -> Iterator[Logged]:
        for one in entries(self._settings, topic, partition, positions[partition]):
            positions[partition] = one.number + 1
            yield one

    def _entry(self, one: Compared) -> Entry | None:
        """The entry that a file needs; None for none."""
        try:
            return self._entry_of(one)
        except FileNotFoundError:
            return None  # it was deleted since the folder was listed

    def _entry_of(self, one: Compared) -> Entry | None:
        found, before, header = one.found, one.before, self._options.header
        if before is None and one.displaced is None:
            return self._new(found)
        if before is None:  # under a name of another file, of which the rest may be unread
            assert one.displaced is not None
            return self._replaced(found, one.displaced)
        if not self._options.grows:
            return None if before.is_still(found) else self._replaced(found, before)
        if before.is_still(found) and self._disk.edges(found.path, before.end) == (before.head, before.tail):
            return new_lines(found, before, self._disk, header)
        # Another file has got the inode of one that is gone, unless it has the name as well.
        return self._replaced(found, before) if before.path == found.path else self._new(found)

    def _new(self, found: Found) -> Entry | None:
        if self._options.grows:
            return new_lines(found, None, self._disk, self._options.header)
        if self._options.format != "text":
            require_rows(found, self._options.format)
        return whole_file(found, self._options.header)

    def _replaced(self, found: Found, before: Entry) -> Entry | None:
        if self._options.on_change == "fail":
            raise changed(found, before)
        return self._new(found) if self._options.on_change == "reread" else None
