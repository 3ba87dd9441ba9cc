"""Which settings of Kafka's Java client a Kafka connection and a pipeline file may set. Pure.

That client reads for Spark, in drivers and executors. A setting is listed if it names no class, sends no file, and
changes neither which records are read nor which cluster. A setting of a later client is refused until it is listed
here: https://kafka.apache.org/documentation/#consumerconfigs
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from sluice.sections import refuse_each

PAGE: Final = "docs/kafka-java-client.md"

READING: Final = frozenset(
    [
        "allow.auto.create.topics",
        "client.dns.lookup",
        "client.id",
        "client.rack",
        "connections.max.idle.ms",
        "default.api.timeout.ms",
        "enable.metrics.push",
        "fetch.max.bytes",
        "fetch.max.wait.ms",
        "fetch.min.bytes",
        "heartbeat.interval.ms",
        "max.partition.fetch.bytes",
        "max.poll.interval.ms",
        "max.poll.records",
        "metadata.max.age.ms",
        "metadata.recovery.strategy",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "receive.buffer.bytes",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "request.timeout.ms",
        "retry.backoff.max.ms",
        "retry.backoff.ms",
        "send.buffer.bytes",
        "session.timeout.ms",
        "socket.connection.setup.timeout.max.ms",
        "socket.connection.setup.timeout.ms",
    ]
)
"""How it reads: a pipeline file may set these, and so may a connection."""
_STORES = (
    "ssl.cipher.suites",
    "ssl.enabled.protocols",
    "ssl.endpoint.identification.algorithm",
    "ssl.key.password",
    "ssl.keymanager.algorithm",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.type",
    "ssl.protocol",
    "ssl.provider",
    "ssl.secure.random.implementation",
    "ssl.trustmanager.algorithm",
    "ssl.truststore.certificates",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.type",
)
CONNECTING: Final = frozenset(
    [
        *_STORES,
        "sasl.client.callback.handler.class",
        "sasl.jaas.config",
        "sasl.kerberos.min.time.before.relogin",
        "sasl.kerberos.service.name",
        "sasl.kerberos.ticket.renew.jitter",
        "sasl.kerberos.ticket.renew.window.factor",
        "sasl.login.callback.handler.class",
        "sasl.login.connect.timeout.ms",
        "sasl.login.read.timeout.ms",
        "sasl.login.refresh.buffer.seconds",
        "sasl.login.refresh.min.period.seconds",
        "sasl.login.refresh.window.factor",
        "sasl.login.refresh.window.jitter",
        "sasl.login.retry.backoff.max.ms",
        "sasl.login.retry.backoff.ms",
        "sasl.mechanism",
        "sasl.oauthbearer.clock.skew.seconds",
        "sasl.oauthbearer.header.urlencode",
        "sasl.oauthbearer.scope.claim.name",
        "sasl.oauthbearer.sub.claim.name",
        "sasl.oauthbearer.token.endpoint.url",
        "security.protocol",
        "ssl.engine.factory.class",
    ]
)
"""How it connects and logs in: only a connection may set these, since they decide where its secrets are sent."""

TOKEN_URL: Final = "sasl.oauthbearer.token.endpoint.url"
"""Kafka's Java client would take `file:` too, and send the file to the broker as a token (CVE-2025-27817)."""
_SECURITY = "org.apache.kafka.common.security"
_MSK = "software.amazon.msk.auth.iam"
VALUES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "allow.auto.create.topics": ("false",),
        "sasl.client.callback.handler.class": (f"{_MSK}.IAMClientCallbackHandler",),
        "sasl.login.callback.handler.class": (
            f"{_SECURITY}.oauthbearer.OAuthBearerLoginCallbackHandler",
            f"{_SECURITY}.oauthbearer.internals.unsecured.OAuthBearerUnsecuredLoginCallbackHandler",
            f"{_SECURITY}.oauthbearer.secured.OAuthBearerLoginCallbackHandler",
            f"{_MSK}.IAMOAuthBearerLoginCallbackHandler",
            "com.google.cloud.hosted.kafka.auth.GcpLoginCallbackHandler",
        ),
        "ssl.engine.factory.class": (f"{_SECURITY}.ssl.DefaultSslEngineFactory",),
    }
)
"""The values of settings that don't take all."""

