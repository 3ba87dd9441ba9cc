"""The file sink on an object store: the steps that it rests on, `sluice.testing` killed at each, whole intervals."""

from __future__ import annotations

import json
import os
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.s3 import LocalS3
from tests.s3.reader import ArrowS3, read_by_arrow

from sluice.airflow.connections import private_settings_of, source_connections
from sluice.connectors.aws import s3a_settings
from sluice.connectors.connections import ConnectionSettings, to_environment
from sluice.errors import ActionRequiredError, SluiceError
from sluice.pipeline import Kafka, Pipeline, Sink, Source
from sluice.private import VARIABLE as PRIVATE
from sluice.protocol.offsets import TRANSACTION_KEY
from sluice.sinks.files.log import IntervalLog, Record
from sluice.sinks.files.options import Files
from sluice.sinks.files.options.names import COMMITTED, DataFile, committable, log_entry
from sluice.sinks.files.s3 import S3Storage
from sluice.sinks.files.sink import FilesSink
from sluice.sinks.files.storage import LocalStorage
from sluice.sinks.hudi.timeline import TimelineFiles
from sluice.testing.deaths import dying
from sluice.testing.sinks import extra

from ..thorough import also
from . import test_file_sink_conformance as on_a_disk
from .harness import Drivers, Flow, finish, kafka_settings, once_the_lease_is_free
from .harness.files import FileFlow, rows_in
from .harness.readers import DDL, SharedJvm
from .harness.topics import environment as target_environment
from .harness.topics import topics_of
from .test_quarantine_of_sinks import KILLS, SetAside, committed_by_another, killed, listed_explained_and_sent_again
from .test_verify_of_sinks import numbers, told

STEPS = tuple((S3Storage, name) for name in ("create", "copy", "_copy", "delete", "make_folder"))


@pytest.fixture
def storage_of(s3, s3_jvm):
    with s3_jvm() as jvm:
        yield lambda path: S3Storage(jvm.jvm, jvm.storage.unwrap(), f"{s3.uri}{path}")


def test_the_steps_of_a_commit(storage_of, s3, tmp_path):
    storage = storage_of(str(tmp_path))
    storage.require_conditions("probe")
    storage.require_conditions("probe")
    storage.create("log/1", b"one")
    storage.create("log/1", b"one")  # a client repeats a request whose answer was lost
    with pytest.raises(FileExistsError):
        storage.create("log/1", b"two")
    storage.make_folder("x/y")
    storage.make_folder("x/y")
    assert [storage.exists(path) for path in ("x", "x/y", "x/z", "log/1")] == [True, True, False, True]
    storage.create("x/y/f", b"abc")
    storage.create("x/_hidden", b"")
    assert (storage.names("x"), storage.files("x")) == (["_hidden", "y"], {"y/f": 3})
    assert [storage.size(path) for path in ("x/y/f", "x", "none")] == [3, None, None]
    storage.copy([("x/y/f", "w/f", 3)], "mine")
    assert storage.read("w/f") == b"abc"
    assert storage.checksum("w/f") == storage.checksum("x/y/f")
    asked = [("w/f", 3, "mine"), ("w/f", 3, "other"), ("w/f", 4, "mine"), ("w/g", 3, "mine"), ("x/y/f", 3, "mine")]
    assert [storage.is_copy(*one) for one in asked] == [True, False, False, None, False]
    with pytest.raises(FileNotFoundError):
        storage.copy([("x/none", "w/none", 3)], "mine")
    with pytest.raises(FileNotFoundError):
        storage.read("x/none")
    assert [storage.delete("x"), storage.delete("x"), storage.delete("log/1")] == [True, False, True]
    assert (storage.names("x"), storage.files("x"), storage.exists("x")) == ([], {}, False)


