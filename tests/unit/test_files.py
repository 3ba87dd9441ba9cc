"""The section `sink.files`, names of files, and what of a WRITE-STATUS is believed."""

from __future__ import annotations

import errno
import os
import re
from dataclasses import replace
from datetime import UTC, datetime
from urllib.parse import unquote

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from sluice.errors import ActionRequiredError, IntervalError, PipelineFileError
from sluice.pipeline import load_pipeline
from sluice.protocol.committable import Committable
from sluice.records.avro_defaults import with_defaults
from sluice.sinks.files.hive import partition_keys, partitions
from sluice.sinks.files.log import IntervalLog, Record
from sluice.sinks.files.options import Files
from sluice.sinks.files.options.compatibility import incompatible
from sluice.sinks.files.options.names import DataFile, committable, extension, file_name, files_of, log_entry
from sluice.sinks.files.options.partitioning import escaped
from sluice.sinks.files.options.path_format import Texts
from sluice.sinks.files.options.pinned import PinnedFiles
from sluice.sinks.files.storage import LocalStorage
from sluice.sinks.files.takeover import next_offsets
from sluice.sinks.files.writer import FilesWriter

INSTANT = "20261123101112131"


def section(**options) -> Files:
    return Files(path=options.pop("path", "/lake/flights"), schema_="id BIGINT, at TIMESTAMP", **options)


# The section


def test_by_default_it_writes_avro_as_folders_of_intervals():
    made = section()
    assert (made.format, made.layout, made.partitioner) == ("avro", "interval", "default")
    assert made.table_id == made.writer("t", None, maintained=False).path == "file:///lake/flights"
    can = made.capabilities
    assert can.atomic_with_checkpoint
    assert can.quarantine
    assert not any((can.upsert, can.delete, can.truncate, can.replaces_interval, can.services))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"record_key": "id"}, "`record_key` is for tables with a row for each key"),
        ({"ordering_field": "at"}, "`ordering_field` is for tables"),
        ({"path": "gs://lake/flights"}, "a rename, which file, hdfs, viewfs have, or a conditional PUT, which s3a has"),
        ({"path": "s3a://lake/flights"}, "layout has to be said: an object store such as s3a:// has no folders"),
        ({"takeover": "confluent"}, "say `layout: connect`, too"),
        ({"codec": "zstd"}, "codec zstd isn't one of avro"),
        ({"topics_dir": "_sluice/topics"}, "Sluice's own"),
        ({"topics_dir": "../elsewhere"}, "a folder below path"),
        ({"topics_dir": "/topics"}, "a folder below path"),
        ({"partitioner": "field"}, "belong together"),
        ({"partition_fields": "id"}, "belong together"),
        ({"partitioner": "time", "path_format": "YYYY"}, "needs path_format and partition_duration"),
        ({"partitioner": "daily", "path_format": "YYYY"}, "is for partitioner time"),
        ({"timestamp_extractor": "record"}, "for the partitioners time, daily and hourly"),
        ({"partitioner": "daily", "timestamp_extractor": "record_field"}, "belong together"),
        ({"partitioner": "daily", "timestamp_field": "at"}, "belong together"),
        ({"partitioner": "daily", "timezone": "CET+1"}, "no IANA name"),
        ({"partitioner": "time", "path_format": "YY", "partition_duration": "1 day"}, "two digits"),
        ({"partitioner": "time", "path_format": "YYYY", "partition_duration": "0.0001 s"}, "at least a millisecond"),
        ({"locale": "../x"}, "is no language"),
        ({"max_rows_per_file": 0}, "greater than 0"),
        ({"operation": "upsert"}, "Extra inputs are not permitted"),
    ],
)
def test_what_does_not_fit_is_refused(options, says):
    with pytest.raises(ValidationError, match=says):
        section(**options)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"changes": {"format": "debezium"}}, "they are more than sink.files can do"),
        ({"table_services": {}}, "sink.files has no archiving"),
    ],
)
def test_what_files_cannot_do_is_refused_by_name_when_the_file_is_loaded(tmp_path, more, says):
    file = tmp_path / "flights.yaml"
    pipeline = {
        "name": "flights", "schedule": "1 hour", "source": {"kafka": {"topics": "flights"}},
        "sink": {"files": {"path": "/lake/flights", "schema": "id BIGINT"}},
    }  # fmt: skip
    file.write_text(yaml.safe_dump(pipeline))
    assert load_pipeline(file).sink.place == "sink.files"
    file.write_text(yaml.safe_dump({**pipeline, **more}))
    with pytest.raises(PipelineFileError) as caught:
        load_pipeline(file)
    assert says in str(caught.value)


