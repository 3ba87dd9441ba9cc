"""Registers a table's folders in a Hive metastore, through Hive's client, once an interval's files are visible.

The metastore has one external table, whose partitions are the folders with files, each with its location. This works
for both layouts, and for several topics. A property of the table records the last interval that the metastore knows.
The folders of all later intervals are added in one call, which skips existing partitions; the property is set after
that. If the process dies in between, or the metastore refuses the call, the next call catches up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote

from py4j.protocol import Py4JJavaError

from sluice.errors import ActionRequiredError, RetryableError
from sluice.jvm.causes import causes
from sluice.jvm.gateway import HudiJvm
from sluice.logs import log
from sluice.pipeline.catalog import HiveMetastore
from sluice.sinks.files.log import Record
from sluice.sinks.files.options.partitioning import NO_VALUE, Partitioning
from sluice.storages import PERMISSION
from sluice.untrusted import whole

FORMATS: Final = {
    "avro": (
        "org.apache.hadoop.hive.ql.io.avro.AvroContainerInputFormat",
        "org.apache.hadoop.hive.ql.io.avro.AvroContainerOutputFormat",
        "org.apache.hadoop.hive.serde2.avro.AvroSerDe",
    ),
    "parquet": (
        "org.apache.hadoop.hive.ql.io.parquet.MapredParquetInputFormat",
        "org.apache.hadoop.hive.ql.io.parquet.MapredParquetOutputFormat",
        "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe",
    ),
}
"""Hive's classes for each format that it can read: input format, output format and SerDe."""
Folders = Mapping[str, tuple[str, ...]]
"""Folders below a table's path, each with the values of the partition columns."""
_KNOWN: Final = "sluice.last_interval"
_SOCKET_TIMEOUT: Final = ("hive.metastore.client.socket.timeout", "60s")
_MODEL: Final = "org.apache.hadoop.hive.metastore.api"


def partition_keys(made: Partitioning, layout: str) -> list[str]:
    """The partition columns by which the metastore distinguishes folders.

    Raises:
        ValueError: a folder has no name for its value, or two folders have the same name.
    """
    keys = [key.lower() for key in (*(["interval"] if layout == "interval" else []), "topic", *made.keys())]
    twice = next((key for key in keys if keys.count(key) > 1), None)
    if twice:
        raise ValueError(f"two of the catalog's partition columns would be named {twice}")
    return keys


def partitions(record: Record, keys: Sequence[str], topics_dir: str) -> Folders:
    """The folders of an interval's files, each with the values of the partition columns.

    Args:
        record: the interval.
        keys: the partition columns, as returned by `partition_keys`.
        topics_dir: the folder below the table's path that holds the files.
    """
    found: dict[str, tuple[str, ...]] = {}
    for one in record.files:
        folder = one.path.rpartition("/")[0]
        if not folder.startswith(f"{topics_dir}/"):
            continue  # written while the pipeline had another topics_dir
        named = folder.removeprefix(f"{topics_dir}/").split("/")
        plain = 2 if record.layout == "interval" else 1
        if (record.layout == "interval") != (keys[0] == "interval"):
            continue  # written while it had another layout
        values = [unquote(part.partition("=")[2] or part) for part in named[plain:]]
        if values == [NO_VALUE]:
            values = [NO_VALUE] * (len(keys) - plain)
        if len(values) == len(keys) - plain:
            found[folder] = (*map(unquote, named[:plain]), *values)
    return found


@dataclass(frozen=True)
class HiveTable:
    """A table's definition for the metastore.

    Attributes:
        database: the name of the metastore's database.
        table: the table's name in it.
        location: the folder with all files.
        data_format: avro or parquet.
        columns: the names of the rows' columns, with Hive's types.
        keys: the partition columns, all of type string.
        comments: comments on the rows' columns, by their names.
    """

    database: str
    table: str
    location: str
    data_format: str
    columns: Mapping[str, str]
    keys: Sequence[str]
    comments: Mapping[str, str] = field(default_factory=dict)