def test_more_objects_than_one_answer_lists(storage_of, s3, tmp_path, monkeypatch):
    storage = storage_of(str(tmp_path))
    monkeypatch.setattr("sluice.sinks.files.s3.PAGE", 2)
    for i in range(5):
        s3.put(f"{tmp_path}/many/{i}".lstrip("/"), b"")
    asked = []
    monkeypatch.setattr(storage, "_list", partial(storage._list, most=2))
    monkeypatch.setattr(
        storage, "_pages", lambda *a: (asked.append(page) or page for page in S3Storage._pages(storage, *a))
    )
    assert len(storage.names("many")) == len(storage.files("many")) == 5
    assert len(asked) == 6
    assert storage.delete("many")
    assert storage.names("many") == []


def test_the_login_of_a_connection_is_of_its_bucket_alone(s3, s3_jvm, tmp_path):
    """Without any other; a role is assumed by asking for its login where the connection says."""
    keys = ConnectionSettings("c", "aws", login=s3.key, password=s3.secret, extra=s3.extra)
    role = {"role_arn": "arn:aws:iam::123456789012:role/lake", "assume_role_kwargs": {"DurationSeconds": 900}}
    with s3_jvm() as jvm:
        for name, of in (("keys", keys), ("role", replace(keys, extra={**s3.extra, **role}))):
            configuration = jvm.jvm.org.apache.hadoop.conf.Configuration(False)
            configuration.addResource("core-default.xml")
            configuration.setBoolean("fs.s3a.impl.disable.cache", True)
            for setting, value in s3a_settings(of, "lake").items():
                configuration.set(setting, value)
            storage = S3Storage(jvm.jvm, configuration, f"{s3.uri}{tmp_path}/{name}")
            storage.require_conditions("probe")
            assert s3.listing(f"{tmp_path}/{name}".lstrip("/")) == {"probe": 5}
    assert s3.was_asked_for_a_login()


def test_an_object_that_is_too_large_for_one_request_is_copied_in_parts(storage_of, s3, tmp_path, monkeypatch):
    storage = storage_of(str(tmp_path))
    monkeypatch.setattr("sluice.sinks.files.s3._COPIED_WHOLE", 6 << 20)
    monkeypatch.setattr("sluice.sinks.files.s3._COPIED_PART", 5 << 20)
    large, small = os.urandom(11 << 20), b"x" * (1 << 20)
    for name, content in (("large", large), ("small", small)):
        s3.put(f"{tmp_path}/{name}".lstrip("/"), content)
    storage.copy([("large", "w/large", len(large)), ("small", "w/small", len(small))], "mine")
    assert storage.is_copy("w/large", len(large), "mine")
    assert storage.is_copy("w/small", len(small), "mine")
    assert storage.read("w/large") == large
    parts = [storage.checksum(f"w/{name}").partition("-")[2] for name in ("large", "small")]
    assert parts == ["3", ""]


def test_an_object_store_that_ignores_conditions_is_refused(storage_of, tmp_path, monkeypatch):
    storage = storage_of(str(tmp_path))
    monkeypatch.setattr("sluice.sinks.files.s3._CONDITION", ("x-amz-meta-nothing", "*"))
    with pytest.raises(ActionRequiredError, match=r"though it was asked not to.+conditional writes"):
        storage.require_conditions("probe")


@pytest.mark.parametrize(
    ("root", "says"),
    [
        ("s3a://no-such-bucket/lake", r"path can't be used.+sink\.files\.path"),
        *also(("s3a://No_Bucket/x", "path can't")),
    ],
)
def test_a_wrong_bucket_needs_a_person(root, says, s3_jvm):
    with s3_jvm() as jvm, pytest.raises(ActionRequiredError, match=says):
        S3Storage(jvm.jvm, jvm.storage.unwrap(), root).require_conditions("probe")