def test_a_format_that_hive_does_not_read_is_not_told_to_catalogs(tmp_path):
    file = tmp_path / "flights.yaml"
    files = {"path": "/lake/flights", "schema": "id BIGINT", "format": "json"}
    pipeline = {
        "name": "flights", "schedule": "1 hour", "source": {"kafka": {"topics": "flights"}},
        "sink": {"files": files}, "catalog_sync": {"hive": {"uris": "thrift://h:1"}},
    }  # fmt: skip
    file.write_text(yaml.safe_dump(pipeline))
    with pytest.raises(PipelineFileError, match=r"catalog_sync.+need sink\.files\.format avro or parquet"):
        load_pipeline(file)
    file.write_text(yaml.safe_dump({**pipeline, "sink": {"files": {**files, "format": "parquet"}}}))
    assert load_pipeline(file).sink.capabilities.catalogs


@pytest.mark.parametrize(
    ("options", "keys", "path", "values"),
    [
        ({"layout": "connect"}, "topic partition", "t/partition=3", ("t", "3")),
        ({}, "interval topic partition", f"{INSTANT}/a%2Fb/partition=3", (INSTANT, "a/b", "3")),
        ({"layout": "connect", "partitioner": "field", "partition_fields": "Id"}, "topic id",
         "t/Id=a%2Fb", ("t", "a/b")),
        ({"layout": "connect", "partitioner": "daily"}, "topic year month day",
         "t/year=2026/month=11/day=23", ("t", "2026", "11", "23")),
        ({"layout": "connect", "partitioner": "daily"}, "topic year month day",
         "t/__HIVE_DEFAULT_PARTITION__", ("t", *["__HIVE_DEFAULT_PARTITION__"] * 3)),
    ],
)  # fmt: skip
def test_folders_are_partitions_of_a_catalog(options, keys, path, values):
    made = section(**options)
    found = partition_keys(made.partitioning, made.layout)
    assert found == keys.split()
    file = DataFile("s", f"topics/{path}/f.avro", 1, "c")
    elsewhere = DataFile("s", f"before/{path}/f.avro", 1, "c")
    record = Record(INSTANT, made.layout, "avro", "", 1, [file, file, elsewhere])
    assert partitions(record, found, "topics") == {f"topics/{path}": values}


def test_a_folder_without_a_name_is_no_partition_of_a_catalog():
    made = section(partitioner="time", path_format="YYYY/'month'=MM", partition_duration="1 day").partitioning
    with pytest.raises(ValueError, match="needs a name in each folder"):
        partition_keys(made, "connect")
    with pytest.raises(ValueError, match="named topic"):
        partition_keys(section(partitioner="field", partition_fields="Topic").partitioning, "connect")


def test_a_partitioning_travels_in_settings():
    for made in (
        section(partitioner="field", partition_fields=("id", "at")),
        section(partitioner="hourly", timezone="Asia/Kolkata", timestamp_extractor="record"),
    ):
        assert PinnedFiles.of(made.writer("t", None, maintained=False)).partitioning == made.partitioning


# Folders and names


@given(st.text())
def test_any_name_is_one_folder_and_can_be_read_back(name):
    folder = escaped(name)
    assert "/" not in folder
    assert folder not in ("", ".", "..")
    if name:
        assert unquote(folder) == name


