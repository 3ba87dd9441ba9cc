"""Several tables of one database move together: rows of all of them, and the offsets, are committed in one transaction.

A reader looks all along, each time at both tables in one snapshot. Real PostgreSQL, MariaDB and SQLite.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka.admin import NewTopic

from sluice.errors import ActionRequiredError, IntervalError
from sluice.protocol.messages import AckCommit, StartCommit
from sluice.protocol.offsets import TRANSACTION_KEY

from ..thorough import also
from .harness import wait_for
from .harness.databases import Readable, SqliteFile
from .harness.jdbc import TOMBSTONES, UPSERT, Table, refused

LINES_DDL = "id BIGINT NOT NULL, order_id BIGINT, v STRING"


class Orders:
    """Orders, and two lines of each: a topic and a table for either."""

    def __init__(self, table: Table, **lines: Any) -> None:
        self.table, self.flow, self.database = table, table.flow, table.database
        self.topic, self.orders = f"{table.flow.topic}-lines", table.name
        self.lines = f"{table.name}_lines"
        self.flow.admin.create_topics([NewTopic(self.topic, 1, 1)])[self.topic].result(30)
        wait_for(lambda: self.topic in self.flow.admin.list_topics(timeout=10).topics, "the topic", pause=0.1)
        self.entry = {"table": self.lines, "topics": self.topic, "schema": LINES_DDL, **lines}
        self._next = 0

    def together(self) -> Orders:
        """The pipeline loads both tables."""
        self.flow.set(source__kafka__topics=[self.flow.topic, self.topic], sink__jdbc__tables=[self.entry])
        return self

    def add(self, count: int) -> None:
        """So many orders, with two lines each."""
        for number in range(self._next, self._next + count):
            self.order(number, {"id": number, "v": f"a{number}"})
            for line in (2 * number, 2 * number + 1):
                self.line(line, {"id": line, "order_id": number, "v": "l"})
        self._next += count

    def order(self, number: int, row: Any) -> None:
        self._send(self.flow.topic, number, row)

    def line(self, number: int, row: Any) -> None:
        self._send(self.topic, number, row)

    def _send(self, topic: str, number: int, row: Any) -> None:
        value = row if isinstance(row, bytes) else None if row is None else json.dumps(row).encode()
        self.flow.produce_to(topic, json.dumps({"id": number}).encode(), value)

    def seen(self) -> tuple[int, int]:
        """How many orders and lines there are, in one snapshot: one statement."""
        both = f'SELECT (SELECT count(*) FROM "{self.orders}"), (SELECT count(*) FROM "{self.lines}")'
        return self.database.query(both)[0] if self.lines in self.database.tables() else (0, 0)

    def ids(self) -> tuple[list[int], list[int]]:
        tables = (self.orders, self.lines)
        orders, lines = ([i for (i,) in self.database.query(f'SELECT id FROM "{name}" ORDER BY id')] for name in tables)
        return orders, lines

    def check(self) -> None:
        """All that was sent is there once, in both tables, and nothing is left over."""
        assert self.ids() == (list(range(self._next)), list(range(2 * self._next)))
        assert self.table.staging() == set()


@pytest.fixture
def orders(make_jdbc) -> Orders:
    return Orders(make_jdbc(1)).together()


@contextmanager
def watched(orders: Orders) -> Iterator[list[tuple[int, int]]]:
    """A reader looks all along; what it has seen, each thing once after another."""
    seen: list[tuple[int, int]] = []
    failures: list[Exception] = []
    stop = threading.Event()

    def look() -> None:
        try:
            while not stop.wait(0.05):
                found = orders.seen()
                if found != (seen[-1] if seen else None):
                    seen.append(found)
        except Exception as error:
            failures.append(error)

    reader = threading.Thread(target=look)
    reader.start()
    try:
        yield seen
    finally:
        stop.set()
        reader.join()
    assert failures == []


def test_two_tables_always_move_together(orders):
    with watched(orders) as seen:
        for number in (10, 5):
            orders.add(number)
            assert orders.flow.interval().records == 3 * number
        wait_for(lambda: seen[-1] == (15, 30), "the reader", pause=0.05)
    assert seen == [(0, 0), (10, 20), (15, 30)]
    orders.check()
    orders.flow.interval_is_empty()
    sql = f"SELECT rows_written FROM _sluice_instants WHERE sink_table LIKE '%{orders.orders}' ORDER BY instant"
    assert orders.database.query(sql) == [(30,), (15,)]
    _numbers_of_each_table_are_noted(orders)


def _numbers_of_each_table_are_noted(orders: Orders) -> None:
    sql = f"SELECT metadata FROM _sluice_positions WHERE sink_table LIKE '%{orders.orders}'"
    note = json.loads(json.loads(orders.database.query(sql)[0][0])[TRANSACTION_KEY])
    assert note["tables"] == {orders.orders: {"rows": 5, "deletes": 0}, orders.lines: {"rows": 10, "deletes": 0}}
    acknowledged = [m for m in orders.flow.messages() if isinstance(m, AckCommit)]
    assert [m.records_written for m in acknowledged] == [30, 15]


POINTS = [
    "jdbc.before_transaction",
    "jdbc.before_database_commit",
    "jdbc.after_database_commit",
    "coordinator.before_ack_commit",
]


@pytest.mark.parametrize("point", [POINTS[1], *also(POINTS[0], *POINTS[2:])])
def test_a_coordinator_that_is_killed_while_it_commits_leaves_both_or_none(orders, point):
    orders.add(10)
    started = orders.flow.start()
    orders.flow.write_all(started)
    offset = str(started.control_offset)
    step = orders.flow.step("commit", "--control-offset", offset, failpoint=f"{point}=kill")
    assert step.killed, step.err
    done = POINTS.index(point) > 1
    assert orders.seen() == ((10, 20) if done else (0, 0))
    orders.add(5)
    orders.flow.interval()
    orders.check()


@pytest.mark.thorough
def test_a_zombie_reaches_neither_table(orders):
    orders.add(10)
    started = orders.flow.start()
    zombie = orders.flow.zombie(started)
    orders.flow.write(started).succeed()
    orders.flow.commit(started)
    orders.check()
    zombie.write()
    assert len(orders.table.staging()) == 1  # it is stopped when it has written the first table
    assert orders.ids() == (list(range(10)), list(range(20)))
    zombie.hear()
    orders.add(5)
    orders.flow.interval()
    orders.check()


def test_a_table_that_refuses_its_rows_stops_both(make_jdbc, database):
    """The other one has been merged by then, and its rows go back."""
    orders = Orders(make_jdbc(1))
    database.run(f'CREATE TABLE "{orders.lines}" (id BIGINT, order_id BIGINT, v VARCHAR(9), CHECK (order_id <> 3))')
    orders.together()
    orders.add(3)
    orders.flow.interval()
    orders.add(1)
    error = refused(orders.flow)
    assert isinstance(error, ActionRequiredError)
    assert (orders.seen(), orders.table.staging()) == ((3, 6), set())
    position = orders.table.position()
    assert position == {0: 3}
    database.run(f'DROP TABLE "{orders.lines}"')
    database.run(f'CREATE TABLE "{orders.lines}" (id BIGINT, order_id BIGINT, v VARCHAR(9))')
    orders.flow.interval()
    assert orders.ids() == ([0, 1, 2, 3], [6, 7])


def test_a_foreign_key_between_the_tables_holds_all_along(make_jdbc, database):
    """Parents before children where rows are added, and after them where rows are deleted."""
    orders = Orders(make_jdbc(1, section={**UPSERT, "auto_create": False}, **TOMBSTONES), pk_fields="id")
    if isinstance(database, SqliteFile):
        pytest.skip("SQLite looks at foreign keys only where each connection asks for it")
    database.run(f'CREATE TABLE "{orders.orders}" (id BIGINT PRIMARY KEY, v VARCHAR(99))')
    database.run(
        f'CREATE TABLE "{orders.lines}" (id BIGINT PRIMARY KEY, order_id BIGINT NOT NULL, v VARCHAR(99), '
        f'FOREIGN KEY (order_id) REFERENCES "{orders.orders}" (id))'
    )
    orders.together()
    orders.add(4)
    orders.flow.interval()
    orders.check()
    for line in (0, 1):
        orders.line(line, None)
    orders.order(0, None)
    orders.line(2, {"id": 2, "order_id": 9, "v": "moved"})
    orders.order(9, {"id": 9, "v": "new"})
    orders.flow.interval()
    assert orders.ids() == ([1, 2, 3, 9], [2, 3, 4, 5, 6, 7])
    orders.order(9, None)  # line 2 is still one of its own
    error = refused(orders.flow)
    assert isinstance(error, ActionRequiredError)
    assert orders.ids() == ([1, 2, 3, 9], [2, 3, 4, 5, 6, 7])
    orders.line(2, None)
    orders.flow.interval()
    assert orders.ids() == ([1, 2, 3], [3, 4, 5, 6, 7])


@pytest.mark.thorough
def test_a_constraint_that_a_merge_of_all_rows_breaks_is_kept_by_one_in_order(make_jdbc, database):
    """A unique value goes from one line to another, in the table that isn't the first."""
    if isinstance(database, SqliteFile):
        pytest.skip("as on the others")
    orders = Orders(make_jdbc(1, section=UPSERT, **TOMBSTONES), pk_fields="id")
    database.run(f'CREATE TABLE "{orders.lines}" (id BIGINT PRIMARY KEY, order_id BIGINT UNIQUE, v VARCHAR(99))')
    orders.together()
    for number, place in ((1, 10), (2, 20)):
        orders.line(number, {"id": number, "order_id": place, "v": ""})
    orders.order(1, {"id": 1, "v": ""})
    orders.flow.interval()
    for number, place in ((1, 30), (2, 10), (1, 20)):
        orders.line(number, {"id": number, "order_id": place, "v": ""})
    orders.order(2, {"id": 2, "v": ""})
    orders.flow.interval()
    assert orders.ids() == ([1, 2], [1, 2])
    assert sorted(database.query(f'SELECT id, order_id FROM "{orders.lines}"')) == [(1, 20), (2, 10)]


