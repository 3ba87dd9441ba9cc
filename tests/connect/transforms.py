"""Kafka's own transforms and converters, in a JVM that has Connect's jars: what translations are judged by."""

from __future__ import annotations

import json
import os
from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from py4j.java_gateway import launch_gateway
from py4j.protocol import Py4JJavaError

from sluice.jvm.gateway import gateway_to
from sluice.local.java import java_command

_KAFKAS = "org.apache.kafka.connect"
_JVM = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]


@dataclass(frozen=True)
class Sent:
    """A record as a worker hands it to its producer."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class RefusedError(Exception):
    """Kafka's converter doesn't read a record."""


class ConnectTransforms:
    """Applies a connector's transforms to single records. As a context manager, its JVM ends with the block.

    Args:
        jars: the folder of Connect's jars.
    """

    def __init__(self, jars: Path) -> None:
        self._classes = os.pathsep.join(map(str, sorted(jars.glob("*.jar"))))

    def __enter__(self) -> Self:
        port, token, self._process = launch_gateway(
            classpath=self._classes,
            javaopts=_JVM,
            java_path=java_command(),
            die_on_exit=True,
            enable_auth=True,
            return_proc=True,
        )
        self._gateway = gateway_to(port, token)
        self._java = self._gateway.jvm
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._gateway.shutdown()
        self._process.stdin.close()  # py4j's server ends with its parent's pipe
        self._process.wait()

    def sunk(self, config: Mapping[str, str], topic: str, value: Any) -> tuple[Any, Any] | None:
        """Key and value of a sink's record behind the transforms; None if one leaves it out."""
        connect, converter = self._java.org.apache.kafka.connect, self._json(keys=False)
        given = converter.toConnectData(topic, json.dumps(value).encode())
        create = self._java.org.apache.kafka.common.record.TimestampType.CREATE_TIME
        record = connect.sink.SinkRecord(
            topic, 0, None, None, given.schema(), given.value(), 5, 1_700_000_000_000, create
        )
        return self._behind(config, record)

    def sourced(self, config: Mapping[str, str], topic: str, value: Any) -> tuple[str, Any, Any, dict[str, str]] | None:
        """Topic, key, value and headers of a source's record behind the transforms, as a worker would send them."""
        given = self._json(keys=False).toConnectData(topic, json.dumps(value).encode())
        record = self._java.org.apache.kafka.connect.source.SourceRecord(
            {}, {}, topic, None, None, given.schema(), given.value()
        )
        record = self._applied(config, record)
        if record is None:
            return None
        headers = self._java.org.apache.kafka.connect.storage.SimpleHeaderConverter()
        said, left = {}, record.headers().iterator()
        while left.hasNext():
            one = left.next()
            text = headers.fromConnectHeader(record.topic(), one.key(), one.schema(), one.value())
            said[one.key()] = "" if text is None else bytes(text).decode()
        return (record.topic(), *self._said(record), said)

    def sent(self, config: Mapping[str, str], topic: str, envelope: bytes) -> Sent:
        """A source's record behind the transforms, as the connector's converters write it.

        Args:
            config: the connector's.
            topic: where the connector sends it.
            envelope: its value, in JSON with its schema.
        """
        given = self._made(f"{_KAFKAS}.json.JsonConverter", {}).toConnectData(topic, envelope)
        record = self._java.org.apache.kafka.connect.source.SourceRecord(
            {}, {}, topic, None, None, given.schema(), given.value()
        )
        record = self._applied(config, record) if config.get("transforms") else record
        key = self.converter(config, "key").fromConnectData(record.topic(), record.keySchema(), record.key())
        value = self.converter(config, "value").fromConnectData(record.topic(), record.valueSchema(), record.value())
        return Sent(record.topic(), _bytes(key), _bytes(value), tuple(self._headers(record)))

    def _headers(self, record: Any) -> Iterator[tuple[str, bytes | None]]:
        converter, left = self._java.org.apache.kafka.connect.storage.SimpleHeaderConverter(), record.headers()
        left = left.iterator()
        while left.hasNext():
            one = left.next()
            found = converter.fromConnectHeader(record.topic(), one.key(), one.schema(), one.value())
            yield one.key(), _bytes(found)

    def read(self, config: Mapping[str, str], part: str, data: bytes | None) -> tuple[str, Any]:
        """What the connector's converter makes of a record's bytes: Java's text of it, and its value as JSON has it.

        Decimals are numbers there, days and milliseconds whole ones, bytes base64.

        Raises:
            RefusedError: it doesn't read them.
        """
        try:
            found = self.converter(config, part).toConnectData("any", data)
        except Py4JJavaError as error:
            raise RefusedError(str(error.java_exception.getMessage())) from error
        value = found.value()
        if value is None or isinstance(value, str | int | float):
            return ("null" if value is None else str(value)), value
        if isinstance(value, bytes):
            return repr(value), b64encode(value).decode()
        plain = self._made(f"{_KAFKAS}.json.JsonConverter", {"schemas.enable": "false", "decimal.format": "NUMERIC"})
        text = bytes(plain.fromConnectData("any", found.schema(), value))
        return str(value.toString()), json.loads(text, parse_float=Decimal)

    def converter(self, config: Mapping[str, str], part: str) -> Any:
        """The connector's converter of keys or values."""
        prefix = f"{part}.converter."
        given = {key.removeprefix(prefix): value for key, value in config.items() if key.startswith(prefix)}
        return self._made(config[f"{part}.converter"], given, keys=part == "key")

    def _made(self, name: str, given: Mapping[str, str], *, keys: bool = False) -> Any:
        made = self._java.java.lang.Class.forName(name).getDeclaredConstructor(
            self._gateway.new_array(self._java.java.lang.Class, 0)
        )
        converter = made.newInstance(self._gateway.new_array(self._java.java.lang.Object, 0))
        converter.configure(dict(given), keys)
        return converter

    def _behind(self, config: Mapping[str, str], record: Any) -> tuple[Any, Any] | None:
        record = self._applied(config, record)
        return None if record is None else self._said(record)

    def _said(self, record: Any) -> tuple[Any, Any]:
        key = self._json(keys=True).fromConnectData(record.topic(), record.keySchema(), record.key())
        value = self._json(keys=False).fromConnectData(record.topic(), record.valueSchema(), record.value())
        return (None if key is None else json.loads(bytes(key))), (None if value is None else json.loads(bytes(value)))

    def _json(self, *, keys: bool) -> Any:
        converter = self._java.org.apache.kafka.connect.json.JsonConverter()
        converter.configure({"schemas.enable": "false"}, keys)
        return converter

    def _applied(self, config: Mapping[str, str], record: Any) -> Any:
        for alias in config["transforms"].split(","):
            prefix = f"transforms.{alias}."
            of = {key.removeprefix(prefix): value for key, value in config.items() if key.startswith(prefix)}
            made = self._java.java.lang.Class.forName(of.pop("type")).getDeclaredConstructor(
                self._gateway.new_array(self._java.java.lang.Class, 0)
            )
            step = made.newInstance(self._gateway.new_array(self._java.java.lang.Object, 0))
            step.configure(of)
            record = step.apply(record)
            if record is None:
                return None
        return record


def _bytes(data: Any) -> bytes | None:
    return None if data is None else bytes(data)
