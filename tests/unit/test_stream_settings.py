"""What a pipeline file says of streams, and to which hosts a connection's secrets may go."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from sluice.errors import ActionRequiredError
from sluice.kafka.config import ALLOWED_HOSTS, KafkaSettings, connections_of_environment, connections_to_environment
from sluice.sources.kafka.options import Kafka

METADATA = {"service": "file", "path": "streams.yaml"}
SETTINGS = KafkaSettings(
    "shared", {"bootstrap.servers": "a:9092, b:9093", "sasl.password": "s3cr3t"}, {"client.rack": "y"}
)


def test_a_service_s_own_options():
    options = Kafka.model_validate({"streams": "orders", "metadata": METADATA})
    settings = options.streams_settings
    assert settings is not None
    assert (settings.streams, settings.service, settings.service_options) == (
        ("orders",), "file", {"path": "streams.yaml"},
    )  # fmt: skip
    assert options.topics_in_words == "streams orders"
    assert Kafka(topics="orders").streams_settings is None


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"streams": "orders"}, "`metadata` says where streams are"),
        ({"topics": "orders", "metadata": METADATA}, "`metadata` says where streams are"),
        ({"topics": "orders", "streams": "orders", "metadata": METADATA}, "name the `topics`"),
        ({"metadata": METADATA}, "name the `topics`"),
        ({"streams_pattern": "(", "metadata": METADATA}, "pattern"),
    ],
)
def test_what_does_not_fit_together(given, says):
    with pytest.raises(ValidationError, match=says):
        Kafka.model_validate(given)


@pytest.mark.parametrize("where", [None, "a:9092, b:9093", "b:1", "c.kafka.example.com:9092", "d:9092"])
def test_a_connection_goes_where_it_may(where):
    allowed = KafkaSettings("shared", {**SETTINGS.librdkafka, ALLOWED_HOSTS: "d, .kafka.example.com"})
    found = allowed.at("east", where)
    assert (found.name, found.bootstrap_servers) == ("east", where or SETTINGS.bootstrap_servers)
    assert ALLOWED_HOSTS not in found.client()


@pytest.mark.parametrize("where", ["evil:9092", "a:9092,evil:9092", "xkafka.example.com:1", "ad:1"])
def test_a_mapping_can_t_send_secrets_elsewhere(where):
    allowed = KafkaSettings("shared", {**SETTINGS.librdkafka, ALLOWED_HOSTS: "d, .kafka.example.com"})
    with pytest.raises(ActionRequiredError, match="to which its connection may not go") as caught:
        allowed.at("east", where)
    assert "s3cr3t" not in str(caught.value)


def test_connections_travel_in_the_environment(monkeypatch):
    own = KafkaSettings("kafka_default", {"bootstrap.servers": "k:9092"})
    for name, value in connections_to_environment([SETTINGS]).items():
        monkeypatch.setenv(name, value)
    known = connections_of_environment(own)
    assert (known("shared"), known("kafka_default")) == (SETTINGS, own)
    with pytest.raises(ActionRequiredError, match="has no other"):
        known("other")
    assert connections_to_environment([]) == {}
    assert json.loads(connections_to_environment([SETTINGS])["SLUICE_KAFKA_CLUSTERS"])["shared"]["name"] == "shared"
