"""The section `sink.files`, names of files, and what of a WRITE-STATUS is believed."""

from __future__ import annotations

import errno
import os
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
from sluice.sinks.files.log import IntervalLog, Record
from sluice.sinks.files.names import DataFile, committable, extension, file_name, files_of, log_entry
from sluice.sinks.files.options import Files
from sluice.sinks.files.partitioning import as_options, escaped, partitioning_of
from sluice.sinks.files.path_format import Texts
from sluice.sinks.files.storage import LocalStorage

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
        ({"path": "s3a://lake/flights"}, "Object stores don't"),
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
        ({"catalog_sync": {"hive": {"uris": "thrift://h:1"}}}, "sink.files doesn't write"),
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


def test_a_partitioning_travels_in_settings():
    made = section(partitioner="field", partition_fields=("id", "at")).partitioning
    assert partitioning_of(as_options(made)) == made
    made = section(partitioner="hourly", timezone="Asia/Kolkata", timestamp_extractor="record").partitioning
    assert partitioning_of(as_options(made)) == made


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
    changed = partitioning_of({**as_options(made), "duration": str(duration)})
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


@pytest.mark.parametrize("payload", [{}, {"layout": "connect"}, {"layout": "connect", "files": [{}]}])
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


def test_finding_the_last_one_costs_no_listing(tmp_path):
    _log(tmp_path, 500)
    asked = []
    known = LocalStorage.exists

    class Counting(LocalStorage):
        def exists(self, path):
            asked.append(path)
            return known(self, path)

    assert IntervalLog(Counting(tmp_path)).last() == 500
    assert len(asked) < 25


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
