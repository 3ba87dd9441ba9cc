"""Shared by converters whose records each name their schema: selects each record's schema, and explains failures.

A record is decoded once, with the schema that it was written with. Schemas that decode to the same type share a helper
column; if there are several such columns, each field is taken from the one that the record was read into. Where
clusters have their own registries, each registry's schemas have helper columns for the records of its clusters.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from sluice.records.plan import WriterSchema
from sluice.records.structs import ONE_VALUE, as_struct
from sluice.rows.conform import Missing, Path, absent, conform, type_of
from sluice.rows.converters import Converted, ConverterContext
from sluice.rows.converters.logical import logical
from sluice.rows.reading import CLUSTER

MAGIC: Final = b"\x00"
"""The first byte of Confluent's wire format; four of the schema's id follow, the largest first."""
HEADER: Final = 5
WRAPPED: Final = ONE_VALUE
"""The only field of the struct as which any other value is decoded."""

_WIDEST_CHOICE: Final = 500
"""Up to so many choices between types are made field by field; beyond, the code would be too large for the JIT."""


@dataclass(frozen=True)
class _Known:
    """The schemas of one registry, or of a file.

    Attributes:
        schemas: newest first.
        clusters: the clusters whose records they are; None for all.
        registry: the registry's name, where there are several.
    """

    schemas: tuple[WriterSchema, ...]
    clusters: tuple[str, ...] | None = None
    registry: str | None = None

    @property
    def usable(self) -> list[WriterSchema]:
        """The schemas that fit the table."""
        return [schema for schema in self.schemas if schema.incompatible is None]

    def has(self, condition: Column) -> Column:
        """Whether it is a record of these clusters, and this is true."""
        return condition if self.clusters is None else F.col(CLUSTER).isin(*self.clusters) & condition

    def of(self, column: Column) -> Column:
        """The column for records of these clusters, null for others."""
        return column if self.clusters is None else F.when(self.has(F.lit(True)), column)


def _known(given: ConverterContext) -> list[_Known]:
    if not given.by_cluster:
        return [_Known(given.schemas)]
    return [_Known(of.schemas, of.clusters, of.connection) for of in given.by_cluster if of.clusters]


@dataclass(frozen=True)
class Variant:
    """One prefix of records: the schema they were written with, and the bytes before the payload."""

    schema: WriterSchema
    prefix: bytes


class BySchema(ABC):
    """A converter with pinned schemas; a format implements `decode` and the others as needed."""

    language: str
    """The format's name, for messages: `Avro`."""

    @abstractmethod
    def decode(self, payload: Column, schema: WriterSchema, given: ConverterContext) -> Column:
        """A struct of the schema's parsed type, perhaps with fields of the converter's own; whatever where it fails."""

    @abstractmethod
    def is_record(self, decoded: Column, schema: WriterSchema) -> Column:
        """Whether the result of `decode` is a record, not the rest of an unreadable one; never null."""

    def variants(self, schema: WriterSchema, given: ConverterContext) -> list[Variant]:
        """How records of a schema start."""
        if not given.registered:
            return [Variant(schema, b"")]
        return [Variant(schema, MAGIC + int(schema.id or 0).to_bytes(4, "big"))]

    def missing(self, given: ConverterContext, schema: WriterSchema, path: tuple[str, ...]) -> Column | None:  # noqa: ARG002
        """The newest schema's default for a field that a record's own schema lacks; None for null."""
        return None

    def convert(self, records: DataFrame, data: Column, given: ConverterContext) -> Converted:
        """Each record with its own schema, brought to the given type."""
        target = type_of(as_struct(json.loads(given.type.json())))
        assert isinstance(target, StructType)
        decoded: dict[str, Column] = {}
        are_records, made = [], []
        for known in _known(given):
            groups = self._groups(known, given)
            missing: Missing = self._missing(known, given) if groups else lambda _path: None
            for group in groups:
                name, schema = f"_{given.name}_decoded_{len(decoded)}", group[0].schema
                decoded[name] = known.of(self._decode_group(data, group, given))
                are_records.append(self.is_record(F.col(name), schema))
                made.append(self._fields(F.col(name), schema, target, missing))
        if not decoded:
            return Converted(records, F.lit(None).cast(given.type), self._why_not(data, given))
        records = records.withColumns(decoded)
        value = _struct(target, made[0])
        if len(made) > 1 and len(made) * len(target) <= _WIDEST_CHOICE:
            value = _struct(target, [_choice(are_records, columns) for columns in zip(*made, strict=True)])
        elif len(made) > 1:
            whole = f"_{given.name}_value"
            records = records.withColumn(whole, _choice(are_records, [_struct(target, columns) for columns in made]))
            value = F.col(whole)
        if not isinstance(given.type, StructType):
            value = value.getField(WRAPPED)
        read = reduce(lambda one, other: one | other, are_records)
        return Converted(records, value, F.when(~read, self._why_not(data, given)))

    def _groups(self, known: _Known, given: ConverterContext) -> list[list[Variant]]:
        """The prefixes of these clusters' records, grouped by decoded type."""
        groups: dict[str, list[Variant]] = {}
        for schema in known.usable:
            shape = json.dumps([schema.parsed, schema.struct])
            groups.setdefault(shape, []).extend(self.variants(schema, given))
        return list(groups.values())

    def _decode_group(self, data: Column, group: list[Variant], given: ConverterContext) -> Column:
        """The record, decoded with its own schema if it is among these; null otherwise."""
        if not given.registered:
            return self.decode(data, group[0].schema, given)
        chain = None
        for variant in group:
            size = len(variant.prefix)
            payload = F.substring(data, size + 1, 2**31 - 1)
            pair = (starts_with(data, variant.prefix), self.decode(payload, variant.schema, given))
            chain = F.when(*pair) if chain is None else chain.when(*pair)
        assert chain is not None
        return chain

    @staticmethod
    def _fields(decoded: Column, schema: WriterSchema, target: StructType, missing: Missing) -> list[Column]:
        """The fields of the given type; one by one, so that Spark copies nothing where the types are the same."""
        parsed, wanted = parsed_type(schema), type_of(as_struct(schema.struct))
        assert isinstance(parsed, StructType)
        assert isinstance(wanted, StructType)
        has = {f.name.lower(): f for f in wanted.fields}
        columns = []
        for field in target.fields:
            found = has.get(field.name.lower())
            if found is None:
                columns.append(absent(field.dataType, missing, (field.name,)))
            else:
                plain = logical(decoded.getField(found.name), parsed[found.name].dataType, found.dataType)
                columns.append(conform(plain, found.dataType, field.dataType, missing, (field.name,)))
        return columns

    def _missing(self, known: _Known, given: ConverterContext) -> Missing:
        """The value of a field that a record's own schema lacks, by its registry's newest schema."""
        newest = known.usable[0]
        parsed, said = parsed_type(newest), type_of(as_struct(newest.struct))

        @cache
        def missing(path: Path) -> tuple[Column, DataType] | None:
            has, kind = type_at(parsed, path), type_at(said, path)
            if has is None or kind is None:
                return None
            value = self.missing(given, newest, path)
            return None if value is None else (logical(value, has, kind), kind)

        return missing

    def _why_not(self, data: Column, given: ConverterContext) -> Column:
        """The reason in words for a record that wasn't read; not computed for any other."""
        unreadable = f"the {given.name} can't be read with its {self.language} schema"
        if not given.registered:
            return F.lit(unreadable)
        number = F.conv(F.hex(F.substring(data, 2, 4)), 16, 10)
        why = F.when(F.length(data) < HEADER, f"the {given.name} is shorter than a schema's id").when(
            ~starts_with(data, MAGIC),
            F.concat(
                F.lit(f"the {given.name} doesn't start with a schema's id: its first byte is "),
                F.hex(F.substring(data, 1, 1)),
                F.lit(", not 00"),
            ),
        )
        for known in _known(given):
            named = f" of {known.registry}" if known.registry is not None else ""
            for schema in known.schemas:
                head = MAGIC + int(schema.id or 0).to_bytes(4, "big")
                if schema.incompatible is not None:
                    words = f"schema {schema.id}{named} doesn't fit the table: {schema.incompatible}"
                else:
                    words = f"{unreadable} ({schema.id}{named})"
                why = why.when(known.has(starts_with(data, head)), self.other_reason(data, schema, given, words))
            unknown = "; the registry had no such schema under the subject when the interval was planned"
            not_known = F.concat(F.lit("the schema id "), number, F.lit(f"{named} is not known{unknown}"))
            if known.clusters is None:
                return why.otherwise(not_known)
            why = why.when(known.has(F.lit(True)), not_known)
        return why.otherwise(f"the schemas of the {given.name}'s cluster were not asked for")

    def other_reason(self, data: Column, schema: WriterSchema, given: ConverterContext, words: str) -> Column:  # noqa: ARG002
        """Why a record that names this schema wasn't read; `words` if the format has nothing to add."""
        return F.lit(words)


