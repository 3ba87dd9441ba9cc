"""Airflow's connections as settings: `kafka` a cluster, `spark` where write jobs run, `http` a schema registry.

A source of a user's may name others, which it gets as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from airflow.sdk import Connection
from airflow.sdk.configuration import conf
from airflow.sdk.exceptions import AirflowNotFoundException
from airflow.sdk.log import mask_secret

from sluice.connectors.aws import buckets_of, s3a_settings
from sluice.connectors.connections import ConnectionSettings
from sluice.errors import ActionRequiredError
from sluice.kafka.config import KafkaSettings
from sluice.kafka.connection import settings_of_connection
from sluice.kafka.tokens import MSK_IAM, msk_region
from sluice.logs import log
from sluice.pipeline import Pipeline
from sluice.private import PrivateSettings
from sluice.protocol.quarantine import quarantine_path
from sluice.redact import is_secret_name, secret_values
from sluice.schemas.registry.config import RegistrySettings
from sluice.untrusted import json_of

_HOW_KAFKA = 'airflow connections add {id} --conn-type kafka --conn-extra \'{{"bootstrap.servers": "host:9092"}}\''
_HOW_SPARK = (
    "airflow connections add {id} --conn-type spark --conn-host 'local[2]' (or spark://host:7077, yarn, k8s://...)"
)
_HOW_REGISTRY = "airflow connections add {id} --conn-type http --conn-host https://registry:8081"
# The type of a Spark connection written as a URI is its scheme, which the provider takes for the master's.
_SPARK_TYPES = ("spark", "k8s")


def kafka_settings(connection_id: str) -> KafkaSettings:
    """The Kafka settings of an Airflow connection of type `kafka`.

    Its extra field has librdkafka's settings, as in Airflow's Kafka provider. Host, port, login and password are used
    unless the extra field says otherwise; a login without `security.protocol` means SASL_SSL, so that a password is
    never sent unencrypted by oversight. Secrets are masked in the task's logs.

    `java` in the extra field holds settings of Spark's client under the Java client's own names. `oauth_cb` is the
    dotted name of a Python function, which, as with Airflow's provider, must be in `[apache_kafka] callback_allowlist`.
    An MSK cluster with OAUTHBEARER and no other setting gets AWS's own tokens.

    Raises:
        ActionRequiredError: the connection is missing, is of another type, names no brokers, or names a function that
            isn't in the allow-list.
    """
    connection = _connection(connection_id, ("kafka",), _HOW_KAFKA)
    found = settings_of_connection(
        connection_id,
        host=connection.host,
        port=connection.port,
        login=connection.login,
        password=connection.password,
        extra=_extra(connection),
    )
    _mask(found.librdkafka)
    _mask(found.java_options)
    if "oauth_cb" in found.librdkafka:
        _require_allowed(str(found.librdkafka["oauth_cb"]), connection_id)
    return _with_msk_iam(found)


def _require_allowed(name: str, connection_id: str) -> None:
    """Check the provider's own allow-list: the right to edit connections must not be a right to run any code."""
    allowed = conf.get("apache_kafka", "callback_allowlist", fallback="") or ""
    if name not in {one.strip() for one in allowed.split(",")}:
        raise ActionRequiredError(
            "The Kafka connection's oauth_cb names a function that Airflow's configuration doesn't allow.",
            next_step="name it in [apache_kafka] callback_allowlist (AIRFLOW__APACHE_KAFKA__CALLBACK_ALLOWLIST) on "
            "every worker, or take it out of the connection.",
            connection=connection_id,
            oauth_cb=name,
        )


def _with_msk_iam(found: KafkaSettings) -> KafkaSettings:
    """Log in by IAM if the brokers are Amazon's and nothing else sets the source of OAUTHBEARER's tokens."""
    given = found.librdkafka
    mechanism = str(given.get("sasl.mechanism") or given.get("sasl.mechanisms") or "").upper()
    region = msk_region(found.bootstrap_servers)
    told = ("oauth_cb", "sasl.oauthbearer.method", "sasl.oauthbearer.metadata.authentication.type")
    if mechanism != "OAUTHBEARER" or region is None or any(name in given for name in told):
        return found
    iam = {"sasl.oauthbearer.config": f"region={region}", **given, "oauth_cb": MSK_IAM}
    return replace(found, librdkafka=iam)


