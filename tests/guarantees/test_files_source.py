"""Each line and each row of a folder's files lands once, while files come, change, grow and go.

Real files, a real Kafka with their log, and real Spark.
"""

from __future__ import annotations

import gzip
import json
import os
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sluice.errors import ActionRequiredError, RetryableError
from sluice.kafka.transactional import ensure_topic
from sluice.sources.files.disk import Disk, uri_of
from sluice.sources.files.entries import whole_file
from sluice.sources.files.log import Appending, entries
from sluice.sources.files.rows import RowsOfFiles

from . import value_readers as read
from .harness.files import FileFlow, Loads
from .harness.processes import kafka_settings
from .quarantined import TOLERANT, quarantine
from .row_files import FORMATS, ID, avro, parquet
from .typed_values import COLUMNS, Array, Fields, Wild, columns_ddl, differences

COLUMNS_OF_ROWS = {**ID, "v": "STRING", "p": "STRING"}


class Loaded(Loads):
    """A pipeline from a folder into files of another one."""

    def __init__(self, flow, folder, section):
        super().__init__(flow)
        self.folder, self.section = folder, section

    def put(self, name, *lines, end="\n", at=None):
        """A file that appears whole, under its name."""
        file = self.folder / name
        file.parent.mkdir(exist_ok=True)
        text = "".join(f"{line}\n" for line in lines)
        new = file.with_name(f"{file.name}.tmp")
        new.write_text(text.removesuffix("\n") + end if text else "")
        if at is not None:
            os.utime(new, (at, at))
        new.rename(file)
        return file

    def put_rows(self, name, *numbers, columns=COLUMNS_OF_ROWS, **values):
        """Rows in a file that appears whole; its name says the format."""
        rows = [{"id": n, "v": f"v{n}", "p": "p", **values} for n in numbers]
        return self.put_bytes(name, FORMATS[name.rpartition(".")[2]](columns, rows))

    def put_bytes(self, name, content):
        new = self.folder / f"{name}.tmp"
        new.write_bytes(content)
        return new.rename(self.folder / name)

    def add(self, name, text):
        with (self.folder / name).open("a") as file:
            file.write(text)

    def files(self):
        return sorted(str(one.relative_to(self.folder)) for one in self.folder.rglob("*") if one.is_file())


@pytest.fixture
def make(tmp_path, bootstrap, shared_jvm, drivers, topic_name):
    """Makes such a pipeline: `make(grows=True)`."""

    def made(**section):
        folder = tmp_path / "in"
        folder.mkdir()
        name = topic_name("f")
        flow = FileFlow(tmp_path, bootstrap, shared_jvm, drivers, name)
        files = {"path": str(folder), "log": f"files-{name}", "min_age": "0 seconds"}
        if "format" not in section:
            files["value"] = {"converter": "csv"}
        section = {**files, **section}
        flow.set(source={"files": section}, control__connection="kafka_default")
        flow.set(sink__files__layout="connect", sink__files__topics_dir="topics")
        return Loaded(flow, folder, section)

    return made


def line(number, value=None):
    return f"{number},{value or f'v{number}'},p"


def test_new_files_are_read_once_whenever_they_come(make):
    """Late ones, too, which are older than those that were read; compressed or not; a last line needs no end."""
    loaded = make()
    loaded.put("b.csv", line(1), line(2))
    loaded.put("deep/c.csv", line(3), end="")
    loaded.put("empty.csv")
    loaded.put("_hidden.csv", line(98))
    (loaded.folder / "d.csv.tmp").write_text(line(7))
    (loaded.folder / "e %20.csv.gz").write_bytes(gzip.compress(f"{line(4)}\n{line(5)}\n".encode()))
    assert loaded.interval() == [1, 2, 3, 4, 5]
    loaded.flow.interval_is_empty()
    loaded.put("a.csv", line(6), at=1_000_000_000)
    (loaded.folder / "d.csv.tmp").rename(loaded.folder / "d.csv")
    assert loaded.interval() == [1, 2, 3, 4, 5, 6, 7]
    (loaded.folder / "b.csv").unlink()
    loaded.flow.interval_is_empty()


