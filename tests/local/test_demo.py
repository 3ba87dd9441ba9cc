"""The demo's comparison must be able to fail: whatever a lost or doubled record would do to a table is noticed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import Producer
from protocol_messages import INSTANT, TABLE, claim, start, status

from sluice.kafka.config import KafkaSettings
from sluice.local.airflow import LocalAirflow
from sluice.local.demo.fingerprint import Fingerprint, columns_of, fingerprint, last_versions
from sluice.local.demo.flights import flight_status, flights
from sluice.local.demo.intervals import Interval
from sluice.local.demo.killer import WorkerKiller
from sluice.local.demo.pipelines import Verdict, demo_pipelines
from sluice.local.demo.replay import Replay, share
from sluice.local.demo.topics import bounds, ensure_topic, records
from sluice.local.errors import LocalRuntimeError
from sluice.local.home import SluiceHome
from sluice.protocol.transaction import TableLog

DDL = "id BIGINT NOT NULL, carrier STRING, flight INT, delay DOUBLE"
ROWS: list[dict[str, Any]] = [
    {"id": 1, "carrier": "UA", "flight": 1545, "delay": 2.0},
    {"id": 2, "carrier": "AA", "flight": 1141, "delay": None},
    {"id": 3, "carrier": "B6", "flight": 725, "delay": -1.0},
]


def _of(rows: Iterable[dict[str, Any]]) -> Fingerprint:
    return fingerprint(rows, columns_of(DDL))


def test_the_order_of_rows_and_fields_does_not_matter():
    turned = [dict(reversed(row.items())) for row in reversed(ROWS)]
    assert Verdict(_of(ROWS), _of(turned)).same


def test_the_same_value_of_json_and_of_a_table_is_the_same():
    # JSON has one kind of number, and may leave a null field out; the table has the column's type.
    as_json = [{"id": 1, "carrier": "UA", "flight": 1545, "delay": 2}, {"id": 2, "carrier": "AA", "flight": 1141}]
    assert _of(as_json) == _of(ROWS[:2])


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(ROWS[:2], id="missing"),
        pytest.param([*ROWS, ROWS[0]], id="doubled"),
        pytest.param([ROWS[0], ROWS[0], ROWS[2]], id="one doubled, another missing"),
        pytest.param([ROWS[0], {**ROWS[1], "delay": 0.0}, ROWS[2]], id="null became zero"),
        pytest.param([ROWS[0], ROWS[1], {**ROWS[2], "delay": 1.0}], id="a sign was lost"),
        pytest.param([{**ROWS[0], "carrier": None}, *ROWS[1:]], id="a value was lost"),
        pytest.param([{**ROWS[0], "carrier": "AA"}, {**ROWS[1], "carrier": "UA"}, ROWS[2]], id="values swapped"),
        pytest.param([], id="empty"),
    ],
)
def test_a_difference_is_noticed(wrong):
    assert not Verdict(_of(ROWS), _of(wrong)).same


def test_the_last_version_is_that_of_the_largest_ordering_value_and_then_of_the_last_offset():
    versions = [
        {"id": 1, "at": 5, "status": "arrived"},
        {"id": 1, "at": 4, "status": "departed, come late"},
        {"id": 2, "at": 1, "status": "scheduled"},
        {"id": 2, "at": 1, "status": "scheduled again"},
    ]
    assert [v["status"] for v in last_versions(versions, "id", "at")] == ["arrived", "scheduled again"]


def test_all_flights_of_the_year_are_there_with_their_types():
    stream = flights("flights")
    assert stream.total == 336_776
    first = json.loads(next(stream.slice(0, 1)).value)
    assert (first["flight"], first["tailnum"], first["dep_time"], first["dep_delay"]) == (1545, "N14228", 517, 2.0)
    cancelled = [json.loads(r.value) for r in stream.slice(0, 2000) if b'"dep_time":null' in r.value]
    assert cancelled
    assert all(row["arr_delay"] is None and row["sched_dep_time"] for row in cancelled)


def test_a_flight_changes_its_state_in_order_and_again_when_the_month_is_replayed():
    stream = flight_status("flight_status")
    seen: dict[str, list[tuple[str, int]]] = {}
    for _ in range(2):
        for record in stream.slice(0, stream.total):
            value = json.loads(record.value)
            assert record.key.decode() == value["flight_id"]
            seen.setdefault(value["flight_id"], []).append((value["status"], value["updated_at"]))
    lives = {tuple(status for status, _ in versions) for versions in seen.values()}
    assert lives == {
        once * 2
        for once in (("scheduled", "departed", "arrived"), ("scheduled", "cancelled"), ("scheduled", "departed"))
    }
    for versions in seen.values():
        times = [at for _, at in versions]
        assert times == sorted(set(times)), "updated_at must grow"


def test_the_demo_knows_the_columns_of_its_own_pipelines(home, tmp_path, monkeypatch):
    monkeypatch.setenv("SLUICE_LAKE", str(tmp_path))
    append, upsert = demo_pipelines(home)
    for demo in (append, upsert):
        record = json.loads(next(demo.stream.slice(0, 1)).value)
        assert list(columns_of(demo.pipeline.sink.hudi.schema_ or "")) == list(record)
    assert (append.upserts, upsert.upserts) == (False, True)


def test_records_go_on_coming_until_the_demo_has_seen_enough():
    shares = [share(second, 150) for second in range(1500)]
    assert shares == sorted(set(shares))
    assert 0.89 < share(150, 150) < share(1499, 150) < 1


def test_every_record_of_every_partition_is_compared(bootstrap, topic_name):
    settings = KafkaSettings("test", {"bootstrap.servers": bootstrap})
    topic = topic_name("flights")
    assert ensure_topic(settings, topic)
    replay = Replay(settings, replace(flights(topic), total=5000), seconds=0.01)
    replay.publish_rest()
    replay.start()
    replay.join()
    replay.check()
    assert replay.finished
    assert sum(high for _, high in bounds(settings, topic).values()) == replay.stream.total
    columns = dict.fromkeys(("year", "month", "day", "flight", "hour"), int)
    published = (json.loads(record.value) for record in replay.stream.slice(0, replay.stream.total))
    assert fingerprint(records(settings, topic), columns) == fingerprint(published, columns)
    assert not ensure_topic(settings, topic), "a second demo goes on with the topic"


def test_a_topic_that_has_lost_records_is_refused(bootstrap, create_topic):
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    topic = create_topic("flights")
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, b"{}")
    assert producer.flush(30) == 0
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for deleted in admin.delete_records([TopicPartition(topic, 0, 1)]).values():
        deleted.result(30)
    with pytest.raises(LocalRuntimeError, match="first records"):
        ensure_topic(KafkaSettings("test", {"bootstrap.servers": bootstrap}), topic)


def test_a_worker_is_killed_once_while_it_holds_a_range_and_no_other_process_is(tmp_path, monkeypatch):
    monkeypatch.setattr("sluice.local.demo.killer._AFTER_CLAIM", (0.0, 0.0))
    program = tmp_path / "worker.py"
    monkeypatch.setattr("sluice.local.demo.killer.WORKER_APPLICATION", program)
    program.write_text("input()")

    def process(name: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, program, "--name", name], stdin=subprocess.PIPE)

    ours, others = process("default-0-a"), process("default-0-b")
    told: list[str] = []
    killer = WorkerKiller(told.append)
    try:
        killer.look_at("flights", [_interval(claim("default-0-a", released=True))])
        killer.look_at("flights", [_interval(claim("default-0-a"), status(INSTANT))])
        assert (ours.poll(), told) == (None, [])
        killer.look_at("flights", [_interval(claim("default-0-a"))])
        assert ours.wait(60) == -9
        killer.look_at("flights", [_interval(claim("default-0-b"))])
        assert others.poll() is None
        killer.sum_up()
        assert ["Killed" in line for line in told] == [True, False]
        assert told[1] == "Workers took 1 of 1 ranges; one worker was killed meanwhile. Others have Spark jobs."
    finally:
        for one in (ours, others):
            one.kill()
            one.communicate()


def test_where_no_worker_was_there_it_is_said():
    told: list[str] = []
    killer = WorkerKiller(told.append)
    killer.look_at("flights", [_interval(status(INSTANT))])
    killer.sum_up()
    assert told == ["No worker has claimed anything: each range had a separate Spark job."]


def _interval(*messages: Any) -> Interval:
    log = TableLog(TABLE).extend(enumerate([start(INSTANT), *messages]))
    return Interval(log.transactions[INSTANT], None)


def test_the_local_broker_s_control_messages_are_signed_with_a_secret_of_its_own(tmp_path):
    def secret() -> str:
        home = SluiceHome(tmp_path).create()
        variables = LocalAirflow.of_home(home, "127.0.0.1:9092").environment.variables()
        (found,) = KafkaSettings(
            "kafka_default", json.loads(variables["AIRFLOW_CONN_KAFKA_DEFAULT"])["extra"]
        ).control_secrets
        return found

    first = secret()
    assert len(first) >= 32
    assert secret() == first
    keys = tmp_path / "airflow" / "keys.json"
    keys.write_text(json.dumps({k: v for k, v in json.loads(keys.read_text()).items() if k != "control_secret"}))
    of_an_older_home = secret()
    assert of_an_older_home not in ("", first)
    assert secret() == of_an_older_home
    assert (tmp_path / "airflow" / "control_secret.json").stat().st_mode & 0o077 == 0