class _OnAnObjectStore:
    """Folders of a test have the same paths in the bucket; processes die at each request that changes something."""

    calls = STEPS

    @pytest.fixture(autouse=True)
    def _on_s3(self, s3, s3_jvm, storage_of) -> None:
        self._s3, self._jvm, self._storage_of = s3, s3_jvm, storage_of

    def pipeline(self, folder: Path) -> Pipeline:
        path = f"{self._s3.uri}{folder}/table"
        files = Files(path=path, layout=self.layout, format="json", schema_="id BIGINT")
        return Pipeline(name="t", source=Source(kafka=Kafka(topics=("t",))), sink=Sink(files=files))

    def storage(self, folder: Path) -> S3Storage:
        return self._storage_of(f"{folder}/table")

    def capabilities(self):
        return Files(path=f"{self._s3.uri}/any", layout=self.layout).capabilities

    def rows(self, folder):
        base = f"{folder}/table".lstrip("/")
        texts = [self._s3.read(f"{base}/{path}").decode() for path in self.shown(base)]
        return [json.loads(line)["id"] for text in texts for line in text.splitlines()]

    def shown(self, base: str) -> list[str]:
        """What a reader takes for the table's files."""
        return [f"topics/{name}" for name in self._s3.listing(f"{base}/topics")]

    @pytest.mark.parametrize("planned", also(False, True))
    def test_a_commit_that_stands_still_at_any_look_is_refused_after_a_roll_back(self, tmp_path, monkeypatch, planned):
        """At each request of a commit the interval is rolled back by another process, and another one is loaded."""
        looks = ("create", "exists", "files", "read", "size")
        number = 0
        while True:
            folder = tmp_path / str(number)
            self._load(folder, 1, [1])
            with self._table(folder) as frozen, self._table(folder) as other:
                instant = frozen.new_instant()
                frozen.open(instant)
                written = self.write(folder, frozen, instant, "a", [2])
                if planned:
                    frozen.last_checkpoint()  # it has seen the number that comes next
                reached = _at_request(monkeypatch, frozen._storage, looks, number, partial(other.rollback, instant))
                committed = True
                try:
                    frozen.commit(instant, written, extra(2))
                except SluiceError:
                    committed = False
                monkeypatch.undo()
                if not reached:
                    assert committed
                    assert number > 5
                    return
                assert not committed, f"committed though it was rolled back before request {number}"
                assert other.state_of(instant) == "absent"
            self._load(folder, 2, [3])
            assert self._state(folder) == ([1, 3], 2)
            number += 1

    def test_the_number_of_an_interval_whose_commit_is_forbidden_is_taken_for_good(self, tmp_path):
        self._load(tmp_path, 1, [1])
        with self._table(tmp_path) as frozen, self._table(tmp_path) as table:
            instant = frozen.new_instant()
            frozen.open(instant)
            written = self.write(tmp_path, frozen, instant, "a", [2])
            assert table.forbid_commit(instant)
            assert instant in table.leftovers()
            assert table.rollback(instant)
            assert (table.state_of(instant), instant in table.leftovers()) == ("absent", False)
            with pytest.raises(SluiceError, match="has changed the table's log meanwhile"):
                frozen.commit(instant, written, extra(2))
        assert self._state(tmp_path) == ([1], 1)
        self._load(tmp_path, 2, [3])
        assert self._state(tmp_path) == ([1, 3], 2)
        entries = [Record.of_json(self.storage(tmp_path).read(f"_sluice/log/{n:010d}.json"), "") for n in (1, 2, 3)]
        assert [one.voids for one in entries] == ["", instant, ""]

    def test_what_another_process_has_committed_takes_no_further_number(self, tmp_path):
        """As a quarantine is committed, of which no checkpoint is read that a commit has to follow on."""
        with self._table(tmp_path) as first, self._table(tmp_path) as second:
            instant = first.new_instant()
            first.open(instant)
            written = self.write(tmp_path, first, instant, "a", [1])
            second.commit(instant, written, extra(1))
            with pytest.raises(SluiceError, match="has changed the table's log meanwhile"):
                first.commit(instant, written, extra(1))
            first.publish(instant)
        assert self.storage(tmp_path).names("_sluice/log") == ["0000000001.json"]
        assert self._state(tmp_path) == ([1], 1)

    def test_another_object_of_a_files_name_stays(self, tmp_path):
        with self._table(tmp_path) as table:
            instant = table.new_instant()
            table.open(instant)
            written = self.write(tmp_path, table, instant, "a", [1])
            table.commit(instant, written, extra(1))
            path = written[0].payload["files"][0]["path"]
            size = written[0].payload["files"][0]["bytes"]
            self._s3.put(f"{tmp_path}/table/{path}".lstrip("/"), b"x" * size)
            with pytest.raises(ActionRequiredError, match="can't be put in its place"):
                table.publish(instant)
            assert self.storage(tmp_path).read(path) == b"x" * size
            self.storage(tmp_path).delete(path)
            table.publish(instant)
        assert self._state(tmp_path) == ([1], 1)


