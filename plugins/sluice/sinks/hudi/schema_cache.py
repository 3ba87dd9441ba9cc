"""Keeps the metadata table's schema in Hudi's cache of schemas.

Hudi 1.2 compares that schema by identity (`HoodieMetadataPayload.getInsertValue`), and takes a cache of 1,024 schemas
as a promise that each schema exists once in a JVM. The cache loses the object where other schemas displace it. It never
has the object where Hudi parses the schema before it loads that class: seen with Spark's data source, in a JVM whose
first commit adds column statistics to a table. From then on, each of the JVM's commits to any table fails:
"ArrayIndexOutOfBoundsException: Index 7 out of bounds for length 7". The same comparison is at fault in
https://github.com/apache/hudi/issues/19559.
"""

from __future__ import annotations

from typing import Any

_MOST = 512
"""Schemas in the cache before it is cleared: half of Hudi's limit, for the schemas that the next step adds."""


def hold_metadata_schema(jvm: Any) -> None:
    """Have the next step's commits find the metadata table's schema in the JVM's cache.

    Args:
        jvm: Py4J's view of a JVM with Hudi, the coordinator's or Spark's.
    """
    hudi = jvm.org.apache.hudi
    schemas = hudi.common.schema.HoodieSchemaCache
    compared = _private(hudi.metadata.HoodieMetadataPayload, "HOODIE_METADATA_AVRO_SCHEMA")
    metadata_schema = hudi.common.schema.HoodieSchema.fromAvroSchema(compared)
    cache = _private(schemas, "SCHEMA_CACHE")
    if cache.estimatedSize() > _MOST:
        cache.invalidateAll()
    cache.invalidate(metadata_schema)
    schemas.intern(metadata_schema)


def _private(java_class: Any, name: str) -> Any:
    """The value of a class's private static field."""
    field = java_class._java_lang_class.getDeclaredField(name)
    field.setAccessible(True)
    return field.get(None)
