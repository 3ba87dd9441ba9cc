"""An Airflow connection of type `kafka` as client settings, for any reader of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sluice.errors import ActionRequiredError
from sluice.kafka.config import KafkaSettings

# Settings that name Python functions, which only Airflow's own Kafka provider understands.
_CALLBACKS = ("error_cb", "log_cb", "stats_cb", "throttle_cb", "on_commit", "on_delivery")
_JAVA = "java"


def settings_of_connection(
    connection_id: str,
    *,
    host: str | None,
    port: int | None,
    login: str | None,
    password: str | None,
    extra: Mapping[str, Any],
) -> KafkaSettings:
    """The settings of a cluster's clients, from the fields of its connection.

    The extra field has librdkafka's settings. Host, port, login and password are used unless it says otherwise; a login
    without `security.protocol` means SASL_SSL, so that a password is never sent unencrypted by oversight. `java` in it
    holds settings of Spark's client, under the Java client's own names.

    Raises:
        ActionRequiredError: it names no brokers, or `java` is no object of texts.
    """
    settings = {name: value for name, value in extra.items() if name not in _CALLBACKS}
    java = _java_options(settings.pop(_JAVA, {}), connection_id)
    if host and "bootstrap.servers" not in settings:
        settings["bootstrap.servers"] = f"{host}{'' if ':' in host else f':{port or 9092}'}"
    if login:
        log_in = {"sasl.username": login, "sasl.password": password or ""}
        mechanism = {} if "sasl.mechanism" in settings else {"sasl.mechanisms": "PLAIN"}
        settings = {"security.protocol": "SASL_SSL", **mechanism, **log_in, **settings}
    return KafkaSettings(connection_id, settings, java)


def _java_options(given: Any, connection_id: str) -> dict[str, str]:
    if not isinstance(given, dict) or not all(isinstance(value, str) for value in given.values()):
        raise ActionRequiredError(
            "`java` in the Kafka connection's extra field is not a JSON object of texts.",
            next_step='correct it, for example to {"java": {"sasl.jaas.config": "…"}}.',
            connection=connection_id,
        )
    return dict(given)