def test_a_wall_clock_s_folder_is_by_its_own_clock_over_daylight_saving():
    made = section(partitioner="hourly", timezone="Europe/Berlin").partitioning
    hours = [(2026, 3, 29, 0), (2026, 3, 29, 1), (2026, 10, 25, 0), (2026, 10, 25, 1)]
    folders = [made.folders(0, {}, datetime(*hour, 30, tzinfo=UTC), Texts()) for hour in hours]
    assert [f[-1] for f in folders] == ["hour=01", "hour=03", "hour=02", "hour=02"]
    assert folders[0][:3] == ["year=2026", "month=03", "day=29"]


@given(st.integers(-(10**16), 10**16), st.integers(1, 10**10))
def test_a_folder_s_stretch_begins_at_or_before_its_times(local, duration):
    made = section(partitioner="daily").partitioning
    changed = replace(made, duration=duration)
    begin = changed.begin(local)
    assert begin <= local


def test_names_are_those_of_kafka_connect():
    assert file_name("t", 3, 0, 99, ".avro") == "t+3+0000000000+0000000099.avro"
    assert file_name("a/b", 0, 10**11, 10**11, ".avro") == "a%2Fb+0+100000000000+100000000000.avro"
    assert extension("parquet", "snappy") == ".parquet"
    assert extension("json", "gzip") == ".json.gz"


# What a participant reports


def data_file(path: str = "topics/t/f.avro", staged: str = f"_sluice/{INSTANT}/a/f.avro") -> DataFile:
    return DataFile(staged, path, 3, "crc32:0")


def test_files_travel_in_a_committable():
    sent = committable("f", "connect", [data_file()], 7)
    read = Committable.of_wire(sent.as_wire())
    assert (read.rows, read.bytes) == (7, 3)
    assert files_of([read], INSTANT, "topics", "connect") == [data_file()]


@pytest.mark.parametrize(
    ("path", "staged"),
    [
        ("topics/../../x", f"_sluice/{INSTANT}/a/f"),
        ("_sluice/log/0000000001.json", f"_sluice/{INSTANT}/a/f"),
        ("elsewhere/f", f"_sluice/{INSTANT}/a/f"),
        ("topics/t/f", "_sluice/20991123101112131/a/f"),
        ("topics/t/f", "topics/t/g"),
        ("topics/t//f", f"_sluice/{INSTANT}/a/f"),
        ("topics/t/f\n", f"_sluice/{INSTANT}/a/f"),
    ],
)
def test_a_status_that_names_other_files_is_refused(path, staged):
    with pytest.raises(IntervalError, match="none of this interval's"):
        files_of([committable("f", "connect", [data_file(path, staged)], 1)], INSTANT, "topics", "connect")


def test_an_interval_s_folder_holds_its_own_files_alone():
    with pytest.raises(IntervalError, match="none of this interval's"):
        files_of([committable("f", "interval", [data_file()], 1)], INSTANT, "topics", "interval")


@pytest.mark.parametrize(
    "payload",
    [
        {},
        {"layout": "connect"},
        {"layout": "connect", "files": [{}]},
        {"layout": "connect", "files": [{**vars(data_file()), "bytes": float("inf")}]},
        {"layout": "connect", "files": [{**vars(data_file()), "bytes": "5"}]},
        {"layout": "connect", "files": [{**vars(data_file()), "path": 5}]},
    ],
)
def test_a_status_without_files_is_refused(payload):
    with pytest.raises(IntervalError):
        files_of([Committable(rows=1, payload=payload)], INSTANT, "topics", "connect")


def test_two_files_of_one_name_are_refused():
    twice = [committable("f", "connect", [data_file()], 1)] * 2
    with pytest.raises(IntervalError, match="two files one name"):
        files_of(twice, INSTANT, "topics", "connect")


# The log


