"""A Hive metastore is told of a table's folders, and never part of a commit: while it is down, commits go on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sluice import runtime
from sluice.coordinator.catalog import sync
from sluice.errors import ActionRequiredError, RetryableError
from sluice.sinks.files.hive import HiveCatalog

from ..thorough import also
from .harness.files import FileFlow
from .harness.readers import DDL
from .hive_metastore import HiveMetastore


@pytest.fixture(scope="module")
def metastore(tmp_path_factory) -> Iterator[HiveMetastore]:
    running = HiveMetastore(tmp_path_factory.mktemp("hive") / "metastore").start()
    yield running
    running.stop()


@pytest.fixture
def make_files(tmp_path, bootstrap, shared_jvm, drivers, topic_name, metastore):
    def make(name: str, **settings: Any) -> FileFlow:
        flow = FileFlow(tmp_path, bootstrap, shared_jvm, drivers, topic_name("t"), **settings)
        flow.set(catalog_sync={"hive": {"uris": metastore.uris, "database": "lake", "table": name}})
        flow.create_topic(2)
        return flow

    return make


def _locations(jvm, metastore: HiveMetastore, table: str) -> dict[str, str]:
    """Each partition's location, by the metastore's own client."""
    configuration = jvm.jvm.org.apache.hadoop.hive.conf.HiveConf()
    configuration.set("hive.metastore.uris", metastore.uris)
    client = jvm.jvm.org.apache.hadoop.hive.metastore.HiveMetaStoreClient(configuration)
    try:
        found = client.listPartitions("lake", table, 1000)
        return {"/".join(one.getValues()): str(one.getSd().getLocation()) for one in found}
    finally:
        client.close()


@pytest.mark.parametrize("layout", ["interval", *also("connect")])
def test_folders_are_partitions_where_their_files_lie(make_files, metastore, layout, monkeypatch):
    name = f"orders_{layout}"
    flow = make_files(name, sink__files__layout=layout, sink__files__format="parquet", sink__files__codec="none")
    flow.produce(20)
    flow.interval()
    assert sync(flow.pipeline, flow.jvm) == [f"hive lake.{name}"]

    def of_files() -> dict[str, str]:
        folders = {file.parent for file in flow.files().values()}
        return {
            "/".join(part.partition("=")[2] or part for part in folder.relative_to(flow.topics).parts): f"file:{folder}"
            for folder in folders
        }

    with flow.jvm() as jvm:
        columns, names = metastore.look(jvm, "lake", name)
        assert _locations(jvm, metastore, name) == of_files()
    keys = ["interval"] * (layout == "interval") + ["topic", "partition"]
    assert [part.partition("=")[0] for part in names[0].split("/")] == keys
    assert (columns["id"], columns["v"]) == ("bigint", "string")

    flow.set(sink__files__schema=f"{DDL}, Extra ARRAY<DATE> COMMENT 'it\\'s more'")
    flow.produce(20)
    flow.interval()
    died = []

    def die(self, table, wanted):  # partitions are added, and the property isn't set
        died.append(True)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(HiveCatalog, "_describe", die)
        with pytest.raises(KeyboardInterrupt):
            sync(flow.pipeline, flow.jvm)
    assert died
    for _ in range(2):
        sync(flow.pipeline, flow.jvm)
        with flow.jvm() as jvm:
            columns, _ = metastore.look(jvm, "lake", name)
            assert _locations(jvm, metastore, name) == of_files()
            assert metastore.comments(jvm, "lake", name) == {"extra": "it's more"}
    assert columns["extra"] == "array<date>"


_READ = """
import json, sys
from pyspark.sql import SparkSession
uris, table = sys.argv[1:]
settings = {"spark.hadoop.hive.metastore.uris": uris, "spark.sql.catalogImplementation": "hive"}
builder = SparkSession.builder.master("local[1]")
for name, value in settings.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
rows = spark.sql(f"SELECT id, v, topic, `partition` FROM {table}").collect()
print("ROWS", json.dumps([list(row) for row in rows]))
"""


@pytest.mark.thorough
@pytest.mark.parametrize("data_format", ["avro", "parquet"])
def test_a_reader_who_knows_the_catalog_alone_finds_the_rows(make_files, metastore, data_format, tmp_path):
    """Of two intervals, the second with a column more: the catalog has that, and earlier rows read as before."""
    name = f"read_{data_format}"
    flow = make_files(name, sink__files__layout="interval", sink__files__format=data_format)
    flow.set(sink__files__codec="none")
    for more in ("", ", extra STRING"):
        flow.set(sink__files__schema=f"{DDL}{more}")
        flow.produce(20)
        flow.interval()
        sync(flow.pipeline, flow.jvm)
    script = tmp_path / "read.py"
    script.write_text(_READ)
    jars = os.pathsep.join(map(str, runtime.jars("spark")))
    submit = [str(Path(sys.executable).with_name("spark-submit")), "--conf", f"spark.driver.extraClassPath={jars}"]
    environment = {**os.environ, "JAVA_HOME": str(runtime.java_home()), "PYSPARK_PYTHON": sys.executable}
    command = [*submit, str(script), metastore.uris, f"lake.{name}"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    rows = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("ROWS")).removeprefix("ROWS"))
    wanted = Counter((s.id, s.value, flow.topic, str(s.partition)) for s in flow.sent)
    assert Counter(map(tuple, rows)) == wanted


def test_a_metastore_that_is_down_is_made_up_for_and_another_table_is_left_alone(make_files, metastore):
    flow = make_files("both", sink__files__layout="connect")
    flow.produce(20)
    flow.interval()
    metastore.stop()
    with pytest.raises(RetryableError, match="the commit remains"):
        sync(flow.pipeline, flow.jvm)
    metastore.start()
    flow.check()
    sync(flow.pipeline, flow.jvm)
    with flow.jvm() as jvm:
        assert len(_locations(jvm, metastore, "both")) == 2
    other = make_files("both", sink__files__layout="connect")
    other.produce(20)
    other.interval()
    with pytest.raises(ActionRequiredError, match="another table of this name"):
        sync(other.pipeline, other.jvm)
    other.set(catalog_sync={"glue": {"database": "lake"}})
    with pytest.raises(ActionRequiredError, match="Hive metastore alone"):
        sync(other.pipeline, other.jvm)
