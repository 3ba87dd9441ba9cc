"""`sluice verify` of files, databases' tables and topics: each value of each record, and each disturbance."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from sluice.errors import ActionRequiredError

from ..thorough import also
from .harness import Flow, finish
from .harness.databases import CONNECTION, PostgresDatabase
from .harness.files import FileFlow
from .harness.topics import set_config

COLUMNS = (
    "id BIGINT NOT NULL, b BOOLEAN, s SMALLINT, d DOUBLE, f FLOAT, m DECIMAL(38,18), t TIMESTAMP, n TIMESTAMP_NTZ, "
    "day DATE, v STRING, a ARRAY<INT>, x BINARY"
)
VALUES = [
    {"id": 1, "b": True, "s": -32768, "d": 0.1, "f": 1.5, "m": "12345678901234567890.123456789012345678",
     "t": "2026-10-25T00:30:00.123456Z", "n": "2026-03-29T02:30:00.654321", "day": "1582-10-04",
     "v": "ü\t'\"\\ 🙂\r\nnew, line", "a": [1, None, 3], "x": "AP8B"},
    {"id": 2, "t": "0001-01-01T00:00:00.000001Z", "n": "9999-12-31T23:59:59.999999", "day": "9999-12-31", "v": ""},
    {"id": 3, "d": 1e300, "f": -0.1, "v": " blank "}, {"id": 2**63 - 1, "v": "\\\""}, {"id": 5, "v": "NULL"},
]  # fmt: skip


def told(flow: Flow) -> dict[str, Any]:
    """What `sluice verify` says; its status says whether all is the same."""
    done = flow.verify("--json")
    assert "{" in done.output, done.exception or done.output
    found = dict(json.loads(done.output[done.output.index("{") :]))
    assert done.exit_code == (0 if all(one["same"] for one in found["intervals"]) else 1)
    return found


def numbers(found: dict[str, Any]) -> list[tuple[int, int, bool]]:
    return [(one["in_topic"], one["in_table"], one["same"]) for one in found["intervals"]]


def send(flow: Flow, columns: str = COLUMNS, *more: dict[str, Any]) -> None:
    names = {one.split()[0] for one in columns.split(", ")}
    rows = [{name: value for name, value in row.items() if name in names} for row in (*VALUES, *more)]
    flow.produce_values([json.dumps(row).encode() for row in rows])


# Files


@pytest.mark.thorough
@pytest.mark.parametrize("data_format", ["csv", "json", "avro", "parquet"])
def test_files_are_compared_interval_by_interval_down_to_each_value(
    tmp_path, bootstrap, shared_jvm, drivers, topic_name, data_format
):
    columns = COLUMNS.partition(", a ARRAY")[0] if data_format == "csv" else COLUMNS
    flow = FileFlow(tmp_path, bootstrap, shared_jvm, drivers, topic_name("t"))
    flow.set(sink__files__schema=columns, sink__files__format=data_format, sink__files__codec=None)
    flow.set(sink__files__layout="connect" if data_format == "csv" else "interval")
    flow.create_topic(1)
    for _ in range(2):
        send(flow, columns, {"id": 6, "v": '"\0'})
        flow.interval()
    assert numbers(told(flow)) == [(6, 6, True)] * 2
    (flow.topics / sorted(flow.files())[-1]).unlink()
    assert numbers(told(flow)) == [(6, 6, True), (6, 0, False)]


# Databases


@pytest.fixture
def jdbc(make_flow, database, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Flow]:
    for variable, value in database.environment().items():
        monkeypatch.setenv(variable, value)

    def made(partitions: int, section: dict[str, Any], **settings: Any) -> Flow:
        given = {"connection": CONNECTION, "auto_create": True, **section}
        flow = make_flow(partitions, sink__hudi=None, sink__jdbc=given, **settings)
        flow.set(sink__jdbc__table=flow.topic.replace("-", "_"))
        flow.secret_environment = database.environment()
        return flow

    return made


@pytest.mark.thorough
def test_rows_with_the_place_of_their_record_are_compared_interval_by_interval(jdbc, database):
    flow = jdbc(1, {"schema": COLUMNS, "pk_mode": "kafka"})
    table = flow.pipeline.sink.jdbc.table
    for _ in range(2):
        send(flow)
        flow.interval()
    assert numbers(told(flow)) == [(5, 5, True)] * 2
    database.run(f"UPDATE {table} SET v = 'other' WHERE __connect_offset = 1")
    database.run(f"DELETE FROM {table} WHERE __connect_offset = 7")
    assert numbers(told(flow)) == [(5, 5, False), (5, 4, False)]


@pytest.mark.parametrize("disturbance", also("DELETE FROM {0} WHERE id = 3", "INSERT INTO {0} (id) VALUES (3)"))
def test_rows_without_it_are_compared_as_a_whole(jdbc, database, disturbance):
    """And a column whose values the database writes in its own way is left out, which is said."""
    berlin = {"schema": COLUMNS, "db_timezone": "Europe/Berlin"}
    flow = jdbc(1, berlin)
    send(flow)
    flow.interval()
    found = told(flow)
    left_out = [] if isinstance(database, PostgresDatabase) else ["t"]  # text without a zone: an hour is there twice
    assert (numbers(found), found["columns_left_out"]) == ([(5, 5, True)], left_out)
    database.run(disturbance.format(flow.pipeline.sink.jdbc.table))
    ((topic, there, same),) = numbers(told(flow))
    assert (topic, same) == (5, False)
    assert there != topic


@pytest.mark.thorough
def test_the_last_version_of_each_key_is_compared_and_keys_without_an_order_are_left_out(jdbc, database):
    upsert = {"insert_mode": "upsert", "pk_mode": "record_key", "pk_fields": "id", "delete_enabled": True}
    settings = {"changes": {"format": "tombstones"}, "source__kafka__key": {"converter": "json"}}
    flow = jdbc(2, {"schema": "id BIGINT NOT NULL, v STRING", **upsert}, **settings)
    table = flow.pipeline.sink.jdbc.table
    for version in ("a", "b"):
        flow.produce_keyed([keyed(1, version), keyed(2, version), keyed(3, version), keyed(3, None)], partition=0)
        flow.produce_keyed([keyed(4, version)], partition=int(version == "b"))  # its producer's partitions were changed
        flow.interval()
    found = told(flow)
    assert (numbers(found), found["keys_left_out"]) == ([(2, 2, True)], 1)
    database.run(f"UPDATE {table} SET v = 'other' WHERE id = 4")
    assert numbers(told(flow)) == [(2, 2, True)]  # which of its versions is the last, nothing says
    database.run(f"UPDATE {table} SET v = 'a' WHERE id = 2")
    assert numbers(told(flow)) == [(2, 2, False)]


def keyed(number: int, version: str | None) -> tuple[bytes, bytes | None]:
    key = json.dumps({"id": number}).encode()
    return key, None if version is None else json.dumps({"id": number, "v": version}).encode()


# Topics


@pytest.mark.thorough
def test_topics_are_compared_interval_by_interval_byte_by_byte(make_topics):
    """What an aborted transaction has left is none of it; what can't be compared is told from what differs."""
    section = {"schema": COLUMNS, "key_fields": "id", "headers": {"of": "v"}, "partitioner": "same"}
    topics = make_topics(2, section=section)
    flow = topics.flow
    send(flow)
    started = flow.start()
    flow.write_all(started)
    assert flow.step(
        "commit", "--control-offset", str(started.control_offset), failpoint="kafka.before_commit_transaction=kill"
    ).killed
    flow.commit(started)
    send(flow)
    flow.produce(4, partitions=[1])
    flow.interval()
    found = told(flow)
    assert numbers(found) == [(5, 5, True), (9, 9, True)]
    assert not {"columns_left_out", "not_in_table"} & {name for name, value in found.items() if value}
    flow.set(transforms=[{"filter": "id != 5"}])
    assert numbers(told(flow)) == [(4, 5, False), (8, 9, False)]
    flow.set(transforms=[{"set": {"v": "concat('other', id)"}}])
    topics.delete_records({0: 8})  # behind what was aborted, and in the first interval
    found = told(flow)
    assert (numbers(found), len(found["not_in_table"])) == ([(9, 9, False)], 1)
    assert "retention has taken their records" in found["why_not"][0]
    set_config(topics, "cleanup.policy", "compact")
    refused = flow.verify()
    assert refused.exit_code == 1
    assert "can't be compared: retention has taken" in str(refused.exception or refused.output)


