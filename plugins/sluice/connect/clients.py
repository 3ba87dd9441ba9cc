"""Connect's settings of its Kafka clients, and of the worker itself. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from sluice.connect.draft import HIDDEN, Draft, Of
from sluice.kafka_options import refusal
from sluice.redact import redact, redact_text

OVERRIDE: Final = "consumer.override."
_WORKER: Final = "consumer."
_PEM = "librdkafka's `ssl.ca.location`, `ssl.certificate.location`, `ssl.key.location` with PEM files"
# The same name and value for librdkafka, in a Kafka connection's extra field.
_SAME = ("security.protocol", "sasl.mechanism", "client.id", "client.rack", "client.dns.lookup")
_SPARKS = (
    "max.poll.records",
    "fetch.min.bytes",
    "fetch.max.bytes",
    "fetch.max.wait.ms",
    "max.partition.fetch.bytes",
    "receive.buffer.bytes",
    "send.buffer.bytes",
    "request.timeout.ms",
    "default.api.timeout.ms",
)
_GROUPS = (
    "session.timeout.ms",
    "heartbeat.interval.ms",
    "max.poll.interval.ms",
    "partition.assignment.strategy",
    "group.instance.id",
    "group.protocol",
    "group.remote.assignor",
    "enable.auto.commit",
    "auto.commit.interval.ms",
    "exclude.internal.topics",
)
_LOGIN = re.compile(r"\b(?:username|password)\s*=")


def clients(draft: Draft) -> None:
    """Map the starting offsets, how records are read, and the consumers' settings."""
    own = {key.removeprefix(OVERRIDE): value for key, value in draft.given.config.items() if key.startswith(OVERRIDE)}
    workers = {key.removeprefix(_WORKER): value for key, value in draft.worker.items() if key.startswith(_WORKER)}
    kafka = draft.connection("kafka", "kafka")
    kafka.extra["bootstrap.servers"] = "host:9092"
    if draft.worker.get("bootstrap.servers"):
        kafka.extra["bootstrap.servers"] = redact_text(draft.worker["bootstrap.servers"])
        overridden = "bootstrap.servers" in {**own, **workers}
        said = "the consumers have others" if overridden else f"of the Airflow connection {kafka.id}"
        draft.say("bootstrap.servers", "harmless" if overridden else "honoured", said, of="worker")
    for name, value in own.items():
        _consumer(draft, name, value, OVERRIDE, "connector")
    for name, value in workers.items():
        if name in own:
            draft.say(f"{_WORKER}{name}", "harmless", "the connector has its own", of="worker")
        else:
            _consumer(draft, name, value, _WORKER, "worker")
    if "isolation.level" not in {**own, **workers}:
        said = draft.put("source.isolation_level", "read_uncommitted")
        draft.say(
            "consumer.override.isolation.level",
            "honoured",
            f"{said}, the default of Connect's consumers",
            "take it out if topics have transactions: read_committed is the default here, and leaves aborted"
            " records out",
            "default",
        )
    _workers_rest(draft)


def cluster(draft: Draft) -> None:
    """The cluster that a source writes to: the worker's."""
    kafka = draft.connection("kafka", "kafka")
    kafka.extra["bootstrap.servers"] = redact_text(draft.worker.get("bootstrap.servers", "")) or "host:9092"
    draft.say("bootstrap.servers", "honoured", f"of the Airflow connection {kafka.id}", of="worker")
    for key in draft.worker:
        if key.startswith(("security.", "sasl.", "ssl.", "producer.")):
            draft.say(
                key,
                "not honoured",
                "how the cluster is reached, its Airflow connection says, in librdkafka's words",
                f"put it into the extra field of {kafka.id} (docs/production.md)",
                "worker",
            )
    _workers_rest(draft)


def group_of(config: Mapping[str, str], name: str) -> str:
    """The consumer group of a sink connector: https://kafka.apache.org/documentation/#connect_running."""
    return config.get(f"{OVERRIDE}group.id", "").strip() or f"connect-{name}"


