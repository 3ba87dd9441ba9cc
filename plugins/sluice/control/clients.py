"""The Kafka clients by which control topics of one cluster are asked and written."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from sluice.kafka.config import KafkaSettings

TIMEOUT = 30.0
_LARGEST = 1_000_000_000  # bytes: librdkafka's own maximum. The topic's limit is checked before each message


class Clients:
    """A cluster's clients, for as many control topics as a process has. Thread-safe.

    Each client has threads, buffers and connections of its own, and a process can have about a thousand: each takes a
    thread key, of which Linux gives 1,024. So topics share them. None is made before it is needed.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._admin: AdminClient | None = None
        self._is_connected = False
        self._producers: list[Producer] = []  # those that wait for their next message

    @property
    def admin(self) -> AdminClient:
        """The one that asks."""
        with self._lock:
            if self._admin is None:
                self._admin = AdminClient(self._settings.client(socket_timeout_ms=int(TIMEOUT * 1000)))
                self._is_connected = False
            return self._admin

    def connected_admin(self) -> AdminClient:
        """The one that asks, with a connection.

        librdkafka asks for a partition's leader at once, and if no connection is up yet, again only after 3 seconds
        (`rd_kafka_topic_partition_list_query_leaders_async_worker`). The request that is sent here waits for one.
        """
        admin = self.admin
        if not self._is_connected:
            admin.describe_cluster(request_timeout=TIMEOUT).result()
            self._is_connected = True
        return admin

    def forget(self, admin: AdminClient) -> None:
        """Let go of one that asks, since it holds on to leaders of before an election, or to a topic's absence.

        Both for minutes: once a topic was described that isn't there, its offsets can't be asked for when it has come.
        """
        with self._lock:
            if self._admin is admin:
                self._admin = None

    def expect_to_send(self) -> None:
        """Connect a producer in the background: it takes half a second before its first message.

        A new producer asks for its id at once, before any connection is up, and asks again 500 ms later, however near
        the broker is (`rd_kafka_idemp_pid_timer_restart` of librdkafka).
        """
        if not self._producers:
            self._producers.append(self._new_producer())

    @contextmanager
    def producer(self) -> Iterator[Producer]:
        """One that nobody else sends by until the block is left; kept for the next one, unless the block fails."""
        try:
            producer = self._producers.pop()  # another thread that sends at the same time has another
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
