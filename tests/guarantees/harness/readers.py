"""What readers of both kinds see of a table, and what they should see."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from sluice.jvm.gateway import HudiJvm, lean_jvm
from sluice.pipeline import Pipeline
from sluice.protocol.identity import under_present_names
from sluice.protocol.offsets import TRANSACTION_KEY, Checkpoint, holds_checkpoint, read_checkpoint
from sluice.protocol.offsets import TopicPartition as KafkaPartition

from .drivers import Drivers
from .kafka import Sent, Topic

DDL = "id BIGINT, v STRING, p STRING"
_META_COLUMNS = ("commit_time", "commit_seqno", "record_key", "partition_path", "file_name")


def rust_rows(path: Path) -> list[dict[str, Any]]:
    """A table's rows as hudi-rs reads them, without Hudi's own five columns."""
    from hudi import HudiTableBuilder

    rows = (row for batch in HudiTableBuilder.from_base_uri(str(path)).build().read() for row in batch.to_pylist())
    return [{name: value for name, value in row.items() if not name.startswith("_hoodie_")} for row in rows]


class SharedJvm:
    """One lean JVM of a test worker: the coordinator's steps run in it where no process has to die, and readers too.

    Args:
        hadoop: settings of Hadoop's.
    """

    def __init__(self, hadoop: dict[str, str] | None = None) -> None:
        self._hadoop = hadoop
        self._context: AbstractContextManager[HudiJvm] | None = None
        self._jvm: HudiJvm | None = None

    @contextmanager
    def __call__(self) -> Iterator[HudiJvm]:
        if self._jvm is None:
            self._context = lean_jvm(self._hadoop)
            self._jvm = self._context.__enter__()
        yield self._jvm

    def close(self) -> None:
        if self._context is not None:
            self._context.__exit__(None, None, None)

    def files(self, path: str, *, metadata: bool) -> list[str]:
        """The base files that a reader of a copy-on-write table reads, by Hudi's own file system view."""
        with self() as jvm:
            hudi = jvm.jvm.org.apache.hudi
            builder = hudi.common.table.HoodieTableMetaClient.builder()
            meta = builder.setConf(jvm.storage).setBasePath(path).build()
            context = hudi.client.common.HoodieJavaEngineContext(jvm.storage)
            config = hudi.common.config.HoodieMetadataConfig.newBuilder().enable(metadata).build()
            views = hudi.common.table.view
            if metadata:
                assert meta.getTableConfig().isMetadataTableAvailable(), "the table has no metadata table"
                view = views.FileSystemViewManager.createInMemoryFileSystemView(context, meta, config)
            else:
                done = meta.getActiveTimeline().getCommitsTimeline().filterCompletedInstants()
                view = views.HoodieTableFileSystemView.fileListingBasedFileSystemView(context, meta, done)
            view.loadAllPartitions()  # one by one, each of them would read all of the metadata table's files
            found = []
            for partition in view.getPartitionNames():
                files = view.getLatestBaseFiles(partition).iterator()
                while files.hasNext():
                    found.append(str(files.next().getPath()).removeprefix("file:"))
            view.close()
            return found

    def commits(self, path: str) -> list[dict[str, str]]:
        """Extra metadata of the completed commits on the active timeline, oldest first, with `instant` beside it."""
        with self() as jvm:
            builder = jvm.jvm.org.apache.hudi.common.table.HoodieTableMetaClient.builder()
            timeline = builder.setConf(jvm.storage).setBasePath(path).build().getActiveTimeline()
            done = timeline.getCommitsTimeline().filterCompletedInstants()
            commits = []
            for instant in done.getInstants():
                extra = dict(timeline.readCommitMetadata(instant).getExtraMetadata())
                commits.append({**{str(k): str(v) for k, v in extra.items()}, "instant": str(instant.requestedTime())})
            return commits

    def pending(self, path: str) -> list[str]:
        """Instants on the timeline that are neither committed nor rolled back."""
        with self() as jvm:
            builder = jvm.jvm.org.apache.hudi.common.table.HoodieTableMetaClient.builder()
            timeline = builder.setConf(jvm.storage).setBasePath(path).build().getActiveTimeline()
            return [str(i.requestedTime()) for i in timeline.filterInflightsAndRequested().getInstants()]