def registry_settings(connection_id: str) -> RegistrySettings:
    """The schema registry settings of an Airflow connection of type `http`.

    Host (a whole URL, or a name with the fields schema and port), login and password are used unless the extra field
    says otherwise; it has settings of confluent-kafka's client. Secrets are masked in the task's logs.

    Raises:
        ActionRequiredError: the connection is missing, is of another type, or names no address.
    """
    connection = _connection(connection_id, ("http", "https"), _HOW_REGISTRY)
    settings = _extra(connection)
    if connection.host and "url" not in settings:
        scheme = connection.schema if connection.schema in ("http", "https") else connection.conn_type
        port = f":{connection.port}" if connection.port else ""
        whole = "://" in connection.host
        settings["url"] = connection.host if whole else f"{scheme}://{connection.host}{port}"
    if connection.login and "basic.auth.user.info" not in settings:
        settings["basic.auth.user.info"] = f"{connection.login}:{connection.password or ''}"
    found = RegistrySettings(connection_id, settings)
    _mask(found.settings)
    mask_secret(str(found.settings.get("basic.auth.user.info", "")).partition(":")[2] or None)
    return found


def _mask(settings: Mapping[str, Any]) -> None:
    for name, value in settings.items():
        if value and is_secret_name(name):
            mask_secret(str(value))


def spark_master(connection_id: str) -> str:
    """Spark's master, from an Airflow connection of type `spark`.

    The provider's own hook silently falls back to `yarn` if the connection is missing; here that is an error.

    Raises:
        ActionRequiredError: the connection is missing, is of another type, names no master, or asks for the cluster
            deploy mode: there the Kafka settings, with their secrets, would have to travel on a command line.
    """
    connection = _connection(connection_id, _SPARK_TYPES, _HOW_SPARK)
    how = _HOW_SPARK.format(id=connection_id)
    if not connection.host:
        raise ActionRequiredError(
            "The Spark connection names no master.",
            next_step=f"put the master into its host field: {how}.",
            connection=connection_id,
        )
    if _extra(connection).get("deploy-mode") == "cluster":
        raise ActionRequiredError(
            "The Spark connection asks for deploy mode cluster, in which Kafka's secrets would show on a command line.",
            next_step='set "deploy-mode": "client" in its extra field; the executors run on the cluster all the same.',
            connection=connection_id,
        )
    whole = connection.conn_type == "spark" and ("://" in connection.host or not connection.port)
    master = connection.host if whole else f"{connection.conn_type}://{connection.host}"
    return f"{master}:{connection.port}" if connection.port else master


def private_settings(connection_id: str) -> PrivateSettings:
    """Sluice's keys in the extra field of a Spark connection: `conf` for Spark, `hudi` for Hudi.

    Empty if there is no such connection: steps that need Spark ask for its master, which reports that.

    Raises:
        ActionRequiredError: the connection is of another type, or they are no JSON objects of such names.
    """
    try:
        Connection.get(connection_id)
    except AirflowNotFoundException:
        return PrivateSettings()
    extra = _extra(_connection(connection_id, _SPARK_TYPES, _HOW_SPARK))
    found = {}
    for key, prefix in (("conf", "spark."), ("hudi", "hoodie.")):
        given = extra.get(key, {})
        if not isinstance(given, dict) or not all(name.startswith(prefix) for name in given):
            raise ActionRequiredError(
                f"`{key}` in the Spark connection's extra field is not a JSON object of {prefix}* names.",
                next_step=f'correct it, for example to {{"{key}": {{"{prefix}…": "…"}}}}.',
                connection=connection_id,
            )
        found[key] = {
            name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in given.items()
        }
        _mask(found[key])
    return PrivateSettings(**found)