# Nothing to compare


def refused(flow: Flow) -> ActionRequiredError:
    """Why `sluice verify` compares nothing; it says so and fails, also where no row differs."""
    done = flow.verify()
    assert done.exit_code == 1, done.output
    assert isinstance(done.exception, ActionRequiredError), done.exception or done.output
    assert "can't be compared" in done.exception.what
    return done.exception


def abort_one(flow: Flow) -> None:
    run = flow.run()
    flow.start(run)
    flow.abort(run)


def on_another_control_topic(flow: Flow) -> None:
    flow.control_topic = f"{flow.control_topic}-other"
    flow.set(control__topic=flow.control_topic)


def is_refused_without_its_intervals(flow: Flow) -> None:
    """Before the first commit, and where the control topic is another."""
    abort_one(flow)
    assert "no interval of it has been committed yet" in refused(flow).what
    flow.interval()
    on_another_control_topic(flow)
    assert "the control topic has no committed interval" in refused(flow).what


def test_a_table_by_another_name_than_that_of_its_intervals_is_not_called_right(make_flow, tmp_path):
    """The same folder by other paths: messages name a table as the pipeline file does."""
    flow = make_flow(1)
    flow.produce(10, partitions=[0])
    instant = flow.interval().instant
    own, folder = flow.table, flow.path
    link = tmp_path / "a link"
    link.symlink_to(folder.parent)
    flow.set(sink__hudi__path=f"{link}/{folder.name}")
    assert flow.table != own
    error = refused(flow)
    assert (error.where["table"], error.where["named"]) == (flow.table, own)
    assert (error.where["last_interval"], own in error.next_step) == (instant, True)
    flow.set(sink__hudi__path=f"{folder}/../{folder.name}")
    done = flow.verify()
    assert isinstance(done.exception, ActionRequiredError), done.exception or done.output
    assert (done.exception.where["table"], done.exception.where["before"]) == (flow.table, own)
    listed = finish(flow._spawn("transactions", str(flow.file), failpoint=""))
    assert "has no transaction of" in " ".join(listed.out.split())
    flow.set(sink__hudi__path=f"{own}/")
    assert numbers(told(flow)) == [(10, 10, True)]