class TestConnectLayout(_OnAnObjectStore, on_a_disk.TestConnectLayout):
    """Each object appears by itself."""

    @pytest.mark.parametrize("when", also("after", "before"))
    def test_a_process_may_die_at_each_call_of_an_interval(self, tmp_path, when):
        super().test_a_process_may_die_at_each_call_of_an_interval(tmp_path, when)

    @pytest.mark.thorough
    @pytest.mark.parametrize("when", ["after", "before"])
    def test_a_process_may_die_at_each_call_of_a_roll_back(self, tmp_path, when):
        super().test_a_process_may_die_at_each_call_of_a_roll_back(tmp_path, when)


@pytest.mark.thorough
class TestIntervalLayout(_OnAnObjectStore, on_a_disk.TestIntervalLayout):
    """An interval of two objects: who goes by the marks sees both or neither, at whatever request a process dies."""

    def shown(self, base):
        marks = [self._s3.read(f"{base}/{COMMITTED}/{name}") for name in self._s3.listing(f"{base}/{COMMITTED}")]
        return [path for mark in marks for path in json.loads(mark)["paths"]]


def _at_request(patch, storage, names, number, act) -> list[bool]:
    """Before the request of that number, of one process's storage, something happens; whether it came to that."""
    left, reached = number, []

    def before(real):
        def call(*args, **kwargs):
            nonlocal left
            if left == 0 and not reached:
                reached.append(True)
                act()
            left -= 1
            return real(*args, **kwargs)

        return call

    for name in names:
        patch.setattr(storage, name, before(getattr(storage, name)), raising=False)
    return reached


def test_entries_that_stand_for_no_interval_are_passed_over(tmp_path):
    """An older interval may be rolled back after a later one was committed: the order of the log stays."""
    storage = LocalStorage(tmp_path)
    storage.make_folder("_sluice/log")
    entries = [Record("10", "connect", "json", "", 1), Record.void("12", "12"), Record("15", "connect", "json", "", 1),
               Record.void("15", "11"), Record.void("15", "13"), Record("18", "connect", "json", "", 1)]  # fmt: skip
    for number, record in enumerate(entries, 1):
        storage.create(log_entry(number), record.to_json())
    log = IntervalLog(storage)
    found = {instant: log.find(instant) for instant in ("10", "11", "12", "13", "15", "16", "18", "19")}
    assert {k: v[0] for k, v in found.items() if v} == {"10": 1, "15": 3, "18": 6}
    assert [number for number, _ in log.newest_first()] == [6, 3, 1]


# Whole intervals


class S3Flow(FileFlow):
    """One pipeline whose files lie in a bucket."""

    def __init__(self, s3: LocalS3, *args, **settings) -> None:
        super().__init__(*args, **{"sink__files__layout": "connect", **settings})
        self._s3 = s3
        self.base = str(self.path).lstrip("/")
        self.set(sink__files__path=f"{s3.uri}{self.path}")

    def objects(self) -> dict[str, int]:
        return self._s3.listing(f"{self.base}/topics")

    def rows(self, *, metadata: bool) -> Counter[tuple[int, str]]:
        found = (self._s3.read(f"{self.base}/topics/{name}") for name in self.objects())
        return Counter(pair for content in found for pair in rows_in(content))

    def log(self):
        names = sorted(self._s3.listing(f"{self.base}/_sluice/log"))
        found = (json.loads(self._s3.read(f"{self.base}/_sluice/log/{name}")) for name in names)
        return [one for one in found if "voids" not in one]

    def left(self) -> list[str]:
        """What lies in Sluice's own folder beside the log."""
        names = self._s3.listing(f"{self.base}/_sluice")
        return sorted(name for name in names if not name.startswith(("log/", "committed/")) and name != "conditional")

    def committed(self) -> list[int]:
        return sorted(map(int, self._s3.listing(f"{self.base}/_sluice/committed")))


