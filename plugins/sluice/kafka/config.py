"""Kafka client settings: librdkafka's names, as an Airflow `kafka` connection holds them, and Java's for Spark."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from sluice.errors import ActionRequiredError
from sluice.kafka.forks import keep_clients_out_of_forks
from sluice.kafka.java_settings import translate
from sluice.kafka.tokens import MSK_IAM, ask, require_jwt, token_callable

Role = Literal["source", "control"]
CONTROL_SECRET = "sluice.control.secret"
ALLOWED_HOSTS = "sluice.bootstrap.hosts"
_CLUSTERS = "SLUICE_KAFKA_CLUSTERS"
_OURS = "sluice."  # settings of ours in a connection, which no Kafka client is told
_NOT_CLIENTS = ("group.id", "auto.offset.reset")

keep_clients_out_of_forks()  # whoever makes a client has its settings from here


@dataclass(frozen=True)
class KafkaSettings:
    """Settings of one cluster's clients. They may hold secrets, so they never show in a repr, a log or a message.

    Attributes:
        name: the cluster's name, which is the id of the Airflow connection.
        librdkafka: client settings under librdkafka's names.
        java_options: further settings of Spark's Java client, under its names; they win over translated ones.
    """

    name: str
    librdkafka: Mapping[str, Any] = field(repr=False)
    java_options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if not self.bootstrap_servers:
            raise ActionRequiredError(
                "The Kafka connection names no bootstrap servers.",
                next_step='put {"bootstrap.servers": "host:9092"} into the connection\'s extra field.',
                connection=self.name,
            )

    @property
    def bootstrap_servers(self) -> str:
        """Comma-separated host:port list."""
        return str(self.librdkafka.get("bootstrap.servers") or self.librdkafka.get("metadata.broker.list") or "")

    @property
    def control_secrets(self) -> tuple[str, ...]:
        """What control messages are signed with: the present secret, then the one before it; none by default."""
        names = (CONTROL_SECRET, f"{CONTROL_SECRET}.previous")
        return tuple(str(self.librdkafka[name]) for name in names if self.librdkafka.get(name))

    def at(self, name: str, bootstrap_servers: str | None) -> KafkaSettings:
        """The settings of a cluster of streams that is reached by this connection.

        What the connection knows to log in by is told to no other hosts than its own, and those that its setting
        `sluice.bootstrap.hosts` allows: names, or endings such as `.kafka.example.com`. Whoever writes the mapping
        may not be whoever may read the connection.

        Args:
            name: the cluster's name in offsets.
            bootstrap_servers: where it is, if not where the connection says.

        Raises:
            ActionRequiredError: it is at a host that isn't allowed.
        """
        if bootstrap_servers is None or bootstrap_servers == self.bootstrap_servers:
            return replace(self, name=name)
        own = _hosts(self.bootstrap_servers)
        allowed = [host.strip() for host in str(self.librdkafka.get(ALLOWED_HOSTS) or "").split(",") if host.strip()]
        for host in _hosts(bootstrap_servers):
            if host not in own and not any(host == one or (one[0] == "." and host.endswith(one)) for one in allowed):
                raise ActionRequiredError(
                    f"The mapping puts a cluster at {host}, to which its connection may not go.",
                    next_step=f"allow the host in `{ALLOWED_HOSTS}` of the connection's extra field, or give the "
                    "cluster a connection of its own in the mapping.",
                    cluster=name,
                    connection=self.name,
                    bootstrap_servers=bootstrap_servers,
                )
        there = {key: value for key, value in self.librdkafka.items() if key != "metadata.broker.list"}
        return replace(self, name=name, librdkafka={**there, "bootstrap.servers": bootstrap_servers})

    def client(self, **more: Any) -> dict[str, Any]:
        """Settings for a confluent-kafka client, with `more` laid over them (underscores stand for dots)."""
        settings = {k: v for k, v in self.librdkafka.items() if k not in _NOT_CLIENTS and not k.startswith(_OURS)}
        if isinstance(settings.get("oauth_cb"), str):
            settings["oauth_cb"] = token_callable(settings["oauth_cb"], self.name)
        # Errors reach us as exceptions; librdkafka's own lines on standard error would only cut into the story.
        quiet = {"log_level": 2, "log.connection.close": False}
        return {**quiet, **settings, **{k.replace("_", "."): v for k, v in more.items()}}

    def with_java_options(self, more: Mapping[str, str]) -> KafkaSettings:
        """The same with further settings of Spark's Java client, which win over those that it has."""
        return replace(self, java_options={**self.java_options, **more})

    @property
    def token_callable(self) -> str | None:
        """The dotted name of the Python function that makes tokens for Spark's client; None where it needs none."""
        name = self.librdkafka.get("oauth_cb")
        return None if name in (None, MSK_IAM) or "sasl.jaas.config" in self.java_options else str(name)

    def java(self, tokens: Mapping[str, str] | None = None) -> dict[str, str]:
        """The same settings for the Java client that Spark's Kafka source uses.

        Args:
            tokens: how that client comes to the tokens of `token_callable` (`sluice.sources.kafka.driver_settings`).

        Raises:
            ActionRequiredError: a setting that secures the connection can't be carried over; it is named.
        """
        given = {name: _as_text(value) for name, value in self.librdkafka.items() if value is not None}
        java = {"bootstrap.servers": self.bootstrap_servers}
        return java | translate(given, self.java_options, self.name, tokens)

    def require_for_spark(self) -> None:
        """Check that Spark can connect as the coordinator does, before anything is begun that would need it to.

        Raises:
            ActionRequiredError: as `java`.
        """
        function = self.token_callable
        self.java({} if function else None)
        if function:
            token = ask(function, str(self.librdkafka.get("sasl.oauthbearer.config", "")), self.name)
            require_jwt(token, function, self.name)

    def to_environment(self, role: Role) -> dict[str, str]:
        """The settings as an environment variable, which is how a Spark driver gets them: not its command line."""
        return {_variable(role): json.dumps(asdict(self))}

    @classmethod
    def from_environment(cls, role: Role) -> KafkaSettings:
        """Read what `to_environment` wrote; the control topic is on the source's cluster unless it has its own.

        Raises:
            ActionRequiredError: the variable is missing.
        """
        text = os.environ.get(_variable(role)) or os.environ.get(_variable("source"))
        if not text:
            raise ActionRequiredError(
                f"The Kafka settings are missing: the variable {_variable(role)} is not set.",
                next_step="start write jobs through the DAG, or set the variable in the Spark driver's environment.",
            )
        return cls(**json.loads(text))


