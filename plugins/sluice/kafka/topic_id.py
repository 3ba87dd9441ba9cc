"""Topic ids as Kafka's clients give them, in one spelling: librdkafka's and Java's alphabets differ."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient

from sluice.errors import SluiceError
from sluice.kafka.failures import until_it_is_known
from sluice.protocol.topic_id import known_topic_id

_AGAIN = 5.0  # seconds between two questions that records with a wrong signature cause: any writer can send those
_OLD = 60.0  # seconds after which the topic may have been deleted and made again


def topic_id(given: object) -> str | None:
    """A topic's id as text, in the alphabet of RFC 4648, section 4; None where the broker has no topic ids.

    Args:
        given: librdkafka's `Uuid`, or the text of Java's, which is in the alphabet of section 5.
    """
    return known_topic_id(str(given).replace("-", "+").replace("_", "/"))


@until_it_is_known
def topic_id_of(admin: AdminClient, topic: str, timeout: float) -> str | None:
    """The id of a topic that exists, or was just created.

    Raises:
        KafkaException: the broker doesn't answer within `timeout` seconds, or there is no such topic.
    """
    described = admin.describe_topics(TopicCollection([topic]), request_timeout=timeout)
    return topic_id(described[topic].result().topic_id)


class PresentTopicId:
    """The id of the topic that has a name now, as `sluice.protocol.signing` wants it: asked for when it is needed.

    A topic that had an id has one for good: an answer without one is of a broker that isn't upgraded yet.

    Args:
        ask: asks Kafka.
    """

    def __init__(self, ask: Callable[[], str | None]) -> None:
        self._ask = ask
        self._known: str | None = None
        self._asked_at: float | None = None

    def __call__(self, anew: bool) -> str | None:
        """The id; asked for again after a minute, and anew if wanted, at most every few seconds.

        While Kafka doesn't answer, the id is the one that it has given last.

        Raises: what `ask` raises, if it was never answered.
        """
        if self._asked_at is None:
            self.tell(self._ask())
        elif time.monotonic() - self._asked_at >= (_AGAIN if anew else _OLD):
            with suppress(SluiceError):
                self._known = self._ask() or self._known
            self._asked_at = time.monotonic()
        return self._known

    def tell(self, found: str | None) -> None:
        """Take note of the id that Kafka has given."""
        self._known, self._asked_at = found or self._known, time.monotonic()
