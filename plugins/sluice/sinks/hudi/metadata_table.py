"""Repairs the note in `hoodie.properties` of a metadata table's partitions if some of these don't exist.

Hudi notes in the table's `hoodie.properties` which partitions of the metadata table exist, and relies on the note in
each commit. The note may be wrong: a restore removes a partition's first commit from the metadata table, but not the
note; or a table is copied without the metadata table's folder. Each later commit then fails. Without the note, Hudi
creates the partition again.
"""

from __future__ import annotations

from typing import Any

from sluice.jvm.gateway import HudiJvm

_FILES = "files"  # the partition without which there is no metadata table


def meta_client(jvm: Any, storage: Any, path: str) -> Any:
    """Hudi's meta client of the table at a path, with its settings as they are now."""
    return jvm.org.apache.hudi.common.table.HoodieTableMetaClient.builder().setConf(storage).setBasePath(path).build()


def metadata_table(jvm: Any, storage: Any, meta: Any) -> Any:
    """Hudi's meta client of a table's metadata table; None if it has none, whatever `hoodie.properties` says."""
    if not meta.getTableConfig().isMetadataTableAvailable():
        return None
    hudi = jvm.org.apache.hudi
    path = hudi.metadata.HoodieTableMetadata.getMetadataTableBasePath(str(meta.getBasePath().toString()))
    settings = hudi.storage.StoragePath(f"{path}/.hoodie/hoodie.properties")
    if not meta.getStorage().exists(settings):
        return None
    return meta_client(jvm, storage, path)


def forget_missing_partitions(jvm: HudiJvm, meta: Any) -> list[str]:
    """Remove partitions of the metadata table that have no committed files from the table's `hoodie.properties`.

    Their folders are deleted, with the leftovers of attempts to create them; if the partition of files is missing, the
    whole metadata table is deleted. Only the table's holder may call this, since any other process may be creating the
    metadata table.

    Args:
        jvm: the JVM with Hudi.
        meta: the table's meta client, with up-to-date settings.

    Returns:
        The partitions, sorted.
    """
    noted = {str(name) for name in meta.getTableConfig().getMetadataPartitions()}
    missing = sorted(noted - _committed(jvm, meta, noted))
    if not missing:
        return []
    context = jvm.jvm.org.apache.hudi.client.common.HoodieJavaEngineContext(jvm.storage)
    metadata = jvm.jvm.org.apache.hudi.metadata.HoodieTableMetadataUtil
    if _FILES in missing:
        metadata.deleteMetadataTable(meta, context, False)
        return sorted(noted)
    for partition in missing:
        metadata.deleteMetadataTablePartition(meta, context, partition, False)
    return missing


def _committed(jvm: HudiJvm, meta: Any, noted: set[str]) -> set[str]:
    """The partitions that have committed files, by the same check as in Hudi's commit."""
    own = metadata_table(jvm.jvm, jvm.storage, meta)
    if own is None:
        return set()
    metadata = jvm.jvm.org.apache.hudi.metadata.HoodieTableMetadataUtil
    view = metadata.getFileSystemViewForMetadataTable(own)
    try:
        given = jvm.Option.of(view)
        return {name for name in noted if not metadata.getPartitionLatestFileSlices(own, given, name).isEmpty()}
    finally:
        view.close()