def _log(folder, number: int) -> tuple[IntervalLog, list[str]]:
    storage = LocalStorage(folder)
    storage.make_folder("_sluice/log")
    instants = [f"{INSTANT[:-4]}{i * 3:04d}" for i in range(1, number + 1)]
    for i, instant in enumerate(instants, 1):
        storage.create(log_entry(i), Record(instant, "connect", "avro", "id BIGINT", 1, [data_file()]).to_json())
    return IntervalLog(storage), instants


@pytest.mark.parametrize("number", [0, 1, 2, 3, 7, 8, 9, 31])
def test_the_last_one_and_each_of_the_others_are_found(tmp_path, number):
    log, instants = _log(tmp_path, number)
    assert log.last() == number
    for i, instant in enumerate(instants, 1):
        found = log.find(instant)
        assert found is not None
        assert (found[0], found[1].instant) == (i, instant)
        assert log.find(str(int(instant) + 1)) is None
    assert log.find(INSTANT[:-4] + "0000") is None


def test_the_newest_come_first_from_the_last_or_a_number_on_and_voided_ones_are_left_out(tmp_path):
    log, _ = _log(tmp_path, 4)
    assert [number for number, _ in log.newest_first()] == [4, 3, 2, 1]
    assert [number for number, _ in log.newest_first(2)] == [2, 1]
    assert list(log.newest_first(0)) == []
    LocalStorage(tmp_path).create(log_entry(5), Record.void("9" * 17, INSTANT).to_json())
    assert [number for number, _ in log.newest_first()] == [4, 3, 2, 1]


def test_finding_the_last_one_costs_no_listing(tmp_path):
    _log(tmp_path, 500)
    asked = []
    known = LocalStorage.size

    class Counting(LocalStorage):
        def size(self, path):
            asked.append(path)
            return known(self, path)

    log = IntervalLog(Counting(tmp_path))
    assert log.last() == 500
    assert len(asked) < 25
    asked.clear()
    assert log.last() == 500
    assert len(asked) == 2
    for number in (501, 502):
        (tmp_path / log_entry(number)).touch()
    assert log.last() == 502


def test_the_last_one_is_found_though_others_were_taken_out(tmp_path):
    log, _ = _log(tmp_path, 5)
    assert log.last() == 5
    for number in (5, 4):
        (tmp_path / log_entry(number)).unlink()
        assert log.last() == number - 1
    for number in (4, 3, 2, 1):
        (tmp_path / log_entry(number)).unlink(missing_ok=True)
    assert log.last() == 0


def test_a_record_that_cannot_be_read_stops_it(tmp_path):
    log, _ = _log(tmp_path, 1)
    (tmp_path / log_entry(1)).write_text('{"version": 2}')
    with pytest.raises(ActionRequiredError, match="can't be read"):
        log.read(1)


# A local disk


def test_a_rename_never_goes_over_another_file(tmp_path):
    storage = LocalStorage(tmp_path)
    for name in ("a", "b"):
        storage.create(name, name.encode())
    with pytest.raises(FileExistsError):
        storage.rename("a", "b")
    with pytest.raises(FileNotFoundError):
        storage.rename("c", "d")
    for folder in ("x", "y"):
        storage.make_folder(folder)
        storage.create(f"{folder}/f", b"")
    with pytest.raises(FileExistsError):
        storage.rename("x", "y")
    with pytest.raises(FileExistsError):
        storage.rename("x", "a")
    assert storage.read("b") == b"b"
    storage.rename("a", "d")
    assert (storage.exists("a"), storage.size("d")) == (False, 1)


def test_a_file_where_a_folder_should_be_needs_a_person(tmp_path):
    storage = LocalStorage(tmp_path)
    storage.create("a", b"")
    for path in ("a", "a/b"):
        with pytest.raises(ActionRequiredError, match="a file of its name"):
            storage.make_folder(path)


