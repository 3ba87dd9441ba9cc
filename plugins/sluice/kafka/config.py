"""Kafka client settings: librdkafka's names, as an Airflow `kafka` connection holds them, and Java's for Spark."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from sluice.errors import ActionRequiredError

Role = Literal["source", "control"]
CONTROL_SECRET = "sluice.control.secret"
_OURS = "sluice."  # settings of ours in a connection, which no Kafka client is told
_NOT_CLIENTS = ("group.id", "auto.offset.reset")

# librdkafka's name -> the Java client's, where they differ and Spark's reader needs them.
_JAVA_NAMES = {
    "sasl.mechanisms": "sasl.mechanism",
    "ssl.endpoint.identification.algorithm": "ssl.endpoint.identification.algorithm",
    "ssl.key.password": "ssl.key.password",
}
_SAME_IN_JAVA = (
    "security.protocol",
    "sasl.mechanism",
    "sasl.jaas.config",
    "client.id",
    "client.rack",
    "request.timeout.ms",
)
_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


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

    def client(self, **more: Any) -> dict[str, Any]:
        """Settings for a confluent-kafka client, with `more` laid over them (underscores stand for dots)."""
        settings = {k: v for k, v in self.librdkafka.items() if k not in _NOT_CLIENTS and not k.startswith(_OURS)}
        # Errors reach us as exceptions; librdkafka's own lines on standard error would only cut into the story.
        quiet = {"log_level": 2, "log.connection.close": False}
        return {**quiet, **settings, **{k.replace("_", "."): v for k, v in more.items()}}

    def java(self) -> dict[str, str]:
        """The same settings for the Java client that Spark's Kafka source uses.

        Raises:
            ActionRequiredError: a setting that secures the connection has no counterpart here, so that Spark would
                connect in another way than the coordinator does.
        """
        given = {k: str(v) for k, v in self.librdkafka.items() if not k.startswith(_OURS)}
        java = {"bootstrap.servers": self.bootstrap_servers}
        for name, value in given.items():
            if name in _SAME_IN_JAVA:
                java[name] = value
            elif name in _JAVA_NAMES:
                java[_JAVA_NAMES[name]] = value
        if "sasl.username" in given and "sasl.jaas.config" not in {**given, **self.java_options}:
            java["sasl.jaas.config"] = self._jaas(given, java.get("sasl.mechanism", ""))
        if "ssl.ca.location" in given:
            java |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": given["ssl.ca.location"]}
        if "ssl.certificate.location" in given and "ssl.keystore.location" not in self.java_options:
            raise ActionRequiredError(
                "A client certificate in separate PEM files can't be handed to Spark's Kafka client.",
                next_step="put certificate and key into one PEM file and name it in `ssl.keystore.location` "
                "under `write.kafka_options` with `ssl.keystore.type: PEM`.",
                connection=self.name,
            )
        return {**java, **self.java_options}

    def _jaas(self, given: Mapping[str, str], mechanism: str) -> str:
        module = _LOGIN_MODULES.get(mechanism.upper())
        if module is None:
            raise ActionRequiredError(
                "This SASL mechanism needs Java's own settings for Spark.",
                next_step="name `sasl.jaas.config` under `write.kafka_options`; it is handed on by environment only.",
                connection=self.name,
                mechanism=mechanism or "(none)",
            )
        quoted = {
            k: given.get(k, "").replace("\\", "\\\\").replace('"', '\\"') for k in ("sasl.username", "sasl.password")
        }
        return f'{module} required username="{quoted["sasl.username"]}" password="{quoted["sasl.password"]}";'

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


def _variable(role: Role) -> str:
    return f"SLUICE_KAFKA_{role.upper()}"
