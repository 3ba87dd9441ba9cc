"""The state of the pipeline's topics in a Kafka cluster, read when an interval is planned."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain

from confluent_kafka import IsolationLevel, TopicCollection
from confluent_kafka.admin import AdminClient, ListOffsetsResultInfo, OffsetSpec

from sluice.connectors.options import SourceOptions
from sluice.connectors.source import OffsetSyncs
from sluice.errors import ActionRequiredError, RetryableError
from sluice.kafka.config import KafkaSettings
from sluice.kafka.failures import is_led, kafka_errors
from sluice.kafka.list_offsets import Question, list_offsets
from sluice.kafka.metadata import metadata_of
from sluice.kafka.topic_id import topic_id
from sluice.kafka.transactional import topics_there
from sluice.protocol.identity import LogIds
from sluice.protocol.offsets import Checkpoint, TopicPartition
from sluice.protocol.redriven import Places
from sluice.protocol.state import ClusterState, PartitionBounds, Remark
from sluice.protocol.window import record_time
from sluice.sources.kafka.consumer_group import copy_to_group
from sluice.sources.kafka.mirror import offset_syncs
from sluice.sources.kafka.probe import RecordProbe
from sluice.sources.kafka.redriven import Redriven
from sluice.sources.kafka.truncation import LogRead, truncations
from sluice.sources.kafka.windows import Windows

_NOT_DATA = ("__", "sluice-control-")  # Kafka's own topics, and pipelines' control topics
_HANGS = timedelta(minutes=15)  # the broker's own limit on a transaction's time, by default
TIMEOUT = 30.0  # seconds for one request; librdkafka retries within it


def source_of(options: SourceOptions, settings: KafkaSettings) -> KafkaCluster:
    """The cluster that a pipeline's section reads; see `sluice.connectors.source.MakesSource`."""
    return KafkaCluster(settings, isolation_level=options.read_isolation)