@pytest.mark.thorough
def test_a_table_that_comes_later_is_loaded_from_its_topic_s_start_and_one_that_goes_is_left(make_jdbc):
    """The first table's offsets stay where they are."""
    orders = Orders(make_jdbc(1))
    orders.add(3)
    orders.flow.interval()
    assert orders.lines not in orders.database.tables()
    orders.together()
    orders.add(2)
    orders.flow.interval()
    orders.check()
    orders.flow.set(source__kafka__topics=orders.flow.topic, sink__jdbc__tables=None)
    orders.order(5, {"id": 5, "v": "alone"})
    orders.flow.interval()
    assert orders.seen() == (6, 10)


@pytest.mark.thorough
def test_an_interval_that_names_a_table_which_the_file_has_no_more_is_given_up(orders):
    orders.add(3)
    started = orders.flow.start()
    orders.flow.write_all(started)
    orders.flow.set(source__kafka__topics=orders.flow.topic, sink__jdbc__tables=None)
    with pytest.raises(IntervalError, match=f"doesn't name any more: .*{orders.lines}"):
        orders.flow.commit(started)
    assert orders.seen() == (0, 0)
    orders.together()
    orders.flow.interval()
    orders.check()


@pytest.mark.thorough
def test_bad_records_of_both_tables_are_set_aside_in_one(make_jdbc, database):
    orders = Orders(make_jdbc(1, errors={"tolerance": "all"})).together()
    orders.add(2)
    orders.order(7, b"no JSON")
    orders.line(8, b"nor this")
    orders.line(9, b"{}")  # a line has an id
    orders.flow.interval()
    orders.check()
    (done,) = [m for m in orders.flow.messages() if isinstance(m, AckCommit)]
    assert (done.records_read, done.records_written, done.records_quarantined) == (9, 6, 3)
    sql = f'SELECT table_name, kafka_topic, kafka_offset FROM "{orders.orders}_quarantine"'
    names = (orders.orders, orders.lines)
    assert sorted(database.query(sql)) == sorted(
        [(names[0], orders.flow.topic, 2), (names[1], orders.topic, 4), (names[1], orders.topic, 5)]
    )


