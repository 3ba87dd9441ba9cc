"""Whether a topic's id is one. Pure."""

from __future__ import annotations

_ZERO = "A" * 22
"""Kafka's zero UUID as text (KIP-516)."""


def known_topic_id(topic_id: str | None) -> str | None:
    """A topic's id, or None for the zero UUID.

    Kafka's clients give the zero UUID for a topic of a broker without topic ids (before 2.8). Checkpoints, messages and
    notes of earlier releases hold it as if it were an id.
    """
    return topic_id if topic_id and topic_id != _ZERO else None
