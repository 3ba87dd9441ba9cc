"""The timeline's file names, in both layouts, and commit metadata in both forms. Real tables: tests/page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import fastavro
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from sluice.errors import ActionRequiredError
from sluice.sinks.hudi.timeline import Timeline, TimelineFiles

METADATA = {
    "partitionToWriteStats": {"p=1": [{"numWrites": 3, "totalWriteBytes": 40}], "p=2": [{"numWrites": 4}]},
    "extraMetadata": {"schema": "{}"},
    "operationType": "UPSERT",
}


@pytest.fixture
def table(tmp_path: Path):
    def make(folder: str, *names: str, content: bytes = b"") -> TimelineFiles:
        timeline = tmp_path / "table" / ".hoodie" / folder
        timeline.mkdir(parents=True)
        for name in names:
            (timeline / name).write_bytes(content)
        return TimelineFiles(f"file://{tmp_path}/table")

    return make


def read(files: TimelineFiles) -> Timeline:
    found = files.read()
    assert found is not None
    return found


def test_the_layout_of_table_version_8(table):
    timeline = read(
        table(
            "timeline",
            "20260101000000000.commit.requested", "20260101000000000.inflight",
            "20260101000000000_20260101000005000.commit", ".20260101000000000_20260101000005000.commit.crc",
            "20260102000000000.deltacommit.requested", "20260102000000000.deltacommit.inflight",
            "20260103000000000_20260103000005000.clean", "history",
        )
    )  # fmt: skip
    assert [(i.requested, i.action, i.pending) for i in timeline.instants.values()] == [
        ("20260101000000000", "commit", False),
        ("20260102000000000", "deltacommit", True),
        ("20260103000000000", "clean", False),
    ]
    stands = {i: timeline.standing(i) for i in ("20250101000000000", "20260101000000000", "20260102000000000")}
    assert list(stands.values()) == ["archived", "completed", "pending"]
    assert timeline.standing("20260104000000000") == "absent"
    assert [i.requested for i in timeline.of_others(["20260101000000000"])] == ["20260103000000000"]


def test_the_layout_before_it(table):
    names = ("20250101000000000.commit.requested", "20250101000000000.inflight", "20250101000000000.commit")
    timeline = read(table(".", *names, "20250102000000000.inflight", "hoodie.properties"))
    assert [(i.requested, i.action, i.pending) for i in timeline.instants.values()] == [
        ("20250101000000000", "commit", False),
        ("20250102000000000", "commit", True),
    ]


def test_commit_metadata_as_json_and_as_avro(table, tmp_path: Path):
    files = table(".", "20250101000000000.commit", content=json.dumps(METADATA).encode())
    (instant,) = read(files).instants.values()
    facts = files.facts(instant)
    assert (facts.operation, facts.rows, facts.bytes_written, facts.files) == ("UPSERT", 7, 40, 2)
    assert (facts.table_partitions, facts.extra) == (2, ("schema",))
    schema = {"type": "record", "name": "m", "fields": [
        {"name": "operationType", "type": "string"},
        {"name": "partitionToWriteStats", "type": {"type": "map", "values": {"type": "array", "items": {
            "type": "record", "name": "s", "fields": [{"name": "numWrites", "type": "long"}]}}}},
    ]}  # fmt: skip
    folder = tmp_path / "table" / ".hoodie" / "timeline"
    folder.mkdir()
    record = {"operationType": "INSERT", "partitionToWriteStats": {"": [{"numWrites": 9}]}}
    with (folder / "20260101000000000_20260101000001000.commit").open("wb") as file:
        fastavro.writer(file, schema, [record])
    (instant,) = read(files).instants.values()
    assert (files.facts(instant).operation, files.facts(instant).rows) == ("INSERT", 9)


def test_a_table_that_is_not_there_yet(tmp_path: Path):
    assert TimelineFiles(f"file://{tmp_path}/none").read() is None


def test_a_file_system_without_a_reader_is_said():
    with pytest.raises(ActionRequiredError, match=r"no reader for the table's file system.*Next step: install"):
        TimelineFiles("abfss://container@account/table").read()


def test_a_listing_that_fsspec_has_kept_is_not_taken_for_the_timeline(monkeypatch):
    """As s3fs keeps listings, for as long as the process lives."""

    class Keeping(MemoryFileSystem):
        kept: ClassVar[dict[str, Any]] = {}

        def ls(self, path: str, detail: bool = True, **more: Any) -> Any:
            if path not in self.kept:
                self.kept[path] = super().ls(path, detail, **more)
            return self.kept[path]

        def invalidate_cache(self, path: str | None = None) -> None:
            self.kept.clear()

    files = Keeping()
    monkeypatch.setattr("sluice.sinks.hudi.timeline.file_system", lambda _: (files, "/table"))
    folder = "/table/.hoodie/timeline"
    files.pipe(f"{folder}/20260101000000000_20260101000005000.commit", b"")
    table = TimelineFiles("memory:///table")
    assert list(read(table).instants) == ["20260101000000000"]
    files.pipe(f"{folder}/20260102000000000_20260102000005000.commit", b"")
    assert list(read(table).instants) == ["20260101000000000", "20260102000000000"]
