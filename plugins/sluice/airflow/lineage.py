"""An interval's lineage for OpenLineage: Kafka topics in, the Hudi table out, with schema and statistics.

Names follow https://openlineage.io/docs/spec/naming: `kafka://host:port` and the topic; `file`, `s3://bucket` or
`hdfs://host:port` and the path. Only imported where the OpenLineage provider calls for it.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

from airflow.providers.openlineage.extractors import OperatorLineage
from openlineage.client.event_v2 import InputDataset, OutputDataset
from openlineage.client.facet_v2 import (
    dataset_version_dataset,
    input_statistics_input_dataset,
    output_statistics_output_dataset,
    schema_dataset,
    storage_dataset,
)

from sluice.protocol.messages import TableSpec
from sluice.protocol.settlement import committed_statuses
from sluice.protocol.transaction import Transaction

_NONE: Mapping[str, str] = MappingProxyType({})
_SCHEMES = {"s3a": "s3", "s3n": "s3", "abfs": "abfss"}  # Hadoop's names of the same stores


def interval_lineage(
    transaction: Transaction, bootstrap_servers: str, of_clusters: Mapping[str, str] = _NONE
) -> OperatorLineage[Any, Any]:
    """The inputs and the output of a committed interval.

    Args:
        transaction: the interval.
        bootstrap_servers: of the pipeline's cluster.
        of_clusters: of each cluster of streams, by its name.
    """
    inputs = _inputs(transaction, bootstrap_servers, of_clusters)
    first, further = transaction.start.writer, [table.writer for table in transaction.start.tables]
    outputs = [_output(transaction, first, ""), *(_output(transaction, writer, writer.name) for writer in further)]
    return OperatorLineage(inputs=inputs, outputs=outputs)


def no_lineage() -> OperatorLineage[Any, Any]:
    """An interval that committed nothing."""
    return OperatorLineage()


def dataset_name(path: str) -> tuple[str, str]:
    """Namespace and name of a table's path."""
    parts = urlsplit(path)
    if parts.scheme in ("", "file"):
        return "file", parts.path
    scheme = _SCHEMES.get(parts.scheme, parts.scheme)
    name = parts.path if scheme == "hdfs" else parts.path.lstrip("/")
    return f"{scheme}://{parts.netloc}", name


def columns(schema_avro: str) -> list[tuple[str, str]]:
    """Names and types of a record's fields, with Avro's unions of null as their other type."""
    return [(field["name"], _type(field["type"])) for field in json.loads(schema_avro).get("fields", [])]


def _inputs(transaction: Transaction, bootstrap_servers: str, of_clusters: Mapping[str, str]) -> list[InputDataset]:
    records: dict[tuple[str, str], int] = defaultdict(int)
    sizes: dict[tuple[str, str], int] = defaultdict(int)
    for status in committed_statuses(transaction).values():
        for partition in status.partitions:
            first = of_clusters.get(partition.cluster, bootstrap_servers).split(",")[0].strip()
            records[first, partition.topic] += partition.records_read
            sizes[first, partition.topic] += partition.bytes_read
    statistics = input_statistics_input_dataset.InputStatisticsInputDatasetFacet
    return [
        InputDataset(
            namespace=f"kafka://{first}",
            name=topic,
            inputFacets={"inputStatistics": statistics(rowCount=records[first, topic], size=sizes[first, topic])},
        )
        for first, topic in sorted(records)
    ]


def _output(transaction: Transaction, writer: TableSpec, table: str) -> OutputDataset:
    """One of the interval's tables; `table` is its name among committables."""
    namespace, name = dataset_name(writer.path)
    statuses = committed_statuses(transaction).values()
    committables = [c for status in statuses for c in status.stats if c.table == table]
    of_several = bool(transaction.start.tables)  # whose records a status counts together
    rows = sum(c.rows for c in committables) if of_several else sum(status.records_written for status in statuses)
    fields = [
        schema_dataset.SchemaDatasetFacetFields(name=column, type=kind) for column, kind in columns(writer.schema_avro)
    ]
    return OutputDataset(
        namespace=namespace,
        name=name,
        facets={
            "schema": schema_dataset.SchemaDatasetFacet(fields=fields),
            "storage": storage_dataset.StorageDatasetFacet(storageLayer="hudi", fileFormat="parquet"),
            "version": dataset_version_dataset.DatasetVersionDatasetFacet(datasetVersion=transaction.id),
        },
        outputFacets={
            "outputStatistics": output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
                rowCount=rows,
                size=sum(c.bytes for c in committables),
                fileCount=len(committables),
            )
        },
    )


def _type(avro: Any) -> str:
    if isinstance(avro, list):
        return " or ".join(_type(one) for one in avro if one != "null")
    if isinstance(avro, dict):
        return str(avro.get("logicalType") or avro.get("type"))
    return str(avro)