@pytest.mark.thorough
def test_each_table_is_compared_with_its_topics(orders):
    orders.add(3)
    orders.flow.interval()
    found = orders.flow.verify()
    assert (found.exit_code, "the same, row for row: 9 rows" in " ".join(found.output.split())) == (0, True)
    orders.database.run(f'UPDATE "{orders.lines}" SET v = NULL WHERE id = 4')
    found = orders.flow.verify("--json")
    same = {one["instant"]: one["same"] for one in json.loads(found.output)["intervals"]}
    assert (found.exit_code, same) == (1, {f"{orders.orders} all": True, f"{orders.lines} all": False})


@pytest.mark.thorough
def test_no_two_pipelines_load_one_table(make_jdbc, make_flow, database: Readable):
    """Where a table stands, one place says."""
    orders = Orders(make_jdbc(1))
    alone = make_jdbc(1, section={"table": orders.lines, "schema": LINES_DDL})
    orders.together()
    orders.add(1)
    orders.flow.interval()
    alone.flow.produce_values([b'{"id": 1}'])
    with pytest.raises(ActionRequiredError, match=f"loaded together with .*{orders.orders}"):
        alone.flow.start()
    database.run(f"DELETE FROM _sluice_positions WHERE sink_table LIKE '%{orders.lines}'")
    alone.flow.interval()
    orders.add(1)
    with pytest.raises(ActionRequiredError, match="by another pipeline alone"):
        orders.flow.start()
    assert not any(isinstance(m, StartCommit) for m in orders.flow.messages()[4:])
