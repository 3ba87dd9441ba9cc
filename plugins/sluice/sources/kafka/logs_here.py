"""Which cluster and topics Spark's Kafka client finds by the settings that it reads with."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from sluice.errors import ActionRequiredError, RetryableError, SluiceError
from sluice.jvm.causes import causes
from sluice.jvm.static_call import class_of
from sluice.kafka.topic_id import topic_id
from sluice.protocol.identity import LogId

_ADMIN = "org.apache.kafka.clients.admin.Admin"
_ERRORS = "org.apache.kafka.common.errors."
_WITHIN = 30  # seconds for an answer; Kafka's client retries within it


def log_ids_here(
    spark: SparkSession, settings: Mapping[str, str], topics: Collection[str], connection: str
) -> dict[str, LogId]:
    """The ids of the cluster and of each topic, asked by Java's client: librdkafka may be led elsewhere.

    Args:
        spark: the session whose Kafka source reads with the settings.
        settings: of Java's client.
        topics: the topics that are to be read.
        connection: the connection's name, for errors.

    Raises:
        RetryableError: the cluster doesn't answer.
        ActionRequiredError: a topic isn't there or may not be read, or the log-in is refused.
    """
    jvm: Any = spark._jvm
    properties, names = jvm.java.util.Properties(), jvm.java.util.ArrayList()
    for name, value in settings.items():
        properties.setProperty(name, value)
    for topic in sorted(topics):
        names.add(topic)
    with _errors(connection, settings.get("bootstrap.servers", "")), _admin(spark, jvm, properties) as admin:
        seconds = jvm.java.util.concurrent.TimeUnit.SECONDS
        described = admin.describeTopics(names).allTopicNames()
        cluster = admin.describeCluster().clusterId().get(_WITHIN, seconds)
        ids = {str(of.name()): topic_id(of.topicId().toString()) for of in described.get(_WITHIN, seconds).values()}
    return {topic: LogId(str(cluster) if cluster is not None else None, ids[topic]) for topic in topics}


@contextmanager
def _admin(spark: SparkSession, jvm: Any, properties: Any) -> Iterator[Any]:
    # By the loader of Spark's jars, which Py4J's own names don't reach.
    gateway: Any = spark.sparkContext._gateway
    kinds, given = gateway.new_array(jvm.java.lang.Class, 1), gateway.new_array(jvm.java.lang.Object, 1)
    kinds[0], given[0] = jvm.java.lang.Class.forName("java.util.Properties"), properties
    admin = class_of(jvm, _ADMIN).getMethod("create", kinds).invoke(None, given)
    try:
        yield admin
    finally:
        admin.close(jvm.java.time.Duration.ZERO)  # all has been answered, or is given up


@contextmanager
def _errors(connection: str, bootstrap_servers: str) -> Iterator[None]:
    try:
        yield
    except Py4JJavaError as error:
        raise _classified(error.java_exception, connection, bootstrap_servers) from error


def _classified(exception: Any, connection: str, bootstrap_servers: str) -> SluiceError:
    kinds, reason = _kinds(exception), "; ".join(causes(exception))[:1000]
    where = {"connection": connection, "bootstrap_servers": bootstrap_servers, "reason": reason}
    if kinds & {f"{_ERRORS}AuthenticationException", "org.apache.kafka.common.config.ConfigException"}:
        return ActionRequiredError(
            "Kafka refuses the log-in of Spark's client.",
            next_step="correct user, password or certificate where this job or worker has its connections from.",
            **where,
        )
    if kinds & {f"{_ERRORS}AuthorizationException"}:
        return ActionRequiredError(
            "Spark's client may not read a topic of the interval.",
            next_step="grant the connection's principal READ and DESCRIBE on the topics (kafka-acls).",
            **where,
        )
    if kinds & {f"{_ERRORS}UnknownTopicOrPartitionException"}:
        return ActionRequiredError(
            "A topic of the interval doesn't exist where Spark's client looks for it.",
            next_step="have the connection lead to the topic's cluster here too, where this job or worker has its own; "
            "a topic that was deleted needs to be created, or taken out of the source's `topics`.",
            **where,
        )
    return RetryableError(
        "Kafka did not answer Spark's client as it should.",
        next_step="check that the brokers are up and can be reached from the Spark driver; the step is retried.",
        **where,
    )


def _kinds(exception: Any) -> set[str]:
    """The names of the classes, and of the classes above them, of an exception and its causes."""
    found: set[str] = set()
    while exception is not None and len(found) < 100:
        kind = exception.getClass()
        while kind is not None:
            found.add(str(kind.getName()))
            kind = kind.getSuperclass()
        exception = exception.getCause()
    return found