def private_settings_of(*pipelines: Pipeline) -> PrivateSettings:
    """The secrets of pipelines that share a Spark connection: the connection's own, and their buckets' logins.

    Raises:
        ActionRequiredError: as of `private_settings` and `sluice.connectors.aws`; a connection is missing; or two
            pipelines name different connections for one bucket.
    """
    found = private_settings(pipelines[0].write.connection)
    named: dict[str, str] = {}
    for pipeline in pipelines:
        storage_connection = pipeline.sink.options.storage_connection
        paths = (pipeline.table_id, quarantine_path(pipeline.table_id, pipeline.errors))
        of_sink = dict.fromkeys(buckets_of(paths), storage_connection) if storage_connection is not None else {}
        for bucket, connection_id in (*pipeline.source.options.bucket_logins.items(), *of_sink.items()):
            if named.setdefault(bucket, connection_id) != connection_id:
                raise ActionRequiredError(
                    "Source and sink, or pipelines that one worker serves, name different connections for one bucket.",
                    next_step="name one connection in all of them, or give one pipeline a separate worker group.",
                    bucket=bucket,
                    connections=f"{named[bucket]}, {connection_id}",
                    pipeline=pipeline.name,
                )
    logins: dict[str, str] = {}
    for bucket, connection_id in named.items():
        (one,) = source_connections([connection_id])
        logins |= {f"spark.hadoop.{name}": value for name, value in s3a_settings(one, bucket).items()}
    _mask(logins)
    return replace(found, conf={**found.conf, **logins})


def source_connections(ids: Iterable[str]) -> list[ConnectionSettings]:
    """The Airflow connections named in the sections of source and sink, of any type.

    Passwords, and an extra field's values with a secret's name, are masked in every log of the task.

    Raises:
        ActionRequiredError: one is missing, or its extra field is no JSON object.
    """
    found = []
    for connection_id in ids:
        one = _existing(
            connection_id, f"airflow connections add {connection_id} --conn-type ... (as its connector asks)"
        )
        extra = _extra(one)
        for secret in filter(None, (one.password, *secret_values(extra))):
            mask_secret(secret)
        found.append(
            ConnectionSettings(
                connection_id, one.conn_type or "", one.host, one.port, one.schema, one.login, one.password, extra
            )
        )
    return found


def _connection(connection_id: str, types: tuple[str, ...], how: str) -> Connection:
    command = how.format(id=connection_id)
    connection = _existing(connection_id, command)
    if connection.conn_type not in types:
        raise ActionRequiredError(
            f"The Airflow connection {connection_id} is of type {connection.conn_type or '(none)'}, not {types[0]}.",
            next_step=f"name another connection in the pipeline file, or make this one again: {command}.",
            connection=connection_id,
        )
    return connection


def _existing(connection_id: str, command: str) -> Connection:
    try:
        found: Connection = Connection.get(connection_id)
    except AirflowNotFoundException:
        raise ActionRequiredError(
            f"The Airflow connection {connection_id} is missing.",
            next_step=f"make it under Admin > Connections, or with: {command}.",
            connection=connection_id,
        ) from None
    return found


def _extra(connection: Connection) -> dict[str, Any]:
    """The extra field as a dictionary. Errors never show its text, which may hold secrets."""
    if not connection.extra:
        return {}
    try:
        extra = json_of(connection.extra)
    except ValueError:
        extra = None
    if not isinstance(extra, dict):
        raise ActionRequiredError(
            "The connection's extra field is not a JSON object.",
            next_step='correct it, for example to {"bootstrap.servers": "host:9092"}.',
            connection=connection.conn_id,
        )
    return extra


def source_and_control(pipeline: Pipeline) -> tuple[KafkaSettings, KafkaSettings]:
    """The settings of the source's cluster and of the control topic's cluster.

    Raises:
        ActionRequiredError: a connection is missing or wrong.
    """
    source = kafka_settings(pipeline.kafka_connection).with_java_options(pipeline.write.kafka_options)
    control = pipeline.control.connection
    return source, kafka_settings(control) if control else source


def streams_connection(pipeline: Pipeline, connection: str) -> KafkaSettings:
    """The settings of a connection by which a cluster of streams is reached.

    Raises:
        ActionRequiredError: it is missing or wrong.
    """
    return kafka_settings(connection).with_java_options(pipeline.write.kafka_options)


def mapped_kafka_connections(pipelines: Iterable[Pipeline]) -> tuple[str, ...]:
    """Ids of the Kafka connections that the pipelines' streams may move to, for a worker to have before they do.

    Connections of registries are left out; and with a warning missing or wrong ones, which nothing needs yet.
    """
    settings = [pipeline.source.options.streams_settings for pipeline in pipelines]
    found = []
    for one in sorted({one for of in settings if of is not None for one in of.connections}):
        try:
            if _existing(one, _HOW_KAFKA.format(id=one)).conn_type == "kafka":
                found.append(kafka_settings(one).name)
        except ActionRequiredError as error:
            log.warning("a connection that streams may move to can't be used now", connection=one, reason=error.what)
    return tuple(found)
