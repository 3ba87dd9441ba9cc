"""Rows of Parquet and Avro files: the columns that a file has, and its rows in their order, as the pinned type.

A file is read as one split, from its first row to its last, so that a row has the same number at every reading.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from itertools import groupby
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from sluice.errors import ActionRequiredError
from sluice.records.fits import unassignable
from sluice.records.structs import Type, same_but_for_case
from sluice.rows.conform import conform, type_of
from sluice.sources.files.avro import MARKER, fault
from sluice.sources.files.disk import place_of
from sluice.sources.files.options import DISK
from sluice.sources.files.scan import FACTS, Stretch, scan

_AT_ONCE = 16  # files whose columns are looked at: in a bucket each takes some requests
_BY_SPARK = "org.apache.spark.version"  # what Spark says of itself in a Parquet file that it has written
_UNKNOWN_TYPE = "IncompatibleSchemaException"  # of spark-avro
_STABLE_UNIONS = True  # as `sluice.schemas.registry.avro` has them
_OPTIONS = {
    "parquet": {"returning_batch": "false"},
    "avro": {"ignoreExtension": "true", "enableStableIdentifiersForUnionType": str(_STABLE_UNIONS).lower()},
}
_CAUSE = re.compile(r"(?:Caused by: |^|: )((?:[a-z]\w*\.)+[\w$]+)(?:: |$)", re.MULTILINE)
_DAMAGE = re.compile(  # exceptions of the formats' libraries, and of Java's where bytes aren't what they should be
    r"org\.apache\.(parquet|avro|spark\.sql)\.|shaded\.parquet\.|org\.xerial\.snappy\.|com\.github\.luben\.zstd\.|"
    r"java\.util\.zip\.|java\.io\.EOFException|java\.nio\.Buffer|java\.lang\.(\w*IndexOutOfBounds|NegativeArraySize|"
    r"IllegalArgument|NullPointer|ClassCast|Arithmetic|NumberFormat|UnsupportedOperation)Exception"
)
_NOT_WHOLE = "the file is cut off or damaged"
_DAMAGED = (  # what they say in an IOException, which a storage throws as well
    *("is not a Parquet file", "can not read class org.apache.parquet", "Not an Avro data file", "Not a data file"),
    *("Invalid sync", "Block size invalid", "may be corrupt", "Corrupted", _NOT_WHOLE, "Decompress"),
    *("FAILED_TO_UNCOMPRESS", "PARSING_ERROR", "incorrect header check", "incorrect data check"),
    *("invalid stored block", "invalid block type"),
)


class UnreadableFileError(Exception):
    """A file whose columns can't be read.

    Attributes:
        path: the file's URI.
        text: what Spark or the format's own library says.
    """

    def __init__(self, path: str, text: str) -> None:
        self.path, self.text = path, text
        super().__init__(f"{path}: {text}")


def is_damage(text: str) -> bool:
    """Whether a file's bytes are at fault, rather than the storage, by the text of an exception and its causes."""
    causes = _CAUSE.findall(text)
    return any(word in text for word in _DAMAGED) or (bool(causes) and _DAMAGE.match(causes[-1]) is not None)


