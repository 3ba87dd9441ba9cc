"""Writes an interval's rows as files with Spark's writers, to a folder that readers don't see yet.

Spark splits rows into folders by columns that are not part of the files. Their values determine each file's name, which
gives the stretch of offsets planned for the file, not the first and last offset that it happens to contain.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, cast
from urllib.parse import unquote

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sluice.connectors.data import REFUSED, SinkWriter, Written
from sluice.errors import ActionRequiredError
from sluice.identifiers import quoted
from sluice.jvm.causes import causes
from sluice.jvm.sql import literal
from sluice.protocol.messages import PlannedRange, StartCommit, TableSpec
from sluice.records.avro_defaults import with_defaults
from sluice.records.comments import comments_of_pinned, described, documented
from sluice.records.json_text import OPTIONS, TIMES
from sluice.records.structs import struct, without
from sluice.rows.observed import observed
from sluice.rows.records import KAFKA_COLUMNS, RECORD_TIME, parse_ddl
from sluice.sinks.files.hadoop import SETTING
from sluice.sinks.files.options.names import (
    DataFile,
    committable,
    extension,
    file_name,
    interval_folder,
    staging,
    topic_folder,
)
from sluice.sinks.files.options.path_format import Texts
from sluice.sinks.files.options.pinned import PinnedFiles
from sluice.sinks.files.remote import OBJECTS, remote_storage
from sluice.sinks.files.storage import LocalStorage, Storage, local_folder
from sluice.storages import of_job

_TOPIC, _PARTITION, _STRETCH, _CHUNK = (f"_sluice_{name}" for name in ("topic", "partition", "stretch", "chunk"))
_WRITTEN: Final = "sluice_written"
_AT_ONCE: Final = "spark.sql.maxConcurrentOutputFileWriters"
_SESSION: Final = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # else INT96, which few readers support
}
# Dates before 1582 in the proleptic Gregorian calendar, which all programs but old releases of Spark use; by default
# Spark refuses to write such dates. Tasks read these settings from the job thread's properties, not from the session,
# since the write is no query of Spark SQL.
_TASKS: Final = {
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.avro.datetimeRebaseModeInWrite": "CORRECTED",
}
_FEW: Final = "4"  # files that a task may have open at once; it needs one per Kafka partition
_UNPACKED: Final = "uncompressed"
_FORMATS: Final = {
    "avro": "org.apache.spark.sql.avro.AvroFileFormat",
    "parquet": "org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat",
    "json": "org.apache.spark.sql.execution.datasources.json.JsonFileFormat",
    "csv": "org.apache.spark.sql.execution.datasources.csv.CSVFileFormat",
}
"""Spark's writers of each format; they write one file for each task and folder."""


TEXT_OPTIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "json": dict(OPTIONS),
    # As in RFC 4180: a quote in a value is doubled, and blanks belong to the value.
    "csv": {
        **TIMES,
        "header": "true",
        "escape": '"',
        "ignoreLeadingWhiteSpace": "false",
        "ignoreTrailingWhiteSpace": "false",
    },
}
"""Spark's options for writing values as text, by format; a reader needs the same options."""


class _Placed(NamedTuple):
    """Rows prepared for Spark's writer.

    Attributes:
        frame: the rows, with the columns by which Spark splits them.
        by: these columns.
        in_order: whether the rows are sorted by these columns.
    """

    frame: DataFrame
    by: tuple[str, ...]
    in_order: bool