class Table(Topic):
    """A topic and the table that it is loaded into, as its readers see it."""

    def __init__(self, bootstrap: str, topic: str, path: Path, jvm: SharedJvm, drivers: Drivers) -> None:
        super().__init__(bootstrap, topic)
        self.path = path
        self.jvm = jvm
        self.drivers = drivers
        self.others: Counter[tuple[int, str]] = Counter()  # rows that other writers have put into the table

    @property
    @abstractmethod
    def pipeline(self) -> Pipeline:
        """The pipeline that loads it."""

    def rows(self, *, metadata: bool) -> Counter[tuple[int, str]]:
        """All rows (id, v), for a reader that asks the metadata table or for one that lists files."""
        if self.pipeline.sink.hudi.operation == "upsert":
            found = self.drivers.idle().ask("read", str(self.path), metadata)
            return Counter((row[0], row[1]) for row in found)
        counter: Counter[tuple[int, str]] = Counter()
        for file in self.jvm.files(str(self.path), metadata=metadata):
            table = pq.read_table(file, columns=["id", "v"], partitioning=None)
            counter.update(zip(table["id"].to_pylist(), table["v"].to_pylist(), strict=True))
        return counter

    def read(self, *columns: str, metadata: bool = True) -> list[tuple[Any, ...]]:
        """The table's rows as Spark reads them, by these columns."""
        found: list[tuple[Any, ...]] = self.drivers.idle().ask("read", str(self.path), metadata, columns)
        return found

    def columns(self) -> set[str]:
        """The table's columns as Spark reads them, without Hudi's own five."""
        found: list[str] = self.drivers.idle().ask("columns", str(self.path))
        return set(found) - {f"_hoodie_{name}" for name in _META_COLUMNS}

    def schema(self) -> dict[str, Any]:
        """The type of the table's rows as Spark reads it, in Spark's JSON."""
        found: dict[str, Any] = json.loads(self.drivers.idle().ask("schema", str(self.path)))
        return found

    def note(self) -> dict[str, Any]:
        """Our note of the last interval, in its commit's metadata."""
        notes = [commit[TRANSACTION_KEY] for commit in self.commits() if TRANSACTION_KEY in commit]
        found: dict[str, Any] = json.loads(notes[-1])
        return found

    def all_columns(self, *, metadata: bool = True) -> list[dict[str, Any]]:
        """All rows with all of their columns, as Spark reads them."""
        found: list[dict[str, Any]] = self.drivers.idle().ask("read_all", str(self.path), metadata)
        return found

    def data_files(self, instant: str | None = None) -> list[Path]:
        """The data files that lie in the table's folders, registered or not."""
        files = [f for f in self.path.rglob("*") if f.is_file() and ".hoodie" not in f.parts and ".crc" not in f.name]
        data = [f for f in files if f.name.endswith(".parquet") or ".log." in f.name]
        return [f for f in data if instant is None or f"_{instant}." in f.name]

    def markers(self, instant: str) -> list[Path]:
        return list((self.path / ".hoodie" / ".temp" / instant).rglob("*.marker.*"))

    def rows_by_rust(self) -> Counter[tuple[int, str]]:
        """The same through hudi-rs, which shares no code with what wrote the table."""
        return Counter((row["id"], row["v"]) for row in rust_rows(self.path))

    def commits(self) -> list[dict[str, str]]:
        return self.jvm.commits(str(self.path))

    def checkpoint(self) -> Checkpoint:
        """The offsets of the table's last commit that has any: table services commit none."""
        commits = [commit for commit in self.commits() if holds_checkpoint(commit)]
        if not commits:
            return Checkpoint()
        stands = read_checkpoint(commits[-1], self.connection, [self.topic])
        return under_present_names(stands, {self.connection: None})

    def offsets(self) -> dict[int, int]:
        return self._offsets(self.checkpoint())

    def _offsets(self, checkpoint: Checkpoint) -> dict[int, int]:
        topic = checkpoint.topic(self.connection, self.topic)
        return dict(topic.partitions) if topic else {}

    def append_by_spark(self, ids: range, **more: str) -> Counter[tuple[int, str]]:
        """A commit by Hudi's data source for Spark, which knows nothing of ours."""
        rows = [(i, f"spark{i}", f"p{i % 2}") for i in ids]
        options = {
            "hoodie.table.name": self.topic,
            "hoodie.datasource.write.operation": "bulk_insert",
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.datasource.write.partitionpath.field": "p",
            "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.SimpleKeyGenerator",
            "hoodie.bulkinsert.shuffle.parallelism": "1",
            "hoodie.metadata.index.column.stats.enable": "true",
            "hoodie.embed.timeline.server": "false",
            **{name.replace("__", "."): value for name, value in more.items()},
        }
        self.drivers.idle().ask("append", str(self.path), DDL, rows, options)
        added = Counter((row[0], row[1]) for row in rows)
        self.others += added
        return added

    def restore(self, instant: str) -> None:
        """Hudi's own savepoint and restore, which take all commits after the instant off the table."""
        self.drivers.idle().ask("restore", str(self.path), instant)

    def cluster_by_spark(self, planned: str | None = None) -> str:
        """Another writer's clustering: plan it, or carry a plan out; its instant."""
        instant: str = self.drivers.idle().ask("cluster", str(self.path), planned)
        return instant

    def where(self, condition: str) -> list[int]:
        """Ids of the rows that Spark finds by a condition, for which it may leave out table partitions."""
        ids: list[int] = self.drivers.idle().ask("where", str(self.path), condition)
        return ids

    def covered(self, checkpoint: Checkpoint | None = None) -> list[Sent]:
        """The records whose offsets the table has committed."""
        stands = self.checkpoint() if checkpoint is None else checkpoint
        committed = {
            p: stands.covered(KafkaPartition(self.connection, self.topic, p)) for p in {s.partition for s in self.sent}
        }
        return [s for s in self.sent if any(start <= s.offset < end for start, end in committed[s.partition])]

    def expected(self, offsets: Mapping[int, int] | None = None) -> Counter[tuple[int, str]]:
        """The rows that belong to the committed offsets: each record, or for upsert the last version of each key."""
        if offsets is None:
            return self._rows_of(self.covered())
        return self._rows_of([s for s in self.sent if s.offset < offsets.get(s.partition, 0)])

    def _rows_of(self, covered: Sequence[Sent]) -> Counter[tuple[int, str]]:
        if self.pipeline.sink.hudi.operation == "upsert":
            last = {s.id: s.value for s in sorted(covered, key=lambda s: s.offset)}
            return self.others + Counter(last.items())
        return self.others + Counter((s.id, s.value) for s in covered)

    def check(self, *, listing: bool = True, complete: bool = True) -> None:
        """Rows and offsets agree for readers of both kinds; `complete`: and Kafka holds no record beyond them."""
        checkpoint = self.checkpoint()
        expected = self._rows_of(self.covered(checkpoint))
        seen = self.rows(metadata=True)
        assert seen == expected, _difference("a reader by the metadata table", seen, expected)
        if listing:
            listed = self.rows(metadata=False)
            assert listed == expected, _difference("a reader that lists files", listed, expected)
        if complete:
            ends = self.log_ends()
            assert self._offsets(checkpoint) == ends
            assert sum(expected.values()) == len(expected), "the test itself sent a record twice"
            everything = self.expected(ends)
            assert expected == everything, _difference("the table", expected, everything)


def _difference(who: str, seen: Counter[Any], expected: Counter[Any]) -> str:
    more, fewer = seen - expected, expected - seen
    return f"{who} sees {more.total()} rows too many {list(more)[:5]} and misses {fewer.total()} {list(fewer)[:5]}"