class KafkaCluster:
    """One cluster: read only, except for the copy of the table's offsets in its consumer groups."""

    def __init__(self, settings: KafkaSettings, *, isolation_level: str = "read_committed") -> None:
        self.settings = settings
        self._isolation = (
            IsolationLevel.READ_COMMITTED if isolation_level == "read_committed" else IsolationLevel.READ_UNCOMMITTED
        )
        self._admin = self._new_admin()
        self._described: tuple[str, ...] = ()  # a topic that the connection may describe, once one is known

    @property
    def name(self) -> str:
        """The connection's name, by which offsets name the cluster."""
        return self.settings.name

    def cluster_ids(self) -> dict[str, str | None]:
        """Kafka's own id of the cluster.

        Raises:
            RetryableError: the cluster can't be reached.
        """
        where = {"connection": self.settings.name, "bootstrap_servers": self.settings.bootstrap_servers}
        with kafka_errors("asking for the cluster's id", **where):
            return {self.settings.name: metadata_of(self._admin, TIMEOUT, *self._described).cluster_id}

    def topics_like(self, pattern: str, but_not: Collection[str | None] = ()) -> tuple[str, ...]:
        """The topics whose whole names match a regular expression, except `but_not` and Kafka's own.

        Raises:
            ActionRequiredError: there is none.
            RetryableError: the cluster can't be reached.
        """
        where = {"connection": self.settings.name, "bootstrap_servers": self.settings.bootstrap_servers}
        with kafka_errors("asking for the topics", **where):
            known = self._admin.list_topics(timeout=TIMEOUT).topics
        found = tuple(
            sorted(t for t in known if re.fullmatch(pattern, t) and not t.startswith(_NOT_DATA) and t not in but_not)
        )
        if not found:
            raise ActionRequiredError(
                "No topic has a name like source.kafka.topics_pattern.",
                next_step="create one, or correct the pattern, which a whole name must match.",
                pattern=pattern,
                **where,
            )
        return found

    def state(
        self,
        topics: Sequence[str],
        window_end: datetime | None,
        window_start: datetime | None = None,
        *,
        max_future: timedelta | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> ClusterState:
        """The present offsets, cluster id and topic ids.

        Args:
            topics: the pipeline's topics.
            window_end: records with a time before this belong to the window; None takes all there is. Where no
                record has this time or a later one, the log's end is the window's end.
            window_start: records with a time before this don't belong to the window; None takes all there is.
            max_future: records that are dated further ahead of now bound no window; None lets all of them.
            checkpoint: the table's checkpoint, to detect truncated logs; None before the first commit.

        Raises:
            ActionRequiredError: a topic does not exist, or may not be read.
            RetryableError: the cluster can't be reached, or a topic was deleted and created again meanwhile.
        """
        where = {"connection": self.settings.name, "bootstrap_servers": self.settings.bootstrap_servers}
        described = self._admin.describe_topics(TopicCollection(list(topics)), request_timeout=TIMEOUT)
        self._described = tuple(topics[:1])
        cluster_ids = self.cluster_ids()
        topic_ids: dict[tuple[str, str], str | None] = {}
        found: list[TopicPartition] = []
        leaderless: list[TopicPartition] = []
        for topic, future in described.items():
            with kafka_errors("asking for the topics' partitions", topic=topic, **where):
                description = future.result()
            topic_ids[self.settings.name, topic] = topic_id(description.topic_id)
            for p in description.partitions:
                (found if is_led(p) else leaderless).append(TopicPartition(self.settings.name, topic, p.id))
        asked_at = datetime.now(UTC)
        starts, ends, tops = self._list_offsets(
            found,
            Question(OffsetSpec.earliest(), self._isolation),
            Question(OffsetSpec.latest(), self._isolation),
            Question(OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED),
        )
        log_start, log_end, high_watermark = _offsets(starts), _offsets(ends), _offsets(tops)
        limit = (asked_at + max_future) if max_future is not None else None
        windows = Windows(self, found, log_end, asked_at, limit)
        first, last = windows.bound(window_start), windows.bound(window_end)
        open_since = self._open_since({tp: end for tp, end in log_end.items() if end < high_watermark[tp]})
        partitions = []
        for tp in found:
            end = last.get(tp, -1)
            bounded = 0 <= end < log_end[tp]
            # A window may end in the future, up to when more records are to come.
            through = min(window_end, asked_at) if bounded and window_end else asked_at
            start = first.get(tp, 0)
            partitions.append(
                PartitionBounds(
                    topic_partition=tp,
                    log_start=log_start[tp],
                    log_end=log_end[tp],
                    window_end=end if bounded else log_end[tp],
                    # Records in an open Kafka transaction are older than those committed after it.
                    valid_through=min(through, open_since.get(tp, through)),
                    high_watermark=high_watermark[tp],
                    window_start=start if start >= 0 else log_end[tp],  # -1: no record is as late as that
                )
            )
        truncated = self._truncated(
            checkpoint or Checkpoint(), partitions, {tp: e.leader_epoch for tp, e in ends.items()}
        )
        self._require_still_there(topic_ids)
        return ClusterState(
            partitions,
            cluster_ids,
            topic_ids,
            leaderless=tuple(leaderless),
            leader_epochs={tp: e.leader_epoch for tp, e in ends.items() if e.leader_epoch is not None},
            truncated=truncated,
            remarks=(
                *(Remark(tp, "it has no leader, so it is left out until it has one") for tp in leaderless),
                *windows.remarks,
                *_hanging(log_end, open_since, asked_at),
            ),
        )

    def _require_still_there(self, looked_at: Mapping[tuple[str, str], str | None]) -> None:
        """Refuse answers of two topics of one name: the id would be the first one's, and the offsets the second's."""
        present = self.topic_ids([topic for _, topic in looked_at])
        for (_, topic), id_ in looked_at.items():
            if present[topic] != id_:
                raise RetryableError(
                    "The topic was deleted and created again while its offsets were read.",
                    next_step="none: the step is retried and finds the new topic.",
                    topic=topic,
                    connection=self.settings.name,
                    topic_id=id_,
                    topic_id_now=present[topic],
                )

    def _open_since(self, last_stable: Mapping[TopicPartition, int]) -> dict[TopicPartition, datetime]:
        """The time of the first record held back by an open Kafka transaction, for each partition with one."""
        if not last_stable:
            return {}
        with RecordProbe(self.settings, "read_uncommitted") as probe:
            found = probe.first(last_stable, lambda _tp, _seen: True)
        return {tp: record_time(seen.time) for tp, seen in found.items() if seen is not None and seen.time >= 0}

    def at(self, partitions: Sequence[TopicPartition], time: datetime) -> dict[TopicPartition, tuple[int, int]]:
        """Each partition's first record with that time or a later one: its offset, -1 for none, and its time in ms."""
        spec = OffsetSpec.for_timestamp(int(time.timestamp() * 1000))
        (found,) = self._list_offsets(partitions, Question(spec, self._isolation))
        return {tp: (int(answer.offset), int(answer.timestamp)) for tp, answer in found.items()}

    def probe(self) -> RecordProbe:
        """Reads single records as the pipeline's isolation level shows them."""
        committed = self._isolation == IsolationLevel.READ_COMMITTED
        return RecordProbe(self.settings, "read_committed" if committed else "read_uncommitted")

    def truncated_since(self, read: Mapping[TopicPartition, tuple[int, int]]) -> dict[TopicPartition, int]:
        """The partitions whose log has lost records that were read, with the offset at which it was truncated.

        Those without a leader are left out: the next planning checks again.

        Args:
            read: for each partition the offset up to which it was read, and the leader epoch before that.
        """
        topics = sorted({tp.topic for tp in read})
        described = self._admin.describe_topics(TopicCollection(topics), request_timeout=TIMEOUT) if topics else {}
        led = []
        for topic, future in described.items():
            with kafka_errors("asking for the topics' partitions", topic=topic, connection=self.settings.name):
                partitions = future.result().partitions
            named = [TopicPartition(self.settings.name, topic, p.id) for p in partitions if is_led(p)]
            led += [tp for tp in named if tp in read]
        (ends,) = self._list_offsets(led, Question(OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED))
        moved = [tp for tp in led if ends[tp].leader_epoch not in (None, read[tp][1])]
        (starts,) = self._list_offsets(moved, Question(OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED))
        known = {tp: LogRead(*read[tp], int(starts[tp].offset), int(ends[tp].offset)) for tp in moved}
        return truncations(self.settings, known)

    def _truncated(
        self,
        checkpoint: Checkpoint,
        partitions: Sequence[PartitionBounds],
        epochs: Mapping[TopicPartition, int | None],
    ) -> dict[TopicPartition, int]:
        known = {}
        for bounds in partitions:
            tp = bounds.topic_partition
            epoch = checkpoint.leader_epoch(tp)
            if epoch is not None and epoch != epochs[tp]:  # without an election nothing is truncated
                known[tp] = LogRead(checkpoint.end_of_settled(tp), epoch, bounds.log_start, bounds.end_of_records)
        return truncations(self.settings, known)

    def topic_ids(self, topics: Sequence[str]) -> dict[str, str | None]:
        """Kafka's own id of each topic, None from a broker without ids; a topic that was recreated has another one."""
        described = self._admin.describe_topics(TopicCollection(list(topics)), request_timeout=TIMEOUT)
        ids: dict[str, str | None] = {}
        for topic, future in described.items():
            with kafka_errors("asking for the topics' ids", topic=topic, connection=self.settings.name):
                ids[topic] = topic_id(future.result().topic_id)
        return ids

    def log_ids(self, topics: Sequence[str]) -> LogIds:
        """Kafka's own ids of the cluster and of each topic."""
        name = self.settings.name
        self._described = tuple(topics[:1])
        return LogIds(self.cluster_ids(), {(name, topic): id_ for topic, id_ in self.topic_ids(topics).items()})

    def _list_offsets(
        self, partitions: Sequence[TopicPartition], *questions: Question
    ) -> list[dict[TopicPartition, ListOffsetsResultInfo]]:
        return list_offsets(self._admin, self.settings.name, partitions, *questions, timeout=TIMEOUT)

    def sent_again(self, topic: str, table: str) -> Places:
        """The positions of records that were set aside and sent again; see `sluice.connectors.source`."""
        return Redriven(self.settings, topic, table).places()

    def notes_there(self, topics: Collection[str]) -> dict[str, str | None]:
        """The topics with such notes that are there; see `sluice.connectors.source.KeepsNotes`."""
        return topics_there(self.settings, topics, self._admin)

    def offset_syncs(self, topic: str) -> OffsetSyncs:
        """MirrorMaker's offset syncs; see `sluice.connectors.source.MirrorReader`."""
        return offset_syncs(self.settings, topic)

    def next_records(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Each partition's first record from an offset on; see `sluice.connectors.source.MirrorReader`."""
        if not offsets:
            return {}
        starts, ends = self._list_offsets(
            list(offsets),
            Question(OffsetSpec.earliest(), self._isolation),
            Question(OffsetSpec.latest(), self._isolation),
        )
        log_start, log_end = _offsets(starts), _offsets(ends)
        there = {tp: max(offset, log_start[tp]) for tp, offset in offsets.items()}
        with self.probe() as probe:
            found = probe.first({tp: o for tp, o in there.items() if o < log_end[tp]}, lambda _tp, _head: True)
        return {tp: head.offset for tp, head in found.items() if head is not None}

    def copy_to_group(self, group: str, next_offsets: Mapping[TopicPartition, int]) -> None:
        """Copy next offsets into a consumer group; see `sluice.sources.kafka.consumer_group`."""
        clients = chain([self._admin], iter(self._new_admin, None))
        copy_to_group(clients, group, next_offsets, timeout=TIMEOUT)

    def _new_admin(self) -> AdminClient:
        return AdminClient(self.settings.client(socket_timeout_ms=int(TIMEOUT * 1000), allow_auto_create_topics=False))


def _offsets(answers: Mapping[TopicPartition, ListOffsetsResultInfo]) -> dict[TopicPartition, int]:
    return {tp: int(answer.offset) for tp, answer in answers.items()}


def _hanging(
    log_end: Mapping[TopicPartition, int], open_since: Mapping[TopicPartition, datetime], now: datetime
) -> Iterable[Remark]:
    """Remarks on transactions that have been open for longer than the broker would wait."""
    for tp, since in open_since.items():
        if now - since > _HANGS:
            what = f"a Kafka transaction that is open since {since:%Y-%m-%d %H:%M} UTC holds back what comes after it"
            yield Remark(tp, what, log_end[tp])