def test_a_backlog_is_read_in_parts_by_several_tasks(make):
    """Each interval has so many files of each partition of the log; the interval that follows has the next ones."""
    loaded = make(splits=2, max_files=2)
    for number in range(6):
        loaded.put(f"{number}.csv", line(number))
    counts = [len(loaded.interval())]
    assert 2 <= counts[0] <= 4
    while len(counts) < 3 and counts[-1] < 6:
        counts.append(len(loaded.interval()))
    assert loaded.ids() == list(range(6))
    loaded.flow.interval_is_empty()


def test_a_replaced_file_is_told_and_never_mixed(make):
    """Before START, between START and the read, and while it is read; what was read stays."""
    loaded = make()
    loaded.put("a.csv", line(1), at=1_000_000_000)
    assert loaded.interval() == [1]
    loaded.put("b.csv", line(2), line(3))
    started = loaded.flow.start()
    kept = (loaded.folder / "b.csv").rename(loaded.folder / "b.kept.tmp")
    loaded.put("b.csv", line(7), line(8))
    assert "was replaced or changed after it was listed" in loaded.fails(started)
    (loaded.folder / "b.csv").unlink()
    assert "was deleted after it was listed" in loaded.fails(started)
    kept.rename(loaded.folder / "b.csv")
    with loaded.after_the_read(started) as job:
        loaded.put("b.csv", line(7), line(8))
    assert job.wait() != 0
    assert "was replaced or changed after it was listed" in job.text()
    assert loaded.ids() == [1]


def test_a_replaced_file_is_read_whole_or_not_at_all_by_choice(make):
    loaded = make(on_change="reread")
    loaded.put("a.csv", line(1), at=1_000_000_000)
    assert loaded.interval() == [1]
    loaded.put("a.csv", line(2), line(3))
    assert loaded.interval() == [1, 2, 3]
    loaded.flow.interval_is_empty()
    loaded.put("a.csv", line(4))
    loaded.flow.set(source__files__on_change="ignore")
    loaded.flow.interval_is_empty()
    loaded.flow.set(source__files__on_change="fail")
    refused = loaded.refused()
    assert "was replaced under its name" in refused
    assert "a.csv" in refused


def test_files_that_grow_and_rotate_are_read_line_by_line(make):
    """A line is read when it ends; a renamed file is the same one; one that lost lines is reported."""
    loaded = make(grows=True)
    loaded.add("app.log", f"{line(1)}\n{line(2)}\n3,")
    assert loaded.interval() == [1, 2]
    loaded.add("app.log", f"v3,p\n\n{line(4)}\r\n5,v")
    assert loaded.interval() == [1, 2, 3, 4]
    loaded.add("app.log", "5,p\n")
    (loaded.folder / "app.log").rename(loaded.folder / "app.log.1")
    loaded.add("app.log", f"{line(6)}\n")
    assert loaded.interval() == [1, 2, 3, 4, 5, 6]
    assert loaded.rows()[4] == (5, "v5")
    loaded.flow.interval_is_empty()
    (loaded.folder / "app.log").write_text("")
    assert "was replaced under its name" in loaded.refused()


def test_committed_files_leave_the_folder_by_choice(make, tmp_path):
    """Not before they are committed; a later file may have the name again."""
    done = tmp_path / "done"
    loaded = make(clean_source="archive", archive_path=str(done), clean_after="0 seconds", on_change="reread")
    loaded.put("a.csv", line(1))
    loaded.put("deep/b.csv", line(2))
    loaded.flow.start()
    loaded.flow.start()  # the first one is superseded, and nothing is committed
    assert loaded.files() == ["a.csv", "deep/b.csv"]
    assert loaded.interval() == [1, 2]
    assert loaded.files() == []
    assert sorted(str(one.relative_to(done)) for one in done.rglob("*.csv")) == ["a.csv", "deep/b.csv"]
    loaded.put("a.csv", line(3))
    assert loaded.interval() == [1, 2, 3]
    assert (done / "a-1.csv").read_text() == f"{line(3)}\n"
    loaded.flow.interval_is_empty()


