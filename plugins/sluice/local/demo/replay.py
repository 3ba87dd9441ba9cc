"""Publishes a stream of records over some minutes, as if they happened now."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, Producer

from sluice import runtime
from sluice.kafka.config import KafkaSettings
from sluice.local.demo.flights import Stream
from sluice.local.errors import LocalRuntimeError

if TYPE_CHECKING:
    from confluent_kafka import Message

_STEADY = 0.9  # the share of the records that comes at a steady pace
_HALF_LIFE = 60.0  # seconds in which half of the remaining records then come
_TICK = 1.0
_FLUSH = 60.0


def share(elapsed: float, seconds: float) -> float:
    """The share of the records that has come after `elapsed` seconds: steady at first, then thinner, never all.

    Records keep coming for as long as the demo needs to see intervals commit among them, on slow machines as on fast
    ones.
    """
    if elapsed < seconds:
        return _STEADY * elapsed / seconds
    left: float = (1 - _STEADY) * 0.5 ** ((elapsed - seconds) / _HALF_LIFE)
    return 1 - left


class Replay(threading.Thread):
    """Publishes one stream; every delivery is checked.

    Args:
        settings: the cluster.
        stream: what to publish.
        seconds: how long the steady part takes.
    """

    def __init__(self, settings: KafkaSettings, stream: Stream, seconds: float) -> None:
        super().__init__(name=f"replay-{stream.topic}", daemon=True)
        self.stream = stream
        self.acknowledged = 0
        self._seconds = seconds
        self._rest = threading.Event()
        self._stopped = threading.Event()
        self._failure: BaseException | KafkaError | None = None
        # Idempotent: a record that the producer sends again is in the topic once.
        self._producer = Producer(settings.client(enable_idempotence=True, linger_ms=50, compression_type="zstd"))

    @property
    def finished(self) -> bool:
        """Whether every record was published and acknowledged."""
        return self.acknowledged == self.stream.total

    def publish_rest(self) -> None:
        """No longer hold anything back."""
        self._rest.set()

    def stop(self) -> None:
        """Stop publishing; what was sent is still acknowledged."""
        self._stopped.set()
        self._rest.set()

    def check(self) -> None:
        """Raise what went wrong, if anything did.

        Raises:
            LocalRuntimeError: a record was not delivered.
        """
        if self._failure is not None:
            raise LocalRuntimeError(
                f"Publishing to the topic {self.stream.topic} failed: {self._failure}.",
                next_step=f"run `{runtime.command('status')}`; `{runtime.command('up')}` starts missing "
                "parts. Then run the demo again.",
            )

    def run(self) -> None:
        """The thread's own part; use `start`."""
        try:
            self._publish()
        except BaseException as error:
            self._failure = error

    def _publish(self) -> None:
        total, sent, began = self.stream.total, 0, time.monotonic()
        while sent < total and not self._stopped.is_set() and self._failure is None:
            wanted = total if self._rest.is_set() else int(total * share(time.monotonic() - began, self._seconds))
            # A second's worth at a time, or a thousand, so that a stop doesn't wait for the whole rest.
            until = min(total, max(min(wanted, sent + 10_000), sent + 1))
            for record in self.stream.slice(sent, until):
                self._send(record.key, record.value)
            sent = until
            if sent >= wanted:
                self._producer.flush(_TICK)
                self._rest.wait(_TICK)
        if self._producer.flush(_FLUSH):
            raise TimeoutError("the broker did not acknowledge everything in time")

    def _send(self, key: bytes, value: bytes) -> None:
        while True:
            try:
                self._producer.produce(self.stream.topic, value, key, on_delivery=self._delivered)
            except BufferError:  # the producer's queue is full: let the broker catch up
                self._producer.poll(0.5)
            else:
                self._producer.poll(0)
                return

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self._failure = error
