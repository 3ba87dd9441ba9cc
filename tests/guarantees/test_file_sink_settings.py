"""What files are for besides: taking over from Kafka Connect, changes of columns, sizes; and a disk that is full."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections import Counter

import pytest

from sluice.errors import ActionRequiredError
from sluice.jvm import schema

from .harness.files import FileFlow, rows_of
from .harness.readers import DDL


@pytest.fixture
def make_files(tmp_path, bootstrap, shared_jvm, drivers, topic_name):
    def make(partitions: int = 2, **settings) -> FileFlow:
        flow = FileFlow(tmp_path, bootstrap, shared_jvm, drivers, topic_name("t"), **settings)
        flow.create_topic(partitions)
        return flow

    return make


def _settled(flow: FileFlow) -> None:
    """Rows are the records, and nothing is left beside the log."""
    flow.check()
    assert flow.left() == []
    assert flow.committed() == list(range(1, len(flow.log()) + 1))


def test_it_goes_on_where_kafka_connect_has_stopped(make_files):
    """Its files stay as they are; a partition without files begins where starting_offsets says; dry runs say it."""
    flow = make_files(3, sink__files__layout="connect", sink__files__takeover="confluent")
    flow.produce(30, partitions=(0, 1, 2))
    here = flow.topics / flow.topic
    left = [f"year=2026/month=01/{flow.topic}+0+{s:010d}+{e:010d}.avro" for s, e in ((0, 3), (4, 6))]
    left.append(f"year=2026/month=02/{flow.topic}+2+0000000000+0000000009.avro")
    for name in left:
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_bytes(b"by Connect")
    under_way = flow.topics / "+tmp" / flow.topic / f"{flow.topic}+0+0000000007+0000000008.avro"
    under_way.parent.mkdir(parents=True)
    under_way.write_bytes(b"never committed")
    planned = flow.coordinator().start(flow.run(dry_run=True))
    assert f"{flow.topic}[0] [7, 10), {flow.topic}[1] [0, 10)" in planned.summary
    assert flow.topic + "[2]" not in planned.summary
    flow.interval()
    own = {
        name: file
        for name, file in flow.files().items()
        if file.read_bytes() not in (b"by Connect", b"never committed")
    }
    wanted = [s for s in flow.sent if s.offset >= {0: 7, 1: 0, 2: 10}[s.partition]]
    assert Counter(pair for file in own.values() for pair in rows_of(file)) == Counter((s.id, s.value) for s in wanted)
    assert {f"{flow.topic}/{name}" for name in left} <= flow.files().keys()
    flow.produce(30, partitions=(0, 1, 2))
    (here / left[1]).unlink()  # whoever deletes old files changes nothing any more
    flow.interval()
    assert flow.note() is not None
    assert sum(record["rows"] for record in flow.log()) == len(wanted) + 30


def test_a_takeover_is_refused_where_the_topic_does_not_go_on(make_files):
    flow = make_files(1, sink__files__layout="connect", sink__files__takeover="confluent")
    flow.produce(10, partitions=(0,))
    file = flow.topics / flow.topic / f"{flow.topic}+0+0000000000+0000000010.avro"
    file.parent.mkdir(parents=True)
    file.touch()
    with pytest.raises(ActionRequiredError, match=r"can't be read from where another loader has stopped.+log_end=10"):
        flow.start()
    file.rename(file.with_name(f"{flow.topic}+0+0000000002+0000000009.avro"))
    flow.produce(5, partitions=(0,))
    assert flow.interval().records == 5


def test_a_change_of_columns_that_is_not_allowed_is_refused_before_anything_is_opened(make_files):
    flow = make_files(1, sink__files__schema_compatibility="backward")
    flow.produce(5, partitions=(0,))
    flow.interval()
    flow.set(sink__files__schema=f"{DDL}, extra BIGINT NOT NULL")
    flow.produce(5, partitions=(0,))
    for request in ({}, {"dry_run": True}):
        with pytest.raises(ActionRequiredError, match=r"not backward compatible.+`extra` may not be null"):
            flow.coordinator().start(flow.run(**request))
    assert flow.left() == []
    flow.set(sink__files__schema=f"{DDL}, extra BIGINT")
    flow.interval()
    flow.set(sink__files__schema=DDL, sink__files__schema_compatibility="forward")
    flow.produce(5, partitions=(0,))
    flow.interval()
    _settled(flow)


def test_files_are_about_as_large_as_the_pipeline_asks(make_files):
    """By what the last interval's rows took, and so not before there was one."""
    flow = make_files(1, sink__files__target_bytes_per_file=3000, sink__files__codec="none")
    flow.produce(1000, partitions=(0,))
    flow.interval()
    (whole,) = flow.log()[0]["files"]
    per_row = whole["bytes"] / 1000
    flow.produce(1000, partitions=(0,))
    flow.interval()
    sizes = [one["bytes"] for one in flow.log()[1]["files"]]
    wanted = int(3000 / per_row)
    assert len(sizes) in (1000 // wanted, 1000 // wanted + 1, 1000 // wanted + 2)
    assert max(sizes) < 3000 + 1000  # a file's own head counts, too
    _settled(flow)


@pytest.fixture
def small_disk(tmp_path):
    """A file system of its own, of 2 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)], capture_output=True).returncode:
        pytest.skip("nobody but root may mount a file system")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_full_disk_is_named_and_nothing_is_half_there(make_files, small_disk):
    flow = make_files()
    flow.path = small_disk / "table"
    flow.set(sink__files__path=str(flow.path))
    flow.produce(20)
    flow.interval()
    flow.produce(20)
    started = flow.start()
    before = flow.rows(metadata=False)
    filling = small_disk / "filling"
    for step in ("write", "commit", "mark"):
        if step == "mark":
            commit = ("commit", "--control-offset", str(started.control_offset))
            assert flow.step(*commit, failpoint="sink.before_committed_mark=kill").killed
        _fill(filling)
        if step == "write":
            job = flow.write(started)
            assert job.wait() == 1
            assert "file system is full, or a quota of it is" in job.text()
        else:
            with pytest.raises(ActionRequiredError, match="disk is full, or its quota is"):
                flow.commit(started)
        assert flow.committed() == [1]
        if step != "mark":
            assert (flow.rows(metadata=False), len(flow.log())) == (before, 1)
        filling.unlink()
        if step == "write":
            flow.write_all(started)
    flow.commit(started)
    _settled(flow)
    assert [json.loads(file.read_text())["rows"] for file in (flow.path / "_sluice" / "committed").iterdir()] == [
        20,
        20,
    ]


def _fill(file) -> None:
    """Write until there is no room."""
    with file.open("wb", buffering=0) as filling, contextlib.suppress(OSError):
        while True:
            filling.write(b"x" * 4096)


def test_what_is_said_of_plain_columns_without_a_jvm_is_what_spark_and_hudi_say(shared_jvm, monkeypatch):
    words = ("boolean", "tinyint", "byte", "SMALLINT", "short", "int", "INTEGER", "bigint", "long", "float", "real",
             "double", "string", "binary", "date", "timestamp")  # fmt: skip
    ddl = ", ".join(f"{'aB'[i % 2]}_{i} {word}{' NOT  NULL' * (i % 3 == 0)}" for i, word in enumerate(words))
    ddl += ", select INT,\n null STRING, _x INT"
    with shared_jvm() as jvm:
        struct = schema.struct_of_ddl(jvm, ddl)
        plain = schema.table_schema(jvm, "a-table", struct)
        asked = []
        for name in ("plain_struct", "plain_ddl", "plain_avro"):
            monkeypatch.setattr(schema, name, lambda *_: asked.append(True))
        assert schema.struct_of_ddl(jvm, ddl) == struct
        assert schema.table_schema(jvm, "a-table", struct) == plain
        assert len(asked) == 3
