"""MSK by IAM, up to the brokers' answer: AWS's own signer and jar, with the web identity of a pod of EKS."""

from __future__ import annotations

import ast
import base64
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from tests.ivy import ensure
from tests.s3 import LocalS3, ensure_s3
from tests.s3.amazon import ROLE, Amazon, become_pod
from tests.s3.extras import called_with_extras

from sluice import runtime
from sluice.jvm.gateway import lean_jvm
from sluice.kafka.config import KafkaSettings
from sluice.kafka.tokens import MSK_IAM
from sluice.local.home import SluiceHome

_JAR = Path(__file__).parents[1] / "s3" / "msk.xml"
_BROKERS = "b-1.lake.abc123.c2.kafka.eu-central-1.amazonaws.com:9098"


@pytest.fixture(scope="module")
def amazon(home: SluiceHome, extras: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Amazon]:
    folder = tmp_path_factory.mktemp("amazon")
    token = folder / "token"
    token.write_text("token-1")
    jars = ensure(home, "msk", _JAR, ("jar",))
    shutil.copytree(runtime.home() / "class-paths", folder / "class-paths", symlinks=False, copy_function=os.symlink)
    for name in ("coordinator", "spark"):
        (folder / "class-paths" / name / "aws-msk-iam-auth-2.3.5-all.jar").symlink_to(jars / "aws-msk-iam-auth.jar")
    for client in (folder / "class-paths" / "spark").glob("kafka-clients-*.jar"):  # for a JVM without Spark
        (folder / "class-paths" / "coordinator" / client.name).symlink_to(client)
    with (
        LocalS3(ensure_s3(home), folder / "server") as server,
        Amazon(server.endpoint, folder / "proxy") as proxy,
        pytest.MonkeyPatch.context() as patch,
    ):
        become_pod(patch, proxy, token)
        patch.setenv("SLUICE_JARS", str(folder / "class-paths"))
        yield proxy


def test_a_token_for_librdkafka_is_signed_as_the_pod(amazon, extras):
    """What AWS's brokers look at: a URL of the region's `kafka-cluster:Connect`, signed with the login from STS."""
    found = called_with_extras(extras, "sluice.kafka.tokens", "msk_iam", "region=eu-central-1")
    token, expires = ast.literal_eval(found["returned"])
    url = urlsplit(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode())
    asked = {name: values[0] for name, values in parse_qs(url.query).items()}
    (login,) = amazon.logins
    assert (url.netloc, asked["Action"]) == ("kafka.eu-central-1.amazonaws.com", "kafka-cluster:Connect")
    assert asked["X-Amz-Credential"].split("/")[0] == login.key
    assert "X-Amz-Security-Token" in asked
    assert 0 < expires - time.time() <= 900
    assert login.role == ROLE


def test_sparks_client_finds_the_same_role_by_awss_jar(amazon):
    """The class that the connection's settings name gets the pod's login: what it signs the log-in with."""
    amazon.forget()
    oauth = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
    settings = KafkaSettings("c", {"bootstrap.servers": _BROKERS, **oauth, "oauth_cb": MSK_IAM})
    settings.require_for_spark()
    with lean_jvm() as jvm:
        java = settings.java()
        handler = getattr(jvm.jvm, java["sasl.client.callback.handler.class"])()
        mechanism, module = java["sasl.mechanism"], java["sasl.jaas.config"].split()[0]
        flag = jvm.nested("javax.security.auth.login.AppConfigurationEntry$LoginModuleControlFlag").REQUIRED
        entry = jvm.jvm.javax.security.auth.login.AppConfigurationEntry(module, flag, {})
        handler.configure({}, mechanism, [entry])
        callback = jvm.jvm.software.amazon.msk.auth.iam.internals.AWSCredentialsCallback()
        asked = jvm.jvm.java.lang.reflect.Array.newInstance(
            jvm.jvm.java.lang.Class.forName("javax.security.auth.callback.Callback"), 1
        )
        jvm.jvm.java.lang.reflect.Array.set(asked, 0, callback)
        handler.handle(asked)
        assert callback.isSuccessful(), str(callback.getLoadingException())
        assert callback.getAwsCredentials().accessKeyId() in {login.key for login in amazon.logins}
        handler.close()
    assert {login.role for login in amazon.logins} == {ROLE}