def test_files_that_no_interval_has_read_never_leave_the_folder(make):
    """Their offsets are below the position, and not committed; nor does a file that has come since START."""
    loaded = make(clean_source="delete", clean_after="0 seconds", on_change="reread", starting_offsets="latest")
    loaded.put("a.csv", line(1))
    assert loaded.interval() == []
    loaded.put("b.csv", line(2))
    started = loaded.flow.start()
    loaded.put("c.csv", line(3))
    loaded.flow.write_all(started)
    loaded.flow.commit(started)
    assert loaded.ids() == [2]
    assert loaded.files() == ["a.csv", "c.csv"]


def test_a_start_that_is_repeated_or_has_died_adds_no_file_twice(make):
    """Nor does one that wakes up behind another: the log is the later one's."""
    loaded = make()
    loaded.put("a.csv", line(1))
    first = loaded.flow.run()
    loaded.flow.start(first)
    loaded.flow.abort(first)
    loaded.put("b.csv", line(2))
    assert loaded.interval() == [1, 2]
    settings, topic = kafka_settings(loaded.flow.bootstrap), loaded.flow.pipeline.source.options.log
    log = list(entries(settings, topic, 0, 0))
    assert len(log) == 2
    zombie = Appending(settings, topic, lambda: 0)
    Appending(settings, topic, lambda: 0).append(())
    with pytest.raises(RetryableError, match="Another process"):
        zombie.append([(0, log[0][1])])
    assert list(entries(settings, topic, 0, 0)) == log


def test_a_killed_write_job_is_repeated_without_a_trace(make):
    loaded = make()
    loaded.put("a.csv", line(1), line(2))
    started = loaded.flow.start()
    assert loaded.flow.write(started, failpoint="participant.after_write=kill").wait() != 0
    loaded.put("c.csv", line(3))
    loaded.flow.write(started).succeed()
    loaded.flow.commit(started)
    assert loaded.ids() == [1, 2]
    assert loaded.interval() == [1, 2, 3]


