"""A consumer of assigned partitions, which needs no group."""

from __future__ import annotations

from confluent_kafka import Consumer, KafkaError, Message


class AssignedConsumer(Consumer):  # type: ignore[misc]  # confluent-kafka has no stubs of its C classes
    """A consumer of assigned partitions, whose group the brokers may refuse.

    librdkafka gives a consumer a group, and asks for the group's coordinator, whether or not it ever joins. To a
    principal without a right on the group the answer is an error, somewhere between the records. It concerns none of
    what such a consumer does.
    """

    def poll(self, timeout: float = -1) -> Message | None:
        """The next record or event, as `Consumer.poll`."""
        while (event := super().poll(timeout)) is not None and _is_of_the_group(event):
            pass
        return event

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """The next records and events, as `Consumer.consume`; none only if none came in time."""
        while True:
            events = super().consume(num_messages, timeout)
            kept = [event for event in events if not _is_of_the_group(event)]
            if kept or not events:
                return kept


def _is_of_the_group(event: Message) -> bool:
    error = event.error()
    return error is not None and error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED
