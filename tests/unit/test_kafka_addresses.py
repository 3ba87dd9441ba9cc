"""A mapping's address of a cluster leads where it was checked, and a connection's settings run nobody's code."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient
from hypothesis import given
from hypothesis import strategies as st
from test_kafka_security import all_names_of_librdkafka

from sluice.errors import ActionRequiredError
from sluice.kafka.addresses import addresses, in_words, own_hosts
from sluice.kafka.allowed import ALLOWED, FUNCTION
from sluice.kafka.config import KafkaSettings

LOGIN = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "me", "sasl.password": "s3cr3t"}
OWN = KafkaSettings(
    "kafka_shared",
    {
        "bootstrap.servers": "SASL_SSL://Boot.example.com:9092",
        "sluice.bootstrap.hosts": ".kafka.example.com, Spare",
        **LOGIN,
    },
)


@pytest.mark.parametrize(
    ("said", "led_to"),
    [
        ("b-1.kafka.example.com:9093", "b-1.kafka.example.com:9093"),
        ("B-1.Kafka.Example.com , spare", "b-1.kafka.example.com:9092,spare:9092"),
        ("boot.example.com:9999", "boot.example.com:9999"),
    ],
)
def test_an_address_that_is_allowed_is_written_anew(said, led_to):
    assert OWN.at("east", said).client()["bootstrap.servers"] == led_to
    assert OWN.at("east", said).bootstrap_servers == led_to


@pytest.mark.parametrize(
    "said",
    [
        "SASL_SSL://evil.example/.kafka.example.com:1",
        "evil.example/.kafka.example.com:1",
        "evil.example:9092/x.kafka.example.com:1",
        "evil.example:9092#.kafka.example.com",
        "x.kafka.example.com:1@evil.example:9092",
        "evil.example\\.kafka.example.com:9092",
        "evil.example%00.kafka.example.com:9092",
        "evil.example .kafka.example.com:9092",
        "evil.example\n.kafka.example.com:9092",
        "[evil.example].kafka.example.com:9092",
        "SASL_SSL://b-1.kafka.example.com:9092",
        "b-1.kafka.example.com:0",
        "b-1.kafka.example.com:99999",
        ",",
    ],
)
def test_an_address_that_clients_read_in_another_way_is_refused(said):
    with pytest.raises(ActionRequiredError, match="no list of hosts and ports") as caught:
        OWN.at("east", said)
    assert "s3cr3t" not in str(caught.value)


@pytest.mark.parametrize("said", ["evil.example:9092", "b-1.kafka.example.com:9093,evil.example:1", "[::1]:9092"])
def test_a_host_that_is_not_allowed_is_refused(said):
    with pytest.raises(ActionRequiredError, match="may not go"):
        OWN.at("east", said)


@given(st.text(alphabet="ab.:/[]@-_ ,\\#?1\x00é", max_size=30))
def test_what_is_written_anew_is_read_as_the_same(text):
    found = addresses(text)
    if found is not None:
        assert addresses(in_words(found)) == found
        assert own_hosts(in_words(found)) == {host for host, _ in found}


def test_ipv6_and_schemes():
    assert addresses("[::1]:9093,[2001:DB8::1]") == (("::1", 9093), ("2001:db8::1", 9092))
    assert in_words((("::1", 9093), ("k", 9092))) == "[::1]:9093,k:9092"
    assert own_hosts("SASL_SSL://K-1:9092, [::1]:9092") == {"k-1", "::1"}


def test_each_setting_of_librdkafka_is_allowed_or_refused_by_name():
    """A later librdkafka's settings are refused until somebody has looked at them."""
    known = set(all_names_of_librdkafka())
    assert known >= ALLOWED
    for name in known - ALLOWED - {FUNCTION}:
        with pytest.raises(ActionRequiredError, match=f"gives to no client: {name}"):
            KafkaSettings("k", {"bootstrap.servers": "k:9092", name: "x"})


@pytest.mark.parametrize(
    "name",
    [
        "plugin.library.paths", "ssl.engine.location", "ssl.engine.id", "ssl.providers", "sasl.kerberos.kinit.cmd",
        "sasl.oauthbearer.assertion.file", "offset.store.path", "ssl.certificate.verify_cb", "default_topic_conf",
    ],
)  # fmt: skip
def test_what_runs_code_or_sends_files_is_among_the_refused(name):
    assert name not in ALLOWED


def test_a_client_is_made_of_every_kind_of_setting_that_stays():
    AdminClient(KafkaSettings("k", {"bootstrap.servers": "localhost:1", "socket.timeout.ms": 100}).client())
