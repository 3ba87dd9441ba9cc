"""Hudi's sink keeps what `sluice.testing` asks of every sink: two processes, late files, deaths between its steps."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sluice.connectors.data import write_gathered, writer_of
from sluice.connectors.sink import Ended
from sluice.pipeline import Hudi, Kafka, Pipeline, Sink, Source
from sluice.protocol.committable import Committable
from sluice.protocol.messages import StartCommit
from sluice.sinks.hudi.sink import HudiSink
from sluice.sinks.hudi.strays import Strays
from sluice.testing import SinkConformance, UpsertConformance, Version

from .harness.readers import rust_rows

_META = ("_hoodie_commit_time", "_hoodie_commit_seqno", "_hoodie_record_key", "_hoodie_partition_path")


class TestAppendTable(SinkConformance):
    """Files are written as a Spark job would write them, without Spark; Hudi itself commits them, in a JVM."""

    # Its calls are the JVM's, which test_coordinator_killed.py and test_rollback_killed.py kill.
    calls = ()
    test_a_process_may_die_at_each_call_of_an_interval = None
    test_a_process_may_die_at_each_call_of_a_roll_back = None

    @pytest.fixture(autouse=True)
    def _in_one_jvm(self, shared_jvm) -> None:
        self._jvm = shared_jvm

    def pipeline(self, folder: Path) -> Pipeline:
        hudi = Hudi(path=str(folder / "table"), schema_="id BIGINT")
        return Pipeline(name="t", source=Source(kafka=Kafka(topics=("t",))), sink=Sink(hudi=hudi))

    def sink(self, folder):
        return HudiSink(self.pipeline(folder), self._jvm)

    def capabilities(self):
        return self.pipeline(Path("/any")).sink.capabilities

    def write(self, folder: Path, table, instant: str, attempt: str, rows: Sequence[int]) -> list[Committable]:
        group = f"{uuid.uuid4()}-0"
        name = f"{group}_0-0-0_{instant}.parquet"
        base = folder / "table"
        mark = base / ".hoodie_partition_metadata"
        if not mark.exists():
            mark.write_text(f"#partition metadata\ncommitTime={instant}\npartitionDepth=0\n")
        marker = base / ".hoodie" / ".temp" / instant / f"{name}.marker.CREATE"
        marker.parent.mkdir(parents=True, exist_ok=True)
        marker.touch()
        columns = {
            **dict.fromkeys(_META, [instant] * len(rows)),
            "_hoodie_record_key": [f"{attempt}-{row}" for row in rows],
            "_hoodie_partition_path": [""] * len(rows),
            "_hoodie_file_name": [name] * len(rows),
            "id": list(rows),
        }
        pq.write_table(pa.table(columns), base / name)
        size = (base / name).stat().st_size
        stat = {
            "fileId": group, "path": name, "partitionPath": "", "prevCommit": "null", "numWrites": len(rows),
            "numInserts": len(rows), "numDeletes": 0, "numUpdateWrites": 0, "totalWriteErrors": 0,
            "totalWriteBytes": size, "fileSizeInBytes": size,
        }  # fmt: skip
        return [Committable.of_wire(stat)]

    def rows(self, folder):
        return [row["id"] for row in rust_rows(folder / "table")]

    def test_a_marker_that_is_made_while_a_sweep_is_on_stays(self, tmp_path, monkeypatch):
        """Nothing else says where the file that belongs to it is going to be."""
        with self._table(tmp_path) as table:
            instant, (late,) = self._late(tmp_path, table)
            markers = tmp_path / "table" / ".hoodie" / ".temp" / instant
            name = f"{uuid.uuid4()}-0_0-0-0_{instant}.parquet"
            marker = markers / "p1" / f"{name}.marker.CREATE"
            look = Strays._data_files

            def mark_and_look(strays, partition, instants):
                marker.parent.mkdir(exist_ok=True)
                marker.touch()
                return look(strays, partition, instants)

            with monkeypatch.context() as patched:
                patched.setattr(Strays, "_data_files", mark_and_look)
                assert table.sweep(Ended({instant: ()})) == [late.path]
            assert [file for file in markers.rglob("*") if file.is_file()] == [marker]
            assert table.sweep(Ended({instant: ()})) == []
            assert marker.exists()

            file = tmp_path / "table" / "p1" / name
            file.parent.mkdir()
            file.write_bytes(b"begun")
            assert table.sweep(Ended({instant: ()})) == [f"p1/{name}"]
            assert not file.exists()
            assert not markers.exists()

    def test_a_late_file_is_found_among_the_files_of_thousands_of_intervals(self, tmp_path):
        """Of so many the pattern by which files are found has the beginnings."""
        ended = {f"202601{day:02}{minute:06}000": set() for day in range(1, 5) for minute in range(1000)}
        with self._table(tmp_path) as table:
            instant, (late,) = self._late(tmp_path, table)
            others = [f"a_0-0-0_{name}.parquet" for name in ("20260102000017001", "20250102000017000")]
            strays = [f"a_0-0-0_{min(ended)}.parquet", f".b_{max(ended)}.log.1_0-0-0"]
            for name in (*others, *strays):
                (tmp_path / "table" / name).write_bytes(b"begun")
            assert sorted(table.sweep(Ended({**ended, instant: set()}, {""}))) == sorted([*strays, late.path])
            assert all((tmp_path / "table" / name).exists() for name in others)


@contextmanager
def _begun_in_time(table: Path, instant: str) -> Iterator[None]:
    """Have the instant on the timeline while an attempt writes: one that is late has begun before it was rolled back.

    Hudi looks for it when an upsert begins, and never again.
    """
    files = [table / ".hoodie" / "timeline" / f"{instant}.deltacommit.{state}" for state in ("requested", "inflight")]
    gone = [file for file in files if not file.exists()]
    for file in gone:
        file.touch()
    yield
    for file in gone:
        file.unlink()


# PySpark leaves it to the garbage collector to close the socket that rows came by.
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
class TestUpsertTable(UpsertConformance):
    """Versions are written by Sluice's own writer in Spark, and read as Spark's readers do: by the metadata table."""

    calls = ()
    test_a_process_may_die_at_each_call_of_an_interval = None
    test_a_process_may_die_at_each_call_of_a_roll_back = None

    @pytest.fixture(autouse=True)
    def _in_two_jvms(self, shared_jvm, spark) -> None:
        self._jvm, self._spark = shared_jvm, spark

    def pipeline(self, folder: Path) -> Pipeline:
        hudi = Hudi(
            path=str(folder / "table"),
            operation="upsert",
            record_key="id",
            ordering_field="ts",
            key_placement="trusted",
            schema_="id BIGINT, ts BIGINT, v STRING",
        )
        return Pipeline(name="t", source=Source(kafka=Kafka(topics=("t",))), sink=Sink(hudi=hudi))

    def sink(self, folder):
        return HudiSink(self.pipeline(folder), self._jvm)

    def capabilities(self):
        return self.pipeline(Path("/any")).sink.capabilities

    def write_versions(self, folder, table, instant, attempt, versions):
        rows = [(*v, "t", 0, offset) for offset, v in enumerate(versions)]
        return self._written(folder, table, instant, attempt, lambda writer: writer.write(self._frame(rows)))

    def write_ranges(self, folder, table, instant, attempt, ranges):
        places = [(v, number, offset) for number, some in enumerate(ranges) for offset, v in enumerate(some)]
        frame = self._frame([(*v, "t", number, offset) for v, number, offset in places]).coalesce(1)
        return self._written(folder, table, instant, attempt, lambda writer: write_gathered(writer, frame))

    def _frame(self, rows):
        columns = "id BIGINT, ts BIGINT, v STRING, _kafka_topic STRING, _kafka_partition INT, _kafka_offset BIGINT"
        return self._spark.createDataFrame(rows, columns)

    def _written(self, folder, table, instant, attempt, write):
        start = StartCommit(
            table=table.writer.path, transaction=instant, epoch=1, dag_id="t", run_id="r", sender="coordinator",
            time=datetime.now(UTC), read_position=0, ranges=(), writer=table.writer,
            placement=self.pipeline(folder).sink.options.placement({"t": 1}),
        )  # fmt: skip
        with _begun_in_time(folder / "table", instant):
            return list(write(writer_of("hudi")(self._spark, start, attempt)).committables)

    def versions(self, folder):
        path = folder / "table"
        if not list(path.glob(".hoodie/timeline/*.deltacommit")):
            return []  # a table without a commit has no columns to read
        found = self._spark.read.format("hudi").load(str(path)).select("id", "ts", "v").collect()
        return [Version(*row) for row in found]
