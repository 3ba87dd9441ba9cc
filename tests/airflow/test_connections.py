"""Airflow's connections as settings: what is missing or wrong is named, and secrets show nowhere."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from structlog.testing import capture_logs

from sluice.airflow.connections import (
    kafka_settings,
    mapped_kafka_connections,
    private_settings,
    private_settings_of,
    registry_settings,
    source_connections,
    spark_master,
)
from sluice.connectors.connections import ConnectionSettings
from sluice.errors import ActionRequiredError
from sluice.private import PrivateSettings

SECRET = "correct-horse-battery"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.fixture
def connection(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes the connection `c` out of its fields."""
    return lambda **fields: monkeypatch.setenv("AIRFLOW_CONN_C", json.dumps(fields))


def test_extra_is_librdkafkas(connection: Any) -> None:
    connection(conn_type="kafka", extra={"bootstrap.servers": "k:9092", "error_cb": "some.function"})
    settings = kafka_settings("c")
    assert (settings.name, dict(settings.librdkafka)) == ("c", {"bootstrap.servers": "k:9092"})


def test_fields_fill_what_extra_leaves_open(connection: Any) -> None:
    connection(conn_type="kafka", host="k", port=9093, login="svc", password=SECRET)
    settings = kafka_settings("c")
    assert settings.librdkafka == {
        "bootstrap.servers": "k:9093",
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "PLAIN",
        "sasl.username": "svc",
        "sasl.password": SECRET,
    }
    assert SECRET not in repr(settings)


def test_secrets_are_masked_in_logs(connection: Any) -> None:
    from airflow.sdk._shared.secrets_masker import redact

    connection(
        conn_type="kafka",
        extra={"bootstrap.servers": "k:9092", "sasl.password": SECRET, "ssl.key.password": "pw-of-key"},
    )
    kafka_settings("c")
    assert SECRET not in str(redact(f"login failed with {SECRET}"))


def test_settings_of_sparks_client_have_a_place_of_their_own(connection: Any) -> None:
    from airflow.sdk._shared.secrets_masker import redact

    java = {"sasl.mechanism": "AWS_MSK_IAM", "sasl.jaas.config": f'{PLAIN} required username="u" password="{SECRET}";'}
    connection(conn_type="kafka", extra={"bootstrap.servers": "k:9092", "java": java})
    settings = kafka_settings("c")
    assert "java" not in settings.librdkafka
    assert settings.java() == {"bootstrap.servers": "k:9092", **java}
    assert SECRET not in str(redact(f"refused {java['sasl.jaas.config']}"))
    more = settings.with_java_options({"sasl.mechanism": "PLAIN"}).java()
    assert more["sasl.mechanism"] == "PLAIN"


def test_a_function_needs_airflows_allow_list(connection: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    extra = {"bootstrap.servers": "k:9092", "sasl.mechanism": "OAUTHBEARER", "oauth_cb": "my.token"}
    connection(conn_type="kafka", extra=extra)
    with pytest.raises(ActionRequiredError, match="doesn't allow"):
        kafka_settings("c")
    monkeypatch.setenv("AIRFLOW__APACHE_KAFKA__CALLBACK_ALLOWLIST", "other.one, my.token")
    assert kafka_settings("c").token_callable == "my.token"


def test_amazons_brokers_get_amazons_tokens(connection: Any) -> None:
    brokers = "b-1.demo.abcde1.c2.kafka.eu-west-1.amazonaws.com:9098"
    extra = {"bootstrap.servers": brokers, "security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
    connection(conn_type="kafka", extra=extra)
    settings = kafka_settings("c")
    assert settings.librdkafka["oauth_cb"] == "sluice.kafka.tokens.msk_iam"
    assert settings.token_callable is None, "they are no JWTs, so Spark's client needs a log-in of its own"
    assert settings.librdkafka["sasl.oauthbearer.config"] == "region=eu-west-1"
    connection(conn_type="kafka", extra={**extra, "sasl.oauthbearer.method": "oidc"})
    assert "oauth_cb" not in kafka_settings("c").librdkafka


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"conn_type": "kafka", "host": "k", "extra": {"java": "x"}}, "`java` in the Kafka connection"),
        (None, "airflow connections add c --conn-type kafka"),
        ({"conn_type": "spark", "host": "k"}, "is of type spark, not kafka"),
        ({"conn_type": "kafka"}, "names no bootstrap servers"),
    ],
)
def test_wrong_kafka_connections(connection: Any, fields: dict[str, Any] | None, says: str) -> None:
    if fields:
        connection(**fields)
    with pytest.raises(ActionRequiredError, match=says) as caught:
        kafka_settings("c")
    assert caught.value.where["connection"] == "c"


