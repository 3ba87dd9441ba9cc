"""Topic ids as Kafka's clients give them, in one spelling: librdkafka's and Java's alphabets differ."""

from __future__ import annotations

from sluice.protocol.topic_id import known_topic_id


def topic_id(given: object) -> str | None:
    """A topic's id as text, in the alphabet of RFC 4648, section 4; None where the broker has no topic ids.

    Args:
        given: librdkafka's `Uuid`, or the text of Java's, which is in the alphabet of section 5.
    """
    return known_topic_id(str(given).replace("-", "+").replace("_", "/"))
