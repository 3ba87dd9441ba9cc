"""A secret stands in no pipeline file, message or command line; Spark's own channels are closed to others."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from sluice.errors import ActionRequiredError, PipelineFileError
from sluice.participant.launch import settings
from sluice.pipeline import load_pipeline
from sluice.private import VARIABLE, PrivateSettings
from sluice.protocol.messages import TableSpec
from sluice.runtime import is_local
from sluice.sections import refuse_secrets
from sluice.sinks.hudi.write_config import write_options

SECRET = "s3cr3t"


def the_file(folder: Path, section: str, key: str, options: dict[str, str]) -> Path:
    pipeline: dict[str, dict[str, object]] = {
        "source": {"kafka": {"topics": "t"}},
        "sink": {"hudi": {"path": "/lake/t", "schema": "id BIGINT"}},
        "write": {},
        "table_services": {},
        "catalog_sync": {"glue": {}},
    }
    place = pipeline
    for name in section.split("."):
        place = place[name]  # type: ignore[assignment]
    place[key] = options  # type: ignore[assignment]
    file = folder / "p.yaml"
    file.write_text(yaml.safe_dump({"name": "p", **pipeline}))
    return file


@pytest.mark.parametrize(
    ("section", "key", "name", "instead"),
    [
        ("sink.hudi", "options", "hoodie.datasource.hive_sync.password", '{"hudi": '),
        ("table_services", "options", "hoodie.metrics.datadog.api.key", '{"hudi": '),
        ("table_services", "conf", "spark.hadoop.fs.s3a.secret.key", '{"conf": '),
        ("catalog_sync.glue", "options", "hoodie.datasource.hive_sync.password", '{"hudi": '),
        ("write", "conf", "spark.authenticate.secret", '{"conf": '),
        ("write", "kafka_options", "sasl.jaas.config", '{"java": '),
    ],
)
def test_a_secret_in_a_pipeline_file_is_refused(
    tmp_path: Path, section: str, key: str, name: str, instead: str
) -> None:
    with pytest.raises(PipelineFileError) as caught:
        load_pipeline(the_file(tmp_path, section, key, {name: SECRET}))
    assert name in str(caught.value)
    assert instead in str(caught.value)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "name",
    [
        "spark.hadoop.fs.s3a.access.key",
        "spark.hadoop.fs.s3a.session.token",
        "spark.hadoop.fs.azure.account.key.lake.dfs.core.windows.net",
        "spark.kubernetes.authenticate.submission.oauthToken",
        "spark.hadoop.javax.jdo.option.ConnectionPassword",
        "spark.ssl.keyPassword",
        "ssl.keystore.key",
    ],
)
def test_names_of_secrets(name: str) -> None:
    with pytest.raises(ValueError, match="must not be in"):
        refuse_secrets({name: SECRET}, "…")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("spark.authenticate", "true"),
        ("spark.hadoop.fs.s3a.aws.credentials.provider", "com.amazonaws.auth.InstanceProfileCredentialsProvider"),
        ("spark.security.credentials.kafka.enabled", "false"),
        ("spark.kafka.clusters.a.sasl.token.mechanism", "SCRAM-SHA-512"),
        ("hoodie.datasource.write.keygenerator.class", "org.apache.hudi.keygen.SimpleKeyGenerator"),
        ("spark.kubernetes.authenticate.driver.serviceAccountName", "spark"),
        ("ssl.truststore.location", "/etc/ca.pem"),
    ],
)
def test_what_only_sounds_secret_is_taken(name: str, value: str) -> None:
    refuse_secrets({name: value}, "…")


@pytest.fixture
def jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("spark", "coordinator"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.jar").touch()
    monkeypatch.setenv("SLUICE_JARS", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("master", ["local[*]", "local", "yarn", "k8s://https://api:6443"])
def test_spark_asks_for_a_secret_where_it_makes_one_itself(jars: Path, master: str) -> None:
    conf = settings.spark_conf(master, {})
    assert (conf["spark.authenticate"], conf["spark.network.crypto.enabled"]) == ("true", "true")
    here = is_local(master)
    assert conf.get("spark.driver.bindAddress") == ("127.0.0.1" if here else None)
    assert settings.driver_address(master) == ({"SPARK_LOCAL_IP": "127.0.0.1"} if here else {})
    assert settings.spark_conf(master, {"spark.authenticate": "false"})["spark.authenticate"] == "false"


def test_a_standalone_cluster_has_to_know_the_secret_beforehand(jars: Path) -> None:
    assert "spark.authenticate" not in settings.spark_conf("spark://m:7077", {})
    conf = settings.spark_conf("spark://m:7077", {}, {"spark.authenticate.secret": SECRET})
    assert conf["spark.authenticate"] == "true"
    assert SECRET not in str(conf)


def test_the_file_system_for_local_disks_stays_on_this_machine(jars: Path) -> None:
    (jars / "local").mkdir()
    (jars / "local" / "bare.jar").touch()
    here, cluster = settings.spark_conf("local[2]", {}), settings.spark_conf("spark://m:7077", {})
    assert "bare.jar" in here["spark.driver.extraClassPath"]
    assert here["spark.hadoop.fs.file.impl"]
    assert "bare.jar" not in str(cluster)
    assert "spark.hadoop.fs.file.impl" not in cluster


def test_hudis_secrets_reach_its_writers_and_no_message(monkeypatch: pytest.MonkeyPatch) -> None:
    private = PrivateSettings({}, {"hoodie.datasource.hive_sync.password": SECRET})
    for name, value in private.to_environment().items():
        monkeypatch.setenv(name, value)
    writer = TableSpec(
        path="/lake/t", name="t", table_type="COPY_ON_WRITE", operation="append", record_key=(), partition_fields=(),
        ordering_fields=(), schema_ddl="", schema_avro="", options={},
    )  # fmt: skip
    assert write_options(writer)["hoodie.datasource.hive_sync.password"] == SECRET
    assert SECRET not in writer.model_dump_json()
    assert SECRET not in repr(PrivateSettings.from_environment())


def test_a_wrong_variable_is_told_without_its_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, f"[{SECRET}")
    with pytest.raises(ActionRequiredError) as caught:
        PrivateSettings.from_environment()
    assert SECRET not in str(caught.value)