def test_a_schema_registry(connection: Any) -> None:
    connection(conn_type="http", host="https://r:8081/apis/ccompat/v7", login="svc", password=SECRET)
    settings = registry_settings("c")
    assert settings.url == "https://r:8081/apis/ccompat/v7"
    assert settings.settings["basic.auth.user.info"] == f"svc:{SECRET}"
    assert SECRET not in repr(settings)
    connection(conn_type="http", host="r", port=8081, schema="https", extra={"ssl.ca.location": "/ca.pem"})
    assert registry_settings("c").settings == {"url": "https://r:8081", "ssl.ca.location": "/ca.pem"}
    connection(conn_type="http", extra={"url": "http://r", "bearer.auth.token": SECRET})
    assert registry_settings("c").settings["bearer.auth.token"] == SECRET


def test_a_schema_registrys_secrets_are_masked_in_logs(connection: Any) -> None:
    from airflow.sdk._shared.secrets_masker import redact

    connection(conn_type="http", host=f"https://svc:{SECRET}@r")
    registry_settings("c")
    assert SECRET not in str(redact(f"refused svc:{SECRET}, and {SECRET}"))


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        (None, "airflow connections add c --conn-type http"),
        ({"conn_type": "kafka", "host": "k"}, "is of type kafka, not http"),
        ({"conn_type": "http"}, "no address"),
        ({"conn_type": "http", "host": "r", "extra": {"ssl.ca": "x"}}, "doesn't know: ssl.ca"),
    ],
)
def test_wrong_schema_registries(connection: Any, fields: dict[str, Any] | None, says: str) -> None:
    if fields:
        connection(**fields)
    with pytest.raises(ActionRequiredError, match=says) as caught:
        registry_settings("c")
    assert caught.value.where["connection"] == "c"


def test_spark_masters(connection: Any) -> None:
    connection(conn_type="spark", host="local[2]", extra={"deploy-mode": "client"})
    assert spark_master("c") == "local[2]"
    connection(conn_type="spark", host="spark://m", port=7077)
    assert spark_master("c") == "spark://m:7077"
    connection(conn_type="spark", host="m", port=7077)
    assert spark_master("c") == "spark://m:7077"
    connection(conn_type="spark", host="yarn")
    assert spark_master("c") == "yarn"


def test_secrets_of_spark_and_hudi_come_with_the_spark_connection(connection: Any) -> None:
    from airflow.sdk._shared.secrets_masker import redact

    assert private_settings("c") == PrivateSettings()
    extra = {"deploy-mode": "client", "conf": {"spark.authenticate.secret": SECRET}, "hudi": {"hoodie.a.password": "p"}}
    connection(conn_type="spark", host="spark://m:7077", extra=extra)
    private = private_settings("c")
    assert (private.conf, private.hudi) == (extra["conf"], extra["hudi"])
    assert SECRET not in repr(private)
    assert SECRET not in str(redact(f"refused {SECRET}"))
    connection(conn_type="spark", host="local", extra={"hudi": {"spark.a": "b"}})
    with pytest.raises(ActionRequiredError, match=r"hoodie\.\*"):
        private_settings("c")


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        (None, "airflow connections add c --conn-type spark"),
        ({"conn_type": "kafka", "host": "k"}, "is of type kafka, not spark"),
        ({"conn_type": "spark"}, "names no master"),
        ({"conn_type": "spark", "host": "yarn", "extra": {"deploy-mode": "cluster"}}, "deploy mode cluster"),
    ],
)
def test_a_missing_spark_connection_is_not_yarn(connection: Any, fields: dict[str, Any] | None, says: str) -> None:
    if fields:
        connection(**fields)
    with pytest.raises(ActionRequiredError, match=says):
        spark_master("c")


