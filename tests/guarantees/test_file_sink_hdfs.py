"""The file sink on a real HDFS: the steps that it rests on, `sluice.testing` killed at each, and whole intervals."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.hdfs import LocalHdfs, ensure_hdfs

from sluice.errors import ActionRequiredError
from sluice.pipeline import Kafka, Pipeline, Sink, Source
from sluice.sinks.files.hadoop import HadoopStorage
from sluice.sinks.files.options import Files

from ..thorough import also
from . import test_file_sink_conformance as on_a_disk
from .harness.files import FileFlow, rows_in
from .quarantined import consume

STEPS = tuple((HadoopStorage, name) for name in ("create", "delete", "make_folder", "rename"))


@pytest.fixture(scope="module")
def hdfs(home, tmp_path_factory) -> Iterator[LocalHdfs]:
    with LocalHdfs(ensure_hdfs(home), tmp_path_factory.mktemp("hdfs")) as running:
        yield running


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
