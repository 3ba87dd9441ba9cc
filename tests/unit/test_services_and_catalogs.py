"""The sections `table_services` and `catalog_sync` as options of Hudi's; no process is started."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

from sluice.pipeline import Catalog, Glue, HiveMetastore, Hudi, Kafka, Pipeline, Sink, Source, TableServices
from sluice.protocol.services import BY_HAND, IN_ONE_STEP, PLANNED, SERVICES
from sluice.sinks.hudi.catalog_sync import sync_options
from sluice.sinks.hudi.services import STEPS, ServiceClient, service_options
from sluice.sinks.hudi.strays import instant_in

COLUMNS = "id BIGINT, shop STRING"


def a_pipeline(name: str = "orders", **more: Any) -> Pipeline:
    hudi = Hudi(path="/lake/orders", schema=COLUMNS, partition_fields="shop", **more.pop("hudi", {}))
    return Pipeline(name=name, source=Source(kafka=Kafka(topics="orders")), sink=Sink(hudi=hudi), **more)


def test_the_files_own_options_win():
    options = service_options(TableServices(keep_commits=7, keep_timeline=9, options={"hoodie.keep.max.commits": 12}))
    assert options["hoodie.clean.commits.retained"] == "7"
    assert options["hoodie.keep.min.commits"] == "9"
    assert options["hoodie.keep.max.commits"] == "12"


@pytest.mark.parametrize(
    "wrong",
    [
        {"keep_commits": 10, "keep_timeline": 10},
        {"options": {"spark.x": "1"}},
        {"compaction": {"after_delta_commits": 0}},
    ],
)
def test_what_hudi_would_refuse_is_refused_at_once(wrong: dict[str, Any]):
    with pytest.raises(ValidationError):
        TableServices(**wrong)


def test_hudi_carries_out_each_service_of_one_step():
    assert set(STEPS) == set(IN_ONE_STEP)
    assert (*PLANNED, *IN_ONE_STEP, *BY_HAND) == SERVICES, "they run in this order"


@pytest.mark.parametrize(
    ("service", "says"),
    [
        ("cleaning", "7 files"),
        ("archiving", "3 instants fewer"),
        ("metadata_compaction", "metadata table's own compaction"),
    ],
)
def test_hudi_says_what_a_service_of_one_step_has_done(service: str, says: str, monkeypatch: pytest.MonkeyPatch):
    did: list[str] = []
    counts = [13, 10]
    deleted = SimpleNamespace(getTotalFilesDeleted=lambda: 7)
    client = SimpleNamespace(clean=lambda: did.append("cleaning") or deleted, archive=lambda: did.append("archiving"))
    made: Any = ServiceClient.__new__(ServiceClient)
    made._table = SimpleNamespace(
        timeline=lambda: SimpleNamespace(countInstants=lambda: counts.pop(0)),
        serve_metadata_table=lambda used: did.append("metadata_compaction" if used is client else "another client"),
    )
    monkeypatch.setattr(ServiceClient, "_client", lambda _self, _doing: nullcontext(client))
    assert says in made.carry_out(service)
    assert did == [service]


def test_clustering_is_for_append_tables():
    services = TableServices(clustering={})
    with pytest.raises(ValidationError, match="compacted"):
        a_pipeline(hudi={"operation": "upsert", "record_key": "id"}, table_services=services)


def test_a_pipeline_must_not_take_the_second_dags_name():
    with pytest.raises(ValidationError, match="second DAG"):
        a_pipeline("orders.table_services")


def test_with_table_services_commits_neither_clean_nor_archive_unless_told_to():
    inline = ("hoodie.clean.automatic", "hoodie.archive.automatic")
    without = a_pipeline().writer(COLUMNS, "{}").options
    assert not set(inline) & set(without)
    with_services = a_pipeline(table_services=TableServices()).writer(COLUMNS, "{}").options
    assert [with_services[name] for name in inline] == ["false", "false"]
    asked = (
        a_pipeline(table_services=TableServices(), hudi={"options": {inline[0]: True}}).writer(COLUMNS, "{}").options
    )
    assert asked[inline[0]] == "true"


@pytest.mark.parametrize(
    ("catalog", "expected"),
    [
        (
            HiveMetastore(uris="thrift://hive:9083", database="lake"),
            {"mode": "hms", "metastore.uris": "thrift://hive:9083", "database": "lake", "table": "orders"},
        ),
        (Glue(database="lake", table="o"), {"database": "lake", "table": "o", "partition_fields": "shop"}),
    ],
)
def test_what_a_catalog_is_told(catalog: Catalog, expected: dict[str, str]):
    options = sync_options(a_pipeline(), catalog)
    assert {name: options[f"hoodie.datasource.hive_sync.{name}"] for name in expected} == expected
    assert options["hoodie.datasource.meta.sync.base.path"] == "file:///lake/orders"


def test_hadoop_settings_of_a_catalog_are_no_sync_options():
    catalog = HiveMetastore(uris="thrift://h:1", options={"hive.metastore.sasl.enabled": True, "hoodie.x": 1})
    options = sync_options(a_pipeline(), catalog)
    assert options["hoodie.x"] == "1"
    assert "hive.metastore.sasl.enabled" not in options


def test_the_outputs_of_services_carry_their_own_instants():
    assert instant_in("abc-0_1-5-0_20261121153143225.parquet") == "20261121153143225"