def _struct(target: StructType, columns: Sequence[Column]) -> Column:
    pairs = zip(target.fields, columns, strict=True)
    return F.struct(*(column.alias(field.name) for field, column in pairs))


def _choice(are_records: Sequence[Column], columns: Sequence[Column]) -> Column:
    """The column of the one schema with which the record was read."""
    (first, one), *others = zip(are_records, columns, strict=True)
    return reduce(lambda chain, pair: chain.when(*pair), others, F.when(first, one))


def starts_with(data: Column, prefix: bytes) -> Column:
    """Whether BINARY data starts with these bytes."""
    return F.substring(data, 1, len(prefix)) == F.lit(bytearray(prefix))


def type_at(kind: DataType, path: Path) -> DataType | None:
    """The type at the end of a path; None where it leads nowhere."""
    found: DataType | None = kind
    for step in path:
        if isinstance(found, StructType):
            found = next((f.dataType for f in found.fields if f.name == step), None)
        elif isinstance(found, ArrayType):
            found = found.elementType
        else:
            found = found.valueType if isinstance(found, MapType) else None
    return found


def parsed_type(schema: WriterSchema) -> DataType:
    """The struct that a schema's records are parsed as, a value that is none as its one field."""
    return type_of(as_struct(schema.parsed if schema.parsed is not None else schema.struct))