@pytest.fixture
def make_files(s3, tmp_path, bootstrap, s3_jvm, s3_drivers, topic_name):
    def make(partitions: int = 2, **settings) -> S3Flow:
        flow = S3Flow(s3, tmp_path, bootstrap, s3_jvm, s3_drivers, topic_name("t"), **settings)
        flow.create_topic(partitions)
        return flow

    return make


@pytest.mark.thorough
def test_records_of_topics_are_staged_on_s3_and_sent_from_there(
    s3, tmp_path, bootstrap, s3_jvm, s3_drivers, topic_name, monkeypatch
):
    for variable, value in target_environment(bootstrap).items():
        monkeypatch.setenv(variable, value)
    flow = Flow(tmp_path, bootstrap, s3_jvm, s3_drivers, topic_name("t"))
    flow.create_topic(2)
    topics = topics_of(flow, bootstrap, section={"staging": f"{s3.uri}{tmp_path}/staging"})
    flow.produce(20)
    started = flow.start()
    flow.write_all(started)
    with s3_jvm() as jvm:
        storage = S3Storage(jvm.jvm, jvm.storage.unwrap(), f"{s3.uri}{tmp_path}/staging")
        assert storage.files(started.instant) != {}
        step = flow.step(
            "commit", "--control-offset", str(started.control_offset), failpoint="kafka.before_commit_transaction=kill"
        )
        assert step.killed, step.err
        flow.commit(started)
        assert storage.files(started.instant) == {}
    topics.check()


def _settled(flow: S3Flow) -> None:
    assert flow.rows(metadata=False) == Counter((s.id, s.value) for s in flow.sent)
    assert flow.left() == []
    assert len(flow.committed()) == len(flow.log())


class _Lister(threading.Thread):
    def __init__(self, flow: S3Flow) -> None:
        super().__init__(daemon=True)
        self._flow, self._end = flow, threading.Event()
        self.seen: list[frozenset[tuple[str, int]]] = []

    def run(self) -> None:
        while not self._end.wait(0.005):
            found = frozenset(self._flow.objects().items())
            if not self.seen or self.seen[-1] != found:
                self.seen.append(found)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_) -> None:
        self._end.set()
        self.join()


POINTS = ["before_publish_1", "before_log", "before_publish_0", "before_committed_mark"]


@pytest.mark.thorough
@pytest.mark.parametrize("point", POINTS)
def test_killed_between_two_steps_while_a_reader_lists(make_files, s3, point):
    flow = make_files()
    with _Lister(flow) as reader:
        outputs = []
        for number in range(2):
            flow.produce(20)
            started = flow.start()
            flow.write_all(started)
            commit = ("commit", "--control-offset", str(started.control_offset))
            step = flow.step(*commit, failpoint=f"sink.{point}=kill")
            assert step.killed, step.err
            assert len(flow.log()) == number + (0 if point == "before_log" else 1)
            if number:
                flow.interval_is_empty()  # its START goes on with the commit
            else:
                again = flow.step(*commit)
                assert again.status == 0, again.err
                outputs.append(again.out + again.err)
            outputs.append(step.out + step.err)
            _settled(flow)
    sizes = flow.objects()
    assert len(reader.seen) > 2
    for listing in reader.seen:
        assert all(sizes[name] == size for name, size in listing)
    for earlier, later in pairwise(reader.seen):
        assert earlier <= later, "an object that was visible went"
    logs = [*outputs, *(file.read_text() for file in flow.folder.glob("*.log"))]
    assert not any(s3.secret in text for text in logs)


@pytest.mark.thorough
def test_a_commit_that_stands_still_before_the_log_is_refused_after_an_abort(make_files):
    flow = make_files(control__commit_timeout="2 seconds", control__clock_wait="1 second")
    flow.produce(20)
    run = flow.run()
    started = flow.start(run)
    flow.write_all(started)
    frozen, committing = flow.frozen_commit(started, "sink.before_log")
    assert once_the_lease_is_free(lambda: flow.abort(run)).state == "aborted"
    frozen.release()
    late = finish(committing)
    assert late.status != 0
    assert (flow.log(), flow.objects()) == ([], {})
    flow.interval()
    _settled(flow)


