"""The section `sink.files`: files in folders of a Hadoop file system."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict
from datetime import timedelta
from types import MappingProxyType
from typing import Annotated, ClassVar, Literal
from zoneinfo import ZoneInfo, available_timezones

from pydantic import Field, model_validator

from sluice.connectors.aws import require_bucket
from sluice.connectors.capabilities import SinkCapabilities
from sluice.connectors.options import SinkOptions
from sluice.protocol.messages import TableSpec
from sluice.records.settings import Changes
from sluice.sections import Duration, TablePath
from sluice.sinks.files.options.compatibility import Compatibility
from sluice.sinks.files.options.names import INNER, Format, Layout
from sluice.sinks.files.options.partitioning import (
    DURATIONS,
    PATH_FORMATS,
    Extractor,
    Partitioner,
    Partitioning,
)
from sluice.sinks.files.options.pinned import PinnedFiles

CODECS = {
    "avro": ("snappy", "none", "deflate", "bzip2", "xz", "zstandard"),
    "parquet": ("snappy", "none", "gzip", "zstd"),
    "json": ("none", "gzip", "bzip2", "deflate"),
    "csv": ("none", "gzip", "bzip2", "deflate"),
}
"""The codecs of each format; the first is the default."""
_RENAMES = ("file", "hdfs", "viewfs")  # file systems whose rename is atomic and never overwrites a file
_PUTS = ("s3a",)  # object stores whose PUT can be refused if the object exists
_IN_HIVE = ("avro", "parquet")  # formats in which Hive reads each file by the catalog's columns
_LANGUAGE = re.compile(r"[A-Za-z]{2,3}([_-][A-Za-z]{2,4})*")
_NOT_HERE = {
    "record_key": "is for tables with a row for each key",
    "ordering_field": "is for tables with a row for each key",
}


class Files(SinkOptions):
    """The sink: files of rows in folders, as Kafka Connect's HDFS sink writes them, and exactly once."""

    connector: ClassVar[str] = "sluice.sinks.files.sink:FilesSink"
    row_writer: ClassVar[str] = "sluice.sinks.files.writer:files_writer"
    commit_log: ClassVar[str] = "sluice.sinks.files.commits:FileCommits"
    table_rows: ClassVar[str] = "sluice.sinks.files.rows:table_rows"
    quarantine_reader: ClassVar[str] = "sluice.sinks.files.quarantine:QuarantineFiles"
    needs: ClassVar[Mapping[str, str]] = MappingProxyType({"catalogs": f"format {' or '.join(_IN_HIVE)}"})

    path: TablePath
    """A folder for this pipeline alone: a path, or a URI such as hdfs://namenode/lake/flights or s3a://bucket/flights.
    Its folder `_sluice` holds the log of commits; `${SLUICE_NAME}` and `${SLUICE_NAME:-default}` are replaced."""
    connection: str | None = None
    """For a table on s3a://: an Airflow connection of type `aws`, with login, role, endpoint and region. Default:
    Hadoop's settings."""
    topics_dir: str = "topics"
    """The folder below `path` in which readers find the files."""
    format: Format = "avro"
    """avro, parquet, json (one row per line) or csv (with a header)."""
    codec: str | None = None
    """How files are compressed. avro: snappy (default), none, deflate, bzip2, xz, zstandard. parquet: snappy (default),
    none, gzip, zstd. json and csv: none (default), gzip, bzip2, deflate."""
    layout: Layout = "interval"
    """interval: a folder for each interval, which appears whole. connect: Kafka Connect's paths; files appear one by
    one, and `_sluice/committed/<number>` appears when an interval is complete, and lists its files. On S3 files appear
    one by one in both layouts, so `layout` must be set there."""
    partitioner: Partitioner = "default"
    """default: a folder for each Kafka partition. field: for each value of `partition_fields`. time, daily, hourly: for
    each stretch of time."""
    path_format: str | None = None
    """With partitioner time: the pattern of its folders, in Joda-Time's letters: 'year'=YYYY/'month'=MM. YYYY is the
    calendar year, xxxx the year of an ISO week."""
    partition_duration: Duration | None = None
    """With partitioner time: the length of the stretch of time that shares a folder, such as `1 hour`."""
    locale: str = "en"
    """The language of the names of months and days in `path_format`, such as `de` or `de-AT`."""
    timezone: str = "UTC"
    """The time zone of the folders' dates and hours: an IANA name, such as Europe/Berlin."""
    timestamp_extractor: Extractor = "wallclock"
    """The time that determines a row's folder. wallclock: the start of the interval, the same for all its rows and
    retries. record: the Kafka record's timestamp. record_field: the column `timestamp_field`."""
    timestamp_field: str | None = None
    """With timestamp_extractor record_field: a column with a time: TIMESTAMP, DATE, a number of milliseconds since
    1970, or ISO 8601 text."""
    max_rows_per_file: Annotated[int, Field(gt=0)] | None = None
    """The maximum number of offsets that a file covers, and so of its rows. Default: an interval has one file for each
    Kafka partition and folder."""
    target_bytes_per_file: Annotated[int, Field(gt=0)] | None = None
    """The approximate size of a file on storage, in bytes, from which the number of offsets per file is estimated by
    the last interval's average. It is no limit: larger rows make larger files, and a table's first interval isn't
    divided by it. `max_rows_per_file` applies as well."""
    schema_compatibility: Compatibility = "none"
    """Which changes of the columns, compared with the last interval, are refused. none: no change. backward: changes
    after which readers with the new columns can't read earlier files. forward: changes after which readers with the
    earlier columns can't read new files. full: both."""
    takeover: Literal["confluent"] | None = None
    """confluent: Kafka Connect's HDFS sink wrote to `topics_dir` before. A topic that this pipeline never read begins
    after the last offset in the names of its files; partitions without files begin at `starting_offsets`. Requires
    layout connect."""

    @property
    def capabilities(self) -> SinkCapabilities:
        """A single file of the log commits rows and checkpoint together. Rows are only ever added."""
        return SinkCapabilities(atomic_with_checkpoint=True, quarantine=True, catalogs=self.format in _IN_HIVE)

    @property
    def table_id(self) -> str:
        """The folder."""
        return self.path

    @property
    def storage_connection(self) -> str | None:
        """The section's `connection`."""
        return self.connection

    @property
    def partitioning(self) -> Partitioning:
        """How rows are split into folders."""
        by_time = self.partitioner in ("time", "daily", "hourly")
        duration = self.partition_duration or timedelta()
        return Partitioning(
            partitioner=self.partitioner,
            fields=self.partition_fields,
            path_format=PATH_FORMATS.get(self.partitioner, self.path_format or ""),
            duration=DURATIONS.get(self.partitioner, round(duration.total_seconds() * 1000)),
            timezone=self.timezone,
            extractor=self.timestamp_extractor if by_time else "wallclock",
            timestamp_field=self.timestamp_field or "",
        )

    def writer(
        self,
        name: str,
        changes: Changes | None,  # noqa: ARG002 - refused by the capabilities
        *,
        maintained: bool,  # noqa: ARG002 - likewise
        schema_ddl: str = "",
        schema_avro: str = "",
    ) -> TableSpec:
        """The settings for writing an interval's rows; see `SinkOptions`."""
        return TableSpec(
            path=self.path,
            name=name,
            table_type="files",
            operation="append",
            record_key=(),
            partition_fields=(),  # else a value such as `..` would make a bad record, though Spark escapes it
            ordering_fields=(),
            schema_ddl=schema_ddl,
            schema_avro=schema_avro,
            options=self._pinned().texts(),
        )

    def _pinned(self) -> PinnedFiles:
        return PinnedFiles(
            format=self.format,
            codec=self.codec or CODECS[self.format][0],
            layout=self.layout,
            topics_dir=self.topics_dir,
            locale=self.locale,
            max_rows_per_file=self.max_rows_per_file or 0,
            **asdict(self.partitioning),
        )

    @model_validator(mode="after")
    def _consistent(self) -> Files:
        if self.schema_ is not None and self.schema_file is not None:
            raise ValueError("give the columns either as `schema` (Spark DDL) or as `schema_file` (.avsc)")
        for key, why in _NOT_HERE.items():
            if getattr(self, key):
                raise ValueError(f"`{key}` {why}: every record is a row of a file, and no file is changed afterwards")
        if self.codec not in (None, *CODECS[self.format]):
            raise ValueError(f"codec {self.codec} isn't one of {self.format}: {', '.join(CODECS[self.format])}")
        if self.takeover is not None and self.layout != "connect":
            raise ValueError("takeover confluent continues Kafka Connect's paths: say `layout: connect`, too")
        self._require_place()
        require_bucket(self.connection, self.path)
        self._require_partitioner()
        return self

    def _require_place(self) -> None:
        scheme = self.path.partition("://")[0]
        if scheme not in (*_RENAMES, *_PUTS):
            raise ValueError(
                f"path is on {scheme}://, but a commit of files needs a step that never overwrites a file: a rename, "
                f"which {', '.join(_RENAMES)} have, or a conditional PUT, which {', '.join(_PUTS)} has. A Hudi table "
                "can be on other stores"
            )
        if scheme in _PUTS and "layout" not in self.model_fields_set:
            raise ValueError(
                f"layout has to be said: an object store such as {scheme}:// has no folders that could appear whole. "
                "With both `interval` and `connect` each file appears whole, and `_sluice/committed/<number>` lists an "
                "interval's files once all have appeared; `interval` has a folder for each interval"
            )
        parts = self.topics_dir.split("/")
        if any(part in ("", ".", "..") for part in parts) or parts[0].startswith(("_", ".")):
            raise ValueError(
                f"topics_dir {self.topics_dir!r} must be a folder below path, and its name must not begin with _ or a "
                f"dot: {INNER} is Sluice's own"
            )

    def _require_partitioner(self) -> None:
        if (self.partitioner == "field") != bool(self.partition_fields):
            raise ValueError("partitioner field and `partition_fields`, its columns, belong together")
        of_time = {"path_format": self.path_format, "partition_duration": self.partition_duration}
        given = [name for name, value in of_time.items() if value]
        if self.partitioner == "time" and len(given) < len(of_time):
            raise ValueError(f"partitioner time needs {' and '.join(of_time)}, such as 'year'=YYYY and `1 day`")
        if self.partitioner != "time" and given:
            raise ValueError(f"`{given[0]}` is for partitioner time; daily and hourly have their own")
        if not self.partitioning.by_time and (self.timestamp_extractor != "wallclock" or self.timestamp_field):
            raise ValueError("timestamp_extractor and timestamp_field are for the partitioners time, daily and hourly")
        if (self.timestamp_extractor == "record_field") != (self.timestamp_field is not None):
            raise ValueError("timestamp_extractor record_field and `timestamp_field` belong together")
        if self.timezone not in available_timezones():
            raise ValueError(f"timezone {self.timezone!r} is no IANA name, such as Europe/Berlin")
        ZoneInfo(self.timezone)
        if not _LANGUAGE.fullmatch(self.locale):
            raise ValueError(f"locale {self.locale!r} is no language, such as en or de-AT")
        if self.partitioning.by_time:
            if self.partitioning.duration < 1:
                raise ValueError("partition_duration must be at least a millisecond")
            _ = self.partitioning.format
