"""What secures a Kafka connection reaches Spark's Java client in its own words, or is refused by name."""

from __future__ import annotations

import ctypes
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import confluent_kafka
import pytest
from cryptography.hazmat.primitives.serialization import PrivateFormat, load_pem_private_key
from kafka_secrets import PASSWORD, Authority, written

from sluice import runtime
from sluice.errors import ActionRequiredError
from sluice.kafka.config import KafkaSettings
from sluice.kafka.tokens import MSK_IAM

AUTHORITY = Authority()
CLIENT = AUTHORITY.identify("client")
OTHER = AUTHORITY.identify("other")
SECURITY = "org.apache.kafka.common.security"
BASE = {"bootstrap.servers": "k:9093", "security.protocol": "SASL_SSL"}
LOGIN = {"sasl.username": "me", "sasl.password": "s3cr3t"}
SCRAM = {"sasl.mechanism": "SCRAM-SHA-512", **LOGIN}
KERBEROS = {"sasl.mechanism": "GSSAPI", "sasl.kerberos.keytab": "/etc/me.keytab", "sasl.kerberos.principal": "me@R"}
LOGIN_OF_JAVA = f"{SECURITY}.plain.PlainLoginModule required;"
OIDC = {
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.method": "oidc",
    "sasl.oauthbearer.client.id": "me",
    "sasl.oauthbearer.client.secret": "s3cr3t",
    "sasl.oauthbearer.token.endpoint.url": "https://idp/token",
}
UNSECURED = {
    "sasl.mechanism": "OAUTHBEARER",
    "enable.sasl.oauthbearer.unsecure.jwt": "true",
    "sasl.oauthbearer.config": "principal=me",
}


def all_names_of_librdkafka() -> list[str]:
    """Every setting, as the installed librdkafka itself lists them."""
    package = Path(confluent_kafka.__file__).parent
    places = [*package.parent.glob("confluent_kafka.libs/librdkafka*"), *package.glob(".dylibs/librdkafka*")]
    library, libc = ctypes.CDLL(str(places[0])), ctypes.CDLL(None)
    libc.fopen.restype = ctypes.c_void_p
    libc.fclose.argtypes = library.rd_kafka_conf_properties_show.argtypes = [ctypes.c_void_p]
    with tempfile.NamedTemporaryFile() as file:
        stream = libc.fopen(file.name.encode(), b"w")
        library.rd_kafka_conf_properties_show(stream)
        libc.fclose(stream)
        rows = [line for line in Path(file.name).read_text().splitlines() if "|" in line]
    names = {line.partition("|")[0].strip() for line in rows}
    return sorted(name for name in names if name and name != "Property" and not name.startswith("-"))


_OF_SECURITY = ("sasl", "ssl", "https.", "security.", "oauth")
NAMES = [name for name in all_names_of_librdkafka() if any(part in name for part in _OF_SECURITY)]


def outcome(settings: dict[str, Any]) -> Any:
    """What Spark's client gets, or why it gets nothing."""
    try:
        return KafkaSettings("c", settings).java()
    except ActionRequiredError as error:
        return str(error)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return written(
        tmp_path_factory.mktemp("pem"),
        ca_pem=AUTHORITY.pem,
        client_pem=CLIENT.pem,
        client_key=CLIENT.key_pem(),
        locked_key=CLIENT.key_pem(password=PASSWORD),
        client_p12=CLIENT.pkcs12(),
    )


def a_case(name: str, files: dict[str, str]) -> tuple[dict[str, Any], Any]:
    """Settings in which this one counts, and a value that isn't its default."""
    pair = {"ssl.certificate.pem": CLIENT.pem, "ssl.key.pem": CLIENT.key_pem()}
    special: dict[str, tuple[dict[str, Any], Any]] = {
        "security.protocol": (SCRAM, "SASL_PLAINTEXT"),
        "sasl.mechanism": (LOGIN, "SCRAM-SHA-256"),
        "sasl.mechanisms": (LOGIN, "SCRAM-SHA-256"),
        "ssl.ca.location": (SCRAM, files["ca_pem"]),
        "ssl.ca.pem": (SCRAM, AUTHORITY.pem),
        "https.ca.location": (OIDC, files["ca_pem"]),
        "https.ca.pem": (OIDC, AUTHORITY.pem),
        "ssl.certificate.location": ({"ssl.key.pem": pair["ssl.key.pem"]}, files["client_pem"]),
        "ssl.certificate.pem": ({"ssl.key.pem": pair["ssl.key.pem"]}, CLIENT.pem),
        "ssl.key.location": ({"ssl.certificate.pem": CLIENT.pem}, files["client_key"]),
        "ssl.key.pem": ({"ssl.certificate.pem": CLIENT.pem}, CLIENT.key_pem()),
        "ssl.key.password": (
            {"ssl.certificate.pem": CLIENT.pem, "ssl.key.location": files["locked_key"]}, PASSWORD,
        ),
        "ssl.keystore.location": (SCRAM, files["client_p12"]),
        "ssl.keystore.password": ({"ssl.keystore.location": files["client_p12"]}, PASSWORD),
        "ssl.endpoint.identification.algorithm": (SCRAM, "none"),
        "enable.ssl.certificate.verification": (SCRAM, "false"),
        "sasl.kerberos.min.time.before.relogin": (KERBEROS, "1000"),
        "enable.sasl.oauthbearer.unsecure.jwt": (UNSECURED, "true"),
        "sasl.oauthbearer.config": (UNSECURED, "principal=you"),
        "sasl.oauthbearer.method": (OIDC, "oidc"),
        "sasl.oauthbearer.metadata.authentication.type": (OIDC, "azure_imds"),
        "sasl.oauthbearer.grant.type": (OIDC, "urn:ietf:params:oauth:grant-type:jwt-bearer"),
        "sasl.oauthbearer.extensions": (OIDC, "tenant=1"),
    }  # fmt: skip
    if name in special:
        context, value = special[name]
    elif name.startswith("sasl.kerberos."):
        context, value = KERBEROS, "other"
    elif name.startswith("sasl.oauthbearer."):
        context, value = OIDC, "other"
    else:
        context, value = SCRAM, "other"
    if name.startswith("sasl.oauthbearer.client.credentials."):  # aliases of the shorter names
        context = {k: v for k, v in context.items() if k != name.replace("client.credentials.", "")}
    login = {} if name.startswith("sasl.") or "sasl.mechanism" in context else SCRAM
    return {**BASE, **login, **context}, value