@pytest.mark.thorough
def test_a_zombie_makes_nothing_visible_and_is_swept_up(make_files):
    flow = make_files()
    flow.produce(40)
    run = flow.run()
    zombie = flow.zombie(flow.start(run))
    assert flow.abort(run).state == "aborted"
    zombie.write()
    assert flow.left() != [], "the zombie wrote nothing, so this test shows nothing"
    assert flow.objects() == {}
    zombie.hear()
    flow.interval()
    _settled(flow)


# Bad records


def _quarantined(s3: LocalS3, base: str) -> list[dict[str, Any]]:
    """The rows of a reader who lists the bucket and knows nothing of Sluice."""
    found = s3.listing(f"{base}_quarantine/topics")
    files = [s3.read(f"{base}_quarantine/topics/{name}") for name in sorted(found)]
    return [row for file in files for row in pq.read_table(BytesIO(file)).to_pylist()]


@pytest.fixture(scope="module")
def own_processes(s3, tmp_path_factory) -> Iterator[tuple[Drivers, SharedJvm]]:
    """A driver and a JVM with the settings of an Airflow connection, started when a test asks for them first."""
    settings = ConnectionSettings("lake", "aws", login=s3.key, password=s3.secret, extra=s3.extra)
    drivers, jvm = Drivers(tmp_path_factory.mktemp("drivers")), SharedJvm(s3a_settings(settings, "lake"))
    yield drivers, jvm
    drivers.close()
    jvm.close()


@pytest.fixture
def set_aside(s3, tmp_path, bootstrap, own_processes, topic_name, monkeypatch) -> Iterator[SetAside]:
    """A pipeline with bad records, whose coordinator, drivers and readers reach the bucket by a connection alone."""
    for variable in ("HADOOP_CONF_DIR", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", PRIVATE):
        monkeypatch.delenv(variable, raising=False)
    fields = {"conn_type": "aws", "login": s3.key, "password": s3.secret, "extra": s3.extra}
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps(fields))
    drivers, jvm = own_processes
    settings = {"sink__files__connection": "lake", "write__ranges": 2, "errors__tolerance": "all"}
    flow = S3Flow(s3, tmp_path, bootstrap, jvm, drivers, topic_name("t"), sink__files__layout="interval", **settings)
    flow.create_topic(2)
    given = {
        **private_settings_of(flow.pipeline).to_environment(),
        **to_environment(source_connections(flow.pipeline.own_connections)),
        **kafka_settings(bootstrap).to_environment("source"),
    }
    for variable, value in given.items():
        monkeypatch.setenv(variable, value)
    columns = ("kafka_partition", "kafka_offset", "kafka_value", "reason", "instant")

    def rows() -> list[tuple[Any, ...]]:
        base = f"{flow.base}_quarantine/topics"
        files = [s3.read(f"{base}/{name}") for name in sorted(s3.listing(base))]
        found = [row for file in files for row in pq.read_table(BytesIO(file)).to_pylist()]
        return [tuple(row[c] for c in columns) for row in found]

    with read_by_arrow() as reader:
        yield SetAside(flow, rows, lambda: flow.rows(metadata=False))
        assert set(reader.logins) <= {s3.key}
    texts = [file.read_text() for file in flow.folder.glob("*.log")]
    texts += [message.model_dump_json() for message in flow.messages()]
    assert not any(s3.secret in text for text in texts)


@pytest.mark.thorough
def test_bad_records_are_set_aside_listed_explained_and_sent_again(set_aside):
    listed_explained_and_sent_again(set_aside)
    assert ArrowS3.logins, "nobody has read the quarantine by the connection"


