"""The present workers: the members of a consumer group, whose heartbeats Kafka itself watches.

Workers of the group `default` are in the consumer group `sluice-workers-default` of each cluster that holds control
topics of theirs. They consume nothing by it. A worker that dies or freezes is removed from it after `SESSION`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient

from sluice.errors import RetryableError, SluiceError
from sluice.kafka.config import KafkaSettings
from sluice.kafka.failures import kafka_errors
from sluice.logs import log

PREFIX = "sluice-workers-"
SESSION = 10.0  # seconds; brokers allow no less than six by default
_TIMEOUT = 10.0
_ASK_AGAIN = 2.0  # seconds for which waiting tasks use a cached answer
_POLL = 0.5


class Member(NamedTuple):
    """A worker: its name, and the machine that it runs on as the broker sees it."""

    worker: str
    host: str


def members(admin: AdminClient, settings: KafkaSettings, group: str, timeout: float = _TIMEOUT) -> tuple[Member, ...]:
    """The present workers of a group, by name.

    Args:
        admin: a client of the cluster of the control topics.
        settings: its settings, for errors.
        group: the workers' group.
        timeout: seconds within which it has to answer.

    Raises:
        RetryableError: the cluster doesn't answer in time.
        ActionRequiredError: the consumer group may not be described.
    """
    name = f"{PREFIX}{group}"
    where = {"group": name, "connection": settings.name, "bootstrap_servers": settings.bootstrap_servers}
    with kafka_errors("asking which workers are there", **where):
        try:
            described = admin.describe_consumer_groups([name], request_timeout=timeout)[name].result()
        except KafkaException as error:
            if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:  # brokers of 4.0 and later say so
                return ()
            raise
    return tuple(sorted(Member(member.client_id, member.host) for member in described.members))


class Presence:
    """Queries the present workers, by a client that is kept for as long as it gets answers.

    A client that has known a broker may never reach it again after that broker's restart, where a new one is answered
    at once.

    Args:
        settings: the cluster of the control topics.
        timeout: seconds within which it has to answer.
    """

    def __init__(self, settings: KafkaSettings, timeout: float = _TIMEOUT) -> None:
        self._settings = settings
        self._timeout = timeout
        self._admin: AdminClient | None = None
        self._known: dict[str, tuple[float, bool]] = {}

    def members(self, group: str) -> tuple[Member, ...]:
        """See `members`; from any thread."""
        admin = self._admin
        if admin is None:
            admin = self._admin = AdminClient(self._settings.client(socket_timeout_ms=int(_TIMEOUT * 1000)))
        try:
            return members(admin, self._settings, group, self._timeout)
        except RetryableError:
            self._admin = None
            raise

    def has_workers(self, group: str) -> bool:
        """Whether the group has a present worker; it queries Kafka every two seconds at most.

        If Kafka doesn't answer, the result is true: `claim_within` bounds the wait. If describing the group isn't
        permitted, the result is false, and each range is written by a separate Spark job.
        """
        asked, found = self._known.get(group, (float("-inf"), False))
        if time.monotonic() - asked < _ASK_AGAIN:
            return found
        try:
            found = bool(self.members(group))
        except RetryableError:
            found = True
        except SluiceError as error:
            log.warning("it isn't known whether workers are there", reason=str(error))
            found = False
        self._known[group] = (time.monotonic(), found)
        return found


class Membership:
    """A worker's membership, maintained by a separate thread until it leaves.

    Args:
        settings: the cluster's settings.
        group: the workers' group.
        worker: the worker's name.
        topics: control topics on this cluster; a group needs at least one.
        changed: called when workers have come or gone, from that thread.

    Attributes:
        is_member: whether Kafka counts it as a member: not before it has joined, while the group changes, or once its
            broker hasn't answered for as long as a session lasts.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        group: str,
        worker: str,
        topics: Sequence[str],
        changed: Callable[[], None],
    ) -> None:
        self._changed = changed
        self.is_member = False
        self._stop = threading.Event()
        self._consumer = Consumer(
            settings.client(
                group_id=f"{PREFIX}{group}",
                client_id=worker,
                enable_auto_commit=False,
                auto_offset_reset="latest",
                session_timeout_ms=int(SESSION * 1000),
                partition_assignment_strategy="range",  # every member is notified when one joins or leaves
            )
        )
        self._consumer.subscribe(list(topics), on_assign=self._on_assign, on_revoke=self._on_revoke)
        self._thread = threading.Thread(target=self._keep, name="sluice-membership", daemon=True)
        self._thread.start()

    def leave(self) -> None:
        """Leave the group; the others are notified at once."""
        self._stop.set()
        self._thread.join()

    def _keep(self) -> None:
        while not self._stop.is_set():
            record = self._consumer.poll(_POLL)
            if record is not None and record.error() is not None:
                error = record.error()
                if error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:  # a topic that its first interval will make
                    log.warning("the group of workers can't be kept up with", reason=str(error))
        with suppress(KafkaException):  # the broker removes a member without heartbeats
            self._consumer.close()

    def _on_assign(self, consumer: Consumer, partitions: list[KafkaTopicPartition]) -> None:
        # Assigned and paused at once: a consumer that is only a member fetches nothing.
        consumer.assign(partitions)
        consumer.pause(partitions)
        self.is_member = True
        self._changed()

    def _on_revoke(self, _consumer: Consumer, _partitions: list[KafkaTopicPartition]) -> None:
        self.is_member = False