Connections = Callable[[str], KafkaSettings]
"""The settings of a Kafka connection by its id."""


def connections_to_environment(connections: Iterable[KafkaSettings]) -> dict[str, str]:
    """The connections of streams' clusters as an environment variable, for a Spark driver."""
    found = {settings.name: asdict(settings) for settings in connections}
    return {_CLUSTERS: json.dumps(found)} if found else {}


def connection_of_environment(connection: str) -> KafkaSettings | None:
    """The connection, if `connections_to_environment` wrote it into this process's environment."""
    known = json.loads(os.environ.get(_CLUSTERS) or "{}")
    return KafkaSettings(**known[connection]) if connection in known else None


def connections_of_environment(source: KafkaSettings) -> Connections:
    """The source's own connection, and those that `connections_to_environment` wrote.

    Args:
        source: the settings of the pipeline's connection.
    """

    def settings_of(connection: str) -> KafkaSettings:
        known = connection_of_environment(connection)
        if known is not None:
            return known
        if connection == source.name:
            return source
        raise ActionRequiredError(
            f"The Kafka settings of a stream's cluster are missing: {_CLUSTERS} has no {connection}.",
            next_step="start write jobs through the DAG, or set the variable to a JSON object of settings by "
            "connection.",
            connection=connection,
        )

    return settings_of


def _hosts(bootstrap_servers: str) -> list[str]:
    return [one.strip().rpartition(":")[0] or one.strip() for one in bootstrap_servers.split(",") if one.strip()]


def _as_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _variable(role: Role) -> str:
    return f"SLUICE_KAFKA_{role.upper()}"
