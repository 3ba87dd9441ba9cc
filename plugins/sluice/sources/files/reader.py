"""Lines of files as a write job reads them: stretches of files by Spark's own text format, in the log's order."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from typing import Any
from urllib.parse import unquote

from pyspark.sql import DataFrame, SparkSession

from sluice.errors import ActionRequiredError, RetryableError, SluiceError
from sluice.jvm.sql import columns, literal
from sluice.kafka.config import KafkaSettings
from sluice.protocol.identity import LogId
from sluice.protocol.messages import PlannedRange, StartCommit
from sluice.rows.records import bad_record
from sluice.sources.files.disk import SCHEME, Disk
from sluice.sources.files.entries import BITS, OBJECTS, Entry, Found, Storage
from sluice.sources.files.log import entries
from sluice.sources.files.s3 import SETTING, Bucket, bucket_of, of_source
from sluice.sources.kafka.cluster import KafkaCluster
from sluice.storages import of_storage

_OF_FILE = "at BIGINT, modified TIMESTAMP, start STRING, path STRING, header STRING"
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
        self._buckets: dict[str, Bucket] = {}
        self._seen: dict[str, Found] = {}
        self._known: dict[PlannedRange, list[tuple[int, Entry]]] = {}

    def log_ids(self, topics: Collection[str]) -> Mapping[str, LogId]:
        """The ids of the log; see `sluice.connectors.data.IdentifiesLogs`."""
        cluster = KafkaCluster(self._settings)
        of_cluster = cluster.cluster_ids()[cluster.name]
        return {topic: LogId(of_cluster, id_) for topic, id_ in cluster.topic_ids(list(topics)).items()}

    def read(self, ranges: Sequence[PlannedRange], isolation_level: str, *, headers: bool = False) -> DataFrame:  # noqa: ARG002
        """The lines of each range's files. An empty line is no record, and a last line needs no end.

        Raises:
            ActionRequiredError: a file isn't the one that the log names.
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
        if not path.startswith(OBJECTS):
            return self._disk
        name = bucket_of(path)
        if name not in self._buckets:
            session: Any = self._spark._jsparkSession
            self._buckets[name] = Bucket(self._spark._jvm, session.sessionState().newHadoopConf(), name)
        return self._buckets[name]

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
        if any(word in text for word in _BROKEN):
            return ActionRequiredError(
                "A compressed file is cut off or damaged.",
                next_step="nothing of this interval was committed. Put the whole file there under another name, delete "
                "this one, and pass over its offsets as docs/backfill.md says.",
                files=", ".join(e.path for r in ranges for _, e in self._entries(r))[:2000],
                **where,
            )
        named = (e.path for r in ranges for _, e in self._entries(r) if unquote(e.path).removeprefix(SCHEME) in text)
        file = next(named, None)
        if file is not None:
            answer = of_storage(text, file)
            if file.startswith(OBJECTS) and answer.means == "act":
                error = answer.error(words={"path": SETTING}, file=file, **where)
                error.reword(of_source)
                return error
            return RetryableError(
                "A file can't be read by a Spark executor.",
                next_step="the task is retried, and names a file that is gone; if none is, mount the folder on all "
                "executors under the same path.",
                reason=next((line.strip() for line in text.splitlines() if "Caused by" in line), "")[:1000],
                **where,
            )
        return None

    def _place(self, ranges: Sequence[PlannedRange], partition: int, offset: int) -> dict[str, Any]:
        """A record's file and line, counted from the byte at which the stretch begins."""
        for planned in ranges:
            for number, entry in self._entries(planned):
                if planned.partition == partition and number == offset >> BITS:
                    line = (offset & ((1 << BITS) - 1)) + 1
                    counted = {"counted_from_byte": entry.start} if entry.start else {}
                    return {"file": entry.path, "line": line, **counted}
        return {}

    def _entries(self, planned: PlannedRange) -> list[tuple[int, Entry]]:
        if planned not in self._known:
            end = -(-planned.end >> BITS)
            found = entries(self._settings, planned.topic, planned.partition, planned.start >> BITS, end)
            self._known[planned] = [(one.number, one.entry) for one in found]
        return self._known[planned]

    # A range

    def _range(self, planned: PlannedRange, *, headers: bool) -> DataFrame:
        lines = self._lines([(number, e) for number, e in self._entries(planned) if e.end > e.start])
        # Each stretch is a Spark partition until its lines are counted, in the upper bits of this id.
        index = f"(monotonically_increasing_id() & {(1 << 33) - 1}L)"
        counted = lines.selectExpr("*", f"{index} AS line").coalesce(1)
        first = "line = 0 AND start = '0' AND header != ''"
        wrong = f"raise_error(concat('{_MISHEADED} <', path, '>'))"
        too_long = f"raise_error(concat('{_TOO_LONG} <', path, '>'))"
        kept = (
            f"CASE WHEN line >= {1 << BITS}L THEN CAST({too_long} AS BOOLEAN) WHEN NOT ({first}) THEN value != '' "
            f"WHEN value = header THEN false ELSE CAST({wrong} AS BOOLEAN) END"
        )
        placed = counted.where(kept).selectExpr("*", "at + line AS `offset`")
        placed = placed.where(f"`offset` >= {planned.start}L AND `offset` < {planned.end}L")
        made = [
            f"{literal(planned.topic)} AS topic",
            f"{planned.partition} AS `partition`",
            "`offset`",
            "modified AS timestamp",
            "0 AS timestampType",
            "CAST(NULL AS BINARY) AS key",
            "CAST(value AS BINARY) AS value",
        ]
        if headers:
            facts = {"file.path": "path", "file.line": "line + 1", "file.start": "start"}
            named = (
                f"struct({literal(k)} AS key, CAST(CAST({v} AS STRING) AS BINARY) AS value)" for k, v in facts.items()
            )
            made.append(f"array({', '.join(named)}) AS headers")
        return placed.select(*columns(made))

    def _lines(self, stretches: Sequence[tuple[int, Entry]]) -> DataFrame:
        """The lines of stretches, each stretch a Spark partition, with the facts of its file.

        By Spark's own classes: its public API reads whole files, and gives no order.
        """
        session: Any = self._spark._jsparkSession
        jvm: Any = self._spark._jvm
        gateway: Any = self._spark.sparkContext._gateway
        spark = jvm.org.apache.spark
        sources, tools = spark.sql.execution.datasources, spark.api.python.PythonUtils
        of_ddl = spark.sql.types.StructType.fromDDL
        schema, of_file, whole = of_ddl("value STRING"), of_ddl(_OF_FILE), of_ddl(f"value STRING, {_OF_FILE}")
        # A damaged or missing file fails the read, whatever the session says.
        options = tools.toScalaMap({"ignoreCorruptFiles": "false", "ignoreMissingFiles": "false"})
        nothing = tools.toSeq([])
        text = sources.text.TextFileFormat()
        read = text.buildReaderWithPartitionValues(
            session, schema, of_file, schema, nothing, options, session.sessionState().newHadoopConf()
        )
        parts = [sources.FilePartition(i, self._files(jvm, tools, s)) for i, s in enumerate(stretches)]
        if not parts:  # a range is a Spark partition in any case
            parts = [sources.FilePartition(0, gateway.new_array(sources.PartitionedFile, 0))]
        rdd = sources.FileScanRDD(
            session, read, tools.toSeq(parts), whole, nothing, tools.toScalaMap({}),
            spark.sql.catalyst.FileSourceOptions(options),
        )  # fmt: skip
        return DataFrame(session.internalCreateDataFrame(rdd, whole, False), self._spark)

    def _files(self, jvm: Any, tools: Any, stretch: tuple[int, Entry]) -> Any:
        number, entry = stretch
        spark = jvm.org.apache.spark
        gateway: Any = self._spark.sparkContext._gateway
        text = spark.unsafe.types.UTF8String.fromString
        row = spark.sql.catalyst.expressions.GenericInternalRow(5)
        row.setLong(0, number << BITS)
        row.setLong(1, entry.modified)
        for i, one in enumerate((str(entry.start), entry.path, entry.header), 2):
            row.update(i, text(one))
        # Hadoop gives a split the lines that begin in it or at its very end, but not the one at its start, which it
        # takes for the rest of one: from the newline before the stretch to its last byte are just the stretch's.
        grown = entry.grows
        start = entry.start - 1 if entry.start else 0
        end = entry.end - 1 if grown else entry.end
        file = spark.sql.execution.datasources.PartitionedFile(
            row, spark.paths.SparkPath.fromUrlString(entry.path), start, end - start,
            gateway.new_array(jvm.java.lang.String, 0), entry.modified // 1000, entry.size, tools.toScalaMap({}),
        )  # fmt: skip
        found = gateway.new_array(spark.sql.execution.datasources.PartitionedFile, 1)
        found[0] = file
        return found


def _not_as_listed(planned: PlannedRange, number: int, entry: Entry, *, is_there: bool) -> ActionRequiredError:
    start, end = number << BITS, (number + 1) << BITS
    with_time = "" if entry.is_object else ", with its time"
    return ActionRequiredError(
        "A file was replaced or changed after it was listed, and before it was read."
        if is_there
        else "A file was deleted after it was listed, and before it was read.",
        next_step=f"nothing of this interval was committed. Put the file back as it was{with_time}; or pass over "
        f"its lines, offsets {start} up to {end} of partition {planned.partition}, as docs/backfill.md says.",
        file=entry.path,
        was=f"{entry.size} bytes, changed at {entry.modified / 1e6:.6f}, id {entry.id}",
        topic=planned.topic,
    )
