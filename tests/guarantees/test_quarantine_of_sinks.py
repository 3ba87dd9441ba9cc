"""Bad records of files, databases' tables and topics are set aside with their interval, once each, and sent again."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow.parquet as pq
import pytest

from sluice.connectors.views import quarantine_reader_of
from sluice.errors import ActionRequiredError
from sluice.protocol.messages import AckCommit
from sluice.protocol.quarantine import quarantine_path

from ..thorough import also
from .harness import Flow, finish, kafka_settings, once_the_lease_is_free
from .harness.databases import CONNECTION, Readable
from .harness.files import FileFlow
from .harness.flow import invoke
from .harness.topics import consume as committed
from .harness.topics import create, set_config
from .quarantined import consume, send

TOLERANT = {"errors__tolerance": "all"}
HEADERS = [("trace", b"\x00\xff"), ("none", None), ("empty", b"")]
Place = tuple[int, int]


class SetAside:
    """A pipeline, and what a reader finds of its bad records who knows nothing of Sluice."""

    def __init__(self, flow: Flow, rows: Callable[[], list[tuple[Any, ...]]], good: Callable[[], Counter[Any]]) -> None:
        self.flow, self.rows, self.good = flow, rows, good

    def check(self, bad: list[Place]) -> None:
        """Good records are rows once, bad ones are set aside once."""
        assert sorted((row[0], row[1]) for row in self.rows()) == sorted(bad)
        assert self.good() == Counter((sent.id, sent.value) for sent in self.flow.sent)

    def bad(self, *partitions: int) -> list[Place]:
        return [(p, self.flow.produce_raw(b'{"id": "seven"}', partition=p)) for p in partitions]


@pytest.fixture(autouse=True)
def _kafka(bootstrap, monkeypatch):
    name = "SLUICE_KAFKA_SOURCE"
    monkeypatch.setenv(name, kafka_settings(bootstrap).to_environment("source")[name])


@pytest.fixture
def files(tmp_path, bootstrap, shared_jvm, drivers, topic_name) -> SetAside:
    flow = FileFlow(tmp_path, bootstrap, shared_jvm, drivers, topic_name("t"), **TOLERANT, write__ranges=2)
    flow.create_topic(2)

    def rows() -> list[tuple[Any, ...]]:
        found = sorted(flow.path.with_name(f"{flow.path.name}_quarantine").glob("topics/**/*.parquet"))
        columns = ("kafka_partition", "kafka_offset", "kafka_value", "reason", "instant")
        return [tuple(row[c] for c in columns) for file in found for row in pq.read_table(file).to_pylist()]

    return SetAside(flow, rows, lambda: flow.rows(metadata=False))


@pytest.fixture
def table(make_flow, database: Readable, monkeypatch) -> SetAside:
    for variable, value in database.environment().items():
        monkeypatch.setenv(variable, value)
    given = {"connection": CONNECTION, "auto_create": True, "schema": "id BIGINT, v STRING"}
    flow = make_flow(2, sink__hudi=None, sink__jdbc=given, **TOLERANT, write__ranges=2)
    name = flow.topic.replace("-", "_")
    flow.set(sink__jdbc__table=name)
    flow.secret_environment = database.environment()

    def rows() -> list[tuple[Any, ...]]:
        if f"{name}_quarantine" not in database.tables():
            return []
        columns = "kafka_partition, kafka_offset, kafka_value, reason, instant"
        return [(p, o, None if v is None else bytes(v), r, i)
                for p, o, v, r, i in database.query(f"SELECT {columns} FROM {name}_quarantine")]  # fmt: skip

    def good() -> Counter[Any]:
        return Counter(database.query(f"SELECT id, v FROM {name}") if name in database.tables() else [])

    yield SetAside(flow, rows, good)
    database.drop_staging()


@pytest.fixture
def topics(make_topics) -> SetAside:
    """Bad records are records of a topic of their own, in whose last headers stands what is wrong."""
    made = make_topics(2, **TOLERANT, write__ranges=2)
    aside = f"_sluice.{made.name}_quarantine", f"{made.name}.quarantine"

    def rows() -> list[tuple[Any, ...]]:
        if aside[1] not in made.flow.admin.list_topics(timeout=30).topics:
            return []
        found = []
        for record in committed(made.bootstrap, aside[1]):
            own = {name: None if value is None else value.decode() for name, value in record.headers[-14:]}
            place = (int(own["sluice.kafka_partition"]), int(own["sluice.kafka_offset"]))
            found.append((*place, record.value, own["sluice.reason"], own["sluice.instant"]))
        return found

    return SetAside(made.flow, rows, lambda: Counter(made.rows()))


def told(flow: Flow, *arguments: str) -> Any:
    done = invoke("quarantine", arguments[0], str(flow.file), *arguments[1:], "--json")
    if done.exception is not None:
        raise done.exception
    return json.loads(done.stdout)


def listed_explained_and_sent_again(aside: SetAside) -> None:
    flow = aside.flow
    flow.set(errors__dead_letter_topic=f"{flow.topic}-dead")
    flow.produce(20)
    broken = send(flow, b'{"id": \xff1', partition=1, key=b"k", headers=HEADERS, timestamp=1_700_000_000_123)
    nothing = send(flow, None, partition=0)
    instant = flow.interval().instant
    bad = [(0, nothing), (1, broken)]
    aside.check(bad)
    by_place = {(row[0], row[1]): row for row in aside.rows()}
    assert (by_place[1, broken][2], by_place[1, broken][4]) == (b'{"id": \xff1', instant)
    assert by_place[0, nothing][2] is None
    assert "tombstone" in by_place[0, nothing][3]
    ack = flow.messages()[-1]
    assert isinstance(ack, AckCommit)
    assert (ack.records_read, ack.records_written, ack.records_quarantined) == (22, 20, 2)
    assert told(flow, "list")["records"] == 2
    facts = told(flow, "explain", f"{flow.topic}[1]@{broken}")
    assert (facts["instant"], facts["header trace"], facts["key"]) == (instant, "\x00\\xff", "k")
    letters = {record.value(): record for record in consume(flow, f"{flow.topic}-dead")}
    assert letters.keys() == {b'{"id": \xff1', None}
    assert letters[b'{"id": \xff1'].headers()[: len(HEADERS)] == HEADERS
    assert sum(one["records"] for one in told(flow, "redrive")["sent"]) == 2
    assert sum(one["records"] for one in told(flow, "redrive")["sent"]) == 0
    flow.interval()
    aside.check([*bad, (0, nothing + 1), (1, broken + 1)])  # they are as bad as they were


def test_files_bad_records_are_set_aside_listed_explained_and_sent_again(files):
    listed_explained_and_sent_again(files)


def test_a_database_s_bad_records_are_set_aside_listed_explained_and_sent_again(table):
    listed_explained_and_sent_again(table)


def test_topics_bad_records_are_set_aside_listed_explained_and_sent_again(topics):
    listed_explained_and_sent_again(topics)


@pytest.mark.thorough
def test_bad_records_are_found_whose_interval_the_log_has_forgotten(topics, monkeypatch):
    flow = topics.flow
    monkeypatch.setattr("sluice.sinks.kafka.log.KEPT", 1)
    for variable, value in flow.secret_environment.items():
        monkeypatch.setenv(variable, value)
    bad, instants = [], []
    for _ in range(3):
        bad += topics.bad(0, 1)
        instants.append(flow.interval().instant)
    reader = quarantine_reader_of("sink", flow.pipeline.sink.options, quarantine_path(flow.table, flow.pipeline.errors))
    assert list(reader.committed()) == instants
    assert list(reader.committed(instants[:1])) == instants[:1]
    for i, instant in enumerate(instants):
        found = [(one.partition, one.offset, one.instant) for one in reader.records([f"{instant}/attempt/0"])]
        assert sorted(found) == [(*place, instant) for place in sorted(bad[2 * i : 2 * i + 2])]


def row(number: int, text: str) -> bytes:
    return json.dumps({"id": number, "v": text}).encode()


@pytest.mark.thorough
@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_that_the_topic_does_not_take_are_set_aside(make_topics, compression):
    """Too large alone, or without a key in a compacted one; what is large only together is sent in several batches."""
    section = {"compression": compression, "key_fields": "v", "key": {"encoder": "string"}, "value_fields": "id"}
    made = make_topics(2, targets=0, section=section, **TOLERANT)
    flow = made.flow.set(errors__dead_letter_topic=f"{made.flow.topic}-dead")
    create(made.bootstrap, made.name, 1, max_message_bytes="2000", cleanup_policy="compact")
    create(made.bootstrap, f"{made.name}.quarantine", 1, max_message_bytes="20000")
    for n in range(40):
        flow.produce_raw(row(n, f"{n} {'y' * 100}"))
    random = os.urandom(25_000).hex()
    large = flow.produce_raw(row(100, random[:6000]), partition=1)
    keyless = flow.produce_raw(b'{"id": 101}', partition=1)
    packs_well = flow.produce_raw(row(102, "x" * 6000), partition=1)
    huge = send(flow, row(103, random), partition=1, headers=HEADERS)
    garbage = flow.produce_raw(b'{"id": "seven"}', partition=1)
    flow.interval()
    bad = {large, keyless, huge, garbage} | ({packs_well} if compression == "none" else set())
    sent = {one.key: one.value for one in made.found()}
    assert len(sent) == 40 + (compression != "none")
    found = {
        int(dict(one.headers)["sluice.kafka_offset"]): one
        for one in committed(made.bootstrap, f"{made.name}.quarantine")
    }
    assert found.keys() == bad
    reasons = {offset: dict(one.headers)["sluice.reason"].decode() for offset, one in found.items()}
    packed = "" if compression == "none" else f" packed by {compression}"
    words = rf"its record for the topic {made.name} has \d{{4}} bytes{packed}, and the topic takes 2000 \(max.message"
    assert re.match(words, reasons[large])
    assert "it has no key, and the topic" in reasons[keyless]
    assert found[large].value == row(100, random[:6000])
    # What the topic of bad records doesn't take is at its place in the source: this one says where, and how much it is.
    left = len(row(103, random))
    assert found[huge].value is None
    assert found[huge].headers[:3] == tuple(HEADERS)
    assert found[huge].headers[-1] == ("sluice.left_out", f"the value, of {left} bytes".encode())
    facts = told(flow, "explain", f"{flow.topic}[1]@{huge}")
    assert (facts["left out"], facts["header trace"]) == (f"the value, of {left} bytes", "\x00\\xff")
    assert "can't be sent again" in facts["what next"]
    letters = {dict(one.headers())["__connect.errors.offset"]: one for one in consume(flow, f"{flow.topic}-dead")}
    assert "the whole record is at its place" in dict(letters[str(huge).encode()].headers())["sluice.left_out"].decode()
    with pytest.raises(ActionRequiredError, match="doesn't have all of it"):
        told(flow, "redrive", "--as-newest", "--offset", f"{flow.topic}[1]@{huge}")
    assert sum(one["records"] for one in told(flow, "redrive", "--as-newest")["sent"]) == len(bad) - 1
    flow.interval()
    assert len(made.found()) == len(sent)


def test_the_first_record_that_the_topic_does_not_take_stops_its_interval_and_is_named(make_topics):
    """Columns that aren't written are looked at nevertheless."""
    made = make_topics(1, targets=0, section={"value_fields": "v"})
    create(made.bootstrap, made.name, 1, max_message_bytes="2000")
    offset = made.flow.produce_raw(row(1, "x" * 3000))
    with pytest.raises(AssertionError, match=rf"has 3\d\d\d bytes, and the topic takes 2000.* offset={offset}"):
        made.flow.interval()
    set_config(made, "max.message.bytes", "5000")
    made.flow.interval()
    assert len(made.found()) == 1
    bad = made.flow.produce_raw(b'{"id": "seven", "v": "one"}')
    with pytest.raises(AssertionError, match=rf"can't be loaded.* offset={bad}"):
        made.flow.interval()
    assert len(made.found()) == 1
    made.flow.set(**TOLERANT)
    made.flow.produce_raw(row(2, "x" * 6000))
    made.flow.interval()
    done = made.flow.verify("--json")
    assert done.exit_code == 0, done.exception
    assert [(one["in_topic"], one["same"]) for one in json.loads(done.stdout)["intervals"]] == [(1, True), (0, True)]


