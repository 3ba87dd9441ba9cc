"""Creates a Hudi table so that only one of several concurrent processes ever writes its settings.

Hudi's `initTable` overwrites `hoodie.properties`. A START that was suspended between its check and that write would
erase Hudi's later notes about a table in use: which parts of the metadata table exist.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from py4j.protocol import Py4JJavaError
from tenacity import RetryError, Retrying, retry_if_result, stop_after_delay, wait_fixed

from sluice.failpoints import reach
from sluice.jvm.gateway import HudiJvm
from sluice.logs import log
from sluice.protocol.messages import TableSpec
from sluice.records.folders import HIVE_STYLE, URL_ENCODED, is_on
from sluice.sinks.hudi.options import DEFAULT_VERSION, NEWEST_VERSION, TABLE_VERSION, needs_newest_version
from sluice.sinks.hudi.write_config import key_generator

_FOLDER = ".hoodie"
_SETTINGS = "hoodie.properties"
_PATIENCE = 10.0  # seconds to wait for another process to fill the empty settings file it created


def table_exists(jvm: HudiJvm, writer: TableSpec) -> bool:
    """Whether there is a Hudi table at the path, with settings that have been written."""
    storage, path = _settings(jvm, writer)
    return bool(storage.exists(path)) and storage.getPathInfo(path).getLength() > 0


def version_of_new(writer: TableSpec) -> int:
    """The table version with which a pipeline's table is created.

    The default is the last version that Hudi 1.0 reads; docs/how-to/read-the-tables.md has the readers.
    """
    newest = needs_newest_version(writer.options, writer.ordering_fields)
    return int(writer.options.get(TABLE_VERSION, NEWEST_VERSION if newest else DEFAULT_VERSION))


def create_table(jvm: HudiJvm, writer: TableSpec) -> None:
    """Create the table, unless another process has done so meanwhile.

    Raises:
        Py4JJavaError: the storage refuses.
    """
    storage, path = _settings(jvm, writer)
    with TemporaryDirectory(prefix="sluice-table-") as scratch:
        _initialize(jvm, writer, scratch)
        model = Path(scratch, _FOLDER)
        for folder in sorted(p for p in model.rglob("*") if p.is_dir()):
            relative = folder.relative_to(scratch).as_posix()
            storage.createDirectory(jvm.jvm.org.apache.hudi.storage.StoragePath(f"{writer.path}/{relative}"))
        settings = (model / _SETTINGS).read_bytes()
    reach("sink.before_create_table")
    if _write_alone(storage, path, settings) or _written_by_another(jvm, writer):
        return
    # Its process must have died, since the write takes less than a second; if it resumes, it writes to a deleted file.
    log.warning("removed the empty settings of a table whose creation was never finished", table=writer.path)
    storage.deleteFile(path)
    if not _write_alone(storage, path, settings):
        _written_by_another(jvm, writer)


def _settings(jvm: HudiJvm, writer: TableSpec) -> tuple[Any, Any]:
    """The table's storage, and the path of its settings."""
    storage = jvm.jvm.org.apache.hudi.storage.HoodieStorageUtils.getStorage(writer.path, jvm.storage)
    return storage, jvm.jvm.org.apache.hudi.storage.StoragePath(f"{writer.path}/{_FOLDER}/{_SETTINGS}")


def _write_alone(storage: Any, path: Any, content: bytes) -> bool:
    """Write the file; False if it exists already."""
    try:
        out = storage.create(path, False)
    except Py4JJavaError:
        if storage.exists(path):
            return False
        raise
    try:
        out.write(content)
    finally:
        out.close()
    return True


def _written_by_another(jvm: HudiJvm, writer: TableSpec) -> bool:
    """Wait for settings that another process has begun to write; False if they don't appear in time."""
    until = Retrying(
        stop=stop_after_delay(_PATIENCE), wait=wait_fixed(0.1), retry=retry_if_result(lambda there: not there)
    )
    try:
        return bool(until(table_exists, jvm, writer))
    except RetryError:
        return False


def _initialize(jvm: HudiJvm, writer: TableSpec, path: str) -> None:
    """Let Hudi create the table's folders and settings at the path."""
    builder = jvm.jvm.org.apache.hudi.common.table.HoodieTableMetaClient.newTableBuilder()
    builder.setTableType(writer.table_type).setTableName(writer.name).setPopulateMetaFields(True)
    builder.setKeyGeneratorClassProp(key_generator(writer))
    if writer.record_key:
        builder.setRecordKeyFields(",".join(writer.record_key))
    if writer.partition_fields:
        builder.setPartitionFields(",".join(writer.partition_fields))
    if writer.ordering_fields:
        builder.setOrderingFields(",".join(writer.ordering_fields))
    builder.setCommitTimezone(jvm.jvm.org.apache.hudi.common.model.HoodieTimelineTimeZone.UTC)
    builder.setHiveStylePartitioningEnable(is_on(writer.options, HIVE_STYLE))
    builder.setUrlEncodePartitioning(is_on(writer.options, URL_ENCODED))
    builder.setTableVersion(version_of_new(writer))
    builder.initTable(jvm.storage, Path(path).as_uri())