def test_a_source_s_own_connection_is_of_any_type_and_masked(connection: Any) -> None:
    from airflow.sdk._shared.secrets_masker import redact

    extra = {"page": 100, "oauth": {"client_secret": "deep-secret-of-crm"}}
    connection(conn_type="http", host="crm", port=443, login="svc", password=SECRET, schema="https", extra=extra)
    assert source_connections(["c"]) == [
        ConnectionSettings("c", "http", "crm", 443, "https", "svc", SECRET, extra),
    ]
    shown = str(redact(f"login failed with {SECRET} and deep-secret-of-crm"))
    assert SECRET not in shown
    assert "deep-secret-of-crm" not in shown


def test_a_source_s_own_connection_that_is_missing_is_named() -> None:
    with pytest.raises(ActionRequiredError, match=r"connection nowhere is missing.*airflow connections add nowhere"):
        source_connections(["nowhere"])


AWS = {
    "conn_type": "aws",
    "login": "AKIAONE",
    "password": SECRET,
    "extra": {
        "aws_session_token": "session-token-of-sts",
        "region_name": "eu-central-1",
        "endpoint_url": "https://minio:9000",
        "config_kwargs": {"s3": {"addressing_style": "path"}},
    },
}


def on_s3(path: str = "s3a://lake/t", connection_id: str | None = "c", name: str = "p") -> Any:
    from sluice.pipeline import Kafka, Pipeline, Sink, Source
    from sluice.sinks.files.options import Files

    files = Files.model_validate(
        {"path": path, "layout": "connect", "schema": "id BIGINT", "connection": connection_id}
    )
    return Pipeline(name=name, source=Source(kafka=Kafka(topics="t")), sink=Sink(files=files))


def test_a_bucket_s_login_comes_from_a_connection_of_type_aws(connection: Any) -> None:
    from airflow.sdk._shared.secrets_masker import redact

    connection(**AWS)
    private = private_settings_of(on_s3())
    provider = "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider"
    assert private.conf == {
        "spark.hadoop.fs.s3a.bucket.lake.access.key": "AKIAONE",
        "spark.hadoop.fs.s3a.bucket.lake.secret.key": SECRET,
        "spark.hadoop.fs.s3a.bucket.lake.session.token": "session-token-of-sts",
        "spark.hadoop.fs.s3a.bucket.lake.endpoint": "https://minio:9000",
        "spark.hadoop.fs.s3a.bucket.lake.endpoint.region": "eu-central-1",
        "spark.hadoop.fs.s3a.bucket.lake.path.style.access": "true",
        "spark.hadoop.fs.s3a.bucket.lake.aws.credentials.provider": provider,
    }
    assert on_s3().own_connections == ("c",)
    shown = f"{private!r} {redact(f'refused {SECRET}, session-token-of-sts')} {on_s3().writer().model_dump_json()}"
    assert SECRET not in shown
    assert "session-token-of-sts" not in shown
    assert private_settings_of(on_s3(connection_id=None)).conf == {}


def test_what_is_secret_of_spark_stays_beside_a_bucket_s_login(
    connection: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection(conn_type="aws", login="AKIAONE", password=SECRET)
    own = {"spark.authenticate.secret": "of-spark", "spark.hadoop.fs.s3a.secret.key": "of-others"}
    spark = {"conn_type": "spark", "host": "local", "extra": {"conf": own, "hudi": {"hoodie.a.password": "p"}}}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(spark))
    private = private_settings_of(on_s3(), on_s3("s3a://lake/u"), on_s3("s3a://other/t"))
    buckets = {name.split(".")[5] for name in private.conf.keys() - own.keys()}
    assert (own.items() <= private.conf.items(), buckets) == (True, {"lake", "other"})
    assert private.hudi == {"hoodie.a.password": "p"}