KILLS = ["coordinator.before_quarantine_commit", *also("coordinator.after_quarantine_commit", "sink.before_log")]


def killed(aside: SetAside, point: str) -> None:
    flow = aside.flow
    flow.produce(20)
    bad = aside.bad(0, 1, 1)
    started = flow.start()
    flow.write(started, 0, failpoint="participant.after_quarantine=kill").wait()  # its attempt is swept up
    flow.write_all(started)
    assert aside.rows() == []
    step = flow.step("commit", "--control-offset", str(started.control_offset), failpoint=f"{point}=kill")
    assert step.killed, step.err
    flow.produce(20)
    bad += aside.bad(1)
    flow.interval()
    aside.check(bad)


@pytest.mark.thorough
@pytest.mark.parametrize("point", KILLS)
def test_killed_between_the_files_commit_and_their_bad_records(files, point):
    killed(files, point)
    assert not list(files.flow.path.with_name(f"{files.flow.path.name}_quarantine").glob("_sluice/[0-9]*"))


@pytest.mark.thorough  # test_quarantine.py has the same kills of a Hudi table
@pytest.mark.parametrize("point", [*KILLS[:-1], "jdbc.before_database_commit"])
def test_killed_between_the_rows_commit_and_their_bad_records(table, database, point):
    killed(table, point)
    assert database.staging() == set()


