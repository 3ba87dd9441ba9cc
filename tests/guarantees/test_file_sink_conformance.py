"""The file sink keeps what `sluice.testing` asks of every sink, in both layouts, killed at each call to the disk."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Literal

import pytest

from sluice.pipeline import Kafka, Pipeline, Sink, Source
from sluice.protocol.committable import Committable
from sluice.sinks.files.options import Files
from sluice.sinks.files.options.names import DataFile, committable
from sluice.sinks.files.sink import FilesSink
from sluice.sinks.files.storage import LocalStorage, Storage
from sluice.testing import SinkConformance


class _Files(SinkConformance):
    """Files are written as a Spark job would write them, without Spark."""

    layout: ClassVar[Literal["interval", "connect"]]

    @pytest.fixture(autouse=True)
    def _in_one_jvm(self, shared_jvm, monkeypatch) -> None:
        self._jvm = shared_jvm
        monkeypatch.setattr(os, "fsync", lambda _: None)  # processes die here, not machines: it only takes long

    def pipeline(self, folder: Path) -> Pipeline:
        files = Files(path=str(folder / "table"), layout=self.layout, format="json", schema_="id BIGINT")
        return Pipeline(name="t", source=Source(kafka=Kafka(topics=("t",))), sink=Sink(files=files))

    def sink(self, folder):
        return FilesSink(self.pipeline(folder), self._jvm)

    def capabilities(self):
        return self.pipeline(Path("/any")).sink.capabilities

    def write(self, folder: Path, table, instant: str, attempt: str, rows: Sequence[int]) -> list[Committable]:
        storage = self.storage(folder)
        own = f"_sluice/{instant}/{attempt}"
        storage.make_folder(own)
        found = []
        for name, some in self.split(instant, rows):
            staged = f"{own}/{name.rpartition('/')[2]}"
            storage.create(staged, "".join(json.dumps({"id": row}) + "\n" for row in some).encode())
            found.append(DataFile(staged, name, storage.size(staged), storage.checksum(staged)))
        return [committable(own, self.layout, found, len(rows))]

    def storage(self, folder: Path) -> Storage:
        return LocalStorage(folder / "table")

    def split(self, instant, rows):
        raise NotImplementedError

    def rows(self, folder):
        files = sorted((folder / "table" / "topics").rglob("*.json"))
        return [json.loads(line)["id"] for file in files for line in file.read_text().splitlines()]


class TestIntervalLayout(_Files):
    """An interval of two files, which a reader sees both or neither of, at whatever call the process dies."""

    layout = "interval"

    def split(self, instant, rows):
        half = len(rows) // 2
        parts = [part for part in (rows[:half], rows[half:]) if part]
        return [(f"topics/{instant}/t/partition={i}/t+{i}+{i}+{i}.json", part) for i, part in enumerate(parts)]


class TestConnectLayout(_Files):
    """An interval of one file: each appears by itself."""

    layout = "connect"

    def split(self, instant, rows):
        return [(f"topics/t/partition=0/t+0+{rows[0]:010d}+{rows[-1]:010d}.json", rows)]