class HiveCatalog:
    """One metastore, accessed through Hive's client.

    Args:
        jvm: a JVM with Hive's client.
        catalog: the metastore's address, and the client's settings.
    """

    def __init__(self, jvm: HudiJvm, catalog: HiveMetastore) -> None:
        self._jvm = jvm
        self._catalog = catalog
        self._api = {name: jvm.nested(f"{_MODEL}.{name}") for name in (
            "Database", "FieldSchema", "Partition", "SerDeInfo", "StorageDescriptor", "Table")}  # fmt: skip

    def tell(self, wanted: HiveTable, intervals: Iterable[tuple[int, Folders]], base: str) -> None:
        """Bring the metastore up to date.

        Args:
            wanted: the table's definition.
            intervals: the numbers of the visible intervals with their folders, newest first.
            base: the path to which the folders are relative.

        Raises:
            RetryableError: the metastore doesn't answer, or refuses for a reason that may be temporary.
            ActionRequiredError: permission is missing, or another table has the name.
        """
        where = {"catalog": self._catalog.uris, "database": wanted.database, "table": wanted.table}
        try:
            client = self._client()
            try:
                found = self._table(client, wanted, where)
                known = whole(str(found.getParameters().get(_KNOWN))) or 0  # others may write to the table's parameters
                folders: dict[str, tuple[str, ...]] = {}
                newest = known
                for number, of_one in intervals:
                    if number <= known:
                        break
                    newest = max(newest, number)
                    folders |= of_one
                if folders:
                    client.add_partitions(self._partitions(wanted, folders, base), True, False)
                self._describe(found, wanted)
                found.getParameters().put(_KNOWN, str(newest))
                client.alter_table(wanted.database, wanted.table, found)
            finally:
                client.close()
        except Py4JJavaError as error:
            text = " <- ".join(causes(error.java_exception))[:2000]
            if PERMISSION.is_in(text):
                raise ActionRequiredError(
                    "No permission to register the table in the catalog.",
                    next_step="grant the user of Airflow's workers permission to create and alter the table in it.",
                    reason=text,
                    **where,
                ) from error
            raise RetryableError(
                "The catalog did not take what the table holds now.",
                next_step="the step is retried, and the next interval catches up; the commit remains. If the error "
                "comes back, check that the catalog is up, and its address in the pipeline's catalog_sync.",
                reason=text,
                **where,
            ) from error
        log.info("the catalog is up to date", folders=len(folders), **where)

    def _client(self) -> Any:
        hadoop = self._jvm.jvm.org.apache.hadoop
        configuration = hadoop.hive.conf.HiveConf()
        configuration.addResource(self._jvm.storage.unwrap())
        own = {k: v for k, v in self._catalog.options.items() if not k.startswith("hoodie.")}
        for name, value in {_SOCKET_TIMEOUT[0]: _SOCKET_TIMEOUT[1], **own}.items():
            configuration.set(name, value)
        configuration.set("hive.metastore.uris", self._catalog.uris)
        return hadoop.hive.metastore.HiveMetaStoreClient(configuration)

    def _table(self, client: Any, wanted: HiveTable, where: Mapping[str, str]) -> Any:
        """The metastore's table, created if it doesn't exist."""
        if not client.tableExists(wanted.database, wanted.table):
            if wanted.database not in list(client.getAllDatabases()):
                self._unless_there(client.createDatabase, self._api["Database"](wanted.database, "", None, {}))
            made = self._api["Table"]()
            made.setDbName(wanted.database)
            made.setTableName(wanted.table)
            made.setTableType("EXTERNAL_TABLE")
            made.setParameters({"EXTERNAL": "TRUE"})
            made.setPartitionKeys([self._api["FieldSchema"](key, "string", "") for key in wanted.keys])
            self._describe(made, wanted)
            self._unless_there(client.createTable, made)
        found = client.getTable(wanted.database, wanted.table)
        keys = [str(one.getName()) for one in found.getPartitionKeys()]
        location = str(found.getSd().getLocation())
        if keys != list(wanted.keys) or _plain(location) != _plain(wanted.location):
            raise ActionRequiredError(
                "The catalog has another table of this name.",
                next_step="choose another name in catalog_sync, or drop the existing table.",
                partition_columns=", ".join(keys),
                needed=", ".join(wanted.keys),
                location=location,
                **where,
            )
        return found

    def _describe(self, table: Any, wanted: HiveTable) -> None:
        described = self._described(wanted, wanted.location)
        known = table.getSd()
        table.setSd(described)
        if known is not None:
            described.setLocation(known.getLocation())

    def _described(self, wanted: HiveTable, location: str) -> Any:
        reads, writes, rows = FORMATS[wanted.data_format]
        made = self._api["StorageDescriptor"]()
        columns = wanted.columns.items()
        made.setCols([self._api["FieldSchema"](name, kind, wanted.comments.get(name, "")) for name, kind in columns])
        made.setLocation(location)
        made.setInputFormat(reads)
        made.setOutputFormat(writes)
        made.setSerdeInfo(self._api["SerDeInfo"](wanted.table, rows, {"serialization.format": "1"}))
        return made

    def _partitions(self, wanted: HiveTable, folders: Mapping[str, tuple[str, ...]], base: str) -> list[Any]:
        made = []
        for folder, values in sorted(folders.items()):
            one = self._api["Partition"]()
            one.setDbName(wanted.database)
            one.setTableName(wanted.table)
            one.setValues(list(values))
            one.setSd(self._described(wanted, f"{base}/{folder}"))
            made.append(one)
        return made

    @staticmethod
    def _unless_there(make: Any, what: Any) -> None:
        """Create an object, unless another process has created it meanwhile."""
        try:
            make(what)
        except Py4JJavaError as error:
            if "AlreadyExistsException" not in str(error.java_exception.getClass().getName()):
                raise


def _plain(location: str) -> str:
    """A location in one spelling: Java writes file:///a as file:/a."""
    return location.rstrip("/").replace("file:///", "file:/")