@pytest.mark.thorough
@pytest.mark.parametrize("point", KILLS[:-1])
def test_killed_between_the_records_commit_and_their_bad_ones(topics, point):
    killed(topics, point)
    assert not list((topics.flow.folder / "staging").rglob("*.parquet"))


@pytest.mark.thorough
def test_an_aborted_interval_sets_nothing_aside(files):
    flow = files.flow
    flow.produce(20)
    files.bad(0, 1)
    flow.set(errors__max_records=1)
    started = flow.start(run := flow.run())
    flow.write_all(started)
    with pytest.raises(ActionRequiredError, match="Too many records can't be loaded"):
        flow.commit(started)
    assert flow.abort(run).state == "aborted"
    assert files.rows() == []
    assert not list(flow.path.with_name(f"{flow.path.name}_quarantine").glob("_sluice/[0-9]*"))


@pytest.mark.thorough
def test_a_table_s_bad_records_are_committed_by_another_while_the_first_stands_still(table):
    committed_by_another(table)


@pytest.mark.thorough
def test_topics_bad_records_are_committed_by_another_while_the_first_stands_still(topics):
    committed_by_another(topics)


@pytest.mark.thorough
def test_files_bad_records_are_committed_by_another_while_the_first_stands_still(files):
    committed_by_another(files)


def committed_by_another(aside: SetAside) -> None:
    """The first has looked whether it is done before that, so it goes on to commit it a second time."""
    flow = aside.flow.set(control__commit_timeout="5 seconds", control__clock_wait="1 second")
    flow.produce(20)
    bad = aside.bad(0, 1)
    started = flow.start()
    flow.write_all(started)
    pause, first = flow.frozen_commit(started, "coordinator.before_quarantine_commit")
    assert once_the_lease_is_free(lambda: flow.commit(started)).state == "committed"
    aside.check(bad)
    pause.release()
    finish(first)
    aside.check(bad)
    flow.produce(20)
    flow.interval()
    aside.check(bad)
