"""The file sink's writer in a real Spark: formats, names, folders, and what is handed to the commit."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from sluice.connectors.data import writer_of
from sluice.errors import ActionRequiredError
from sluice.protocol.messages import PlannedRange, StartCommit
from sluice.sinks.files.options import CODECS, Files
from sluice.sinks.files.options.names import DataFile, files_of
from sluice.sinks.files.options.path_format import Texts
from sluice.sinks.files.storage import LocalStorage

INSTANT = "20261123101112131"
BEGAN = datetime(2026, 11, 23, 23, 30, tzinfo=UTC)
TEXTS = Texts()
PLACE = "_kafka_topic STRING, _kafka_partition INT, _kafka_offset BIGINT"

# PySpark leaves it to the garbage collector to close the socket that rows came by.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


class Writer:
    """Writes rows of a topic's partitions as one attempt, and reads them where it has put them."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self.spark = spark
        self.folder = folder

    def write(
        self,
        rows: list[tuple[Any, ...]],
        ddl: str,
        ranges: list[tuple[str, int, int, int]],
        *,
        read: bool = True,
        **options: Any,
    ) -> dict[str, list[Any]]:
        """The rows of each file, if they are to be read, by its name below the topics' folder."""
        self.section = Files(path=str(self.folder), layout=options.pop("layout", "connect"), schema_=ddl, **options)
        spec = self.section.writer("my table", None, maintained=False, schema_ddl=ddl)
        planned = tuple(PlannedRange(cluster="c", topic=t, partition=p, start=s, end=e) for t, p, s, e in ranges)
        start = StartCommit(
            table=spec.path, transaction=INSTANT, epoch=1, dag_id="t", run_id="r", sender="coordinator", time=BEGAN,
            read_position=0, ranges=(planned,), writer=spec,
        )  # fmt: skip
        writer = writer_of("files")(self.spark, start, "attempt")
        time = ", _kafka_timestamp TIMESTAMP" if writer.needs_record_time else ""
        frame = self.spark.createDataFrame(rows, f"{ddl}, {PLACE}{time}").repartition(1)
        self.written = writer.write(frame.sortWithinPartitions("_kafka_offset"))
        self.files = files_of(self.written.committables, INSTANT, self.section.topics_dir, self.section.layout)
        assert self.written.records == len(rows)
        return {one.path.removeprefix("topics/"): self.read(one) if read else [] for one in self.files}

    def read(self, file: DataFile) -> list[Any]:
        reader = self.spark.read.format(self.section.format).schema(self.section.schema_)
        path = self.folder / file.staged
        assert path.stat().st_size == file.bytes
        return [tuple(row) for row in reader.option("header", "true").load(str(path)).collect()]


@pytest.fixture
def writer(spark, tmp_path):
    return Writer(spark, tmp_path)


@pytest.mark.parametrize("kind", CODECS)
def test_rows_come_back_from_each_format_and_codec(writer, kind):
    rows = [(i, f"v{i}" if i % 3 else None, i / 4) for i in range(400)]
    sizes = set()
    for codec in CODECS[kind]:
        writer.folder = writer.folder / codec
        found = writer.write([(*row, "t", 0, row[0]) for row in rows], "id BIGINT, v STRING, d DOUBLE",
                             [("t", 0, 0, 400)], format=kind, codec=codec)  # fmt: skip
        ((name, back),) = found.items()
        assert name.startswith("t/partition=0/t+0+0000000000+0000000399.")
        assert back == rows
        sizes.add(writer.files[0].bytes)
    assert len(sizes) == len(CODECS[kind])


