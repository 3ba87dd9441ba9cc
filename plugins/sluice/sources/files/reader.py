"""Records of files as a write job reads them: lines or rows by Spark's own readers, in the log's order."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from sluice.connectors.data import PINNED_TYPE
from sluice.errors import ActionRequiredError, RetryableError, SluiceError
from sluice.jvm.sql import columns, literal
from sluice.kafka.config import KafkaSettings
from sluice.protocol.identity import LogId
from sluice.protocol.messages import PlannedRange, StartCommit
from sluice.rows.records import bad_record
from sluice.sources.files.disk import Disk
from sluice.sources.files.entries import BITS, Entry, Found, Storage, path_of, root_of
from sluice.sources.files.hadoop import storage_of
from sluice.sources.files.log import entries
from sluice.sources.files.options import DISK, FORMAT, HDFS
from sluice.sources.files.rows import RowsOfFiles, UnreadableFileError, is_damage
from sluice.sources.files.s3 import SETTING, of_source
from sluice.sources.files.scan import FACTS, Stretch, scan
from sluice.sources.kafka.cluster import KafkaCluster
from sluice.storages import of_storage

_AT_ONCE = 16  # looks at files: in a bucket each is a request
_MISHEADED = "sluice: the header differs"
_TOO_LONG = "sluice: a file has too many lines"
_BROKEN = (  # what Hadoop's codecs and zlib say
    "Unexpected end of input stream",
    "not a gzip file",
    "incorrect header check",
    "incorrect data check",
    "invalid stored block",
    "invalid block type",
    "bad block header",
    "stored gzip CRC failed",
    "stored gzip size doesn't match",
)


class FilesReader:
    """Reads one folder's files in one Spark session; see `sluice.connectors.data.SourceReader`.

    Args:
        spark: the session.
        settings: the cluster with the log.
    """

    def __init__(self, spark: SparkSession, settings: KafkaSettings) -> None:
        self._spark, self._settings = spark, settings
        self._disk = Disk()
        self._remote: dict[str, Storage] = {}
        self._seen: dict[str, Found] = {}
        self._known: dict[PlannedRange, list[Stretch]] = {}
        self._rows: RowsOfFiles | None = None

    def pinned(self, reading: Mapping[str, str]) -> FilesReader:
        """The reader of one interval; see `sluice.connectors.data.ReadsAsPinned`."""
        made = FilesReader(self._spark, self._settings)
        if FORMAT in reading:
            made._rows = RowsOfFiles(self._spark, reading[FORMAT], json.loads(reading[PINNED_TYPE]))
        return made

    def log_ids(self, topics: Collection[str]) -> Mapping[str, LogId]:
        """The ids of the log; see `sluice.connectors.data.IdentifiesLogs`."""
        cluster = KafkaCluster(self._settings)
        of_cluster = cluster.cluster_ids()[cluster.name]
        return {topic: LogId(of_cluster, id_) for topic, id_ in cluster.topic_ids(list(topics)).items()}

    def read(self, ranges: Sequence[PlannedRange], isolation_level: str, *, headers: bool = False) -> DataFrame:  # noqa: ARG002
        """The lines or rows of each range's files. An empty line is no record, and a last line needs no end.

        Raises:
            ActionRequiredError: a file isn't the one that the log names, or its columns don't fit.
            UnreadableFileError: a file's columns can't be read.
        """
        self.require_unchanged(ranges)
        return reduce(DataFrame.union, [self._range(r, headers=headers) for r in ranges])

    def require_unchanged(self, ranges: Sequence[PlannedRange]) -> None:
        """Check that each range's files are those of the log; see `sluice.connectors.data.ChecksAfterRead`.

        Raises:
            ActionRequiredError: one was replaced or deleted.
        """
        for planned in ranges:
            listed = self._entries(planned)
            looks = self._looks([entry.path for _, entry in listed])
            for (number, entry), found in zip(listed, looks, strict=True):
                try:
                    same = found is not None and entry.is_still(found)
                    if same and entry.grows:
                        same = self._disk.edges(entry.path, entry.end) == (entry.head, entry.tail)
                    elif same and found is not None:  # nor was another object there meanwhile, between two looks
                        same = self._seen.setdefault(entry.path, found) == found
                except FileNotFoundError:
                    same, found = False, None
                if not same:
                    raise _not_as_listed(planned, number, entry, is_there=found is not None)

    def _looks(self, paths: Sequence[str]) -> Iterator[Found | None]:
        """The files as they are now, some at a time."""
        storages = [self._storage(path) for path in paths]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            yield from pool.map(lambda storage, path: storage.look(path), storages, paths)

    def _storage(self, path: str) -> Storage:
        if path.startswith(DISK):
            return self._disk
        root = root_of(path)
        if root not in self._remote:
            session: Any = self._spark._jsparkSession
            self._remote[root] = storage_of(self._spark._jvm, session.sessionState().newHadoopConf(), path)
        return self._remote[root]

    def classified(self, error: Exception, start: StartCommit, ranges: Sequence[PlannedRange]) -> SluiceError | None:
        """The error for a bad record, with its file and line, and for a file that can't be read."""
        text = str(error)
        where = {"table": start.table, "instant": start.transaction}
        bad = bad_record(text, start.table, start.transaction)
        if bad is not None:
            bad.locate(**self._place(ranges, bad.where["partition"], bad.where["offset"]))
            return bad
        for mark, what in (
            (_MISHEADED, "A file's first line isn't the header that the pipeline names."),
            (_TOO_LONG, "A file has more lines than an offset can number."),
        ):
            if mark in text:
                path = text.split(mark, 1)[1].split("<", 1)[1].split(">", 1)[0]
                return ActionRequiredError(
                    what,
                    next_step="nothing of this interval was committed. Correct the file under another name and delete "
                    "this one, then pass over its offsets as docs/backfill.md says.",
                    file=path,
                    **where,
                )
        if self._rows is not None and is_damage(text):
            damaged = self._damaged(error, ranges)
            if damaged is None:
                return None
            return ActionRequiredError(
                f"A file is damaged or cut off, or it isn't one of {self._rows.kind}.",
                next_step="nothing of this interval was committed. Put the whole file there under another name, delete "
                "this one, and pass over its offsets as docs/backfill.md says.",
                file=damaged.path,
                reason=_reason(damaged.text),
                **where,
            )
        file = error.path if isinstance(error, UnreadableFileError) else self._named(text, ranges)
        if any(word in text for word in _BROKEN):
            return ActionRequiredError(
                "A compressed file is cut off or damaged.",
                next_step="nothing of this interval was committed. Put the whole file there under another name, delete "
                "this one, and pass over its offsets as docs/backfill.md says.",
                files=", ".join(e.path for r in ranges for _, e in self._entries(r))[:2000],
                **where,
            )
        if file is not None:
            answer, on_disk = of_storage(text, file), file.startswith(DISK)
            if answer.means == "act" and not on_disk:
                error = answer.error(words={"path": SETTING}, file=file, **where)
                error.reword(of_source)
                return error
            return RetryableError(
                "A file can't be read by a Spark executor.",
                next_step="the task is retried, and names a file that is gone; if none is, "
                + ("mount the folder on all executors under the same path." if on_disk else "look at the reason."),
                file=file,
                reason=_reason(text),
                **where,
            )
        return None

    def _damaged(self, error: Exception, ranges: Sequence[PlannedRange]) -> UnreadableFileError | None:
        """The file that can't be read, which Spark doesn't name where it decodes values late."""
        if isinstance(error, UnreadableFileError) or self._rows is None:
            return error if isinstance(error, UnreadableFileError) else None
        return self._rows.first_damaged([one for r in ranges for one in self._entries(r)])

    def _named(self, text: str, ranges: Sequence[PlannedRange]) -> str | None:
        """The file that Spark names; of paths that begin alike it is the longest."""
        paths = (e.path for r in ranges for _, e in self._entries(r))
        named = (path for path in paths if path in text or path_of(path) in text)
        return max(named, key=len, default=None)

    def _place(self, ranges: Sequence[PlannedRange], partition: int, offset: int) -> dict[str, Any]:
        """A record's file and line, counted from the byte at which the stretch begins."""
        for planned in ranges:
            for number, entry in self._entries(planned):
                if planned.partition == partition and number == offset >> BITS:
                    number = (offset & ((1 << BITS) - 1)) + 1
                    counted = {"counted_from_byte": entry.start} if entry.start else {}
                    return {"file": entry.path, "line" if self._rows is None else "row": number, **counted}
        return {}

    def _entries(self, planned: PlannedRange) -> list[Stretch]:
        if planned not in self._known:
            end = -(-planned.end >> BITS)
            found = entries(self._settings, planned.topic, planned.partition, planned.start >> BITS, end)
            self._known[planned] = [(one.number, one.entry) for one in found]
        return self._known[planned]

    # A range

    def _range(self, planned: PlannedRange, *, headers: bool) -> DataFrame:
        stretches = self._entries(planned)
        counted = (self._rows.numbered(stretches) if self._rows is not None else self._lines(stretches)).coalesce(1)
        wrong = f"raise_error(concat('{_MISHEADED} <', path, '>'))"
        too_long = f"raise_error(concat('{_TOO_LONG} <', path, '>'))"
        first = "line = 0 AND start = '0' AND header != ''"
        of_lines = (
            f"WHEN NOT ({first}) THEN value != '' WHEN value = header THEN false ELSE CAST({wrong} AS BOOLEAN)"
            if self._rows is None
            else "ELSE true"
        )
        kept = f"CASE WHEN line >= {1 << BITS}L THEN CAST({too_long} AS BOOLEAN) {of_lines} END"
        placed = counted.where(kept).selectExpr("*", "at + line AS `offset`")
        placed = placed.where(f"`offset` >= {planned.start}L AND `offset` < {planned.end}L")
        made = [
            f"{literal(planned.topic)} AS topic",
            f"{planned.partition} AS `partition`",
            "`offset`",
            "modified AS timestamp",
            "0 AS timestampType",
            "CAST(NULL AS BINARY) AS key",
            "CAST(value AS BINARY) AS value" if self._rows is None else "value",
        ]
        if headers:
            facts = {"file.path": "path", "file.line": "line + 1", "file.start": "start"}
            named = (
                f"struct({literal(k)} AS key, CAST(CAST({v} AS STRING) AS BINARY) AS value)" for k, v in facts.items()
            )
            made.append(f"array({', '.join(named)}) AS headers")
        return placed.select(*columns(made))

    def _lines(self, stretches: Sequence[Stretch]) -> DataFrame:
        """The lines of stretches that aren't empty, as `value`, with `line`, from 0 in each of them, and `FACTS`."""
        jvm: Any = self._spark._jvm
        session: Any = self._spark._jsparkSession
        text = jvm.org.apache.spark.sql.execution.datasources.text.TextFileFormat()
        columns = jvm.org.apache.spark.sql.types.StructType.fromDDL("value STRING")
        stretches = [(number, entry) for number, entry in stretches if entry.end > entry.start]
        lines = scan(self._spark, text, columns, stretches, {}, session.sessionState().newHadoopConf())
        return lines.selectExpr("c0 AS value", *FACTS, "line")


def _reason(text: str) -> str:
    lines = [line.strip() for line in text.splitlines()]
    return next((line for line in lines if line.startswith(("Caused by", ": "))), lines[0]).removeprefix(": ")[:1000]


def _not_as_listed(planned: PlannedRange, number: int, entry: Entry, *, is_there: bool) -> ActionRequiredError:
    start, end = number << BITS, (number + 1) << BITS
    way = ", by a rename, since a copy is another file" if entry.path.startswith(HDFS) else ", with its time"
    how = "" if entry.is_object else way
    return ActionRequiredError(
        "A file was replaced or changed after it was listed, and before it was read."
        if is_there
        else "A file was deleted after it was listed, and before it was read.",
        next_step=f"nothing of this interval was committed. Put the file back as it was{how}; or pass over "
        f"its lines, offsets {start} up to {end} of partition {planned.partition}, as docs/backfill.md says.",
        file=entry.path,
        was=f"{entry.size} bytes, changed at {entry.modified / 1e6:.6f}, id {entry.id}",
        topic=planned.topic,
    )
