"""What a Hudi table's later steps need is missed at START: packages, and what only its first interval waits for."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zipfile import ZipFile

import pytest
from fsspec.implementations.local import LocalFileSystem

from sluice import runtime
from sluice.errors import ActionRequiredError, RetryableError
from sluice.pipeline import Hudi, Kafka, Pipeline, Sink, Source, Write
from sluice.records.settings import Errors
from sluice.sinks.hudi.sink import HudiSink
from sluice.sinks.reading import require_readable, require_reader

LETTERS = Errors(tolerance="all", dead_letter_topic="dead")


@pytest.fixture(autouse=True)
def jars(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of Spark's jars, with S3A's among them."""
    folder = tmp_path_factory.mktemp("jars") / "spark"
    folder.mkdir()
    for name in ("SPARK_HOME", "SPARK_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SLUICE_JARS", str(folder.parent))
    monkeypatch.setattr(runtime, "spark_jars", list)
    with ZipFile(folder / "hadoop-aws.jar", "w") as made:
        made.writestr("org/apache/hadoop/fs/s3a/S3AFileSystem.class", b"")
    with ZipFile(folder / "another.jar", "w") as made:
        made.writestr("Another.class", b"")
    return folder


def look(path: str, errors: Errors | None = None, *, first: bool = False, conf: dict[str, str] | None = None) -> None:
    hudi = Hudi(path=path, schema_="id BIGINT")
    pipeline = Pipeline(
        name="t",
        source=Source(kafka=Kafka(topics=("t",))),
        sink=Sink(hudi=hudi),
        errors=errors or Errors(),
        write=Write(conf=conf or {}),
    )
    table: Any = SimpleNamespace(jvm=None)
    HudiSink(pipeline).look_ahead(table, first=first)


def test_without_s3fs_a_pipeline_with_dead_letters_begins_no_interval():
    assert importlib.util.find_spec("s3fs") is None, "the packages of tests have it now: give this test another one"
    with pytest.raises(ActionRequiredError, match=r"no package for this file system.+'sluice\[s3\]'"):
        look("s3a://lake/t", LETTERS)
    look("s3a://lake/t")
    look("s3a://lake/t", Errors(tolerance="all"))


def test_without_libhdfs_it_is_said_what_to_install(tmp_path, monkeypatch):
    def fails(*_: Any, **__: Any) -> None:
        raise OSError("Unable to load libhdfs: libhdfs.so: cannot open shared object file")

    monkeypatch.setattr(LocalFileSystem, "ls", fails)
    with pytest.raises(ActionRequiredError, match="ARROW_LIBHDFS_DIR"):
        require_readable(f"file://{tmp_path}/t", "sink.hudi.path", "looking")


def test_a_bucket_that_the_coordinator_alone_would_reach_is_said(jars):
    look("s3a://lake/t")
    (jars / "hadoop-aws.jar").unlink()
    with pytest.raises(ActionRequiredError, match=r"S3A is not on the class path \(in Spark\).+hadoop-aws 3"):
        look("s3a://lake/t")
    look("hdfs://n/t")
    look("s3a://lake/t", conf={"spark.jars.packages": "org.apache.hadoop:hadoop-aws:3.3.4"})


@pytest.mark.parametrize("path", ["gs://lake/t", "abfss://c@a.dfs.core.windows.net/t"])
def test_another_stores_package_is_named_in_general(path):
    with pytest.raises(ActionRequiredError, match="install the fsspec package for it"):
        require_reader(path, "Bad records are read")


def test_a_table_that_is_not_there_yet_is_fine(tmp_path):
    look(f"{tmp_path}/t", LETTERS, first=True)


def test_before_the_first_interval_the_folder_has_to_be_listed(tmp_path, monkeypatch):
    def refuses(*_: Any, **__: Any) -> None:
        raise PermissionError("no")

    monkeypatch.setattr(LocalFileSystem, "ls", refuses)
    look(f"{tmp_path}/t", LETTERS)
    with pytest.raises(ActionRequiredError, match="No permission on the table's folder") as raised:
        look(f"{tmp_path}/t", LETTERS, first=True)
    assert raised.value.where["path"] == f"file://{tmp_path}/t_quarantine"


def test_a_store_that_does_not_answer_is_asked_again(tmp_path, monkeypatch):
    def fails(*_: Any, **__: Any) -> None:
        raise OSError("connection reset")

    monkeypatch.setattr(LocalFileSystem, "ls", fails)
    with pytest.raises(RetryableError):
        require_readable(f"file://{tmp_path}/t", "sink.hudi.path", "looking")
