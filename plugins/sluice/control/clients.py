"""The Kafka clients that read and write the control topics of one cluster."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from sluice.kafka.config import KafkaSettings
from sluice.kafka.failures import OLD_LEADER
from sluice.kafka.metadata import metadata_of

Key = TypeVar("Key")
Answer = TypeVar("Answer")
_Request = Callable[[AdminClient], Mapping[Key, "Future[Answer]"]]

TIMEOUT = 30.0
_LOST_LEADER = (*OLD_LEADER, KafkaError._NOENT)
_LARGEST = 1_000_000_000  # bytes: librdkafka's own maximum. The topic's limit is checked before each message


class Clients:
    """A cluster's clients, for as many control topics as a process has. Thread-safe.

    Each client has its own threads, buffers and connections, and a process can have about a thousand clients: each
    takes a thread key, of which Linux gives 1,024. So topics share them, and each client is made on first use.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._admin: AdminClient | None = None
        self._is_connected = False
        self._producers: list[Producer] = []  # idle producers

    @property
    def admin(self) -> AdminClient:
        """The admin client."""
        with self._lock:
            if self._admin is None:
                self._admin = AdminClient(
                    self._settings.client(socket_timeout_ms=int(TIMEOUT * 1000), allow_auto_create_topics=False)
                )
                self._is_connected = False
            return self._admin

    def ask(self, request: _Request[Key, Answer], connected_by: str | None = None) -> dict[Key, Answer]:
        """Send a request by the admin client, and wait for its answers.

        Args:
            request: sends it, and returns the futures of its answers.
            connected_by: a topic to ask for first, so that a connection is up. librdkafka queries a partition's leader
                at once, and if no connection is up yet, again only after 3 seconds
                (`rd_kafka_topic_partition_list_query_leaders_async_worker`).

        Raises:
            KafkaException: the first of the answers that is an error.
        """
        # A client whose last reference goes leaves its futures unanswered forever, and another thread may forget it at
        # any time. So the reference is kept here until the answer, and no longer: an exception's traceback, which
        # keeps this frame, would keep a forgotten client with its threads.
        admin, answers = self.admin, None
        try:
            if connected_by is not None and not self._is_connected:
                metadata_of(admin, TIMEOUT, connected_by)
                self._is_connected = True
            answers = request(admin)
            return {key: answer.result() for key, answer in answers.items()}
        except KafkaException as error:
            if error.args[0].code() in _LOST_LEADER:
                self.forget(admin)
            raise
        finally:
            del admin, answers

    def forget(self, admin: AdminClient) -> None:
        """Drop an admin client, since it caches leaders of before an election, or a topic's absence.

        Both for minutes: after describing a missing topic, it can't query the topic's offsets once that exists.
        """
        with self._lock:
            if self._admin is admin:
                self._admin = None

    def expect_to_send(self) -> None:
        """Connect a producer in the background: it takes half a second before its first message.

        A new producer requests its id at once, before any connection is up, and again 500 ms later, however near the
        broker is (`rd_kafka_idemp_pid_timer_restart` of librdkafka).
        """
        with self._lock:  # otherwise each of several threads makes one
            if not self._producers:
                self._producers.append(self._new_producer())

    @contextmanager
    def producer(self) -> Iterator[Producer]:
        """A producer for the block's exclusive use; reused afterwards, unless the block fails."""
        try:
            producer = self._producers.pop()  # a thread that sends concurrently uses another
        except IndexError:
            producer = self._new_producer()
        yield producer
        self._producers.append(producer)

    def _new_producer(self) -> Producer:
        return Producer(
            self._settings.client(
                enable_idempotence=True,
                acks="all",
                message_max_bytes=_LARGEST,
                delivery_timeout_ms=int(TIMEOUT * 1000),
            )
        )
