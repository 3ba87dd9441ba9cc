"""Whose credentials S3 is asked with where no setting says so: in Java and in Python the same, renewed as they end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.s3 import LocalS3, class_paths, ensure_s3
from tests.s3.amazon import ROLE, Amazon
from tests.s3.extras import called_with_extras

from sluice.connectors.aws import s3a_settings
from sluice.connectors.connections import ConnectionSettings
from sluice.errors import ActionRequiredError
from sluice.jvm.gateway import HudiJvm, lean_jvm
from sluice.sinks.files.s3 import S3Storage

from .harness import Drivers, Flow, SharedJvm

_OTHERS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "HADOOP_CONF_DIR")
_ROOT = "s3a://lake/identity"


@pytest.fixture(scope="module")
def running(home, extras, tmp_path_factory) -> Iterator[tuple[Amazon, LocalS3]]:
    folder = tmp_path_factory.mktemp("amazon")
    with (
        LocalS3(ensure_s3(home), folder / "server") as s3,
        Amazon(s3.endpoint, folder / "proxy") as proxy,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("SLUICE_JARS", str(class_paths(home, folder / "class-paths")))
        for name, value in proxy.environment.items():
            patch.setenv(name, value)
        for name in _OTHERS:
            patch.delenv(name, raising=False)
        yield proxy, s3


@pytest.fixture
def amazon(running: tuple[Amazon, LocalS3]) -> Iterator[Amazon]:
    yield running[0]
    running[0].forget()


@pytest.fixture
def pod(amazon: Amazon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pod's web identity, as EKS gives it: the file of the token, and the role."""
    token = tmp_path / "token"
    token.write_text("token-1")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(token))
    monkeypatch.setenv("AWS_ROLE_ARN", ROLE)
    monkeypatch.setenv("AWS_STS_REGIONAL_ENDPOINTS", "regional")
    return token


def storage(jvm: HudiJvm) -> S3Storage:
    return S3Storage(jvm.jvm, jvm.storage.unwrap(), _ROOT)


def profile(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, key: str, secret: str, token: str = "") -> None:
    """A file of credentials, as it is found by Java and by Python."""
    lines = [f"[{name}]", f"aws_access_key_id={key}", f"aws_secret_access_key={secret}"]
    (folder / "credentials").write_text("\n".join([*lines, *([f"aws_session_token={token}"] if token else []), ""]))
    for variable in ("AWS_CREDENTIAL_PROFILES_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(variable, str(folder / "credentials"))


def python(extras: Path) -> dict[str, str]:
    """What Python, by s3fs, says to the same folder."""
    return called_with_extras(extras, "sluice.sinks.reading", "require_readable", _ROOT, "sink.hudi.path", "looking")


def test_a_pods_web_identity_is_taken_and_renewed_while_a_step_runs(amazon, pod):
    amazon.lasts = 4.0  # a client that goes on with a login after that is refused
    with lean_jvm() as jvm:
        folder = storage(jvm)
        folder.create("first", b"1")
        pod.write_text("token-2")  # as the kubelet does
        until = time.monotonic() + 2 * amazon.lasts
        while time.monotonic() < until:
            assert folder.read("first") == b"1"
    assert amazon.asked == {"sts.us-east-1.amazonaws.com", "lake.s3.amazonaws.com"}
    assert {login.role for login in amazon.logins} == {ROLE}
    used = [login.token for login in amazon.logins if login.requests]
    assert (used[0], used[-1]) == ("token-1", "token-2")
    assert len(used) > 2


def test_python_takes_the_same_identity(amazon, pod, extras):
    assert python(extras) == {"returned": "None"}
    (login,) = amazon.logins
    assert (login.token, login.role, login.requests > 0) == ("token-1", ROLE, True)


def test_a_role_that_is_refused_is_said_and_no_other_is_taken(amazon, pod, extras, tmp_path, monkeypatch):
    """The profile's is in the place of the machine's, which is asked after it."""
    amazon.refused["AssumeRoleWithWebIdentity"] = "AccessDenied"
    amazon.keys["AKIAOFTHEMACHINE"] = 0
    profile(tmp_path, monkeypatch, "default", "AKIAOFTHEMACHINE", "its-secret")
    with lean_jvm() as jvm, pytest.raises(ActionRequiredError, match=r"refuses the role.+trust policy"):
        storage(jvm).read("first")
    said = python(extras)
    assert said["raised"] == "ActionRequiredError"
    assert "AWS refuses the role" in said["says"]
    assert amazon.asked == {"sts.us-east-1.amazonaws.com"}
    assert amazon.keys == {"AKIAOFTHEMACHINE": 0}


def test_without_credentials_it_says_where_to_give_them(amazon, extras):
    with lean_jvm() as jvm, pytest.raises(ActionRequiredError, match=r"no AWS credentials.+service account"):
        storage(jvm).read("first")
    said = python(extras)
    assert said["raised"] == "ActionRequiredError"
    assert "There are no AWS credentials" in said["says"]
    assert amazon.asked == set()


@pytest.mark.parametrize("how", ["environment", "profile"])
def test_temporary_keys_of_environment_and_profile(amazon, extras, tmp_path, monkeypatch, how):
    key, secret, token = amazon.gives()
    if how == "environment":
        for name, value in zip(_OTHERS, (key, secret, token), strict=False):
            monkeypatch.setenv(name, value)
    else:
        profile(tmp_path, monkeypatch, "lake", key, secret, token)
        monkeypatch.setenv("AWS_PROFILE", "lake")
    with lean_jvm() as jvm:
        storage(jvm).create(how, b"1")
    by_java = amazon.logins[-1].requests
    assert by_java > 0
    assert python(extras) == {"returned": "None"}
    assert amazon.logins[-1].requests > by_java


def test_the_role_of_a_connection_is_assumed_by_the_pods_role(amazon, pod):
    other = "arn:aws:iam::444455556666:role/lake"
    with lean_jvm(s3a_settings(ConnectionSettings("c", "aws", extra={"role_arn": other}), "lake")) as jvm:
        storage(jvm).create("assumed", b"1")
    assert [(login.role, login.requests > 0) for login in amazon.logins] == [(ROLE, True), (other, True)]


@pytest.mark.thorough
def test_a_spark_job_outlives_its_login(running, amazon, pod, tmp_path, bootstrap, topic_name, tmp_path_factory):
    """A whole interval in processes of their own, each with the pod's identity and nothing else."""
    amazon.lasts = 5.0
    shared, pool = SharedJvm(), Drivers(tmp_path_factory.mktemp("drivers"))
    flow = Flow(tmp_path, bootstrap, shared, pool, topic_name("t"))
    flow.set(sink__hudi__path=f"s3a://lake{flow.path}")
    flow.create_topic(2)
    flow.produce(40)
    try:
        started = flow.start()
        before = len(amazon.logins)
        flow.write_alone(started).succeed()
        by_spark = [login for login in amazon.logins[before:] if login.requests]
        flow.commit(started)
    finally:
        shared.close()
        pool.close()
    assert len(by_spark) > 1
    s3, base = running[1], str(flow.path).lstrip("/")
    files = [name for name in s3.listing(base) if name.endswith(".parquet") and not name.startswith(".hoodie/")]
    rows = [pq.read_table(BytesIO(s3.read(f"{base}/{name}"))).num_rows for name in files]
    assert sum(rows) == len(flow.sent) == 40
