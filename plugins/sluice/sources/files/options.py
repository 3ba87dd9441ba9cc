"""The section `source.files`: a folder, which of its files are read, and what is to happen when one changes."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from sluice.connectors.aws import buckets_of, require_bucket
from sluice.connectors.capabilities import SourceCapabilities
from sluice.connectors.options import SourceOptions
from sluice.records.settings import Converter
from sluice.sections import Duration, OneOrMore, TablePath

_HIDDEN = ("topics", "topics_pattern", "key", "max_future", "max_records", "until")
_ROWS = "sluice.rows.converters.row:Converter"
DISK, OBJECTS, HDFS = "file://", "s3a://", "hdfs://"
"""How the URIs of files begin: of a disk, in a bucket, of HDFS."""
FORMAT = "files.format"
"""The option of `value` for the format of files whose rows are records."""


class FilesOfFolder(SourceOptions):
    """The source: lines of the files of a folder, which may be compressed, or rows of Parquet or Avro files."""

    connector: ClassVar[str] = "sluice.sources.files.source:source_of"
    reader: ClassVar[str] = "sluice.sources.files.reader:FilesReader"

    path: TablePath
    """The folder: on a disk that START and all Spark executors see under this path, in a bucket, as
    `s3a://bucket/folder`, or on HDFS, as `hdfs://namenode/folder`. Folders in it are read, too."""
    connection: str = ""
    """For a folder on s3a://: an Airflow connection of type `aws`, with login, role, endpoint and region. Default:
    Hadoop's settings."""
    log: Annotated[str, Field(pattern=r"^[a-zA-Z0-9._\-]{1,249}$")]
    """The files' log: the name of a topic of this pipeline in the cluster of `control.connection`. START creates it,
    and it is kept for ever."""
    format: Literal["text", "parquet", "avro"] = "text"
    """text: each line of a file is a record, which `value` decodes. parquet, avro: each row is a record; of `value`
    only `schema` may be given, which names the columns to read if they differ from the table's."""
    splits: Annotated[int, Field(gt=0, le=256)] = 1
    """The partitions of the log when it is created: as many Spark tasks read files at the same time."""
    include: OneOrMore = ("*",)
    """Patterns, one of which a file has to match: its name, or with a slash its path below `path`. `*` is any text."""
    exclude: OneOrMore = ()
    """Patterns of files that are left out. Names that begin with `_` or `.` are always, and those of files that are
    being copied: `*.tmp` and `*._COPYING_`."""
    min_age: Duration = timedelta(seconds=10)
    """A file that was changed less than this ago waits for a later interval: it may still be written."""
    grows: bool = False
    """Files of a disk grow: each interval reads their new lines that end. A renamed file (`app.log` as `app.log.1`) is
    the same file."""
    on_change: Literal["fail", "reread", "ignore"] = "fail"
    """What to do with a file whose content was replaced under its name: fail, read all of the new content, or none."""
    clean_source: Literal["keep", "archive", "delete"] = "keep"
    """What becomes of a disk's files that are committed: they stay, or COMMIT moves them into `archive_path` or
    deletes them. Replays and verifications of their intervals can't read them any more."""
    archive_path: TablePath | None = None
    """The folder for `clean_source: archive`, on the same file system, not within `path`."""
    clean_after: Duration = timedelta(days=7)
    """`clean_source` leaves a file where it is for so long after it was listed."""
    header: str | None = None
    """The first line that each file has to have, such as `id,name`. It is no record, and other files are refused."""
    max_files: Annotated[int, Field(gt=0, le=100_000)] = 1000
    """The maximum number of files per interval and partition of the log."""

    @property
    def capabilities(self) -> SourceCapabilities:
        """The same offset is the same line, for as long as its file is there."""
        return SourceCapabilities(replayable=True, sparse=True, typed=self.format != "text")

    @property
    def topics_in_words(self) -> str:
        """The folder."""
        return f"files of {self.path}"

    @property
    def bucket_logins(self) -> Mapping[str, str]:
        """The section's `connection`, for the bucket of the folder."""
        return dict.fromkeys(buckets_of([self.path]), self.connection) if self.connection else {}

    @field_validator("path")
    @classmethod
    def _can_be_read(cls, path: str) -> str:
        if not path.startswith((DISK, OBJECTS, HDFS)):
            raise ValueError(
                "a folder is on a disk, such as /data/in, in a bucket, as s3a://bucket/in, or on HDFS, as "
                "hdfs://namenode/in"
            )
        if path.startswith(HDFS) and not {"", ".", ".."}.isdisjoint(path.removeprefix(HDFS).split("/")[1:]):
            raise ValueError("a name between slashes is empty or made of dots, for which HDFS has no path")
        if path.startswith(OBJECTS) and not all(path.removeprefix(OBJECTS).split("/")):
            raise ValueError("a name between slashes is empty, for which Hadoop has no path")
        return path

    @model_validator(mode="before")
    @classmethod
    def _the_log_is_the_topic(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        for name in _HIDDEN:
            if name in data:
                raise ValueError(f"`{name}` is for records of Kafka's: leave it out")
        return {**data, "topics": data.get("log", ())}

    @model_validator(mode="before")
    @classmethod
    def _rows_have_types(cls, data: Any) -> Any:
        if not isinstance(data, Mapping) or data.get("format", "text") == "text":
            return data
        given, kind = data.get("value", {}), data["format"]
        if isinstance(given, Converter):
            given = given.model_dump(by_alias=True, exclude_unset=True)
        if isinstance(given, Mapping):
            needless = [name for name in given if name != "schema"]
            if needless:
                raise ValueError(
                    f"`value.{needless[0]}` is for lines of text, and columns of {kind} have types: leave it out, or "
                    "name the columns and types to read in `value.schema`"
                )
            given = {**given, "converter": _ROWS, "options": {FORMAT: str(kind)}}
        return {**data, "value": given}

    @model_validator(mode="after")
    def _fits_the_format(self) -> FilesOfFolder:
        if self.format != "text" and self.header is not None:
            raise ValueError(f"`header` is a first line of text: files of {self.format} name their columns themselves")
        if self.format != "text" and self.grows:
            raise ValueError(f"`grows` is for files of text: a file of {self.format} is whole when it is closed")
        return self

    @model_validator(mode="after")
    def _fits_the_storage(self) -> FilesOfFolder:
        require_bucket(self.connection or None, self.path)
        if self.grows and self.path.startswith(OBJECTS):
            raise ValueError("`grows` is for files of a disk: an object never grows, and a new one is read as a whole")
        if self.grows and self.path.startswith(HDFS):
            raise ValueError("`grows` is for files of a disk: one of HDFS is read as a whole, once it is closed")
        return self

    @model_validator(mode="after")
    def _can_be_cleaned(self) -> FilesOfFolder:
        if (self.clean_source == "archive") != (self.archive_path is not None):
            raise ValueError("`archive_path` and `clean_source: archive` belong together")
        if self.clean_source == "keep":
            return self
        if self.path.startswith(OBJECTS):
            raise ValueError("`clean_source` is for files of a disk: give the bucket a lifecycle rule")
        if self.path.startswith(HDFS):
            raise ValueError("`clean_source` is for files of a disk, and those of HDFS stay: leave it out")
        if self.grows:
            raise ValueError("`clean_source` is for files that don't grow: leave old ones to logrotate")
        if self.on_change != "reread":
            raise ValueError("once a file is gone its name may come again: `clean_source` needs `on_change: reread`")
        if self.archive_path is not None:
            if not self.archive_path.startswith(DISK):
                raise ValueError("`archive_path` is a folder of a disk, such as /data/done")
            above = [f"{one.rstrip('/')}/" for one in (self.path, self.archive_path)]
            if above[0].startswith(above[1]) or above[1].startswith(above[0]):
                raise ValueError("`archive_path` and `path` are separate folders, neither within the other")
        return self

    @model_validator(mode="after")
    def _header_is_one_line(self) -> FilesOfFolder:
        if self.header is not None and (not self.header or "\n" in self.header or "\r" in self.header):
            raise ValueError("`header` is one line, and not an empty one")
        return self
