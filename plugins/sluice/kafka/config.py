"""Kafka client settings: librdkafka's names, as an Airflow `kafka` connection holds them, and Java's for Spark."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal

from sluice.errors import ActionRequiredError
from sluice.kafka.addresses import addresses, in_words, own_hosts
from sluice.kafka.allowed import ALLOWED, FUNCTION
from sluice.kafka.forks import keep_clients_out_of_forks
from sluice.kafka.java_settings import NEXT_STEP_WITHOUT_LOGIN, foreign_login_classes, translate
from sluice.kafka.tokens import MSK_IAM, ask, require_jwt, token_callable
from sluice.kafka_options import PAGE, TOKEN_URL, refusal, wrong_token_url
from sluice.redact import remember, secret_values
from sluice.spark_classes import missing_class

Role = Literal["source", "control"]
CONTROL_SECRET = "sluice.control.secret"
SHORTEST_SECRET = 16
"""Bytes of a control secret."""
ALLOWED_HOSTS = "sluice.bootstrap.hosts"
_CLUSTERS = "SLUICE_KAFKA_CLUSTERS"
_OURS = "sluice."  # Sluice's own settings in a connection, not passed to Kafka clients
_NOT_CLIENTS = ("group.id", "auto.offset.reset")

keep_clients_out_of_forks()  # all code that makes a client gets its settings here


@dataclass(frozen=True)
class KafkaSettings:
    """Settings of one cluster's clients. They may hold secrets, so they never show in a repr, a log or a message.

    Attributes:
        name: the cluster's name, which is the id of the Airflow connection.
        librdkafka: client settings under librdkafka's names.
        java_options: further settings of Spark's Java client, under its names; they win over translated ones.

    Raises:
        ActionRequiredError: there are no brokers, or a setting is none that a client may have; no value shows.
    """

    name: str
    librdkafka: Mapping[str, Any] = field(repr=False)
    java_options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        remember((*secret_values(dict(self.librdkafka)), *secret_values(dict(self.java_options))))
        if not self.bootstrap_servers:
            raise ActionRequiredError(
                "The Kafka connection names no bootstrap servers.",
                next_step='put {"bootstrap.servers": "host:9092"} into the connection\'s extra field.',
                connection=self.name,
            )
        refused = sorted(
            name for name in self.librdkafka if name not in (*ALLOWED, FUNCTION) and not name.startswith(_OURS)
        )
        if refused:
            raise ActionRequiredError(
                f"The Kafka connection has settings that Sluice gives to no client: {', '.join(refused)}.",
                next_step="remove them from the connection's extra field, or correct their names; settings of Spark's "
                "client are under `java`. Settings that load libraries, run commands or send files are never allowed.",
                connection=self.name,
            )
        self._refuse_of_java()

    def _refuse_of_java(self) -> None:
        found = {name: refusal(name, value) for name, value in self.java_options.items()}
        wrong = {f"`java`: {name}": why for name, why in found.items() if why is not None}
        url = self.librdkafka.get(TOKEN_URL)
        if url and (why := wrong_token_url(str(url))) is not None:
            wrong[TOKEN_URL] = why
        if wrong:
            raise ActionRequiredError(
                "The Kafka connection has settings that Spark's client may not have: "
                + "; ".join(f"{name} {why}" for name, why in sorted(wrong.items()))
                + ".",
                next_step=f"correct them in the connection's extra field; {PAGE} has the possible ones.",
                connection=self.name,
            )

    @property
    def bootstrap_servers(self) -> str:
        """Comma-separated host:port list."""
        return str(self.librdkafka.get("bootstrap.servers") or self.librdkafka.get("metadata.broker.list") or "")

    @property
    def control_secrets(self) -> tuple[str, ...]:
        """The secrets that sign control messages: the present one, then the previous one; none by default.

        Raises:
            ActionRequiredError: the present one is too short: a reader of the topic could guess it offline.
        """
        names = (CONTROL_SECRET, f"{CONTROL_SECRET}.previous")
        present = str(self.librdkafka.get(CONTROL_SECRET) or "")
        if present and len(present.encode()) < SHORTEST_SECRET:
            raise ActionRequiredError(
                f"The secret that signs control messages has less than {SHORTEST_SECRET} bytes.",
                next_step=f"draw one, for example by `openssl rand -hex 32`, put it into {CONTROL_SECRET}, and the "
                f"present one into {CONTROL_SECRET}.previous until each pipeline has committed once.",
                connection=self.name,
            )
        return tuple(str(self.librdkafka[name]) for name in names if self.librdkafka.get(name))

    def at(self, name: str, bootstrap_servers: str | None) -> KafkaSettings:
        """The settings of a cluster of streams that is reached by this connection.

        The connection's credentials are sent only to its own hosts, and to hosts that its setting
        `sluice.bootstrap.hosts` allows: names, or endings such as `.kafka.example.com`. The mapping's author may not be
        permitted to read the connection.

        Args:
            name: the cluster's name in offsets.
            bootstrap_servers: its address, if it isn't the connection's.

        Raises:
            ActionRequiredError: it is at a host that isn't allowed.
        """
        if bootstrap_servers is None or bootstrap_servers == self.bootstrap_servers:
            return replace(self, name=name)
        own = own_hosts(self.bootstrap_servers)
        found = addresses(bootstrap_servers)
        if found is None:
            raise ActionRequiredError(
                "The mapping's address of a cluster is no list of hosts and ports.",
                next_step="write it as `host:port`, with commas between several.",
                cluster=name,
                connection=self.name,
                bootstrap_servers=bootstrap_servers,
            )
        listed = str(self.librdkafka.get(ALLOWED_HOSTS) or "").lower().split(",")
        allowed = [host.strip() for host in listed if host.strip()]
        for host, _ in found:
            if host not in own and not any(host == one or (one[0] == "." and host.endswith(one)) for one in allowed):
                raise ActionRequiredError(
                    f"The mapping puts a cluster at {host}, to which its connection may not go.",
                    next_step=f"allow the host in `{ALLOWED_HOSTS}` of the connection's extra field, or give the "
                    "cluster its own connection in the mapping.",
                    cluster=name,
                    connection=self.name,
                    bootstrap_servers=bootstrap_servers,
                )
        there = {key: value for key, value in self.librdkafka.items() if key != "metadata.broker.list"}
        return replace(self, name=name, librdkafka={**there, "bootstrap.servers": in_words(found)})

    def client(self, **more: Any) -> dict[str, Any]:
        """Settings for a confluent-kafka client, overridden by `more` (with underscores for dots)."""
        settings = {k: v for k, v in self.librdkafka.items() if k not in _NOT_CLIENTS and not k.startswith(_OURS)}
        if isinstance(settings.get("oauth_cb"), str):
            settings["oauth_cb"] = token_callable(settings["oauth_cb"], self.name)
        # Errors arrive as exceptions; librdkafka's own lines on standard error would only interrupt the log.
        quiet = {"log_level": 2, "log.connection.close": False}
        return {**quiet, **settings, **{k.replace("_", "."): v for k, v in more.items()}}

    def with_java_options(self, more: Mapping[str, str]) -> KafkaSettings:
        """The same with further settings of Spark's Java client, which override the present ones."""
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

    def require_for_spark(self, conf: Mapping[str, str] = MappingProxyType({})) -> None:
        """Check that Spark can connect as the coordinator does, before anything is begun that would need it to.

        Args:
            conf: the pipeline's settings of Spark.

        Raises:
            ActionRequiredError: as `java`; or a class of the log-in is in none of Spark's jars.
        """
        function = self.token_callable
        settings = self.java({} if function else None)
        missing = missing_class(foreign_login_classes(settings), conf, "msk")
        if missing is not None:
            raise ActionRequiredError(
                f"Spark has no class {missing}, by which its client is to log in to Kafka.",
                next_step=NEXT_STEP_WITHOUT_LOGIN,
                connection=self.name,
            )
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
    """The source's own connection, and the connections written by `connections_to_environment`.

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


def _as_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _variable(role: Role) -> str:
    return f"SLUICE_KAFKA_{role.upper()}"
