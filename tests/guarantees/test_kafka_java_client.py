"""The settings of Kafka's Java client that may be given are that client's, and it sees the log-in that was checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.errors import IllegalArgumentException

from sluice.kafka_options import CONNECTING, LOGIN_MODULES, READING, VALUES, refusal

from .harness import Flow


@pytest.fixture(scope="module")
def client(spark: Any) -> Any:
    return spark._jvm.org.apache.kafka


def test_the_client_knows_each_listed_name_and_its_default_is_taken(client: Any) -> None:
    known = client.clients.consumer.ConsumerConfig.configDef()
    names = set(map(str, known.names()))
    assert set(READING | CONNECTING) <= names
    defaults = known.defaultValues()
    for name in READING | CONNECTING:
        found = defaults.get(name)
        if found is not None and name not in VALUES:
            assert refusal(name, str(found)) is None, (name, found)
    given_classes = {str(name) for name in names if "class" in str(name) or "providers" in str(name)}
    assert given_classes & (READING | CONNECTING) == {name for name in VALUES if "class" in name}


@pytest.mark.parametrize("module", LOGIN_MODULES)
def test_kafkas_own_parser_sees_the_module_and_options_that_were_checked(client: Any, spark: Any, module: str) -> None:
    value = r"a\"b\\c; d // e /* f"
    name = "awsProfileName" if "awsP" in LOGIN_MODULES[module] or "aws" in LOGIN_MODULES[module] else "username"
    config = f'{module} required\n {name}="{value}" ;\n'
    assert refusal("sasl.jaas.config", config) is None
    made = client.common.security.JaasContext.loadClientContext(_password(client, spark, config))
    (entry,) = made.configurationEntries()
    assert str(entry.getLoginModuleName()) == module
    assert dict(entry.getOptions()) == {name: 'a"b\\c; d // e /* f'}


@pytest.mark.parametrize(
    ("begin", "seen"),
    [
        ("/* {good} required; */ x.Y required;", "x.Y"),
        ("// {good} required;\nx.Y required;", "x.Y"),
        ('"x.Y" required;', "x.Y"),
        ("{good} required; x.Y required;", None),  # Kafka takes one module
    ],
)
def test_a_log_in_that_kafka_reads_in_another_way_is_refused(client: Any, spark: Any, begin: str, seen: str) -> None:
    config = begin.replace("{good}", "org.apache.kafka.common.security.plain.PlainLoginModule")
    assert refusal("sasl.jaas.config", config) is not None
    try:
        entries = client.common.security.JaasContext.loadClientContext(_password(client, spark, config))
    except IllegalArgumentException:
        assert seen is None
    else:
        assert [str(entry.getLoginModuleName()) for entry in entries.configurationEntries()] == [seen]


def test_all_settings_of_reading_at_once_change_no_row(make_flow: Callable[..., Flow], client: Any) -> None:
    defaults = client.clients.consumer.ConsumerConfig.configDef().defaultValues()
    found = {name: str(defaults.get(name)) for name in READING if defaults.get(name) is not None}
    given = {**found, "allow.auto.create.topics": "false", "enable.metrics.push": "false", "client.id": "sluice"}
    flow = make_flow(write__kafka_options=given)
    flow.produce(20)
    flow.interval()
    flow.check()
    flow.interval_is_empty()


def _password(client: Any, spark: Any, config: str) -> Any:
    given = spark._jvm.java.util.HashMap()
    given.put("sasl.jaas.config", client.common.config.types.Password(config))
    return given