class RowsOfFiles:
    """Reads rows of one format's files.

    Args:
        spark: the session.
        kind: parquet or avro.
        wanted: the type of the values, as Spark's JSON.
    """

    def __init__(self, spark: SparkSession, kind: str, wanted: Type) -> None:
        self.kind = kind
        self._spark, self._wanted = spark, wanted
        self._jvm: Any = spark._jvm
        self._names = {str(field["name"]).lower() for field in wanted["fields"]}

    def numbered(self, stretches: Sequence[Stretch]) -> DataFrame:
        """The rows of whole files in the stretches' order, as `value`, with `line`, from 0 in each file, and `FACTS`.

        A column that a file hasn't is null, and one that isn't wanted is left out.

        Raises:
            UnreadableFileError: a file is damaged, or it isn't one of the format.
            ActionRequiredError: a file has a column whose values the wanted one can't hold.
        """
        configuration = self._configuration()
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            columns = list(pool.map(lambda one: self._columns(configuration, one[1].path), stretches))
        alike = groupby(zip(columns, stretches, strict=True), key=lambda pair: pair[0])
        read = [self._read(kind, [one for _, one in pairs]) for kind, pairs in alike]
        return reduce(DataFrame.union, read or [self._read(StructType().json(), [])])

    def first_damaged(self, stretches: Sequence[Stretch]) -> UnreadableFileError | None:
        """The first file whose bytes are at fault if it is read by itself; None if there is none."""
        for one in stretches:
            try:
                self.numbered([one]).write.format("noop").mode("overwrite").save()
            except UnreadableFileError as error:
                return error
            except (Py4JError, CapturedException, OSError) as error:  # the storage's may have passed
                if is_damage(str(error)):
                    return UnreadableFileError(one[1].path, str(error))
        return None

    def _configuration(self) -> Any:
        """Hadoop's configuration for one read: Spark's readers write into it which columns they read."""
        made = self._spark._jsparkSession.sessionState().newHadoopConf()
        made.setBoolean("parquet.page.verify-checksum.enabled", True)
        return made

    def _read(self, columns: str, stretches: Sequence[Stretch]) -> DataFrame:
        """The rows of files with the same columns."""
        java = self._jvm.org.apache.spark.sql.types.DataType.fromJson(columns)
        options = _OPTIONS[self.kind]
        rows = scan(self._spark, self._format(), java, stretches, options, self._configuration())
        return rows.select("line", *FACTS, self._value(StructType.fromJson(json.loads(columns))))

    def _format(self) -> Any:
        sql = self._jvm.org.apache.spark.sql
        if self.kind == "parquet":
            return sql.execution.datasources.parquet.ParquetFileFormat()
        return sql.avro.AvroFileFormat()

    def _value(self, columns: StructType) -> Column:
        wanted = type_of(self._wanted)
        assert isinstance(wanted, StructType)
        theirs = {field.name.lower(): (F.col(f"c{i}"), field.dataType) for i, field in enumerate(columns)}
        made = [
            conform(*theirs[field.name.lower()], field.dataType).alias(field.name)
            if field.name.lower() in theirs
            else F.lit(None).cast(field.dataType).alias(field.name)
            for field in wanted
        ]
        return F.struct(*made).alias("value")

    # A file's columns

    def _columns(self, configuration: Any, path: str) -> str:
        """The columns of a file that are wanted, as Spark's JSON.

        Raises:
            UnreadableFileError: they can't be read.
            ActionRequiredError: they don't fit.
        """
        try:
            place = self._jvm.org.apache.hadoop.fs.Path(self._jvm.java.net.URI(path))
            own = self._parquet if self.kind == "parquet" else self._avro
            found = own(configuration, place, path)
        except CapturedException as error:  # what Spark itself says of a type
            raise _unfit("A file has a column of a type that Spark doesn't have.", path, reason=str(error)) from error
        except Py4JJavaError as error:
            if _UNKNOWN_TYPE in str(error):
                said = str(error.java_exception.getMessage())
                raise _unfit("A file has a column of a type that Spark doesn't have.", path, reason=said) from error
            raise UnreadableFileError(path, str(error)) from error
        kind = json.loads(found)
        alike = same_but_for_case(kind)
        if alike is not None:
            raise _unfit(
                f"Two columns of a file differ in case only, and a table has one column for both: {alike}.", path
            )
        conflicts = unassignable(self._wanted, kind)
        if conflicts:
            raise _unfit(
                "A file has columns whose values the table's can't hold.",
                path,
                columns=[f"{one.field}: {one.new} in the file, {one.known} is wanted" for one in conflicts],
            )
        return str(found)

    def _parquet(self, configuration: Any, place: Any, path: str) -> str:
        parquet, of_spark = self._jvm.org.apache.parquet, self._jvm.org.apache.spark.sql.execution.datasources.parquet
        without_groups = parquet.format.converter.ParquetMetadataConverter.SKIP_ROW_GROUPS
        footer = of_spark.ParquetFooterReader.readFooter(configuration, place, without_groups).getFileMetaData()
        message = footer.getSchema()
        wanted = self._jvm.java.util.ArrayList()
        for field in message.getFields():
            if str(field.getName()).lower() in self._names:
                wanted.add(field)
        pruned = parquet.schema.MessageType(message.getName(), wanted)
        if not footer.getKeyValueMetaData().containsKey(_BY_SPARK):
            nanoseconds = [".".join(one.getPath()) for one in pruned.getColumns() if _is_int96(one)]
            if nanoseconds:
                raise _unfit(
                    "A file has INT96 columns and wasn't written by Spark: INT96 holds nanoseconds, and Spark would "
                    "drop those beyond microseconds.",
                    path,
                    columns=nanoseconds,
                )
        # Bytes are no text, INT96 are times, names differ in case, local times have no zone, nanoseconds are refused.
        converter = of_spark.ParquetToSparkSchemaConverter(False, True, True, True, False)
        return str(converter.convert(pruned).json())

    def _avro(self, configuration: Any, place: Any, path: str) -> str:
        avro = self._jvm.org.apache.avro
        source = avro.mapred.FsInput(place, configuration)
        try:
            reader = avro.file.DataFileReader(source, avro.generic.GenericDatumReader())
            schema, begin, end = reader.getSchema(), reader.previousSync(), source.length()
        finally:
            source.close()
        if path.startswith(DISK):
            with place_of(path).open("rb") as file:
                wrong = fault(file, begin, end)
        else:
            wrong = self._cut_off(configuration, place, begin, end)
        if wrong is not None:
            raise UnreadableFileError(path, f"{_NOT_WHOLE}: {wrong}")
        if str(schema.getType().getName()) != "record":
            raise _unfit("A file's values are no rows: its Avro schema isn't a record.", path)
        columns = self._jvm.org.apache.spark.sql.types.StructType()
        for field in schema.getFields():
            if str(field.name()).lower() in self._names:
                made = self._jvm.org.apache.spark.sql.avro.SchemaConverters.toSqlType(field.schema(), _STABLE_UNIONS)
                columns = columns.add(field.name(), made.dataType(), True)
        return str(columns.json())

    def _cut_off(self, configuration: Any, place: Any, begin: int, end: int) -> str | None:
        """Whether an object, or a file of HDFS, ends as a whole one does; its blocks would be a request each."""
        stream = place.getFileSystem(configuration).open(place)
        try:
            markers = []
            for at in (begin, end):
                stream.seek(max(0, at - MARKER))
                markers.append(bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream, MARKER)))
        finally:
            stream.close()
        return None if markers[0] == markers[1] else "it doesn't end with its sync marker"


def _is_int96(column: Any) -> bool:
    return str(column.getPrimitiveType().getPrimitiveTypeName().name()) == "INT96"


def _unfit(
    what: str, path: str, columns: Collection[str] | None = None, reason: str | None = None
) -> ActionRequiredError:
    return ActionRequiredError(
        what,
        next_step="nothing of this interval was committed. Name the file's types in the source's `value.schema` and "
        "`cast` them in `transforms`, if they can be cast without loss; or put the file there with other columns under "
        "another name, delete this one, and pass over its offsets as docs/backfill.md says.",
        file=path,
        columns=columns,
        reason=" ".join(reason.split()) if reason is not None else None,
    )
