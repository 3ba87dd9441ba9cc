"""Files keep what `sluice.testing` asks of every source: the same offsets are the same lines, or the same rows."""

from __future__ import annotations

from itertools import count

import pytest
from confluent_kafka.admin import AdminClient

from sluice.connectors.data import PINNED_TYPE
from sluice.kafka.transactional import TransactionalSender
from sluice.protocol.offsets import Checkpoint
from sluice.sources.files import source as files
from sluice.sources.files.log import Appending, ensure_log
from sluice.sources.files.options import FORMAT, FilesOfFolder
from sluice.sources.files.reader import FilesReader
from sluice.sources.files.source import FilesSource
from sluice.testing import SourceConformance

from .harness import wait_for
from .harness.processes import kafka_settings
from .row_files import FORMATS

pytestmark = [
    pytest.mark.kafka,
    # PySpark leaves it to the garbage collector to close the socket that rows came by.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]


class Starting(FilesSource):
    """The source as a START has it: each look adds the folder's new files to the log."""

    def state(self, topics, window_end, window_start=None, *, max_future=None, checkpoint=None):
        known = checkpoint or Checkpoint()
        return super().state(topics, window_end, window_start, max_future=max_future, checkpoint=known)


class OfFiles(SourceConformance):
    """A folder of a disk, with its log on a real broker, read by Spark's own readers."""

    form = "text"
    own_headers = True
    # What a START does with Kafka, and between its looks at the folder.
    calls = (
        (files, "ensure_log"), (files, "entries"), (files, "whole_file"), (Appending, "append"),
        (TransactionalSender, "send"), (TransactionalSender, "take_anew"),
    )  # fmt: skip

    @pytest.fixture(autouse=True)
    def _on_the_broker(self, bootstrap, spark, topic_name, tmp_path):
        self._settings, self._spark = kafka_settings(bootstrap), spark
        self._log = topic_name("files")
        self._numbers = count()
        (tmp_path / "in").mkdir()

    def topics(self, folder):
        ensure_log(self._settings, self._log, 1)
        return (self._log,)

    def source(self, folder):
        return Starting(self._section(folder), self._settings)

    def reader(self, folder):
        return FilesReader(self._spark, self._settings)

    def capabilities(self):
        return FilesOfFolder(path="/any", log="any", format=self.form).capabilities

    def add(self, folder, topic, records):
        self.put(folder, f"{next(self._numbers):05}", b"".join(one.value + b"\n" for one in records))

    def put(self, folder, name, content):
        """A file that appears whole."""
        new = folder / "in" / f"{name}.tmp"
        new.write_bytes(content)
        new.rename(new.with_suffix(""))

    def make_again(self, folder, topic):
        admin = AdminClient({"bootstrap.servers": self._settings.bootstrap_servers, "log_level": 0})
        admin.delete_topics([topic])[topic].result(60)
        wait_for(lambda: topic not in admin.list_topics(timeout=10).topics, "the log to go", pause=0.1)
        self.empty(folder)
        ensure_log(self._settings, topic, 1)

    def empty(self, folder):
        for file in (folder / "in").iterdir():
            file.unlink()

    def path(self, folder):
        """The folder, as a pipeline file names it."""
        return str(folder / "in")

    def _section(self, folder):
        return FilesOfFolder(path=self.path(folder), log=self._log, min_age="0 seconds", format=self.form)


class TestLines(OfFiles):
    """Each line is a record."""


class TestRowsOfParquet(OfFiles):
    """Each row is a record."""

    form = "parquet"
    value_type = "struct<v:string>"

    def reader(self, folder):
        wanted = self._spark._jvm.org.apache.spark.sql.types.StructType.fromDDL("v STRING").json()
        return super().reader(folder).pinned({FORMAT: self.form, PINNED_TYPE: wanted})

    def add(self, folder, topic, records):
        rows = [{"v": one.value.decode()} for one in records]
        self.put(folder, f"{next(self._numbers):05}", FORMATS[self.form]({"v": "STRING"}, rows))

    def said(self, value):
        return value["v"].encode()


@pytest.mark.thorough
class TestRowsOfAvro(TestRowsOfParquet):
    """Likewise."""

    form = "avro"


@pytest.mark.thorough
class TestLinesOnHdfs(OfFiles):
    """The test's folder has the same path on HDFS."""

    @pytest.fixture(autouse=True)
    def _on_hdfs(self, hdfs, shared_jvm, tmp_path):
        self._jvm, self._uri = shared_jvm, f"{hdfs.uri}{tmp_path}/in"
        with shared_jvm() as jvm:
            self._hadoop = jvm.jvm.org.apache.hadoop.fs
            at = self._hadoop.Path(self._uri)
            self._files = at.getFileSystem(jvm.storage.unwrap())
            self._files.mkdirs(at)
            yield

    def path(self, folder):
        return self._uri

    def source(self, folder):
        made = super().source(folder)
        made.use_jvm(self._jvm)
        return made

    def put(self, folder, name, content):
        stream = self._files.create(self._hadoop.Path(f"{self._uri}/{name}"))
        stream.write(content)
        stream.close()

    def empty(self, folder):
        assert self._files.delete(self._hadoop.Path(self._uri), True)
        self._files.mkdirs(self._hadoop.Path(self._uri))