_AWS = r"aws[A-Z][A-Za-z]*"
_SSL = "|".join(re.escape(name) for name in _STORES)
_KERBEROS = "[A-Za-z]+"  # Java's module knows none with a class or an address
LOGIN_MODULES: Final[Mapping[str, str]] = MappingProxyType(
    {
        f"{_SECURITY}.plain.PlainLoginModule": "username|password",
        f"{_SECURITY}.scram.ScramLoginModule": "username|password|tokenauth",
        # Its TLS to the token endpoint takes the client's own settings, a class by its name among them.
        f"{_SECURITY}.oauthbearer.OAuthBearerLoginModule": (
            rf"clientId|clientSecret|scope|extension_[\w.-]+|unsecuredLogin[\w.-]+|{_AWS}|{_SSL}"
        ),
        f"{_MSK}.IAMLoginModule": _AWS,
        "com.sun.security.auth.module.Krb5LoginModule": _KERBEROS,
        "com.ibm.security.auth.module.Krb5LoginModule": _KERBEROS,
    }
)
"""The modules that a `sasl.jaas.config` may name, each with a regular expression of its options' names."""
# One entry, as the client's own parser (JaasConfig) reads it; comments and quoted names are left out.
_VALUE = r"""(?:"(?:[^"\\\r\n]|\\[^\r\n])*+"|'(?:[^'\\\r\n]|\\[^\r\n])*+'|[\w.$-]++)"""
_ENTRY = re.compile(
    rf"\s*+([\w.$]++)\s++(?:required|requisite|sufficient|optional)((?:\s++[\w.-]++\s*+=\s*+{_VALUE})*+)\s*+;\s*+",
    re.ASCII | re.IGNORECASE,
)
_OPTION = re.compile(rf"\s++([\w.-]++)\s*+=\s*+{_VALUE}", re.ASCII)

REASONS: Final[tuple[tuple[str, str], ...]] = (
    ("isolation.level", "the source's `isolation_level` says which transactions are read, in both clients"),
    (r"bootstrap\.servers|metadata\.broker\.list", "both clients have to read the cluster that the connection names"),
    (
        r"group\..*|auto\.(offset|commit).*|enable\.auto\..*|partition\.assignment\.strategy",
        "ranges of offsets are read, by no consumer group",
    ),
    (
        r".*\.(class|classes|deserializer|serializer|reporters|reporter|providers)|.*jmx.*",
        "it names a class to load: Sluice chooses them",
    ),
    (
        r"acks|transaction.*|enable\.idempotence|max\.in\.flight.*|linger\.ms|batch\.size|compression.*|delivery.*",
        "Spark's client writes nothing",
    ),
    (r"sasl\.kerberos\.kinit\.cmd", "it is a command to run"),
)
"""Why names aren't listed, the first that fits: a regular expression of names, and what to know instead."""


def refusal(name: str, value: str, *, of_file: bool = False) -> str | None:
    """Why a setting isn't taken, with what to do instead and without its value; None if it is.

    Args:
        name: the Java client's name of it.
        value: its value.
        of_file: whether a pipeline file sets it; else a connection does.
    """
    if of_file and name in CONNECTING:
        return "how to reach the cluster, its connection says: put it under `java` in the connection's extra field"
    if name not in READING and name not in CONNECTING:
        why = next((f"; {why}" for pattern, why in REASONS if re.fullmatch(pattern, name)), "")
        return f"is not a setting of Spark's Kafka client that can be given{why} (the list is in {PAGE})"
    if name == "sasl.jaas.config":
        return _wrong_login(value)
    if name == TOKEN_URL:
        return wrong_token_url(value)
    known = VALUES.get(name)
    if known is None or (value in known if "class" in name else value.lower() in known):
        return None
    return f"must be {' or '.join(known)} here"


def wrong_token_url(url: str) -> str | None:
    """What is wrong with the address of a token endpoint; None if it is one of a server."""
    return None if re.match(r"https?://", url, re.IGNORECASE) else "must be an https: or http: address"


def _wrong_login(config: str) -> str | None:
    """What is wrong with a JAAS configuration, whose values are secrets."""
    entry = _ENTRY.fullmatch(config)
    if entry is None:
        return 'must be one entry without comments, as in `module required name="value";`'
    module, options = entry.groups()
    if module not in LOGIN_MODULES:
        return f"names the login module {module}, which {PAGE} doesn't list"
    names = [str(name) for name in _OPTION.findall(options)]
    strange = sorted({name for name in names if not re.fullmatch(LOGIN_MODULES[module], name, re.ASCII)})
    return f"has options that {module} may not have here: {', '.join(strange)} (see {PAGE})" if strange else None


def refuse_others(options: Mapping[str, str]) -> None:
    """Check the `kafka_options` of a pipeline file.

    Raises:
        ValidationError: one isn't listed, or has a value that it doesn't take; each has its own place.
    """
    refuse_each("kafka_options", {name: refusal(name, value, of_file=True) for name, value in options.items()})