@pytest.mark.thorough
def test_verify_reads_the_bucket_by_the_connection(set_aside):
    flow = set_aside.flow
    flow.produce(20)
    flow.interval()
    set_aside.bad(0)
    flow.produce(10)
    flow.interval()
    assert numbers(told(flow)) == [(20, 20, True), (10, 10, True)]


@pytest.mark.thorough
def test_a_hudi_table_has_its_bucket_by_a_connection(set_aside, s3, tmp_path):
    flow = set_aside.flow
    hudi = {"path": f"{s3.uri}{tmp_path}/hudi", "schema": DDL, "connection": "lake"}
    flow.set(sink__files=None, sink__hudi=hudi, errors__tolerance=None)
    flow.produce(20)
    flow.interval()
    flow.produce(10)
    flow.interval()
    with read_by_arrow():
        found = TimelineFiles(hudi["path"]).read()
    assert found is not None
    assert len(found.instants) == 2


@pytest.mark.thorough
@pytest.mark.parametrize("point", KILLS)
def test_killed_between_the_files_commit_and_their_bad_records(set_aside, s3, point):
    killed(set_aside, point)
    left = s3.listing(f"{set_aside.flow.base}_quarantine/_sluice")
    assert not [name for name in left if name[0].isdigit()]


@pytest.mark.thorough
def test_bad_records_are_committed_by_another_while_the_first_stands_still(set_aside):
    committed_by_another(set_aside)


@pytest.mark.parametrize("when", ["after", *also("before")])
def test_a_process_may_die_at_each_request_of_a_commit_of_bad_records(s3, s3_jvm, storage_of, tmp_path, when):
    """Whoever finishes the interval does it all again, and the records are set aside once."""
    number = 0
    while True:
        number += 1
        path = f"{tmp_path}/{number}"
        files = Files(path=f"{s3.uri}{path}", layout="interval", format="json", schema_="id BIGINT")
        pipeline = Pipeline(name="t", source=Source(kafka=Kafka(topics=("t",))), sink=Sink(files=files))
        staging = storage_of(f"{path}_quarantine")
        instant, note = "20261124100000000", {TRANSACTION_KEY: json.dumps({"instant": "i", "table": files.path})}
        own = f"_sluice/{instant}/a/0"
        made = []
        for one in range(2):
            staged = f"{own}/{one}.parquet"
            staging.create(staged, b"bad")
            made.append(DataFile(staged, f"topics/{instant}/0/t/{one}.parquet", 3, staging.checksum(staged)))
        written = [committable(own, "interval", made, 2)]

        def finish_interval(pipeline=pipeline, instant=instant, written=written, note=note) -> None:
            sink = FilesSink(pipeline, s3_jvm)
            with sink.open() as table:
                quarantine = sink.open_quarantine(table, sink.pin_quarantine(table, table.writer))
                if quarantine.state_of(instant) != "completed":
                    quarantine.open(instant)
                    quarantine.commit(instant, written, note)
                quarantine.publish(instant)

        with dying(STEPS, number, when) as died:
            finish_interval()
        finish_interval()
        base = f"{path}_quarantine".lstrip("/")
        assert list(s3.listing(f"{base}/topics")) == [one.path.removeprefix("topics/") for one in made]
        assert list(s3.listing(f"{base}/_sluice/log")) == ["0000000001.json"]
        assert not [name for name in s3.listing(f"{base}/_sluice") if name.startswith(("pending/", "2"))]
        if not died:
            assert number > 8
            return


@pytest.mark.thorough
def test_an_interval_by_the_commands_of_the_product(make_files, s3):
    """Each step a process of its own, with the login that the Spark connection has, and none of AWS's own variables."""
    flow = make_files(sink__files__format="json", sink__files__codec="none")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("AWS_ACCESS_KEY_ID")
        patch.delenv("AWS_SECRET_ACCESS_KEY")
        flow.produce(40)
        started = flow.step("start", "--run-id", "first").started()
        job = flow.write_alone(started)
        job.succeed()
        committed = flow.step("commit", "--control-offset", str(started.control_offset))
    assert committed.status == 0, committed.err
    assert len(flow.objects()) == 2
    assert s3.secret not in job.text() + committed.out + committed.err