def test_a_bad_line_is_told_with_file_and_line(make):
    """So is a file whose header is another one, or which is cut off: nothing of it is loaded."""
    loaded = make(header="id,v,p")
    loaded.put("a.csv", "id,v,p", line(1), "", "x,v2,p")
    said = loaded.fails(loaded.flow.start())
    assert f"file=file://{loaded.folder}/a.csv, line=4" in said
    (loaded.folder / "a.csv").unlink()
    loaded.flow.set(source__files__log=f"{loaded.flow.topic}-2")
    loaded.put("b.csv", "v,id,p", line(2))
    said = loaded.fails(loaded.flow.start())
    assert "first line isn't the header" in said
    assert f"file=file://{loaded.folder}/b.csv" in said
    (loaded.folder / "b.csv").unlink()
    loaded.flow.set(source__files__log=f"{loaded.flow.topic}-3")
    whole = gzip.compress("".join(f"{line(i)}\n" for i in range(10_000)).encode())
    (loaded.folder / "c.csv.gz").write_bytes(whole[: len(whole) // 2])
    loaded.flow.set(source__files__header=None)
    assert "cut off or damaged" in loaded.fails(loaded.flow.start())
    assert loaded.rows() == []


def test_a_log_that_could_lose_entries_is_refused(make):
    loaded = make()
    loaded.put("a.csv", line(1))
    ensure_topic(kafka_settings(loaded.flow.bootstrap), loaded.flow.pipeline.source.options.log)
    assert "retention.ms=-1" in loaded.refused()


def test_an_interval_is_replayed_from_its_files(make_flow, make):
    """The same lines take the place of the rows that were read of them."""
    loaded = make()
    hudi = make_flow(0, source={"files": loaded.section}, control__connection="kafka_default")
    loaded.put("a.csv", line(1), line(2))
    first = hudi.interval().instant
    loaded.put("b.csv", line(3))
    hudi.interval()
    hudi.interval(kind="replay", instant=first)
    assert sorted(hudi.read("id", "v")) == [(1, "v1"), (2, "v2"), (3, "v3")]


# Rows of Parquet and Avro


@pytest.mark.parametrize("kind", FORMATS)
def test_rows_of_every_type_are_the_same_in_a_table(kind, make, make_flow):
    """The ends of each type, nulls, and what is nested; read by Arrow from what Hudi has written."""
    loaded = make(format=kind)
    columns = {**COLUMNS, **({"tiny": "INT", "small": "INT"} if kind == "avro" else {})}  # Avro has none so small
    wild = Wild(5)
    rows = [{"id": number, **wild.row(columns, number)} for number in range(60)]
    schema = columns_ddl({**ID, **columns})
    hudi = make_flow(
        0, source={"files": loaded.section}, control__connection="kafka_default", sink__hudi__schema=schema,
        sink__hudi__partition_fields=None,
    )  # fmt: skip
    loaded.put_bytes(f"a.{kind}", FORMATS[kind]({**ID, **columns}, rows))
    hudi.interval()
    found = read.hudi(str(hudi.path), {**ID, **columns})
    assert not differences(found, {row["id"]: row for row in rows}, list(columns))
    assert hudi.verify().exit_code == 0


def _stretches(*files):
    """Whole files as they are listed."""
    return [(i, whole_file(Disk().look(uri_of(str(file))), None)) for i, file in enumerate(files)]


def _rows_of(spark, kind, ddl):
    return RowsOfFiles(spark, kind, json.loads(spark._jvm.org.apache.spark.sql.types.StructType.fromDDL(ddl).json()))


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
def test_times_are_never_cut_off_at_microseconds(spark, tmp_path):
    """Nanoseconds are refused, and so are INT96 times, but of Spark itself, which writes none that are more exact."""
    table = pa.table({"id": [1], "at": pa.array([1_000_000_001], pa.timestamp("ns", tz="UTC"))})
    pq.write_table(table, tmp_path / "ns.parquet")
    pq.write_table(table, tmp_path / "int96.parquet", use_deprecated_int96_timestamps=True)
    rows = _rows_of(spark, "parquet", "at TIMESTAMP")
    for name, says in (("ns", "a type that Spark doesn't have"), ("int96", "holds nanoseconds")):
        (stretch,) = _stretches(tmp_path / f"{name}.parquet")
        with pytest.raises(ActionRequiredError, match=says) as caught:
            rows.numbered([stretch])
        assert caught.value.where["file"] == stretch[1].path
        found = _rows_of(spark, "parquet", "id BIGINT").numbered([stretch])  # the column isn't read then
        assert [one.id for one in found.select("value.id").collect()] == [1]
    spark.range(2).selectExpr("timestamp_micros(id + 7) AS at").coalesce(1).write.parquet(str(tmp_path / "of_spark"))
    (own,) = (tmp_path / "of_spark").glob("*.parquet")
    assert pq.ParquetFile(own).schema.column(0).physical_type == "INT96"
    found = rows.numbered(_stretches(own)).selectExpr("unix_micros(value.at) AS at")
    assert [one.at for one in found.collect()] == [7, 8]


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
def test_a_file_without_any_wanted_column_has_its_rows(kind, spark, tmp_path):
    file = tmp_path / f"a.{kind}"
    file.write_bytes(FORMATS[kind](ID, [{"id": number} for number in range(3)]))
    found = _rows_of(spark, kind, "other STRING, `a.b c` INT").numbered(_stretches(file))
    assert [(one.line, tuple(one.value)) for one in found.select("line", "value").collect()] == [
        (number, (None, None)) for number in range(3)
    ]


# PySpark leaves it to the garbage collector to close the socket that rows came by.
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
@pytest.mark.parametrize("kind", FORMATS)
def test_a_row_has_the_same_number_at_every_reading(kind, spark, tmp_path):
    """Of a file with several row groups, which Spark gives to several tasks; whichever files are beside it."""
    rows = [{"id": number, "v": "x" * 50} for number in range(5_000)]
    columns = {**ID, "v": "STRING"}
    small = {"row_group_size": 700} if kind == "parquet" else {"sync_interval": 9_000}
    file, other = tmp_path / f"a.{kind}", tmp_path / f"b.{kind}"
    file.write_bytes(FORMATS[kind](columns, rows, **small))
    other.write_bytes(FORMATS[kind](ID, rows[:10]))
    a, b = _stretches(file, other)
    reader = _rows_of(spark, kind, "id BIGINT")
    for stretches in ([a], [b, a], [a, b]):
        found = reader.numbered(stretches).coalesce(1).where(f"path = '{a[1].path}'").select("line", "value.id")
        assert [tuple(one) for one in found.collect()] == [(number, number) for number in range(5_000)]
    if kind == "parquet":
        spark.conf.set("spark.sql.files.maxPartitionBytes", "20000")
        own = spark.read.parquet(str(file)).select("_metadata.row_index", "id")
        assert own.selectExpr("spark_partition_id()").distinct().count() > 1
        assert sorted(map(tuple, own.collect())) == [(number, number) for number in range(5_000)]
        spark.conf.unset("spark.sql.files.maxPartitionBytes")


@pytest.mark.parametrize("kind", FORMATS)
def test_rows_of_a_killed_write_job_land_once(kind, make):
    """Read by several tasks; with the numbers that the first attempt has read."""
    loaded = make(format=kind, splits=2)
    for number in range(6):
        loaded.put_rows(f"{number}.{kind}", *range(number * 10, number * 10 + 10))
    started = loaded.flow.start()
    assert loaded.flow.write(started, failpoint="participant.after_write=kill").wait() != 0
    loaded.put_rows(f"late.{kind}", 100)
    loaded.flow.write(started).succeed()
    loaded.flow.commit(started)
    assert loaded.ids() == list(range(60))
    assert loaded.interval() == [*range(60), 100]
    loaded.flow.interval_is_empty()


def _flipped(content, at):
    """The content with some bytes that are others, in its values."""
    return content[:at] + bytes(byte ^ 0xFF for byte in content[at : at + 40]) + content[at + 40 :]


@pytest.mark.parametrize("kind", FORMATS)
def test_a_damaged_file_of_rows_is_told_by_its_name(kind, make):
    """Cut off at its end, in its middle or at its begin; of another format; with other bytes in it; empty."""
    rows = [{"id": number, "v": f"v{number}", "p": "p"} for number in range(5_000)]
    options = {"sync_interval": 9_000} if kind == "avro" else {"write_page_checksum": True, "compression": "none"}
    whole = FORMATS[kind](COLUMNS_OF_ROWS, rows, **options)
    loaded = make(format=kind)
    damaged = [whole[:-20], whole[: len(whole) // 2], whole[100:], b"id,v\n" * 9, _flipped(whole, 2_000), b""]
    if kind == "avro":  # a block without rows is the end of all for Avro's own reader
        begin, marker = whole.index(whole[-16:]) + 16, whole[-16:]
        damaged.append(whole[:begin] + b"\0\0" + marker + whole[begin:])
    for number, content in enumerate(damaged):
        loaded.flow.set(source__files__log=f"{loaded.flow.topic}-{number}")
        loaded.put_rows(f"a.{kind}", 1)
        loaded.put_bytes(f"b.{kind}", content)
        said = loaded.fails(loaded.flow.start())
        assert f"A file is damaged or cut off, or it isn't one of {kind}" in said, number
        assert f"file=file://{loaded.folder}/b.{kind}" in said, number
    assert loaded.rows() == []


@pytest.mark.parametrize("kind", FORMATS)
def test_files_of_rows_may_have_other_columns(kind, make):
    """What a file hasn't is null, what isn't wanted is left out; what a column can't hold fails, and is never cut."""
    loaded = make(format=kind)
    loaded.put_rows(f"a.{kind}", 1)
    loaded.put_rows(f"b.{kind}", 2, columns={"id": "INT", "more": Array("DOUBLE"), "p": "STRING"}, more=[0.5])
    loaded.put_rows(f"c.{kind}", 3, columns={"p": "STRING", "V": "STRING", "Id": "BIGINT"}, V="v3", Id=3)
    loaded.put_rows(f"d.{kind}", 4)
    assert loaded.interval() == [1, 2, 3, 4]
    assert loaded.rows() == [(1, "v1"), (2, None), (3, "v3"), (4, "v4")]
    for name, columns, says in (
        ("e", {"id": "DOUBLE"}, "id: DOUBLE in the file, BIGINT is wanted"),
        ("f", {"id": "DECIMAL(20,0)"}, "id: DECIMAL(20,0) in the file, BIGINT is wanted"),
        ("g", {"v": Fields({"id": "INT"}), "id": "BIGINT"}, "v: STRUCT<id: INT> in the file, STRING is wanted"),
        ("h", {"v": "BINARY", "id": "BIGINT"}, "v: BINARY in the file, STRING is wanted"),
        ("i", {"id": "BIGINT", "ID": "BIGINT"}, "Two columns of a file differ in case only"),
    ):
        file = loaded.folder / f"{name}.{kind}"
        file.write_bytes(FORMATS[kind](columns, []))
        said = loaded.fails(loaded.flow.start())
        assert says in said
        assert f"file=file://{file}" in said
        file.unlink()
        loaded.flow.set(source__files__log=f"{loaded.flow.topic}-{name}")
    assert len(loaded.rows()) == 4


def test_columns_of_rows_may_be_cast_and_what_does_not_fit_fails(make):
    """The source names the files' types, and a step casts them as it does for lines."""
    loaded = make(format="parquet", value={"schema": "id DECIMAL(20,0), v TIMESTAMP_NTZ, p STRING"})
    loaded.flow.set(sink__files__schema="id BIGINT, v TIMESTAMP, p STRING")
    loaded.flow.set(transforms=[{"cast": {"id": "BIGINT", "v": "TIMESTAMP"}}])
    wide, noon = {"id": "DECIMAL(20,0)", "v": "TIMESTAMP_NTZ", "p": "STRING"}, datetime(2026, 3, 29, 12, 0, 0, 1)
    loaded.put_bytes("a.parquet", parquet(wide, [{"id": 2**63 - 1, "v": noon, "p": "p"}]))
    assert loaded.interval() == [2**63 - 1]
    assert loaded.rows() == [(2**63 - 1, noon.replace(tzinfo=UTC))]
    loaded.put_bytes("b.parquet", parquet(wide, [{"id": n, "v": noon, "p": "p"} for n in (5, 2**63)]))
    said = loaded.fails(loaded.flow.start())
    assert f"file=file://{loaded.folder}/b.parquet, row=2" in said


def test_bad_rows_are_set_aside_with_their_places(make, make_flow):
    """Or fail the interval, by default, with file and row."""
    loaded = make(format="avro")
    schema = "id BIGINT NOT NULL, v STRING, p STRING"
    of = {"source": {"files": loaded.section}, "control__connection": "kafka_default", "sink__hudi__schema": schema}
    hudi = make_flow(0, **of, sink__hudi__record_key="id")
    rows = [{"id": None if n == 2 else n, "v": f"v{n}", "p": "p"} for n in range(5)]
    loaded.put_bytes("a.avro", avro(COLUMNS_OF_ROWS, rows))
    job = hudi.write(hudi.start())
    assert job.wait() != 0
    assert f"file=file://{loaded.folder}/a.avro, row=3" in job.text()
    hudi.set(**TOLERANT)
    hudi.interval()
    assert sorted(hudi.read("id")) == [(0,), (1,), (3,), (4,)]
    (aside,) = quarantine(hudi)
    assert json.loads(aside["kafka_value"]) == {"id": None, "v": "v2", "p": "p"}
    assert {"file.path": f"file://{loaded.folder}/a.avro".encode(), "file.line": b"3"}.items() <= {
        one["key"]: one["value"] for one in aside["kafka_headers"]
    }.items()


def test_an_interval_of_rows_is_replayed_and_verified(make_flow, make):
    loaded = make(format="parquet")
    hudi = make_flow(0, source={"files": loaded.section}, control__connection="kafka_default")
    loaded.put_rows("a.parquet", 1, 2)
    first = hudi.interval().instant
    loaded.put_rows("b.parquet", 3)
    hudi.interval()
    hudi.interval(kind="replay", instant=first)
    assert sorted(hudi.read("id", "v")) == [(1, "v1"), (2, "v2"), (3, "v3")]
    assert hudi.verify().exit_code == 0


def test_a_file_of_rows_that_is_compressed_as_a_whole_is_refused(make):
    loaded = make(format="parquet")
    loaded.put_rows("a.snappy.parquet", 1)
    loaded.put_bytes("b.parquet.gz", b"x")
    refused = loaded.refused()
    assert "compressed as a whole" in refused
    assert "b.parquet.gz" in refused
    (loaded.folder / "b.parquet.gz").unlink()
    assert loaded.interval() == [1]
