"""What the page's followers keep together is fixed: more tables, or wider ones, are kept for a shorter time."""

from __future__ import annotations

import pytest
from protocol_messages import ack, end, planned, start, status

from sluice.control import reader as control_reader
from sluice.kafka.config import KafkaSettings
from sluice.page import follower
from sluice.page.follower import MemoryBudget
from sluice.protocol.history import fold


@pytest.mark.parametrize("tables", [1, 3, 40])
def test_all_tables_together_have_a_fixed_room(monkeypatch, tables):
    for name, value in {"_REMEMBERED": 400, "_PARTITIONS": 2000, "_REMEMBERED_OF_TABLE": 200, "_FEWEST": 2}.items():
        monkeypatch.setattr(follower, name, value)
    budget, histories, offset = MemoryBudget(), {}, 0
    for number in range(900):
        instant, table = f"{number:09}", f"file:///lake/t{number % tables}"
        plan = start(instant, read_position=10**6).model_copy(update={"ranges": (tuple(planned(i) for i in range(5)),)})
        for message in (plan, status(instant), end(instant), ack(instant)):
            fold([(offset, message.model_copy(update={"table": table}))], histories)
            offset += 1
        for history in histories.values():
            have = [len(one.transactions) for one in histories.values()]
            history.keep(*budget.of_each("one follower", have))
    kept = [history.transactions.values() for history in histories.values()]
    assert sum(map(len, kept)) <= 400
    assert all(kept)
    assert sum(t.partitions_kept() for of_table in kept for t in of_table) <= 2000


def test_followers_share_it():
    budget = MemoryBudget()
    alone = budget.of_each("one", [30_000])
    budget.of_each("another", [500] * 299)
    assert alone == (20_000, 50_000)
    assert budget.of_each("one", [30_000]) == (200, 1000)


def test_what_some_do_not_need_the_others_have():
    budget = MemoryBudget()
    budget.of_each("another", [100] * 400)
    assert budget.of_each("one", [15_000, 15_000])[0] == 10_000
    assert budget.of_each("one", [18_000, 3_000])[0] == 17_000


def test_there_is_one_client_for_each_way_to_a_cluster_whatever_the_cluster_is_called():
    admins = control_reader._Admins()

    def settings(name: str, servers: str) -> KafkaSettings:
        return KafkaSettings(name, {"bootstrap.servers": servers, "log_level": 0})

    first = admins.of(settings("one", "localhost:1"))
    assert admins.of(settings("one", "localhost:1")) is first
    assert admins.of(settings("two", "localhost:1")) is first
    assert admins.of(settings("one", "localhost:2")) is not first
    assert len(admins._known) == 2
