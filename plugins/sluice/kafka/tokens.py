"""Tokens that Python makes for OAUTHBEARER: librdkafka's `oauth_cb`, by its dotted name, as MSK's IAM needs it."""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from sluice.errors import ActionRequiredError
from sluice.untrusted import json_of

TokenCallable = Callable[[str], tuple[Any, ...]]
MSK_IAM = "sluice.kafka.tokens.msk_iam"
_SIGNER = "aws_msk_iam_sasl_signer"
_MSK = re.compile(r"\.kafka(?:-serverless)?\.(?P<region>[a-z0-9-]+)\.amazonaws\.com(?:\.cn)?(?::\d+)?(?=$|[,\s])", re.I)


@dataclass(frozen=True)
class Token:
    """The result of an `oauth_cb`; the token never shows in a repr.

    Attributes:
        value: the token.
        expires: when it stops to hold, in seconds since 1970.
        principal: whose it is; brokers look into the token itself.
        extensions: SASL extensions that are sent beside it.
    """

    value: str = field(repr=False)
    expires: float
    principal: str = ""
    extensions: Mapping[str, str] = field(default_factory=dict)


def token_callable(name: str, connection: str) -> TokenCallable:
    """The Python function of that dotted name.

    Raises:
        ActionRequiredError: it can't be imported, or is the one for Amazon MSK and AWS's signer isn't installed:
            librdkafka, which calls it, would only say that it can't log in.
    """
    if name == MSK_IAM and find_spec(_SIGNER) is None:
        raise _without_signer(connection=connection)
    module, _, function = name.rpartition(".")
    try:
        found: TokenCallable = getattr(import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise ActionRequiredError(
            f"The connection's oauth_cb can't be imported: {type(error).__name__}.",
            next_step="install its module on every Airflow worker, or put it on PYTHONPATH: Spark's driver is a "
            "separate process, which doesn't look into Airflow's dags folder.",
            connection=connection,
            oauth_cb=name,
        ) from error
    return found


def ask(name: str, config: str, connection: str) -> Token:
    """A new token from the function of that name.

    Raises:
        ActionRequiredError: it can't be imported.
        Exception: whatever it raises itself.
    """
    value, expires, *more = token_callable(name, connection)(config)
    return Token(str(value), float(expires), *more)


def require_jwt(token: Token, name: str, connection: str) -> None:
    """Check that a token is a JWT with an end, as Kafka's Java client wants each that an endpoint answers with.

    Raises:
        ActionRequiredError: it isn't.
    """
    parts = token.value.split(".")
    try:
        claims = json_of(urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))) if len(parts) == 3 else None
    except ValueError:
        claims = None
    if not isinstance(claims, dict) or "exp" not in claims:
        raise ActionRequiredError(
            "What oauth_cb makes is no JWT with an end (exp), and Kafka's Java client in Spark takes no other token.",
            next_step="give Spark's client its own log-in under `java` in the extra field of the Kafka "
            "connection: sasl.mechanism, sasl.jaas.config, and a callback handler, with its jar on Spark's class path.",
            connection=connection,
            oauth_cb=name,
        )


def msk_region(bootstrap_servers: str) -> str | None:
    """The AWS region of an Amazon MSK cluster, by its brokers' names; None of any other cluster."""
    found = _MSK.search(bootstrap_servers)
    return found.group("region").lower() if found else None


def msk_iam(config: str) -> tuple[str, float]:
    """A token for Amazon MSK with IAM, signed with the AWS credentials of this process.

    Args:
        config: `sasl.oauthbearer.config`: `region=eu-west-1`.

    Raises:
        ActionRequiredError: AWS's signer isn't installed, or `config` names no region.
    """
    try:
        from aws_msk_iam_sasl_signer import MSKAuthTokenProvider
    except ImportError:
        raise _without_signer() from None
    region = dict(part.split("=", 1) for part in config.split() if "=" in part).get("region")
    if region is None:
        raise ActionRequiredError(
            "Nothing says in which AWS region the Amazon MSK cluster is.",
            next_step="set sasl.oauthbearer.config to region=eu-west-1, or whichever it is, in the Kafka connection.",
        )
    token, expires_ms = MSKAuthTokenProvider.generate_auth_token(region)
    return str(token), expires_ms / 1000


def _without_signer(**where: str) -> ActionRequiredError:
    return ActionRequiredError(
        "Amazon MSK with IAM needs AWS's signer, which isn't installed.",
        next_step="install Sluice's extra msk on every Airflow worker: pip install 'sluice[msk]', or the packages of "
        "requirements-aws.lock.",
        **where,
    )
