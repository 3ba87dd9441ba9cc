"""Settings of a schema registry's client, under confluent-kafka's names."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from sluice.errors import ActionRequiredError
from sluice.redact import remember, secret_values
from sluice.untrusted import json_of

VARIABLE = "SLUICE_SCHEMA_REGISTRY"

# A registry that doesn't answer at once is asked again here, for some seconds; after that Airflow retries the task.
_PATIENCE = {"timeout": 20, "max.retries": 2, "retries.wait.ms": 200, "retries.max.wait.ms": 2000}
_BEARER = {"bearer.auth.credentials.source": "STATIC_TOKEN", "bearer.auth.logical.cluster": ""}
_KNOWN = frozenset(
    {
        "url",
        "basic.auth.user.info",
        "bearer.auth.credentials.source",
        "bearer.auth.token",
        "bearer.auth.logical.cluster",
        "bearer.auth.identity.pool.id",
        "bearer.auth.client.id",
        "bearer.auth.client.secret",
        "bearer.auth.scope",
        "bearer.auth.issuer.endpoint.url",
        "ssl.ca.location",
        "ssl.certificate.location",
        "ssl.key.location",
        "ssl.key.password",
        "proxy",
        "timeout",
        "max.retries",
        "retries.wait.ms",
        "retries.max.wait.ms",
    }
)


class NoSubjectsError(ActionRequiredError):
    """A registry has none of the subjects that it was asked for."""


@dataclass(frozen=True)
class RegistrySettings:
    """Settings of one registry's client. They may hold secrets, so they never show in a repr, a log or a message.

    A log-in in the URL is removed from it, because HTTP clients log the URLs of their requests.

    Attributes:
        name: the registry's name, which is the id of the Airflow connection.
        settings: under confluent-kafka's names (`url`, `basic.auth.user.info`, `bearer.auth.*`, `ssl.*`).
        whatever_name: whether they were given for a registry of any name.

    Raises:
        ActionRequiredError: a setting is unknown, or there is no URL.
    """

    name: str
    settings: Mapping[str, Any] = field(repr=False)
    whatever_name: bool = False

    def __post_init__(self) -> None:
        settings = dict(self.settings)
        user_info = str(settings.get("basic.auth.user.info") or "")
        remember((user_info.partition(":")[2], *secret_values(settings)))
        strange = sorted(set(settings) - _KNOWN)
        if strange:
            raise ActionRequiredError(
                f"The schema registry's connection has settings that its client doesn't know: {', '.join(strange)}.",
                next_step=f"correct its extra field; there are {', '.join(sorted(_KNOWN))}.",
                connection=self.name,
            )
        bare, logins = zip(*(_without_login(url, self.name) for url in _urls(settings, self.name)), strict=True)
        login = next(filter(None, logins), None)
        if login and "basic.auth.user.info" not in settings:
            settings["basic.auth.user.info"] = login
        object.__setattr__(self, "settings", {**settings, "url": ",".join(bare)})

    @property
    def url(self) -> str:
        """The registry's address, without a log-in."""
        return str(self.settings["url"])

    def client(self) -> dict[str, Any]:
        """Settings for confluent-kafka's `SchemaRegistryClient`."""
        bearer = _BEARER if "bearer.auth.token" in self.settings else {}
        return {**_PATIENCE, **bearer, **self.settings}

    def to_environment(self) -> dict[str, str]:
        """The settings as an environment variable, for the command line without Airflow."""
        return {VARIABLE: json.dumps({"name": self.name, "settings": dict(self.settings)})}

    @classmethod
    def from_environment(cls, name: str) -> RegistrySettings | None:
        """The registry that the environment names; None where it names none, or has others by their names.

        The variable holds what `to_environment` wrote, the client's settings alone, or just a URL: that is the registry
        whatever the pipeline calls it. Or it holds several, each a URL or settings, by the ids of their connections.

        Raises:
            ActionRequiredError: it can't be read.
        """
        text = os.environ.get(VARIABLE, "").strip()
        if not text:
            return None
        if not text.startswith("{"):
            return cls(name, {"url": text}, whatever_name=True)
        try:
            given = json_of(text)
        except ValueError:
            raise ActionRequiredError(
                f"The variable {VARIABLE} is not JSON.",
                next_step='set it to a URL, or to the client\'s settings, such as {"url": "https://registry:8081"}; of '
                'several registries to {"<connection>": "https://...", ...}.',
            ) from None
        if not given.keys() & {*_KNOWN, "settings"}:
            one = given.get(name)
            if not isinstance(one, str | dict | None):
                raise ActionRequiredError(
                    f"What the variable {VARIABLE} has under a connection's id is neither a URL nor settings.",
                    next_step='correct it, such as to "https://registry:8081".',
                    connection=name,
                )
            return None if one is None else cls(name, {"url": one} if isinstance(one, str) else one)
        settings = given.get("settings", given)
        return cls(str(given.get("name", name)) if "settings" in given else name, settings, whatever_name=True)


def _urls(settings: Mapping[str, Any], name: str) -> list[str]:
    urls = [url.strip() for url in str(settings.get("url") or "").split(",") if url.strip()]
    if not urls or not all(map(_is_address, urls)):
        raise ActionRequiredError(
            "The schema registry's connection has no address of the form http://host:port or https://host:port.",
            next_step="put it into the connection's host field, or as `url` into its extra field.",
            connection=name,
        )
    return urls


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:  # half of an IPv6 address
        return False
    # An @ in the path is a log-in behind a scheme that is written twice; it would show.
    return parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.path


def _without_login(url: str, name: str) -> tuple[str, str | None]:
    parts = urlsplit(url)
    if parts.username is None:
        return url.rstrip("/"), None
    try:
        place = parts.hostname or ""
        place = f"[{place}]" if ":" in place else place
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        raise ActionRequiredError(
            "The port in the schema registry's address is not a number.", next_step="correct it.", connection=name
        ) from None
    bare = urlunsplit(parts._replace(netloc=f"{place}{port}")).rstrip("/")
    return bare, f"{unquote(parts.username)}:{unquote(parts.password or '')}"


Registries = Callable[[str], RegistrySettings]
"""The settings of the registry that the id of an Airflow connection names."""


def registry_of_environment(name: str) -> RegistrySettings:
    """The registry that the environment names, for steps without Airflow.

    Raises:
        ActionRequiredError: it names none.
    """
    found = RegistrySettings.from_environment(name)
    if found is None:
        raise ActionRequiredError(
            f"The schema registry's settings are missing: the variable {VARIABLE} doesn't name it.",
            next_step="set it to the registry's URL, or to its client's settings as JSON; of several registries to a "
            "JSON object that has each by its connection's id.",
            connection=name,
        )
    return found


def refuse_one_for_several(registries: Collection[RegistrySettings]) -> None:
    """Refuse to take one registry for several: their ids mean other schemas.

    Args:
        registries: the registries that a pipeline's clusters have.

    Raises:
        ActionRequiredError: the environment names one, whatever its name.
    """
    if len(registries) > 1 and any(one.whatever_name for one in registries):
        names = sorted(one.name for one in registries)
        raise ActionRequiredError(
            f"The variable {VARIABLE} names one schema registry, and the clusters have several: {', '.join(names)}.",
            next_step=f'set it to a JSON object of all of them, {{"{names[0]}": "https://...", ...}}, or unset it '
            "where Airflow's connections can be read.",
        )