def test_an_append_without_intervals_or_records_is_not_called_right(make_flow):
    flow = make_flow(1)
    flow.produce(10, partitions=[0])
    abort_one(flow)
    assert "no interval of it has been committed yet" in refused(flow).what
    flow.interval()
    on_another_control_topic(flow)
    error = refused(flow)
    assert "the control topic has no committed interval of it, though the table has 10 offsets" in error.what
    flow.produce(5, partitions=[0])
    flow.interval()
    done = flow.verify()
    assert done.exit_code == 0, done.output
    assert "10 offsets of the table are of no interval that the control topic names" in " ".join(done.output.split())
    assert (numbers(found := told(flow)), found["offsets_left_out"]) == ([(5, 5, True)], 10)
    flow.delete_records({0: 15})
    assert "of none of its 1 intervals" in refused(flow).what


@pytest.mark.thorough
@pytest.mark.parametrize("pk_mode", ["none", "kafka"])
def test_nor_is_a_databases_table(jdbc, pk_mode):
    flow = jdbc(1, {"schema": COLUMNS, "pk_mode": pk_mode})
    send(flow)
    abort_one(flow)
    assert "no interval of it has been committed yet" in refused(flow).what
    flow.interval()
    assert numbers(told(flow)) == [(5, 5, True)]
    on_another_control_topic(flow)
    if pk_mode == "none":  # rows without an interval of theirs are compared with the table's offsets
        assert numbers(told(flow)) == [(5, 5, True)]
    else:
        assert "the control topic has no committed interval" in refused(flow).what


@pytest.mark.thorough
def test_nor_are_rows_of_which_no_key_has_an_order(jdbc):
    upsert = {"insert_mode": "upsert", "pk_mode": "record_key", "pk_fields": "id"}
    flow = jdbc(2, {"schema": "id BIGINT NOT NULL, v STRING", **upsert}, source__kafka__key={"converter": "json"})
    for partition in (0, 1):
        flow.produce_keyed([keyed(1, "a"), keyed(2, "a")], partition=partition)
        flow.interval()
    assert "each of the 2 keys has versions in several partitions" in refused(flow).what


@pytest.mark.thorough
def test_nor_are_files(tmp_path, bootstrap, shared_jvm, drivers, topic_name):
    flow = FileFlow(tmp_path, bootstrap, shared_jvm, drivers, topic_name("t"))
    flow.create_topic(1)
    flow.produce(10, partitions=[0])
    is_refused_without_its_intervals(flow)


@pytest.mark.thorough
def test_nor_is_a_topic(make_topics):
    flow = make_topics(1).flow
    flow.produce(10, partitions=[0])
    is_refused_without_its_intervals(flow)
