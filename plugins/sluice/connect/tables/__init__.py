"""The known connectors: for each a table of its keys, and the code for keys that depend on each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from sluice.connect.draft import Draft
from sluice.connect.rules import Table
from sluice.connect.tables import databases, hudi, iceberg, jdbc_source, storage


@dataclass(frozen=True)
class Known:
    """A connector that can be imported.

    Attributes:
        words: its common name.
        sink: the name of the section that replaces it.
        keys: the rule for each key.
        step: reads keys that depend on each other, before `keys`.
        schedule: how often intervals run where the connector doesn't set it.
        folder: whether it writes to a folder, which `--path` may name.
        source: the name of the section that it reads.
        tables: keys that name tables, each with a separate pipeline; the first key that is set counts.
    """

    words: str
    sink: str
    keys: Table
    step: Callable[[Draft], None]
    schedule: str
    folder: bool = False
    source: str = "kafka"
    tables: tuple[str, ...] = ()


_HDFS = Known("Confluent's HDFS sink", "files", storage.HDFS, storage.hdfs, "5 minutes", folder=True)
_JDBC_SOURCE = Known(
    "a JDBC source, as Confluent's or Aiven's",
    "kafka",
    jdbc_source.KEYS,
    jdbc_source.source,
    "1 minute",
    folder=True,
    source="jdbc",
    tables=jdbc_source.TABLES,
)
_ICEBERG = Known("Iceberg's sink", "hudi", iceberg.KEYS, iceberg.sink, "5 minutes", folder=True, tables=iceberg.TABLES)
CONNECTORS: Final[Mapping[str, Known]] = {
    "io.confluent.connect.jdbc.JdbcSinkConnector": Known(
        "Confluent's JDBC sink", "jdbc", databases.CONFLUENT, databases.confluent, "1 minute"
    ),
    "io.aiven.connect.jdbc.JdbcSinkConnector": Known(
        "Aiven's JDBC sink", "jdbc", databases.AIVEN, databases.aiven, "1 minute"
    ),
    "io.confluent.connect.jdbc.JdbcSourceConnector": _JDBC_SOURCE,
    "io.aiven.connect.jdbc.JdbcSourceConnector": _JDBC_SOURCE,
    "io.debezium.connector.jdbc.JdbcSinkConnector": Known(
        "Debezium's JDBC sink", "jdbc", databases.DEBEZIUM, databases.debezium, "1 minute"
    ),
    "io.confluent.connect.hdfs.HdfsSinkConnector": _HDFS,
    "io.confluent.connect.hdfs3.Hdfs3SinkConnector": _HDFS,
    "io.confluent.connect.s3.S3SinkConnector": Known(
        "Confluent's S3 sink", "files", storage.S3, storage.s3, "5 minutes", folder=True
    ),
    "org.apache.hudi.connect.HoodieSinkConnector": Known(
        "Hudi's sink (RFC-32)", "hudi", hudi.KEYS, hudi.sink, "1 minute"
    ),
    "org.apache.iceberg.connect.IcebergSinkConnector": _ICEBERG,
    "io.tabular.iceberg.connect.IcebergSinkConnector": _ICEBERG,
}
"""By the values of `connector.class`."""

_AIVEN_S3 = (
    "Aiven's S3 sink names files by templates, and writes records with their envelopes, which nothing here does",
    "for files as Confluent's sinks write them, write a pipeline file by docs/file-sink.md",
)
REFUSED: Final[Mapping[str, tuple[str, str]]] = {
    "io.aiven.kafka.connect.s3.AivenKafkaConnectS3SinkConnector": _AIVEN_S3,
    "io.aiven.kafka.connect.s3.S3SinkConnector": _AIVEN_S3,
}
"""Known connectors that can't be imported: the reason, and what to do."""
