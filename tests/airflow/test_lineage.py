"""Names and figures of OpenLineage's datasets, by OpenLineage's own naming."""

from __future__ import annotations

import json

import pytest
from protocol_messages import ack, end, start, status

from sluice.airflow.lineage import columns, dataset_name, interval_lineage
from sluice.protocol.transaction import TableLog


@pytest.mark.parametrize(
    ("path", "namespace", "name"),
    [
        ("file:///lake/orders", "file", "/lake/orders"),
        ("s3a://lake/db/orders", "s3://lake", "db/orders"),
        ("hdfs://name:8020/lake/orders", "hdfs://name:8020", "/lake/orders"),
        ("gs://lake/orders", "gs://lake", "orders"),
        ("abfss://box@account.dfs.core.windows.net/orders", "abfss://box@account.dfs.core.windows.net", "orders"),
    ],
)
def test_tables_are_named_as_openlineage_does(path: str, namespace: str, name: str) -> None:
    assert dataset_name(path) == (namespace, name)


def test_columns_are_those_of_the_avro_schema() -> None:
    avro = {
        "type": "record",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
        ],
    }
    assert columns(json.dumps(avro)) == [("id", "long"), ("at", "timestamp-micros")]


def test_an_interval_reads_its_topics_and_writes_its_table() -> None:
    written = status("7", stats=({"numWrites": 10, "totalWriteBytes": 500},))
    table_log = TableLog("file:///lake/t").extend(enumerate([start("7"), written, end("7"), ack("7")]))
    lineage = interval_lineage(table_log.transactions["7"], "b1:9092,b2:9092")
    (read,), (table,) = lineage.inputs, lineage.outputs
    assert (read.namespace, read.name) == ("kafka://b1:9092", "t")
    assert (read.inputFacets["inputStatistics"].rowCount, read.inputFacets["inputStatistics"].size) == (10, 100)
    statistics = table.outputFacets["outputStatistics"]
    assert (statistics.rowCount, statistics.size, statistics.fileCount) == (10, 500, 1)
    assert table.facets["version"].datasetVersion == "7"


def test_topics_of_streams_are_on_their_clusters() -> None:
    read = (status("7").partitions[0], status("7").partitions[0].model_copy(update={"cluster": "west"}))
    told = [start("7"), status("7", partitions=read, records_read=20), end("7"), ack("7")]
    table_log = TableLog("file:///lake/t").extend(enumerate(told))
    there = {"kafka": "east:9092,other:9092", "west": "west:9092"}
    lineage = interval_lineage(table_log.transactions["7"], "own:9092", there)
    assert [(one.namespace, one.name) for one in lineage.inputs] == [
        ("kafka://east:9092", "t"), ("kafka://west:9092", "t"),
    ]  # fmt: skip
