"""A Variable of Airflow says where streams are."""

from __future__ import annotations

import json

import pytest

from sluice.connectors.metadata import metadata_service
from sluice.errors import ActionRequiredError

MAPPING = {"streams": {"orders": {"clusters": {"east": {"topics": "orders", "connection": "kafka_east"}}}}}


def test_a_variable_says_where_streams_are_and_is_read_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_VAR_WHERE", json.dumps(MAPPING))
    service = metadata_service("airflow_variable", {"name": "where"})
    assert service.all_streams()["orders"].clusters["east"].connection == "kafka_east"
    assert service.is_cluster_active("east")
    monkeypatch.setenv("AIRFLOW_VAR_WHERE", "{streams: {orders: {clusters: {}}}, inactive: [east]}")
    assert dict(service.describe_streams(["orders", "others"])["orders"].clusters) == {}
    assert not service.is_cluster_active("east")


def test_a_variable_that_is_missing_or_wrong_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ActionRequiredError, match="no Variable of that name") as missing:
        metadata_service("airflow_variable", {"name": "nowhere"}).all_streams()
    assert missing.value.where["variable"] == "nowhere"
    monkeypatch.setenv("AIRFLOW_VAR_WHERE", "{streams: [")
    with pytest.raises(ActionRequiredError, match="is not YAML"):
        metadata_service("airflow_variable", {"name": "where"}).all_streams()
