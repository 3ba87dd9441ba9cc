"""librdkafka's settings in the words of Kafka's Java client, which Spark reads with.

Every setting that has to do with security is either translated or refused by name: a client that lacks one connects in
another way than the coordinator does, or hangs. https://docs.confluent.io/platform/current/clients/librdkafka/html/md_CONFIGURATION.html
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from sluice.errors import ActionRequiredError
from sluice.kafka import pem
from sluice.kafka.tokens import MSK_IAM
from sluice.kafka_options import VALUES

_SASL = "org.apache.kafka.common.security"
_PASSWORD_LOGINS = {
    "PLAIN": f"{_SASL}.plain.PlainLoginModule",
    "SCRAM-SHA-256": f"{_SASL}.scram.ScramLoginModule",
    "SCRAM-SHA-512": f"{_SASL}.scram.ScramLoginModule",
}
_OAUTH_LOGIN = f"{_SASL}.oauthbearer.OAuthBearerLoginModule"
_OIDC_HANDLER = f"{_SASL}.oauthbearer.OAuthBearerLoginCallbackHandler"
# AWS's own, from aws-msk-iam-auth: https://github.com/aws/aws-msk-iam-auth
_MSK_LOGIN = {
    "sasl.mechanism": "AWS_MSK_IAM",
    "sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;",
    "sasl.client.callback.handler.class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
}
_OWN_CLASSES = ("org.apache.kafka.", "com.sun.")  # of Kafka's client, and of Java
_LOGIN_CLASSES = ("sasl.login.callback.handler.class", "sasl.client.callback.handler.class", "sasl.login.class")
_KERBEROS_LOGIN = "com.sun.security.auth.module.Krb5LoginModule"

# The same name and the same values in both clients.
_SAME = (
    "client.id",
    "client.rack",
    "client.dns.lookup",
    "request.timeout.ms",
    "sasl.kerberos.min.time.before.relogin",
)
# Settings without a counterpart in the Java client, and the Java setting for the same purpose.
_REFUSED = {
    "enable.ssl.certificate.verification": "ssl.engine.factory.class",
    "ssl.ca.certificate.stores": "ssl.truststore.certificates",
    "ssl.certificate.verify_cb": "ssl.engine.factory.class",
    "ssl.cipher.suites": "ssl.cipher.suites",
    "ssl.crl.location": "ssl.engine.factory.class",
    "ssl.curves.list": "ssl.engine.factory.class",
    "ssl.engine.id": "ssl.engine.factory.class",
    "ssl.engine.location": "ssl.engine.factory.class",
    "ssl.providers": "ssl.engine.factory.class",
    "ssl.sigalgs.list": "ssl.engine.factory.class",
    "ssl_ca": "ssl.truststore.certificates",
    "ssl_certificate": "ssl.keystore.certificate.chain",
    "ssl_engine_callback_data": "ssl.engine.factory.class",
    "ssl_key": "ssl.keystore.key",
    "oauthbearer_token_refresh_cb": "sasl.jaas.config",
    "sasl.kerberos.kinit.cmd": "sasl.jaas.config",
    "sasl.oauthbearer.grant.type": "sasl.jaas.config",
    "sasl.oauthbearer.metadata.authentication.type": "sasl.jaas.config",
}
_DEFAULTS = {
    "enable.ssl.certificate.verification": ("true",),
    "sasl.oauthbearer.grant.type": ("client_credentials",),
    "sasl.oauthbearer.metadata.authentication.type": ("none",),
}
_TRANSLATED = frozenset(
    {
        "security.protocol",
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.username",
        "sasl.password",
        "sasl.kerberos.service.name",
        "sasl.kerberos.principal",
        "sasl.kerberos.keytab",
        "sasl.kerberos.min.time.before.relogin",
        "enable.sasl.oauthbearer.unsecure.jwt",
        "sasl.oauthbearer.config",
        "sasl.oauthbearer.method",
        "sasl.oauthbearer.client.id",
        "sasl.oauthbearer.client.credentials.client.id",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.oauthbearer.scope",
        "sasl.oauthbearer.extensions",
        "sasl.oauthbearer.token.endpoint.url",
        "sasl.oauthbearer.sub.claim.name",
        "ssl.ca.location",
        "ssl.ca.pem",
        "https.ca.location",
        "https.ca.pem",
        "ssl.certificate.location",
        "ssl.certificate.pem",
        "ssl.key.location",
        "ssl.key.pem",
        "ssl.key.password",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.endpoint.identification.algorithm",
        "oauth_cb",
    }
)
_OF_SECURITY = ("sasl.", "ssl.", "ssl_", "https.", "security.", "enable.ssl.", "enable.sasl.", "oauth")


def translate(
    given: Mapping[str, str], java: Mapping[str, str], connection: str, tokens: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The Java client's settings.

    Args:
        given: the connection's settings, under librdkafka's names.
        java: settings under the Java client's own names, which win; `sasl.jaas.config` among them is a whole log-in,
            and `ssl.keystore.*` or `ssl.truststore.*` a whole store.
        connection: the Airflow connection's id, for errors.
        tokens: how Spark's clients come to the tokens that the connection's `oauth_cb` makes.

    Raises:
        ActionRequiredError: a setting can't be carried over; it is named, with what to say instead.
    """
    _refuse(given, java, connection)
    protocol = given.get("security.protocol", "plaintext").upper()
    settings = {name: given[name] for name in _SAME if name in given}
    if "security.protocol" in given:
        settings["security.protocol"] = protocol
    if protocol.startswith("SASL"):
        settings |= _login(given, java, connection, tokens)
    if protocol.endswith("SSL"):
        settings |= _tls(given, java, connection)
    return {**settings, **java}