def test_librdkafka_lists_what_it_knows() -> None:
    assert len(NAMES) > 50
    assert {"ssl.keystore.location", "sasl.oauthbearer.method", "security.protocol"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_no_setting_is_dropped_without_a_word(name: str, files: dict[str, str]) -> None:
    context, value = a_case(name, files)
    without = outcome({k: v for k, v in context.items() if k != name})
    found = outcome({**context, name: value})
    assert found != without, f"{name} makes no difference to Spark's client"
    if isinstance(found, str):
        assert name in found


def java(**more: Any) -> dict[str, str]:
    return KafkaSettings("c", {**BASE, **SCRAM, **more}).java()


def test_a_password_reaches_jaas_whole() -> None:
    found = java(**{"sasl.password": 'a"b\\c\nd'})
    assert found["sasl.jaas.config"].endswith(r'required username="me" password="a\"b\\c\nd";')


def test_what_is_no_matter_of_security_stays_with_librdkafka() -> None:
    found = java(**{"group.id": "g", "fetch.wait.max.ms": 10, "client.rack": "a"})
    assert {"group.id", "fetch.wait.max.ms"}.isdisjoint(found)
    assert found["client.rack"] == "a"


@pytest.mark.parametrize("form", [PrivateFormat.PKCS8, PrivateFormat.TraditionalOpenSSL])
@pytest.mark.parametrize("password", [None, PASSWORD])
def test_every_form_of_a_key_becomes_the_one_that_java_reads(form: PrivateFormat, password: str | None) -> None:
    given = {"ssl.certificate.pem": CLIENT.pem, "ssl.key.pem": CLIENT.key_pem(form, password)}
    found = java(**given, **({"ssl.key.password": password} if password else {}))
    assert found["ssl.keystore.type"] == "PEM"
    assert found["ssl.keystore.certificate.chain"] == CLIENT.pem
    assert found["ssl.keystore.key"].startswith("-----BEGIN PRIVATE KEY-----")
    key = load_pem_private_key(found["ssl.keystore.key"].encode(), None)
    assert key.private_numbers() == CLIENT.key.private_numbers()  # type: ignore[union-attr]


def test_pkcs12_becomes_the_same(files: dict[str, str]) -> None:
    found = java(**{"ssl.keystore.location": files["client_p12"], "ssl.keystore.password": PASSWORD})
    assert found["ssl.keystore.certificate.chain"] == CLIENT.pem
    assert found["ssl.keystore.key"] == CLIENT.key_pem()


def test_a_folder_of_authorities(tmp_path: Path) -> None:
    written(tmp_path, a_pem=AUTHORITY.pem, b_pem=Authority().pem, note_txt="nothing")
    (tmp_path / "more").mkdir()
    assert java(**{"ssl.ca.location": str(tmp_path)})["ssl.truststore.certificates"].count("BEGIN CERTIFICATE") == 2


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"ssl.ca.location": "/nowhere.pem"}, "ssl.ca.location names can't be read"),
        ({"ssl.ca.pem": "no certificate"}, "ssl.ca.pem names holds no certificate"),
        ({"ssl.key.pem": CLIENT.key_pem()}, "no ssl.certificate"),
        ({"ssl.certificate.pem": CLIENT.pem}, "no ssl.key"),
        ({"ssl.certificate.pem": CLIENT.pem, "ssl.key.pem": CLIENT.key_pem(password="x")}, "ssl.key.password"),
        ({"sasl.mechanism": "OAUTHBEARER"}, "where tokens come from"),
        ({"sasl.mechanism": "GSSAPI"}, "sasl.kerberos.keytab"),
        ({"sasl.mechanism": "ANONYMOUS"}, "sasl.mechanism"),
        ({"sasl.username": ""}, "sasl.username"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_begins(given: dict[str, str], says: str) -> None:
    with pytest.raises(ActionRequiredError, match=says) as caught:
        KafkaSettings("c", {**BASE, **SCRAM, **given}).require_for_spark()
    assert caught.value.where["connection"] == "c"
    assert "PRIVATE" not in str(caught.value)


def test_java_settings_by_name_take_the_place_of_what_is_refused() -> None:
    given = {**BASE, "sasl.mechanism": "OAUTHBEARER", "ssl.cipher.suites": "ECDHE"}
    own = {"sasl.mechanism": "AWS_MSK_IAM", "sasl.jaas.config": LOGIN_OF_JAVA, "ssl.cipher.suites": "TLS_X"}
    found = KafkaSettings("c", given, own).java()
    assert {name: found[name] for name in own} == own


def signed_url(config: str) -> tuple[str, float]:
    return "aHR0cHM6Ly9rYWZrYS5leGFtcGxl", 2e9


def open_ended(config: str) -> tuple[str, float]:
    return "e30.eyJzdWIiOiJtZSJ9.c2ln", 2e9  # {"sub": "me"}


def jwt(config: str) -> tuple[str, float]:
    return "e30.eyJzdWIiOiJtZSIsImV4cCI6MjAwMDAwMDAwMH0.c2ln", 2e9  # {"sub": "me", "exp": 2000000000}


OAUTH = {**BASE, "sasl.mechanism": "OAUTHBEARER"}


def test_a_token_function_is_not_forgotten() -> None:
    settings = KafkaSettings("c", {**OAUTH, "oauth_cb": f"{__name__}.jwt"})
    with pytest.raises(ActionRequiredError, match="oauth_cb"):
        settings.java()
    settings.require_for_spark()
    assert settings.java({"sasl.jaas.config": "token"})["sasl.jaas.config"] == "token"
    assert callable(settings.client()["oauth_cb"])
    with pytest.raises(ActionRequiredError, match="can't be imported"):
        KafkaSettings("c", {**OAUTH, "oauth_cb": "sluice.nowhere.at_all"}).client()


@pytest.mark.parametrize("function", ["signed_url", "open_ended"])
def test_tokens_that_spark_cannot_take_are_refused(function: str) -> None:
    settings = KafkaSettings("c", {**OAUTH, "oauth_cb": f"{__name__}.{function}"})
    with pytest.raises(ActionRequiredError, match="no JWT with an end") as caught:
        settings.require_for_spark()
    assert "aHR0" not in str(caught.value)
    replace(settings, java_options={"sasl.jaas.config": LOGIN_OF_JAVA}).require_for_spark()


def test_spark_logs_in_to_msk_as_aws_has_it() -> None:
    """MSK's tokens are signed URLs."""
    settings = KafkaSettings("c", {**OAUTH, "oauth_cb": MSK_IAM})
    assert settings.java()["sasl.mechanism"] == "AWS_MSK_IAM"
    assert settings.java()["sasl.jaas.config"].startswith("software.amazon.msk.")


def test_a_jar_that_a_log_in_needs_is_missed_before_an_interval_begins(tmp_path, monkeypatch) -> None:
    """Only where its settings say all of Spark's class path."""
    for name in ("SPARK_HOME", "SPARK_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SLUICE_JARS", str(tmp_path))
    monkeypatch.setattr(runtime, "spark_jars", list)
    (tmp_path / "spark").mkdir()
    settings = KafkaSettings("c", {**OAUTH, "oauth_cb": MSK_IAM})
    classes = ("IAMLoginModule", "IAMClientCallbackHandler")

    def jar(name: str, *there: str) -> None:
        with ZipFile(tmp_path / "spark" / name, "w") as made:
            for one in there:
                made.writestr(f"software/amazon/msk/auth/iam/{one}.class", b"")

    jar("other.jar", "Other")
    with pytest.raises(ActionRequiredError, match=r"no class software.+aws-msk-iam-auth"):
        settings.require_for_spark()
    settings.require_for_spark({"spark.jars": "/opt/aws-msk-iam-auth-all.jar"})
    jar("half-msk.jar", classes[0])
    with pytest.raises(ActionRequiredError, match="IAMClientCallbackHandler"):
        settings.require_for_spark()
    monkeypatch.setenv("SPARK_CONF_DIR", "/etc/spark")
    settings.require_for_spark()
    monkeypatch.delenv("SPARK_CONF_DIR")
    jar("other.jar", classes[1])
    settings.require_for_spark()


def test_without_awss_signer_it_is_said_before_a_client_is_made() -> None:
    with pytest.raises(ActionRequiredError, match=r"pip install 'sluice\[msk\]'") as raised:
        KafkaSettings("c", {**OAUTH, "oauth_cb": MSK_IAM}).client()
    assert raised.value.where == {"connection": "c"}


def test_plain_text_reads_no_files() -> None:
    KafkaSettings("c", {"bootstrap.servers": "k:9092", "ssl.ca.location": "/nowhere"}).require_for_spark()
