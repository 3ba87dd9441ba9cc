"""Who waits for ranges reads each control topic from where the first of them begins."""

from __future__ import annotations

from typing import Any

import pytest

from sluice.control.waiters import Awaited, Waiters, _Wait
from sluice.kafka.config import KafkaSettings


class Places:
    """In place of a consumer: from where on it was told to read last."""

    def __init__(self) -> None:
        self.read_from: int | None = None

    def incremental_assign(self, partitions: list[Any]) -> None:
        self.read_from = partitions[0].offset

    def incremental_unassign(self, _: list[Any]) -> None:
        self.read_from = None


@pytest.mark.parametrize("offsets", [[500, 100, 300], [100, 500, 300], [500, 300, 100]])
def test_nobody_s_messages_are_passed_over_for_another_that_waits(offsets):
    waiters, consumer, followed = Waiters(KafkaSettings("kafka", {"bootstrap.servers": "nowhere:9"})), Places(), {}
    for offset in offsets:
        waiters._new.append(_Wait(Awaited("table", "control", offset, 0, "workers", 5.0), lambda _: None))
    waiters._take_in(consumer, followed)
    assert consumer.read_from == 100


def test_one_that_begins_later_while_it_is_read_again_begins_where_that_is():
    waiters, consumer, followed = Waiters(KafkaSettings("kafka", {"bootstrap.servers": "nowhere:9"})), Places(), {}
    for offset in (500, 100, 300):
        waiters._new.append(_Wait(Awaited("table", "control", offset, 0, "workers", 5.0), lambda _: None))
        waiters._take_in(consumer, followed)
        if offset == 500:
            followed["control"].position = 900
    assert consumer.read_from == 100
