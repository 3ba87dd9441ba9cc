"""A table of a database into a topic, as Kafka Connect's JDBC source loads it, and each row version once."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from sluice.connectors.connections import VARIABLE
from sluice.coordinator import Outcome

from .harness.databases import SqliteFile
from .harness.topics import TARGET, Topics, create, environment

NUMBERED = {"connection": "shop", "tables": "orders", "mode": "incrementing", "horizon_wait": "10 seconds"}


@pytest.fixture
def orders(make_flow, bootstrap, tmp_path, monkeypatch, topic_name):
    """A pipeline from a table of SQLite into a topic, with the columns and types of the table."""
    database = SqliteFile(tmp_path / "shop.db")
    database.run("CREATE TABLE orders (id INTEGER PRIMARY KEY AUTOINCREMENT, v TEXT)")
    known = [*json.loads(environment(bootstrap)[VARIABLE]), {**asdict(database.connection), "id": "shop"}]
    monkeypatch.setenv(VARIABLE, json.dumps(known))
    flow = make_flow(0)
    flow.secret_environment[VARIABLE] = json.dumps(known)
    name = topic_name("orders-out")
    kafka = {"connection": TARGET, "topic": name, "staging": str(tmp_path / "staging")}
    kafka |= {"key_fields": "id", "key": {"encoder": "string"}}
    flow.set(source={"jdbc": NUMBERED}, sink__hudi=None, sink__kafka=kafka, control__connection="kafka_default")
    create(bootstrap, name, 2)
    return database, Topics(flow, bootstrap)


@pytest.mark.thorough
def test_rows_are_records_once_though_a_commit_is_killed_after_it_has_sent_them(orders):
    database, topics = orders
    flow = topics.flow
    database.run("INSERT INTO orders (v) VALUES ('a'), ('ü')")
    flow.interval()
    database.run("INSERT INTO orders (v) VALUES ('c')")
    started = flow.start()
    flow.write_all(started)
    point = "kafka.before_commit_transaction=kill"
    step = flow.step("commit", "--control-offset", str(started.control_offset), failpoint=point)
    assert step.killed, step.err
    assert sorted(topics.rows()) == [(1, "a"), (2, "ü")]
    assert flow.commit(started).state == "committed"
    assert sorted(topics.rows()) == [(1, "a"), (2, "ü"), (3, "c")]
    assert {one.key for one in topics.found()} == {b"1", b"2", b"3"}
    assert isinstance(flow.coordinator().start(flow.run()), Outcome)
