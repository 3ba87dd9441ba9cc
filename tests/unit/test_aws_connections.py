"""A connection of type `aws` as settings of S3A and of s3fs; what S3A can't be told is refused by name."""

from __future__ import annotations

from typing import Any

import fsspec
import pytest

from sluice.connectors.aws import buckets_of, s3a_settings, s3fs_options
from sluice.connectors.connections import ConnectionSettings, given
from sluice.errors import ActionRequiredError
from sluice.sinks import reading
from sluice.sinks.files.options import Files
from sluice.sinks.hudi.options import Hudi

SECRET = "s3cr3t-of-aws"
AUTH = "org.apache.hadoop.fs.s3a"


def aws(
    login: str | None = "AKIA", password: str | None = SECRET, kind: str = "aws", **extra: Any
) -> ConnectionSettings:
    return ConnectionSettings("lake", kind, login=login, password=password, extra=extra)


def told(settings: ConnectionSettings) -> dict[str, str]:
    """What S3A is told, without the beginnings of the names."""
    return {name.removeprefix("fs.s3a.bucket.b."): value for name, value in s3a_settings(settings, "b").items()}


def test_keys_may_stand_in_either_place():
    by_extra = aws(None, None, aws_access_key_id="AKIA", aws_secret_access_key=SECRET)
    expected = {
        "access.key": "AKIA",
        "secret.key": SECRET,
        "aws.credentials.provider": f"{AUTH}.SimpleAWSCredentialsProvider",
    }
    assert told(aws()) == told(by_extra) == expected


def test_without_keys_the_process_s_own_login_is_used():
    assert told(aws(None, None, region_name="eu-central-1")) == {"endpoint.region": "eu-central-1"}


def test_a_role_is_assumed_with_the_keys_or_with_the_process_s_own_login(monkeypatch):
    monkeypatch.delenv("AWS_WEB_IDENTITY_TOKEN_FILE", raising=False)
    role = {
        "role_arn": "arn:aws:iam::1:role/lake",
        "assume_role_kwargs": {"RoleSessionName": "x", "DurationSeconds": 900},
    }
    found = told(aws(**role, endpoint_url="http://e", region_name="r"))
    assert found["aws.credentials.provider"] == f"{AUTH}.auth.AssumedRoleCredentialProvider"
    assert found["assumed.role.credentials.provider"] == f"{AUTH}.SimpleAWSCredentialsProvider"
    names = ("arn", "session.name", "session.duration", "sts.endpoint", "sts.endpoint.region")
    expected = ["arn:aws:iam::1:role/lake", "x", "900s", "http://e", "r"]
    assert [found[f"assumed.role.{name}"] for name in names] == expected
    alone = told(aws(None, None, role_arn="arn"))
    assert alone["assumed.role.credentials.provider"] == "com.amazonaws.auth.DefaultAWSCredentialsProviderChain"
    assert "secret.key" not in alone
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", "/var/run/secrets/eks.amazonaws.com/serviceaccount/token")
    pod = told(aws(None, None, role_arn="arn"))["assumed.role.credentials.provider"]
    assert [name.rpartition(".")[2] for name in pod.split(",")] == [
        "EnvironmentVariableCredentialsProvider",
        "WebIdentityTokenCredentialsProvider",
    ]


def test_what_is_of_one_service_goes_before_what_is_of_all():
    services = {"s3": {"endpoint_url": "http://s3", "region_name": "r"}, "sts": {"endpoint_url": "http://sts"}}
    found = told(aws(endpoint_url="http://all", region_name="all", service_config=services, role_arn="arn"))
    assert [found[name] for name in ("endpoint", "endpoint.region", "assumed.role.sts.endpoint")] == [
        "http://s3", "r", "http://sts",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (aws(kind="spark"), "is of type spark, not aws"),
        (aws(None), "without its secret, or one without the other"),
        (aws(password=None), "without its secret"),
        (aws(None, None, aws_session_token=SECRET), "without its secret"),
        (aws(profile_name="x"), "without a counterpart in Hadoop's S3A: profile_name"),
        (aws(verify=False), "without a counterpart in Hadoop's S3A: verify"),
        (
            aws(role_arn="a", assume_role_method="assume_role_with_saml"),
            "without a counterpart in Hadoop's S3A: assume_role_method",
        ),
        (aws(role_arn="a", assume_role_kwargs={"ExternalId": SECRET}), "S3A: assume_role_kwargs.ExternalId"),
        (aws(config_kwargs={"signature_version": "s3"}), "S3A: config_kwargs.signature_version"),
        (aws(config_kwargs={"s3": {"use_accelerate_endpoint": True}}), "config_kwargs.s3.use_accelerate_endpoint"),
        (aws(config_kwargs={"s3": {"addressing_style": "x"}}), "addressing_style x.*one of path, virtual, auto"),
        (aws(config_kwargs=[SECRET]), "no JSON object in config_kwargs"),
        (aws(service_config={"athena": {}}), "S3A: service_config.athena"),
        (aws(service_config={"s3": {"verify": False}}), "S3A: service_config.s3.verify"),
    ],
)
def test_what_s3a_can_not_be_told_is_refused(settings, says):
    with pytest.raises(ActionRequiredError, match=says) as caught:
        s3a_settings(settings, "b")
    assert SECRET not in str(caught.value)
    assert caught.value.where["connection"] == "lake"


def test_buckets():
    assert buckets_of(["s3a://a/x", "s3a://b", "s3a://a/y", "file:///c", "hdfs://d/e"]) == ["a", "b"]


def test_a_connection_is_for_a_bucket():
    columns = {"schema": "id BIGINT", "connection": "lake"}
    for section in (Files, Hudi):
        with pytest.raises(ValueError, match=r"`connection` is of type aws, for a path on s3a://"):
            section.model_validate({"path": "/lake", **columns})
        assert section.model_validate({"path": "s3a://b/t", "layout": "connect", **columns} if section is Files
                                      else {"path": "s3a://b/t", **columns}).connections == ("lake",)  # fmt: skip


def test_who_reads_for_people_uses_the_connection(monkeypatch):
    asked: list[tuple[str, dict[str, Any]]] = []
    monkeypatch.setattr(fsspec.core, "url_to_fs", lambda url, **options: (asked.append((url, options)), "root"))
    path = {"config_kwargs": {"s3": {"addressing_style": "path"}}}
    everything = aws(aws_session_token="t", endpoint_url="http://e", region_name="r", **path)
    for connections in ([], [aws(kind="http")], [aws(kind="postgres"), everything], [aws(role_arn="arn")]):
        with given(connections):
            reading.file_system("s3a://b/t")
            reading.file_system("/t")
    login = {"key": "AKIA", "secret": SECRET, "token": "t"}
    there = {"client_kwargs": {"endpoint_url": "http://e", "region_name": "r"}}
    expected = [{}, {}, {**there, **login, **path}, {"client_kwargs": {}}]
    assert [options for url, options in asked if url == "s3://b/t"] == expected
    assert all(options == {} for url, options in asked if url != "s3://b/t")


def test_other_places_need_no_connection():
    with given([aws()]):
        assert s3fs_options("file:///lake") == {}