def _consumer(draft: Draft, name: str, value: str, prefix: str, of: Of) -> None:
    key, value = prefix + name, value.strip()
    kafka = draft.connection("kafka", "kafka")
    there = f"in the extra field of the Airflow connection {kafka.id}"
    if name == "bootstrap.servers":
        kafka.extra[name] = redact_text(value)
        draft.say(key, "honoured", f"{name} {there}", of=of)
    elif name in _SAME:
        kafka.extra[name] = value
        draft.say(key, "honoured", f"{name} {there}", of=of)
    elif name == "sasl.jaas.config":
        _jaas(draft, key, value, kafka.extra, there, of)
    elif name == "isolation.level":
        known = value in ("read_committed", "read_uncommitted")
        said = draft.put("source.isolation_level", value) if known else "there is no such level"
        draft.say(key, "honoured" if known else "not honoured", said, of=of)
    elif name == "auto.offset.reset":
        _reset(draft, key, value, of)
    elif name == "group.id":
        draft.say(
            key,
            "harmless",
            "--offsets reads the group's position; offsets are in the table's own commits here",
            of=of,
        )
    elif name in _SPARKS:
        said = draft.put("write.kafka_options", {**(draft.value_of("write.kafka_options") or {}), name: value})
        draft.say(key, "honoured", said, of=of)
    elif name in _GROUPS:
        draft.say(key, "harmless", "ranges of offsets are read here, by no consumer group", of=of)
    else:
        _of_javas_client(draft, name, value, key, of)


def _of_javas_client(draft: Draft, name: str, value: str, key: str, of: Of) -> None:
    """A setting for one of the two clients here, and its counterpart for the other."""
    kafka = draft.connection("kafka", "kafka")
    there = f"in the extra field of the Airflow connection {kafka.id}"
    java = f"under `java` {there} it is for Spark's client alone"
    secret = redact({name: value}) != {name: value}
    refused = refusal(name, value)
    if refused is not None:
        draft.say(key, "not honoured", f"{name} {refused}", of=of)
        return
    if not secret and not name.startswith(("ssl.", "sasl.")):
        step = f"put it under `java` {there} if Spark's client shall have it"
        draft.say(key, "not honoured", "this setting of a consumer is unknown here", step, of)
        return
    kafka.extra.setdefault("java", {})[name] = HIDDEN if secret else value
    others = f"add {_PEM} for the others" if name.startswith("ssl.") else "add librdkafka's own setting for it"
    draft.say(key, "not honoured", java, f"{others} (docs/production.md)", of)


def _jaas(draft: Draft, key: str, value: str, extra: dict[str, Any], there: str, of: Of) -> None:
    if _LOGIN.search(value):
        extra["sasl.username"] = extra["sasl.password"] = HIDDEN
        draft.say(key, "honoured", f"sasl.username and sasl.password {there}", "put them in there", of)
    else:
        extra.setdefault("java", {})["sasl.jaas.config"] = HIDDEN
        draft.say(
            key,
            "not honoured",
            f"under `java` {there} it is for Spark's client alone",
            "add librdkafka's settings of the same log-in (docs/production.md)",
            of,
        )


def _reset(draft: Draft, key: str, value: str, of: Of) -> None:
    if value in ("earliest", "latest"):
        said = draft.put("source.starting_offsets", value)
        draft.say(key, "honoured", f"{said}, for the first interval", of=of)
    else:
        draft.say(
            key,
            "not honoured",
            "a table that was never loaded begins at earliest or latest",
            "read the group's position: --offsets",
            of,
        )


def _workers_rest(draft: Draft) -> None:
    """The worker's other settings concern processes that no longer exist."""
    for key in draft.worker:
        if not key.startswith(("key.converter", "value.converter")):
            draft.say(key, "harmless", "of the worker, which Airflow and Spark take the place of", of="worker")
