"""A control topic that is read further each time: nothing twice and nothing left out, also after an error."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sluice.control import continued
from sluice.control.continued import ContinuedReader, Progress
from sluice.control.reader import TopicBounds
from sluice.errors import RetryableError
from sluice.kafka.config import KafkaSettings
from sluice.protocol.messages import ControlMessage

from .protocol_messages import status

SETTINGS = KafkaSettings("kafka_default", {"bootstrap.servers": "h:1"})
INSTANT = "20260101000000000"
Batch = list[tuple[int, ControlMessage]]


class Log:
    """A topic, read in batches of two; the one at `breaks_at` can't be read."""

    bounds_ = TopicBounds("a", 0, 6)
    breaks_at: int | None = None
    unreadable = 0

    def __init__(self, settings: KafkaSettings, topic: str) -> None:
        self.settings = settings
        assert topic == "control"

    def bounds(self) -> TopicBounds:
        return self.bounds_

    def read(self, start: int, end: int) -> Iterator[Batch]:
        for at in range(start, end, 2):
            if at == self.breaks_at:
                raise RetryableError("Kafka is away.", next_step="none")
            yield [(offset, status(INSTANT, offset)) for offset in range(at, min(at + 2, end))]


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> type[Log]:
    class Own(Log):
        pass

    monkeypatch.setattr(continued, "ControlReader", Own)
    return Own


def read(reader: ContinuedReader) -> tuple[bool, list[int]]:
    another = reader.look(SETTINGS)
    return another, [offset for batch in reader.batches() for offset, _ in batch]


def test_each_look_reads_what_has_come_since(log):
    reader = ContinuedReader("control")
    assert read(reader) == (True, [0, 1, 2, 3, 4, 5])
    assert read(reader) == (False, [])
    log.bounds_ = TopicBounds("a", 0, 8)
    assert read(reader) == (False, [6, 7])
    assert reader.progress == Progress(0, 8, 8, 0)


@pytest.mark.parametrize("bounds", [TopicBounds("b", 0, 6), TopicBounds("a", 0, 3)])
def test_another_topic_of_the_name_is_read_from_its_start(log, bounds):
    reader = ContinuedReader("control")
    read(reader)
    log.bounds_ = bounds
    assert read(reader) == (True, [*range(bounds.end)])


def test_what_the_topic_has_dropped_is_passed_over(log):
    log.bounds_ = TopicBounds("a", 4, 6)
    assert read(ContinuedReader("control")) == (True, [4, 5])


def test_after_an_error_nothing_is_read_twice(log):
    reader = ContinuedReader("control")
    log.breaks_at = 4
    reader.look(SETTINGS)
    batches = reader.batches()
    assert [offset for batch in (next(batches), next(batches)) for offset, _ in batch] == [0, 1, 2, 3]
    with pytest.raises(RetryableError):
        next(batches)
    assert reader.progress == Progress(0, 4, 6, 0)
    log.breaks_at = None
    assert read(reader) == (False, [4, 5])


def test_a_batch_whose_reader_failed_is_read_again(log):
    reader = ContinuedReader("control")
    reader.look(SETTINGS)
    for batch in reader.batches():
        if batch[0][0] == 2:
            break
    assert read(reader) == (False, [2, 3, 4, 5])