class FilesWriter(SinkWriter):
    """One attempt's files.

    Args:
        spark: the job's session.
        start: the interval's START-COMMIT.
        attempt: the attempt's id.
    """

    def __init__(self, spark: SparkSession, start: StartCommit, attempt: str) -> None:
        self._spark = spark
        self._start = start
        self._pinned = PinnedFiles.of(start.writer)
        self._folder = f"{staging(start.transaction)}/{attempt}"
        self._parts = itertools.count()
        self._partitioning = self._pinned.partitioning
        self._chunk = self._pinned.max_rows_per_file
        self._comments = comments_of_pinned(start.writer.schema_avro)
        self._planned: dict[tuple[str, int], list[PlannedRange]] = {}
        for r in sorted((r for group in start.ranges for r in group), key=lambda r: r.start):
            self._planned.setdefault((r.named_topic, r.partition), []).append(r)
        self.needs_record_time = self._partitioning.reads_record_time

    def write(self, rows: DataFrame, emptied_at: str | None = None, *, truncates: bool = False) -> Written:  # noqa: ARG002
        """Write the rows. The frame is executed once; very large ranges are written in several calls."""
        return self._write(self._placed(rows))

    def write_gathered(self, rows: DataFrame, emptied_at: str | None = None) -> Written:  # noqa: ARG002
        """See `sluice.connectors.data.WritesGathered`. Each range still has separate files, as their names say."""
        return self._write(self._placed(rows, in_order=True))

    def _write(self, placed: _Placed) -> Written:
        folder = f"{self._folder}/{next(self._parts)}"
        folders = self._run(placed, folder)
        frame = placed.frame._jdf
        number = int(observed(frame, _WRITTEN)["rows"])
        files = self._files(folder, folders)
        return Written((committable(folder, self._pinned.layout, files, number),), frame)

    # Rows

    def _placed(self, rows: DataFrame, *, in_order: bool = False) -> _Placed:
        """The rows with the columns by which Spark splits them, sorted so that one file is open at a time.

        Args:
            rows: the rows.
            in_order: sort them, also where each Kafka partition has one file.
        """
        hidden = {*KAFKA_COLUMNS, RECORD_TIME}
        types = {name: kind for name, kind in rows.dtypes if name not in hidden}
        levels = self._partitioning.columns(types, RECORD_TIME)
        by = {
            _TOPIC: "`_kafka_topic`",
            _PARTITION: "`_kafka_partition`",
            _STRETCH: self._stretch(),
            _CHUNK: f"`_kafka_offset` div {self._chunk}L" if self._chunk else "0L",
            **levels,
        }
        in_order = in_order or bool(levels or self._chunk)
        if in_order:
            places = rows.selectExpr("*", *(f"{sql} AS {quoted(name)}" for name, sql in by.items()))
            rows = places.sortWithinPartitions(*(F.col(name) for name in by), "_kafka_offset")
            by = {name: quoted(name) for name in by}
        own = [quoted(name) for name in types]
        placed = rows.selectExpr(*own, *(f"{sql} AS {quoted(name)}" for name, sql in by.items()))
        return _Placed(placed.observe(_WRITTEN, F.count(F.lit(1)).alias("rows")), tuple(by), in_order=in_order)

    def _stretch(self) -> str:
        """SQL for the number of a row's range within its Kafka partition: a backfill may read several ranges."""
        cases = [
            f"WHEN `_kafka_topic` = {literal(topic)} AND `_kafka_partition` = {partition} "
            f"AND `_kafka_offset` >= {r.start} THEN {number}"
            for (topic, partition), ranges in self._planned.items()
            for number, r in reversed([*enumerate(ranges)][1:])
        ]
        return f"CASE {' '.join(cases)} ELSE 0 END" if cases else "0"

    # Spark

    def _run(self, placed: _Placed, folder: str) -> set[str]:
        """Have Spark's file writer execute the frame's own plan, which also counts its records.

        `DataFrame.write` would execute a new plan of the same rows, whose counts would be out of reach.

        Returns:
            The folders in which the tasks report a file.
        """
        jvm: Any = self._spark._jvm
        session = self._spark._jsparkSession
        sources = jvm.org.apache.spark.sql.execution.datasources
        target = f"{self._start.writer.path}/{folder}"
        with self._settings(in_order=placed.in_order):
            plan = placed.frame._jdf.queryExecution().executedPlan()
            options = self._format_options(plan, placed.by)
            scala_options = jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(options)
            attributes = {str(a.name()): a for a in _elements(plan.output())}
            committer = getattr(jvm, "org.apache.spark.internal.io.FileCommitProtocol").instantiate(
                session.sessionState().conf().fileCommitProtocolClass(),
                str(jvm.java.util.UUID.randomUUID()),
                target,
                False,
            )
            written_as = [
                self._described(attribute) if name not in placed.by else attribute
                for name, attribute in attributes.items()
            ]
            spec = getattr(jvm, "org.apache.spark.sql.execution.datasources.FileFormatWriter$OutputSpec")
            empty = jvm.org.apache.spark.api.python.PythonUtils.toScalaMap({})
            with _refused(target):
                written = sources.FileFormatWriter.write(
                    session,
                    plan,
                    getattr(jvm, _FORMATS[self._pinned.format])(),
                    committer,
                    spec(target, empty, _seq(jvm, written_as)),
                    session.sessionState().newHadoopConfWithOptions(scala_options),
                    _seq(jvm, [attributes[name] for name in placed.by]),
                    jvm.scala.Option.empty(),
                    _seq(jvm, []),
                    scala_options,
                    0,
                )
        return set(filter(None, str(written.mkString("\n")).split("\n")))

    def _format_options(self, plan: Any, by: Collection[str]) -> dict[str, str]:
        """The options for Spark's writer of the format.

        Args:
            plan: the rows' plan.
            by: its columns that aren't part of the files.
        """
        codec = self._pinned.codec
        options = {"mapreduce.fileoutputcommitter.marksuccessfuljobs": "false", "maxRecordsPerFile": "0"}
        if self._start.writer.path.startswith(OBJECTS):
            # Tasks put their files into the attempt's folder themselves: a rename is a copy on S3, and one is enough.
            # The comparison of files and tasks detects the files of a task that died over it.
            options["mapreduce.fileoutputcommitter.algorithm.version"] = "2"
        if self._pinned.format in ("avro", "parquet"):
            options["compression"] = _UNPACKED if codec == "none" else codec
        else:
            options["compression"] = codec
        if self._pinned.format == "avro":
            options["avroSchema"] = self._avro_schema(plan, by)
        return {**options, **TEXT_OPTIONS.get(self._pinned.format, {})}

    def _described(self, attribute: Any) -> Any:
        """A column with its comments, which Spark writes into the footer of a Parquet file."""
        name = str(attribute.name())
        comments = {path: text for path, text in self._comments.items() if path[0] == name.lower()}
        if not comments:
            return attribute
        bare = {"name": name, "type": json.loads(attribute.dataType().json()), "nullable": True, "metadata": {}}
        types = cast("Any", self._spark._jvm).org.apache.spark.sql.types
        made = types.DataType.fromJson(json.dumps(described(struct([bare]), comments))).fields()[0]
        return attribute.withMetadata(made.metadata()).withDataType(made.dataType())

    def _avro_schema(self, plan: Any, by: Collection[str]) -> str:
        name = re.sub(r"\W", "_", self._start.writer.name, flags=re.ASCII)
        record = f"_{name}" if name[0].isdigit() else name  # Avro's names never begin with a digit
        own = without(json.loads(plan.schema().json()), by)
        jvm: Any = self._spark._jvm
        kind = jvm.org.apache.spark.sql.types.DataType.fromJson(json.dumps(own))
        made = jvm.org.apache.spark.sql.avro.SchemaConverters.toAvroType(kind, False, record, "")
        return json.dumps(documented(with_defaults(json.loads(str(made.toString()))), self._comments))

    @contextmanager
    def _settings(self, *, in_order: bool) -> Iterator[None]:
        """Spark's settings while it writes.

        If several writers may be open at once, Spark doesn't sort the rows, and needn't: a task's rows come from one
        Kafka partition. Rows that go to several folders, or come from several partitions, are already sorted.
        """
        wanted = {**_SESSION, _AT_ONCE: "0" if in_order else _FEW}
        before = {name: self._spark.conf.get(name, None) for name in wanted}
        for name, value in wanted.items():
            self._spark.conf.set(name, value)
        context = self._spark.sparkContext
        for name, value in _TASKS.items():
            context.setLocalProperty(name, value)
        try:
            yield
        finally:
            for name in _TASKS:
                context.setLocalProperty(name, None)  # type: ignore[arg-type] # removes the property
            for name, known in before.items():
                if known is None:
                    self._spark.conf.unset(name)
                else:
                    self._spark.conf.set(name, known)

    # Files

    def _files(self, folder: str, written: set[str]) -> list[DataFile]:
        """The files that Spark wrote, with their visible paths.

        Raises:
            ActionRequiredError: this process doesn't find them all. Executors may have written to their local disks,
                which Spark's driver can't see, and which it doesn't report as an error.
        """
        storage = self._storage()
        texts = self._texts()
        ending = extension(self._pinned.format, self._pinned.codec)
        found = []
        sizes = storage.files(folder)
        if sorted(name.rpartition("/")[0] for name in sizes) != sorted(written):
            raise ActionRequiredError(
                "The files that Spark's tasks have written are not all in the table's folder.",
                next_step="give the pipeline a path that all machines share, such as hdfs://…: a local path is on each "
                "executor's own disk. Nothing was committed.",
                table=self._start.table,
                instant=self._start.transaction,
                written=len(written),
                found=len(sizes),
            )
        for name, size in sizes.items():
            *folders, _ = name.split("/")
            values = dict(part.split("=", 1) for part in folders)
            path = self._path(values, ending, texts, folder.rpartition("/")[2])
            staged = f"{folder}/{name}"
            found.append(DataFile(staged, path, size, storage.checksum(staged)))
        return found

    def _path(self, values: Mapping[str, str], ending: str, texts: Texts, part: str) -> str:
        topic, partition = unquote(values[_TOPIC]), int(values[_PARTITION])
        planned = self._planned[topic, partition][int(values[_STRETCH])]
        start, end = planned.start, planned.end
        if self._chunk:
            first = int(values[_CHUNK]) * self._chunk
            start, end = max(start, first), min(end, first + self._chunk)
        base = self._pinned.topics_dir
        if self._pinned.layout == "interval":
            base = interval_folder(base, self._start.transaction)
        if self._pinned.apart:
            base = f"{base}/{part}"
        folders = self._partitioning.folders(partition, values, self._start.time, texts)
        return "/".join([base, topic_folder(topic), *folders, file_name(topic, partition, start, end - 1, ending)])

    def _storage(self) -> Storage:
        local = local_folder(self._start.writer.path)
        if local is not None:
            return LocalStorage(local)
        jvm: Any = self._spark._jvm
        context: Any = self._spark._jsc
        return remote_storage(jvm, context.hadoopConfiguration(), self._start.writer.path)

    def _texts(self) -> Texts:
        """Java's names of months and days in the pipeline's language.

        Raises:
            ActionRequiredError: this Java runtime doesn't know the language.
        """
        language = self._pinned.locale.replace("_", "-")
        if not self._partitioning.by_time or not self._partitioning.format.has_words or language == "en":
            return Texts()
        jvm: Any = self._spark._jvm
        locale = jvm.java.util.Locale.forLanguageTag(language)
        known = {str(one.getLanguage()) for one in jvm.java.util.Locale.getAvailableLocales()}
        if str(locale.getLanguage()) not in known:
            raise ActionRequiredError(
                f"Java has no names of months and days in the language {language}.",
                next_step="choose another `locale`, numbers in path_format (MM, dd), or a Java runtime with the module "
                "jdk.localedata.",
                table=self._start.table,
            )
        symbols = jvm.java.text.DateFormatSymbols.getInstance(locale)
        months, short_months = list(symbols.getMonths())[:12], list(symbols.getShortMonths())[:12]
        days, short_days = list(symbols.getWeekdays()), list(symbols.getShortWeekdays())
        order = (2, 3, 4, 5, 6, 7, 1)  # in Java, Sunday is 1
        return Texts(
            tuple(map(str, months)),
            tuple(map(str, short_months)),
            tuple(str(days[i]) for i in order),
            tuple(str(short_days[i]) for i in order),
            tuple(map(str, symbols.getAmPmStrings())),
        )


