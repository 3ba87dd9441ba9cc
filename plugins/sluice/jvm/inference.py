"""The type of a single record, as Spark infers it from JSON or CSV; without a Spark session."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from py4j.protocol import Py4JJavaError

from sluice.records.csv import rfc_4180
from sluice.records.structs import Type, field, struct
from sluice.records.times import inferring


class UnreadableError(ValueError):
    """A record that its converter can't read; the message says why."""


class Reader(Protocol):
    """Infers the type and the values of a record."""

    def read(self, text: str) -> tuple[Type, Mapping[str, Any]]:
        """The record's type, and its values by field.

        Raises:
            UnreadableError: it can't be read.
        """


class JsonReader:
    """One JSON object a record; with `schemas.enable` the payload of Kafka Connect's envelope."""

    def __init__(self, jvm: Any, options: Mapping[str, str]) -> None:
        """With a JVM's view by Py4J that has Spark on its class path."""
        package = jvm.org.apache.spark.sql.catalyst.json
        self._enveloped = options.get("schemas.enable", "false").lower() == "true"
        spark_options = package.JSONOptions(_scala_map(jvm, inferring(options)), "UTC", "")
        self._infer = package.JsonInferSchema(spark_options)
        self._factory = spark_options.buildJsonFactory()
        self._parsers = getattr(getattr(package, "CreateJacksonParser$"), "MODULE$")

    def read(self, text: str) -> tuple[Type, Mapping[str, Any]]:
        """The object's type and values."""
        try:
            values = json.loads(text)
        except ValueError as error:
            raise UnreadableError(f"not JSON: {error}") from error
        if self._enveloped and isinstance(values, dict):
            values = values.get("payload")
            text = json.dumps(values, ensure_ascii=False)
        if not isinstance(values, dict):
            raise UnreadableError("not one JSON object")
        try:
            parser = self._parsers.string(self._factory, text)
            parser.nextToken()
            kind = json.loads(self._infer.inferField(parser).json())
            parser.close()
        except Py4JJavaError as error:
            raise UnreadableError(str(error.java_exception.getMessage()).splitlines()[0]) from error
        return kind, values


class CsvReader:
    """One line a record; its fields have the names that the pipeline file gives them, or `c1`, `c2`, ..."""

    def __init__(self, jvm: Any, options: Mapping[str, str], names: Sequence[str]) -> None:
        """With a JVM's view by Py4J that has Spark on its class path."""
        package = jvm.org.apache.spark.sql.catalyst.csv
        spark_options = package.CSVOptions(_scala_map(jvm, inferring(rfc_4180(options))), False, "UTC")
        self._infer = package.CSVInferSchema(spark_options)
        self._parser = jvm.com.univocity.parsers.csv.CsvParser(spark_options.asParserSettings())
        self._unknown = getattr(getattr(jvm.org.apache.spark.sql.types, "NullType$"), "MODULE$")
        self._names = names

    def read(self, text: str) -> tuple[Type, Mapping[str, Any]]:
        """The line's types and values."""
        found = self._parser.parseLine(text)
        if found is None:
            raise UnreadableError("an empty line")
        values = {self._name(number): value for number, value in enumerate(found)}
        kinds = {name: json.loads(self._infer.inferField(self._unknown, v or "").json()) for name, v in values.items()}
        return struct(field(name, kind) for name, kind in kinds.items()), {n: v or None for n, v in values.items()}

    def _name(self, number: int) -> str:
        return self._names[number] if number < len(self._names) else f"c{number + 1}"


def _scala_map(jvm: Any, options: Mapping[str, str]) -> Any:
    java = jvm.java.util.HashMap()
    for name, value in options.items():
        java.put(name, value)
    return jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(java)