def test_a_worker_s_pipelines_name_one_connection_for_a_bucket(
    connection: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection(**AWS)
    monkeypatch.setenv("AIRFLOW_CONN_D", json.dumps(AWS))
    with pytest.raises(ActionRequiredError, match=r"different connections for one bucket.*c, d"):
        private_settings_of(on_s3(), on_s3("s3a://lake/u", "d", "q"))


def test_a_source_s_bucket_has_a_login_too(connection: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from sluice.pipeline import Source
    from sluice.sources.files.options import FilesOfFolder

    def reading(path: str) -> Any:
        files = FilesOfFolder.model_validate({"path": path, "log": "files", "connection": "d"})
        return on_s3().model_copy(update={"source": Source(files=files)})

    connection(conn_type="aws", login="AKIAONE", password=SECRET)
    monkeypatch.setenv("AIRFLOW_CONN_D", json.dumps({"conn_type": "aws", "login": "AKIATWO", "password": "of-d"}))
    conf = private_settings_of(reading("s3a://inbox/in")).conf
    keys = {name: value for name, value in conf.items() if name.endswith("access.key")}
    assert keys == {
        "spark.hadoop.fs.s3a.bucket.lake.access.key": "AKIAONE",
        "spark.hadoop.fs.s3a.bucket.inbox.access.key": "AKIATWO",
    }
    with pytest.raises(ActionRequiredError, match=r"different connections for one bucket.*d, c"):
        private_settings_of(reading("s3a://lake/in"))


def test_a_command_by_hand_gets_a_source_s_own_connections_as_a_task_does(
    connection: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sluice.cli.places import settings
    from sluice.connectors import connections
    from sluice.pipeline import Hudi, Kafka, Pipeline, Sink, Source

    class Crm(Kafka):
        @property
        def connections(self) -> tuple[str, ...]:
            return ("c",)

    connection(conn_type="http", password=SECRET)
    kafka = {"conn_type": "kafka", "extra": {"bootstrap.servers": "k:9092"}}
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", json.dumps(kafka))
    monkeypatch.setenv(connections.VARIABLE, "")  # put back at the end
    monkeypatch.delenv(connections.VARIABLE)
    columns = {"schema": "id BIGINT"}
    pipeline = Pipeline(
        name="a", source=Source(kafka=Kafka(topics="t")), sink=Sink(hudi=Hudi(path="file:///lake/a", **columns))
    )
    (pipeline.source.model_extra or {})["kafka"] = Crm(topics="t")
    settings(pipeline)
    assert connections.connection("c").password == SECRET


def test_a_worker_has_the_kafka_connections_that_streams_may_move_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of registries aren't any, and one that is missing or wrong keeps no worker from its work."""
    from sluice.airflow.workers_dag import WorkerOperator, WorkerOptionsText, Workers
    from sluice.kafka.config import connection_of_environment

    made = {
        "EAST": {"conn_type": "kafka", "extra": {"bootstrap.servers": "east:9092"}},
        "WEST": {"conn_type": "kafka", "extra": {"bootstrap.servers": "west:9092"}},
        "WRONG": {"conn_type": "kafka"},
        "REGISTRY": {"conn_type": "http", "host": "registry"},
        "KAFKA_DEFAULT": {"conn_type": "kafka", "extra": {"bootstrap.servers": "k:9092"}},
        "SPARK_DEFAULT": {"conn_type": "spark", "host": "local[2]"},
    }
    for name, fields in made.items():
        monkeypatch.setenv(f"AIRFLOW_CONN_{name}", json.dumps(fields))
    pipeline = streams_of("p", "east", "wrong", "registry", "missing")
    with capture_logs() as logs:
        assert mapped_kafka_connections([pipeline, streams_of("q", "west", "east"), on_s3()]) == ("east", "west")
    assert [line["connection"] for line in logs] == ["missing", "wrong"]
    operator = WorkerOperator(
        task_id="worker", group="g", options=WorkerOptionsText(Workers()), pipelines="pipelines", number=0
    )
    monkeypatch.setattr("sluice.airflow.workers_dag.pipelines_of", lambda *_: (pipeline,))
    monkeypatch.setattr("os.environ", dict(os.environ))
    _, environment = operator._prepare()
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    found = connection_of_environment("east")
    assert found is not None
    assert found.bootstrap_servers == "east:9092"
    assert connection_of_environment("west") is None


def streams_of(name: str, *mapped: str) -> Any:
    from sluice.pipeline import Hudi, Kafka, Pipeline, Sink, Source

    kafka = Kafka(streams="orders", metadata={"service": "file", "path": "/x"}, mapped_connections=mapped)
    columns = {"schema": "id BIGINT"}
    return Pipeline(name=name, source=Source(kafka=kafka), sink=Sink(hudi=Hudi(path=f"file:///lake/{name}", **columns)))
