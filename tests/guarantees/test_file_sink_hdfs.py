"""The file sink on a real HDFS: the steps that it rests on, `sluice.testing` killed at each, and whole intervals."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from sluice.errors import ActionRequiredError
from sluice.pipeline import Kafka, Pipeline, Sink, Source
from sluice.sinks.files.hadoop import HadoopStorage
from sluice.sinks.files.options import Files
from sluice.sinks.files.s3 import S3Storage

from ..thorough import also
from . import test_file_sink_conformance as on_a_disk
from .harness import Pause, finish
from .harness.files import FileFlow, rows_in
from .quarantined import consume

STEPS = tuple((HadoopStorage, name) for name in ("create", "delete", "make_folder", "rename"))


@pytest.fixture
def storage_of(hdfs, shared_jvm) -> Iterator[Callable[[str], HadoopStorage]]:
    with shared_jvm() as jvm:
        yield lambda path: HadoopStorage(jvm.jvm, jvm.storage.unwrap(), f"{hdfs.uri}{path}")


def test_the_steps_of_a_commit(storage_of, tmp_path):
    storage = storage_of(str(tmp_path))
    with pytest.raises(FileNotFoundError):
        storage.create("log/1", b"one")
    storage.make_folder("log")
    storage.make_folder("log")
    for name in ("a", "b"):
        storage.create(f"log/{name}", name.encode())
    with pytest.raises(FileExistsError):
        storage.create("log/a", b"two")
    with pytest.raises(FileExistsError):
        storage.rename("log/a", "log/b")
    with pytest.raises(FileNotFoundError):
        storage.rename("log/c", "log/d")
    storage.make_folder("x/y")
    storage.create("x/y/f", b"abc")
    storage.create("x/_hidden", b"")
    storage.make_folder("z/y")
    with pytest.raises(FileExistsError):  # FileSystem.rename would put it inside
        storage.rename("x", "z")
    assert storage.files("x") == {"y/f": 3}
    assert storage.names("x") == ["_hidden", "y"]
    storage.rename("x", "w")
    assert storage.read("w/y/f") == b"abc"
    assert [storage.size(path) for path in ("w/y/f", "w", "x")] == [3, None, None]
    assert storage.checksum("w/y/f").startswith("md5-of-")
    assert storage.checksum("w/y/f") != storage.checksum("log/a")
    assert (storage.names("x"), storage.files("x"), storage.exists("x")) == ([], {}, False)
    assert [storage.delete("w"), storage.delete("w")] == [True, False]
    assert storage.read("log/b") == b"b"


def test_a_wrong_address_needs_a_person(shared_jvm):
    with shared_jvm() as jvm, pytest.raises(ActionRequiredError, match=r"path can't be used.+sink\.files\.path"):
        HadoopStorage(jvm.jvm, jvm.storage.unwrap(), "hdfs://no-such-host.invalid:1/lake").exists("log")


def test_without_hadoops_jars_for_s3_it_says_which(shared_jvm):
    with shared_jvm() as jvm, pytest.raises(ActionRequiredError, match=r"hadoop-aws 3\.3\.4"):
        S3Storage(jvm.jvm, jvm.storage.unwrap(), "s3a://lake/x")


class _OnHdfs:
    """Folders of a test have the same paths on HDFS."""

    calls = STEPS

    @pytest.fixture(autouse=True)
    def _on_hdfs(self, hdfs, storage_of) -> None:
        self._uri, self._storage_of = hdfs.uri, storage_of

    def pipeline(self, folder: Path) -> Pipeline:
        path = f"{self._uri}{folder}/table"
        files = Files(path=path, layout=self.layout, format="json", schema_="id BIGINT")
        return Pipeline(name="t", source=Source(kafka=Kafka(topics=("t",))), sink=Sink(files=files))

    def storage(self, folder: Path) -> HadoopStorage:
        return self._storage_of(f"{folder}/table")

    def capabilities(self):
        return Files(path="/any", layout=self.layout).capabilities

    def rows(self, folder):
        storage = self.storage(folder)
        texts = [storage.read(f"topics/{name}").decode() for name in storage.files("topics")]
        return [json.loads(line)["id"] for text in texts for line in text.splitlines()]


@pytest.mark.thorough  # `make test` has it on a disk
class TestIntervalLayout(_OnHdfs, on_a_disk.TestIntervalLayout):
    # A step that had no effect is one that was never made: on the disk both are tried, for less CPU.
    @pytest.mark.parametrize("when", ["after"])
    def test_a_process_may_die_at_each_call_of_an_interval(self, tmp_path, when):
        super().test_a_process_may_die_at_each_call_of_an_interval(tmp_path, when)

    @pytest.mark.parametrize("when", ["after"])
    def test_a_process_may_die_at_each_call_of_a_roll_back(self, tmp_path, when):
        super().test_a_process_may_die_at_each_call_of_a_roll_back(tmp_path, when)


@pytest.mark.parametrize("layout", ["interval", *also("connect")])
def test_intervals_of_a_real_spark_killed_while_they_are_published(
    layout, hdfs, storage_of, tmp_path, bootstrap, shared_jvm, drivers, topic_name
):
    flow = FileFlow(tmp_path, bootstrap, shared_jvm, drivers, topic_name("t"), sink__files__layout=layout)
    path = str(tmp_path / "lake")
    flow.set(sink__files__path=f"{hdfs.uri}{path}")
    flow.create_topic(2)
    storage = storage_of(path)

    def rows() -> Counter:
        found = (storage.read(f"topics/{name}") for name in storage.files("topics"))
        return Counter(pair for content in found for pair in rows_in(content))

    for point in ("before_log", "before_publish_1"):
        flow.produce(20)
        started = flow.start()
        flow.write_all(started)
        commit = ("commit", "--control-offset", str(started.control_offset))
        step = flow.step(*commit, failpoint=f"sink.{point}=kill")
        assert step.killed, step.err
        assert len(rows()) % 20 == (10 if (layout, point) == ("connect", "before_publish_1") else 0)
        again = flow.step(*commit)
        assert again.status == 0, again.err
        assert rows() == Counter((s.id, s.value) for s in flow.sent)
    flow.interval_is_empty()
    assert storage.names("_sluice/committed") == ["0000000001", "0000000002"]
    assert [storage.names(f"_sluice/{name}") for name in ("pending", "aborting")] == [[], []]
    if layout == "interval":
        _compared_and_set_aside(flow, storage_of(f"{path}_quarantine"))


def _compared_and_set_aside(flow: FileFlow, quarantine: HadoopStorage) -> None:
    """Bad records are on HDFS, too, and dead letters are read from there; what is loaded is compared."""
    flow.set(errors__tolerance="all", errors__dead_letter_topic=f"{flow.topic}-dead")
    flow.produce(10)
    bad = flow.produce_raw(b"{", partition=0)
    flow.interval()
    (name,) = quarantine.files("topics")
    rows = pq.read_table(BytesIO(quarantine.read(f"topics/{name}"))).to_pylist()
    assert [(row["kafka_offset"], row["kafka_value"]) for row in rows] == [(bad, b"{")]
    assert [record.value() for record in consume(flow, f"{flow.topic}-dead")] == [b"{"]
    verified = json.loads(flow.verify("--json").stdout)
    assert [(i["in_topic"], i["in_table"], i["same"]) for i in verified["intervals"]] == [
        (20, 20, True), (20, 20, True), (10, 10, True)
    ]  # fmt: skip


@pytest.mark.thorough
def test_records_of_topics_are_staged_on_hdfs_and_sent_from_there(hdfs, storage_of, tmp_path, make_topics):
    topics = make_topics(section={"staging": f"{hdfs.uri}{tmp_path}/staging"})
    topics.flow.produce(20)
    started = topics.flow.start()
    topics.flow.write_all(started)
    storage = storage_of(f"{tmp_path}/staging")
    assert storage.files(started.instant) != {}
    step = topics.flow.step(
        "commit", "--control-offset", str(started.control_offset), failpoint="kafka.before_commit_transaction=kill"
    )
    assert step.killed, step.err
    topics.flow.commit(started)
    topics.check()
    assert storage.files(started.instant) == {}


# Trouble: each has one clear message, and nothing is half there


class HdfsFlow(FileFlow):
    """One pipeline whose files lie on HDFS."""

    def __init__(self, storage_of, uri: str, *args, **settings) -> None:
        super().__init__(*args, **settings)
        self.storage = storage_of(str(self.path))
        self.set(sink__files__path=f"{uri}{self.path}")

    def rows(self, *, metadata: bool) -> Counter[tuple[int, str]]:
        found = (self.storage.read(f"topics/{name}") for name in self.storage.files("topics"))
        return Counter(pair for content in found for pair in rows_in(content))

    def loaded(self) -> None:
        """All records are there once, and nothing is under way."""
        assert self.rows(metadata=False) == Counter((s.id, s.value) for s in self.sent)
        assert [self.storage.names(f"_sluice/{name}") for name in ("pending", "aborting")] == [[], []]
        numbers = self.storage.names("_sluice/log")
        assert [f"{name}.json" for name in self.storage.names("_sluice/committed")] == numbers
        marks = [json.loads(self.storage.read(f"_sluice/committed/{n.removesuffix('.json')}")) for n in numbers]
        assert sum(mark["rows"] for mark in marks) == len(self.sent)


@pytest.fixture
def on_hdfs(hdfs, storage_of, tmp_path, bootstrap, shared_jvm, drivers, topic_name):
    flow = HdfsFlow(storage_of, hdfs.uri, tmp_path, bootstrap, shared_jvm, drivers, topic_name("t"))
    flow.create_topic(2)
    flow.produce(20)
    flow.interval()
    return flow


@pytest.fixture
def admin(hdfs, shared_jvm):
    """The name node as an administrator has it."""
    with shared_jvm() as jvm:
        uri = jvm.jvm.java.net.URI.create(hdfs.uri)
        yield jvm.jvm.org.apache.hadoop.fs.FileSystem.get(uri, jvm.storage.unwrap())


_NO_QUOTA = -1  # HdfsConstants.QUOTA_RESET
_AS_IT_IS = 9223372036854775807  # HdfsConstants.QUOTA_DONT_SET


def test_a_full_quota_is_named_by_the_write_job_and_by_the_commit(on_hdfs, admin, shared_jvm):
    flow = on_hdfs
    with shared_jvm() as jvm:
        folder = jvm.jvm.org.apache.hadoop.fs.Path(str(flow.path))
    flow.produce(20)
    run = flow.run()
    started = flow.start(run)
    before = flow.rows(metadata=False)
    admin.setQuota(folder, _AS_IT_IS, 1)  # dfsadmin -setSpaceQuota
    job = flow.write(started)
    assert job.wait() == 1
    assert "file system is full, or a quota of it is" in job.text()
    admin.setQuota(folder, _AS_IT_IS, _NO_QUOTA)
    flow.write_all(started)
    admin.setQuota(folder, 1, _AS_IT_IS)  # dfsadmin -setQuota: no further name
    with pytest.raises(ActionRequiredError, match="file system is full, or a quota of it is"):
        flow.commit(started)
    admin.setQuota(folder, _NO_QUOTA, _AS_IT_IS)
    assert flow.rows(metadata=False) == before
    flow.commit(started)
    flow.loaded()


@pytest.mark.thorough
def test_without_rights_it_says_whose_are_missing(on_hdfs, admin):
    flow = on_hdfs
    flow.produce(20)
    started = flow.start()
    flow.write_all(started)
    flow.secret_environment = {"HADOOP_USER_NAME": "somebody"}
    step = flow.step("commit", "--control-offset", str(started.control_offset))
    assert step.status != 0
    assert "No permission on the table's folder" in step.out + step.err
    flow.secret_environment = {}
    flow.commit(started)
    flow.loaded()


@pytest.mark.thorough
def test_a_file_that_a_dead_client_has_open_holds_nothing_up(on_hdfs, admin, shared_jvm):
    """HDFS keeps its lease for an hour: commit and roll-back don't touch it, but by deleting it."""
    flow = on_hdfs
    flow.produce(20)

    def left_open(instant: str) -> str:
        path = f"_sluice/{instant}/dead/part-0.avro"
        with shared_jvm() as jvm:
            stream = admin.create(jvm.jvm.org.apache.hadoop.fs.Path(f"{flow.path}/{path}"))
            stream.write(b"half")
            stream.hflush()
        return path

    run = flow.run()
    started = flow.start(run)
    path = left_open(started.instant)
    assert flow.storage.exists(path)
    flow.abort(run)
    assert not flow.storage.exists(path)
    started = flow.start()
    path = left_open(started.instant)
    flow.write_all(started)
    flow.commit(started)
    assert not flow.storage.exists(path)
    flow.loaded()


@pytest.mark.thorough  # each call waits for the name node for ten seconds
def test_a_name_node_that_goes_away_is_named_and_the_interval_goes_on_when_it_is_back(hdfs, on_hdfs):
    flow = on_hdfs
    flow.produce(20)
    started = flow.start()
    for step in ("participant.before_write", "sink.before_log", "sink.before_publish_1"):
        pause = Pause(step, flow.folder)
        commit = ("commit", "--control-offset", str(started.control_offset))
        of_job = step.startswith("participant")
        running = (
            flow.write_alone(started, 0, pause.failpoint) if of_job else flow.spawn(*commit, failpoint=pause.failpoint)
        )
        pause.wait(running)
        hdfs.stop()
        pause.release()
        if of_job:
            assert running.wait() != 0
            assert "Connection refused" in running.text()
        else:
            ended = finish(running)
            assert ended.status != 0
            assert "file system doesn't answer" in ended.out + ended.err
        hdfs.start()
        if of_job:
            flow.write_all(started)
    assert flow.step(*commit).status == 0
    flow.loaded()
