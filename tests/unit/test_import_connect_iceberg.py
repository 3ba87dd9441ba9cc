"""Iceberg's sink for Connect as a pipeline file for each of its tables."""

from __future__ import annotations

import pytest

from sluice.connect import ConnectorConfig, ImportOptions, checked, imported

from .connectors_of_connect import JSON, one, said, verdicts

APACHE = "org.apache.iceberg.connect.IcebergSinkConnector"
TABULAR = "io.tabular.iceberg.connect.IcebergSinkConnector"
EVENTS = {
    "connector.class": APACHE,
    "topics": "events",
    "iceberg.tables": "db.events",
    "iceberg.catalog.type": "rest",
    "iceberg.catalog.uri": "http://catalog:8181",
    "iceberg.catalog.credential": "s3cr3t",
    "iceberg.catalog.warehouse": "s3://lake/warehouse/",
    "iceberg.control.commit.interval-ms": "60000",
    "iceberg.tables.default-id-columns": "id",
    "iceberg.tables.default-partition-by": "shop",
    **JSON,
}
ROUTED = {
    **EVENTS,
    "iceberg.tables": "db.orders, db.returns",
    "iceberg.tables.route-field": "meta.kind",
    "iceberg.table.db.orders.route-regex": "order|sale",
    "iceberg.table.db.returns.route-regex": "ret.*",
    "iceberg.table.db.returns.partition-by": "country,shop",
}


def made_of(config):
    return [checked(found) for found in imported(ConnectorConfig("p", config), ImportOptions())]


def test_rows_are_added_to_a_hudi_table_beside_as_the_connector_adds_them():
    made = one(EVENTS)
    assert made.pipeline["sink"] == {
        "hudi": {
            "path": "s3://lake/warehouse/db/events_sluice", "table": "db_events", "operation": "append",
            "partition_fields": ["shop"],
        }
    }  # fmt: skip
    assert made.pipeline["schedule"] == "1 minute"
    assert said(made, "iceberg.tables").verdict == "differs"
    assert verdicts(made)["iceberg.tables.default-id-columns"] == "harmless"
    assert any("from the topics' beginning" in step for step in made.steps)
    assert "s3cr3t" not in repr(made)


def test_a_folder_that_is_named_takes_the_warehouse_s_place():
    made = one(EVENTS, path="hdfs://n/hudi")
    assert made.pipeline["sink"]["hudi"]["path"] == "hdfs://n/hudi/db/events"


def test_each_table_has_a_pipeline_that_takes_its_own_records():
    orders, returns = made_of(ROUTED)
    assert [orders.name, returns.name] == ["p.db.orders", "p.db.returns"]
    (step,) = orders.pipeline["transforms"]
    assert step["filter"] == "coalesce(CAST(`meta`.`kind` AS STRING) RLIKE '^(?:order|sale)$', false)"
    assert orders.pipeline["sink"]["hudi"]["partition_fields"] == ["shop"]
    assert returns.pipeline["sink"]["hudi"]["partition_fields"] == ["country", "shop"]
    for made in (orders, returns):
        assert set(verdicts(made)) == set(ROUTED)
    assert said(orders, "iceberg.table.db.returns.route-regex").what.startswith("it is of another table")


def test_without_a_field_to_route_by_each_table_has_every_record():
    config = {key: value for key, value in ROUTED.items() if key != "iceberg.tables.route-field"}
    assert all("transforms" not in made.pipeline for made in made_of(config))


def test_tabular_s_upserts_are_upserts():
    made = one({**EVENTS, "connector.class": TABULAR, "iceberg.tables.upsert-mode-enabled": "true"})
    assert made.pipeline["sink"]["hudi"]["operation"] == "upsert"
    assert made.pipeline["sink"]["hudi"]["record_key"] == ["id"]


@pytest.mark.parametrize("transform", ["day(at)", "shop,bucket(id, 16)"])
def test_a_transform_of_a_column_partitions_nothing_here(transform):
    made = one({**EVENTS, "iceberg.tables.default-partition-by": transform})
    assert made.pipeline["sink"]["hudi"].get("partition_fields") == (["shop"] if "shop" in transform else None)
    assert said(made, "iceberg.tables.default-partition-by").verdict == "not honoured"


@pytest.mark.parametrize(
    ("more", "key"),
    [
        ({"iceberg.tables": ""}, "iceberg.tables"),
        ({"iceberg.tables": "../x"}, "iceberg.tables"),
        ({"iceberg.tables.dynamic-enabled": "true"}, "iceberg.tables.dynamic-enabled"),
        ({"iceberg.tables.cdc-field": "op"}, "iceberg.tables.cdc-field"),
        ({"iceberg.catalog.warehouse": "my-warehouse"}, "iceberg.catalog.warehouse"),
        ({"iceberg.catalog.warehouse": "s3://u:s3cr3t-1@lake/w"}, "iceberg.catalog.warehouse"),
        ({"iceberg.tables.route-field": "kind"}, "iceberg.tables.route-field"),
        (
            {"iceberg.tables.upsert-mode-enabled": "true", "iceberg.tables.default-id-columns": ""},
            "iceberg.tables.upsert-mode-enabled",
        ),
    ],
)
def test_what_no_pipeline_can_be_made_of_is_refused_by_its_key(more, key):
    made = one({**EVENTS, **more})
    assert made.status == 1
    assert "nothing could be made" in said(made, key).what
    assert "s3cr3t" not in repr(made)