def _refuse(given: Mapping[str, str], java: Mapping[str, str], connection: str) -> None:
    named = sorted(name for name in given if name.startswith(_OF_SECURITY) and name not in _TRANSLATED)
    open_ones = []
    for name in named:
        instead = _REFUSED.get(name, "sasl.jaas.config" if name.startswith("sasl.") else name)
        if given[name].lower() not in _DEFAULTS.get(name, ()) and instead not in java:
            open_ones.append((name, instead))
    if open_ones:
        names = ", ".join(name for name, _ in open_ones)
        words = sorted({f"{instead}{_only(instead)}" for _, instead in open_ones})
        raise ActionRequiredError(
            f"Spark's Java client has no counterpart for {names}.",
            next_step="put what it is to do instead under `java` in the extra field of the Kafka connection, in "
            f"its own words ({', '.join(words)}), or remove the setting.",
            connection=connection,
        )


def _only(name: str) -> str:
    """The one value that a setting of Java's may have, which leaves it to Java's own checks."""
    values = VALUES.get(name, ())
    return f": {values[0]}" if len(values) == 1 else ""


def _tls(given: Mapping[str, str], java: Mapping[str, str], connection: str) -> dict[str, str]:
    settings: dict[str, str] = {}
    if not any(name.startswith("ssl.truststore.") for name in java):
        settings |= pem.truststore(given, connection)
    if not any(name.startswith("ssl.keystore.") for name in java):
        settings |= pem.keystore(given, connection)
    name = "ssl.endpoint.identification.algorithm"
    if name in given:
        settings[name] = "" if given[name].lower() == "none" else given[name]
    return settings


def _login(
    given: Mapping[str, str], java: Mapping[str, str], connection: str, tokens: Mapping[str, str] | None
) -> dict[str, str]:
    mechanism = (given.get("sasl.mechanism") or given.get("sasl.mechanisms") or "GSSAPI").upper()
    settings = {"sasl.mechanism": mechanism}
    if "sasl.jaas.config" in java:
        return settings
    if mechanism in _PASSWORD_LOGINS:
        return settings | _with_password(given, mechanism, connection)
    if mechanism == "GSSAPI":
        return settings | _kerberos(given, connection)
    if mechanism == "OAUTHBEARER":
        return settings | _oauth(given, connection, tokens)
    raise _lacking("sasl.mechanism", f"{mechanism} is not among the mechanisms that Sluice hands to Spark", connection)


NEXT_STEP_WITHOUT_LOGIN = (
    "put the jar that has it on Spark's class path (spark.jars, or the folder `spark` of SLUICE_JARS on each worker); "
    "for Amazon MSK it is software.amazon.msk:aws-msk-iam-auth, the one whose name ends with -all.jar."
)


def login_classes(settings: Mapping[str, str]) -> list[str]:
    """The classes by which Java's client logs in, as its settings name them."""
    module = re.match(r"\s*([\w.$]+)", settings.get("sasl.jaas.config", ""))
    named = [settings.get(name, "") for name in _LOGIN_CLASSES] + ([module[1]] if module else [])
    return list(filter(None, named))


def foreign_login_classes(settings: Mapping[str, str]) -> list[str]:
    """The classes of a log-in that have to be in a jar which a user adds: neither Kafka's client has them nor Java."""
    return [name for name in login_classes(settings) if not name.startswith(_OWN_CLASSES)]


def _with_password(given: Mapping[str, str], mechanism: str, connection: str) -> dict[str, str]:
    if not given.get("sasl.username"):
        raise _lacking("sasl.username", f"{mechanism} needs it", connection)
    login = {"username": given["sasl.username"], "password": given.get("sasl.password", "")}
    return {"sasl.jaas.config": _jaas(_PASSWORD_LOGINS[mechanism], login)}


def _kerberos(given: Mapping[str, str], connection: str) -> dict[str, str]:
    for name in ("sasl.kerberos.keytab", "sasl.kerberos.principal"):
        if not given.get(name):
            raise _lacking(name, "Kerberos on executors needs it, at the same path on each of them", connection)
    options = {
        "useKeyTab": "true",
        "storeKey": "true",
        "keyTab": given["sasl.kerberos.keytab"],
        "principal": given["sasl.kerberos.principal"],
    }
    service = given.get("sasl.kerberos.service.name", "kafka")
    return {"sasl.jaas.config": _jaas(_KERBEROS_LOGIN, options), "sasl.kerberos.service.name": service}