def test_what_another_process_deletes_meanwhile_is_gone(tmp_path, monkeypatch):
    storage = LocalStorage(tmp_path)
    storage.make_folder("a/b")
    storage.create("a/b/c", b"")
    unlink = os.unlink

    def twice(path, **more):
        unlink(path, **more)
        unlink(path, **more)

    monkeypatch.setattr(os, "unlink", twice)
    assert storage.delete("a")
    assert not storage.exists("a")
    assert not storage.delete("a")


def test_a_full_disk_and_a_missing_right_need_a_person(tmp_path, monkeypatch):
    storage = LocalStorage(tmp_path)
    storage.create("a", b"")

    def fails(number):
        def link(*_):
            raise OSError(number, "no")

        return link

    for number, kind in ((errno.ENOSPC, "act"), (errno.EPERM, "act"), (errno.EIO, "retry")):
        monkeypatch.setattr(os, "link", fails(number))
        with pytest.raises(Exception, match="Next step") as caught:
            storage.rename("a", "b")
        assert caught.value.recovery == kind


# What Kafka Connect has left


def left_by_connect(*ranges: tuple[int, int, int], topic: str = "flights") -> list[str]:
    return [f"day={n % 3}/{topic}+{p}+{start:010d}+{end:010d}.avro" for n, (p, start, end) in enumerate(ranges)]


def test_a_takeover_goes_on_behind_the_last_file_of_each_partition():
    files = left_by_connect((0, 100, 199), (0, 0, 99), (2, 7, 7), (0, 200, 200))
    others = ["x.avro", "_SUCCESS", "flights+1+0000000000.avro", *left_by_connect((1, 0, 9), topic="other")]
    assert next_offsets([*files, *others], "flights", "topics/flights") == {0: 201, 2: 8}
    assert next_offsets(["a/flights+0+3+0000000004.snappy.parquet", "flights+0+5+5"], "flights", "f") == {0: 6}
    assert next_offsets([], "flights", "f") == {}
    digits = "9" * 5000  # no file of Connect's has a number that is larger than any offset
    assert next_offsets([f"flights+0+0+{digits}.avro", f"flights+{digits}+0+1.avro"], "flights", "f") == {}


@pytest.mark.parametrize(
    ("ranges", "says"),
    [
        ([(0, 0, 9), (0, 12, 19)], r"flights\[0\]: offsets \[10, 12\) are missing between day=0/flights.+19\.avro"),
        ([(3, 0, 9), (3, 9, 19)], r"flights\[3\]: offsets from 9 on are in both"),
        ([(0, 0, 9), (0, 0, 9)], "offsets from 0 on are in both"),
        ([(0, 0, 99), (0, 10, 19), (0, 100, 109)], "offsets from 10 on are in both"),
        ([(0, 5, 4)], "ends before it begins"),
        ([(0, n * 2, n * 2) for n in range(9)], "and 3 more"),
    ],
)
def test_a_takeover_refuses_what_does_not_follow_each_other(ranges, says):
    with pytest.raises(ActionRequiredError, match=says) as caught:
        next_offsets(left_by_connect(*ranges), "flights", "topics/flights")
    assert "starting_offsets" in str(caught.value)


# Changes of columns


def struct(**columns: str) -> dict:
    """A struct; a type that ends with `!` may not be null."""
    return {
        "type": "struct",
        "fields": [
            {"name": n, "type": k.removesuffix("!"), "nullable": not k.endswith("!")} for n, k in columns.items()
        ],
    }


def array(of: str) -> dict:
    return {"type": "array", "elementType": of}