class _ChecksTimes(FilesWriter):
    """The writer for a table in which a row may have no folder, which makes its record a bad one."""

    def checked(self, rows: DataFrame) -> DataFrame:
        """See `sluice.connectors.data.ChecksRows`."""
        return refused(self._start.writer, rows)


def files_writer(spark: SparkSession, start: StartCommit, attempt: str) -> FilesWriter:
    """The writer of one attempt; see `sluice.connectors.data.MakesWriter`."""
    types = {field.name: field.dataType.simpleString() for field in parse_ddl(spark, start.writer.schema_ddl)}
    checks = PinnedFiles.of(start.writer).partitioning.misplaced(types) is not None
    return (_ChecksTimes if checks else FilesWriter)(spark, start, attempt)


def refused(writer: TableSpec, rows: DataFrame) -> DataFrame:
    """Rows with the column `sluice.connectors.data.REFUSED`: the reason why a row has no folder, else null."""
    words = PinnedFiles.of(writer).partitioning.misplaced(dict(rows.dtypes)) or "cast(NULL AS STRING)"
    return rows.withColumn(REFUSED, F.expr(words))


@contextmanager
def _refused(target: str) -> Iterator[None]:
    """Turn a failure of Spark's tasks to write into an error with a remedy; other failures pass unchanged.

    Raises:
        ActionRequiredError: the file system refuses, as for a missing permission or since it is full.
    """
    try:
        yield
    except Py4JJavaError as error:
        known = of_job(causes(error.java_exception), target, SETTING)
        if known is None:
            raise
        raise known from error


def _elements(sequence: Any) -> Iterator[Any]:
    return (sequence.apply(i) for i in range(sequence.size()))


def _seq(jvm: Any, elements: list[Any]) -> Any:
    return jvm.org.apache.spark.api.python.PythonUtils.toSeq(elements)