def _oauth(given: Mapping[str, str], connection: str, tokens: Mapping[str, str] | None) -> dict[str, str]:
    if given.get("oauth_cb") == MSK_IAM:
        return dict(_MSK_LOGIN)  # MSK's tokens are signed URLs, and Kafka's Java client takes JWTs
    if "oauth_cb" in given:
        if tokens is None:
            raise _lacking("oauth_cb", "its tokens reach Spark only from a Spark driver of Sluice's", connection)
        return dict(tokens)
    if given.get("sasl.oauthbearer.method", "").lower() == "oidc":
        return _oidc(given, connection)
    if given.get("enable.sasl.oauthbearer.unsecure.jwt", "").lower() == "true":
        return {"sasl.jaas.config": _jaas(_OAUTH_LOGIN, _unsecured(given.get("sasl.oauthbearer.config", "")))}
    raise _lacking("oauth_cb", "or sasl.oauthbearer.method: nothing says where tokens come from", connection)


def _oidc(given: Mapping[str, str], connection: str) -> dict[str, str]:
    def either(name: str) -> str:
        for full in (f"sasl.oauthbearer.client.{name}", f"sasl.oauthbearer.client.credentials.client.{name}"):
            if given.get(full):
                return given[full]
        raise _lacking(f"sasl.oauthbearer.client.{name}", "oidc needs it", connection)

    url = "sasl.oauthbearer.token.endpoint.url"
    if not given.get(url):
        raise _lacking(url, "oidc needs it", connection)
    extensions = {}
    for pair in filter(None, given.get("sasl.oauthbearer.extensions", "").split(",")):
        name, _, value = pair.strip().partition("=")
        extensions[name] = value
    trusted = pem.authorities(given, "https.ca", connection)
    scope = given.get("sasl.oauthbearer.scope")
    settings = token_login(given[url], either("id"), either("secret"), trusted, extensions, scope)
    claim = "sasl.oauthbearer.sub.claim.name"
    return {**settings, claim: given[claim]} if claim in given else settings


def token_login(
    url: str,
    client: str,
    secret: str,
    trusted: str | None,
    extensions: Mapping[str, str],
    scope: str | None = None,
) -> dict[str, str]:
    """How Kafka's own handler gets tokens from a token endpoint (KIP-768).

    Args:
        url: the endpoint.
        client: the client's id.
        secret: the client's secret.
        trusted: certificates in PEM that alone are trusted there; None: those of the JVM.
        extensions: SASL extensions sent with each token.
        scope: the requested scope.
    """
    options = {"clientId": client, "clientSecret": secret}
    if scope:
        options["scope"] = scope
    options |= {f"extension_{name}": value for name, value in extensions.items()}
    if trusted:
        options |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": trusted}
    return {
        "sasl.jaas.config": _jaas(_OAUTH_LOGIN, options),
        "sasl.login.callback.handler.class": _OIDC_HANDLER,
        "sasl.oauthbearer.token.endpoint.url": url,
    }


def _unsecured(config: str) -> dict[str, str]:
    """The `principal=… scope=…` of librdkafka as Java's options: unsigned tokens for tests."""
    pairs = dict(part.split("=", 1) for part in config.split() if "=" in part)
    claim, scope = pairs.get("principalClaimName", "sub"), pairs.get("scopeClaimName", "scope")
    options = {
        "unsecuredLoginPrincipalClaimName": claim,
        "unsecuredLoginScopeClaimName": scope,
        f"unsecuredLoginStringClaim_{claim}": pairs.get("principal", ""),
        "unsecuredLoginLifetimeSeconds": pairs.get("lifeSeconds", "3600"),
    }
    if pairs.get("scope"):
        options[f"unsecuredLoginListClaim_{scope}"] = f",{pairs['scope']}"  # its first character parts the others
    extensions = {k: v for k, v in pairs.items() if k.startswith("extension_")}
    return options | {f"unsecuredLoginExtension_{k.removeprefix('extension_')}": v for k, v in extensions.items()}


_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"})


def _jaas(module: str, options: Mapping[str, str]) -> str:
    """One entry of a JAAS configuration, quoted as Kafka's own parser of it wants."""
    quoted = (f'{name}="{value.translate(_ESCAPES)}"' for name, value in options.items())
    return f"{module} required {' '.join(quoted)};"


def _lacking(name: str, why: str, connection: str) -> ActionRequiredError:
    return ActionRequiredError(
        f"Spark's Java client can't log in to Kafka as the connection says: {name} ({why}).",
        next_step=f"correct {name} in the extra field of the Kafka connection, or give the whole log-in in the Java "
        'client\'s words: {"java": {"sasl.jaas.config": "…"}}.',
        connection=connection,
    )