@pytest.mark.parametrize(
    ("before", "now", "backward", "forward"),
    [
        ({"a": "long"}, {"a": "long"}, None, None),
        ({"a": "long"}, {"a": "long", "b": "string"}, None, None),
        ({"a": "long", "b": "string"}, {"A": "long"}, None, None),
        ({"a": "long"}, {"a": "long", "b": "string!"}, "new column `b` may not be null", None),
        ({"a": "long", "b": "string!"}, {"a": "long"}, None, "earlier column `b` may not be null"),
        ({"a": "integer"}, {"a": "long"}, None, "earlier column `a` is INT, and in new files it is BIGINT"),
        ({"a": "long"}, {"a": "integer"}, "new column `a` is INT, and in earlier files it is BIGINT", None),
        ({"a": "byte"}, {"a": "short"}, None, None),
        ({"a": "integer"}, {"a": "double"}, None, "earlier column `a` is INT"),
        ({"a": "long"}, {"a": "double"}, "new column `a` is DOUBLE", "earlier column `a` is BIGINT"),
        ({"a": "string"}, {"a": "long"}, "new column `a` is BIGINT", "earlier column `a` is STRING"),
        ({"a": "decimal(8,2)"}, {"a": "decimal(10,2)"}, "DECIMAL\\(10,2\\)", "DECIMAL\\(8,2\\)"),
        ({"a": "long"}, {"a": "long!"}, "in earlier files it may be", None),
        ({"a": "long!"}, {"a": "long"}, None, "in new files it may be"),
        ({"a": array("integer")}, {"a": array("long")}, None, r"`a\[\]`"),
        ({"a": struct(x="long")}, {"a": struct(x="long", y="long!")}, "`a.y` may not be null", None),
        ({"a": struct(x="long")}, {"a": "string"}, "STRING, and in earlier files it is STRUCT", "STRUCT<x: BIGINT>"),
    ],
)  # fmt: skip
def test_changes_of_columns_are_compatible_or_named(before, now, backward, forward):
    def columns(of: dict) -> dict:
        made = struct(**{name: kind for name, kind in of.items() if isinstance(kind, str)})
        nested = [{"name": n, "type": k, "nullable": True} for n, k in of.items() if not isinstance(k, str)]
        return {**made, "fields": [*made["fields"], *nested]}

    for wanted, says in (("backward", [backward]), ("forward", [forward]), ("full", [backward, forward])):
        found = incompatible(columns(before), columns(now), wanted)
        expected = [one for one in says if one]
        assert len(found) == len(expected), found
        assert all(re.search(one, "; ".join(found)) for one in expected), found
    assert incompatible(columns(before), columns(now), "none") == []


def test_an_avro_field_that_may_be_null_is_null_by_default_at_each_depth():
    def record(name: str, *fields: dict) -> dict:
        return {"type": "record", "name": name, "fields": list(fields)}

    inner = record("i", {"name": "x", "type": ["int", "null"]}, {"name": "y", "type": "int"})
    now = record("i", {"name": "x", "type": ["null", "int"], "default": None}, {"name": "y", "type": "int"})
    made = with_defaults(
        record(
            "r",
            {"name": "s", "type": inner},
            {"name": "l", "type": [{"type": "array", "items": [inner, "null"]}, "null"]},
            {"name": "m", "type": {"type": "map", "values": inner}},
            {"name": "d", "type": [{"type": "int", "logicalType": "date"}, "null"]},
        )
    )
    assert [field["type"] for field in made["fields"]] == [
        now,
        ["null", {"type": "array", "items": [now, "null"]}],
        {"type": "map", "values": now},
        ["null", {"type": "int", "logicalType": "date"}],
    ]
    assert [field.get("default", "none") for field in made["fields"]] == ["none", None, "none", None]


def test_rows_of_several_ranges_in_a_task_are_sorted_so_that_each_file_s_come_together(monkeypatch):
    """Else Spark keeps some files open, and orders the other rows by their files alone."""
    monkeypatch.setattr(FilesWriter, "_placed", lambda _, rows, *, in_order=False: (rows, in_order))
    monkeypatch.setattr(FilesWriter, "_write", lambda _, placed: placed)
    writer = object.__new__(FilesWriter)
    assert writer.write_gathered("rows") == ("rows", True)
    assert writer.write("rows") == ("rows", False)
