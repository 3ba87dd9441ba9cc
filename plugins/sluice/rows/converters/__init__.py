"""Converters: from the bytes of a key or value to columns, as expressions that Spark runs in the JVM.

`docs/converters.md` shows how to write one of your own: a class with the one method `convert`, named in the pipeline
file as `module:Class`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import DataType

from sluice.records.plan import ClusterSchemas, Format, WriterSchema
from sluice.records.settings import CONVERTERS, NUMBERS
from sluice.rows.user_code import user_code


@dataclass(frozen=True)
class ConverterContext:
    """A converter's input beside the bytes.

    Attributes:
        name: key or value: which of a record's parts it is, to name helper columns by.
        spark: the session.
        type: the type that every record is brought to: a struct, or that of the one value.
        schemas: the schemas with which records may have been written, newest first, with ids if a registry knows them.
        options: the pipeline file's options for this converter.
        message: the Protobuf message's full name.
        registered: whether the bytes are in Confluent's wire format.
        by_cluster: in place of `schemas`, where clusters have several registries: which of them a record is of is said
            by its column `cluster`.
    """

    name: str
    spark: SparkSession
    type: DataType
    schemas: tuple[WriterSchema, ...]
    options: Mapping[str, str]
    message: str | None
    registered: bool
    by_cluster: tuple[ClusterSchemas, ...] = ()


@dataclass(frozen=True)
class Converted:
    """A converter's answer: columns of the records.

    Attributes:
        records: the records, with columns added by the converter. A costly result that is used more than once, such as
        a parsed value, should be a column: Spark would compute it again for each use.
        value: of the given type; anything where there is a problem.
        problem: STRING: why the bytes can't be converted, in words for people; null where they can.
    """

    records: DataFrame
    value: Column
    problem: Column


class Converter(Protocol):
    """Turns bytes into a value. Made without arguments, once for each write job."""

    def convert(self, records: DataFrame, data: Column, given: ConverterContext) -> Converted:
        """The value of the BINARY column `data`, whatever where that is null. No Python may run for a single record."""


def converter_of(pinned: Format) -> Converter:
    """The converter that a pinned format names.

    Raises:
        ActionRequiredError: it is a class of the user's own that isn't on the Python path.
    """
    name = pinned.converter
    if name in NUMBERS:
        from sluice.rows.converters import number

        return number.Converter(name)
    code = user_code(f"sluice.rows.converters.{name}:Converter" if name in CONVERTERS else name, "converter")
    made: Converter = code()
    return made