def test_the_order_of_a_partition_stays_and_partitions_are_apart(writer):
    rows = [(i, "t", i % 2, i // 2) for i in range(20)]
    found = writer.write(rows, "id BIGINT", [("t", 0, 0, 10), ("t", 1, 0, 10)])
    assert found == {
        f"t/partition={p}/t+{p}+0000000000+0000000009.avro": [(i,) for i in range(p, 20, 2)] for p in (0, 1)
    }


def test_a_file_has_rows_of_so_many_offsets_at_most(writer):
    rows = [(i, "t", 0, i) for i in range(3, 25) if i != 7]
    found = writer.write(rows, "id BIGINT", [("t", 0, 3, 25)], max_rows_per_file=10)
    assert found == {
        "t/partition=0/t+0+0000000003+0000000009.avro": [(i,) for i in (3, 4, 5, 6, 8, 9)],
        "t/partition=0/t+0+0000000010+0000000019.avro": [(i,) for i in range(10, 20)],
        "t/partition=0/t+0+0000000020+0000000024.avro": [(i,) for i in range(20, 25)],
    }


def test_stretches_of_one_partition_have_files_of_their_own(writer):
    """A backfill goes round offsets that the table has."""
    rows = [(i, "t", 0, i) for i in (0, 1, 5, 6)]
    found = writer.write(rows, "id BIGINT", [("t", 0, 5, 7), ("t", 0, 0, 2)], max_rows_per_file=100)
    assert found == {
        "t/partition=0/t+0+0000000000+0000000001.avro": [(0,), (1,)],
        "t/partition=0/t+0+0000000005+0000000006.avro": [(5,), (6,)],
    }


def test_folders_of_fields_are_escaped_and_their_columns_stay(writer):
    values = ["a/b", "..", None, "x=1%", "", "ü:"]
    rows = [(v, i % 2 == 0, "t", 0, i) for i, v in enumerate(values)]
    options = {"partitioner": "field", "partition_fields": ("v", "b")}
    found = writer.write(rows, "v STRING, b BOOLEAN", [("t", 0, 0, 6)], **options)
    none, name = "__HIVE_DEFAULT_PARTITION__", "t+0+0000000000+0000000005.avro"
    assert found == {
        f"t/v=a%2Fb/b=true/{name}": [("a/b", True)],
        f"t/v=../b=false/{name}": [("..", False)],
        f"t/v={none}/b=true/{name}": [(None, True), ("", True)],
        f"t/v=x%3D1%25/b=false/{name}": [("x=1%", False)],
        f"t/v=ü%3A/b=false/{name}": [("ü:", False)],
    }


def test_folders_of_record_times(writer, spark):
    times = ["2026-10-25 00:30:00", "2026-10-25 01:30:00", "1969-12-31 22:59:59.999", "1969-12-31 23:00:00", None]
    stamps = [datetime.fromisoformat(t) if t else None for t in times]
    options = {"partitioner": "hourly", "timezone": "Europe/Berlin", "timestamp_extractor": "record"}
    rows = [(i, "t", 0, i, stamp) for i, stamp in enumerate(stamps)]
    found = writer.write(rows, "id BIGINT", [("t", 0, 0, 5)], **options)
    name = "t+0+0000000000+0000000004.avro"
    assert found == {  # 02:30 of summer and 02:30 of winter time are one hour of the clock
        f"t/year=2026/month=10/day=25/hour=02/{name}": [(0,), (1,)],
        f"t/year=1969/month=12/day=31/hour=23/{name}": [(2,)],
        f"t/year=1970/month=01/day=01/hour=00/{name}": [(3,)],
        f"t/__HIVE_DEFAULT_PARTITION__/{name}": [(4,)],
    }


def test_folders_of_a_field_s_times_in_its_language(writer):
    options = {
        "partitioner": "time", "path_format": "'y'=YYYY/'m'=MMMM/EEEE", "partition_duration": "1 day",
        "timestamp_extractor": "record_field", "timestamp_field": "at", "locale": "de",
    }  # fmt: skip
    with pytest.raises(Exception, match="names a day without its month"):
        writer.write([], "at STRING", [("t", 0, 0, 5)], **options)
    options["path_format"] = "'y'=YYYY/'m'=MMMM/dd EEEE"
    days = ["2027-01-01T00:00:00Z", "2026-12-31T23:59:59+01:00", "neither", "2026-12-31"]
    found = writer.write([(d, "t", 0, i) for i, d in enumerate(days)], "at STRING", [("t", 0, 0, 4)], **options)
    name = "t+0+0000000000+0000000003.avro"
    assert found == {
        f"t/y=2027/m=Januar/01 Freitag/{name}": [(days[0],)],
        f"t/y=2026/m=Dezember/31 Donnerstag/{name}": [(days[1],), (days[3],)],
        f"t/__HIVE_DEFAULT_PARTITION__/{name}": [(days[2],)],
    }


def test_a_month_a_week_and_a_garbled_time_are_folders_as_their_own_arithmetic_says(writer):
    """What Spark computes of a time is what the section's own arithmetic does."""
    times = [-1, 0, 86_399_999, 1_767_225_599_999, 1_767_225_600_000, -62_135_596_800_001, 5_000_000_000_000_000]
    patterns = {
        "xxxx-'W'ww": "7 days", "YYYY-MM": "1 day", "YYYY": "1 s", "YYYY-MM-dd a": "1 hour",
        "YYYY/DDD/HH/mm/ss/SSS": "7 s",
    }  # fmt: skip
    for pattern, duration in patterns.items():
        options = {
            "partitioner": "time", "path_format": pattern, "partition_duration": duration,
            "timestamp_extractor": "record_field", "timestamp_field": "at",
        }  # fmt: skip
        writer.folder = writer.folder / "again"
        rows = [(t, "t", 0, i) for i, t in enumerate(times)]
        found = writer.write(rows, "at BIGINT", [("t", 0, 0, 7)], read=False, **options)
        made = writer.section.partitioning
        expected = sorted({"/".join(made.format.folders(made.begin(t), TEXTS)) for t in times})
        assert sorted(name.partition("/")[2].rpartition("/")[0] for name in found) == expected


def test_the_wall_clock_is_the_interval_s_own(writer):
    options = {"partitioner": "daily", "timezone": "Europe/Berlin"}
    found = writer.write([(1, "t", 0, 0)], "id BIGINT", [("t", 0, 0, 1)], layout="interval", **options)
    assert list(found) == [f"{INSTANT}/t/year=2026/month=11/day=24/t+0+0000000000+0000000000.avro"]


def test_files_that_the_driver_does_not_find_fail_the_job(writer, monkeypatch):
    """As where each executor writes to its own disk."""
    monkeypatch.setattr(LocalStorage, "files", lambda *_: {})
    with pytest.raises(ActionRequiredError, match="not all in the table's folder"):
        writer.write([(1, "t", 0, 0)], "id BIGINT", [("t", 0, 0, 1)])


def test_nothing_is_written_for_no_rows(writer):
    assert writer.write([], "id BIGINT", [("t", 0, 0, 1)]) == {}
    assert writer.written.records == 0


def test_settings_of_the_session_are_as_before(writer, spark):
    before = spark.conf.get("spark.sql.maxConcurrentOutputFileWriters")
    writer.write([(1, "t", 0, 0)], "id BIGINT", [("t", 0, 0, 1)])
    assert spark.conf.get("spark.sql.maxConcurrentOutputFileWriters") == before


def test_rows_are_sorted_only_where_a_task_has_several_folders(writer):
    writer.write([(1, "t", 0, 0)], "id BIGINT", [("t", 0, 0, 1)])
    assert str(writer.written.dataset.queryExecution().executedPlan().toString()).count("Sort [") == 1
