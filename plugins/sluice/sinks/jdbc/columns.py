"""Compares a pipeline's columns with a table's: which to create or to add, and which don't fit. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from sluice.databases.dialect import DatabaseColumn, Dialect
from sluice.databases.fits import Fit, literal
from sluice.identifiers import quoted
from sluice.protocol.messages import TableSpec
from sluice.records.structs import Type, in_words
from sluice.sinks.jdbc.options.pinned import PinnedJdbc

PLACE_TYPES = ("string", "integer", "long")
"""The types of topic, partition and offset, with pk_mode kafka."""
_PLACE_VALUES = ("`_kafka_topic`", "`_kafka_partition`", "`_kafka_offset`")


@dataclass(frozen=True)
class RowColumn:
    """A column of the rows that a pipeline writes.

    Attributes:
        name: its name in the pipeline.
        kind: its type, as in Spark's JSON.
        nullable: whether it may be null.
        value: its value as Spark SQL.
    """

    name: str
    kind: Type
    nullable: bool
    value: str


@dataclass(frozen=True)
class Matched:
    """A pipeline's columns, matched with a table's.

    Attributes:
        found: the table's column for each column of the rows, by its name in the pipeline.
        missing: the rows' columns that the table lacks.
        problems: the reasons why rows can't be written.
    """

    found: Mapping[str, DatabaseColumn] = field(default_factory=lambda: MappingProxyType({}))
    missing: tuple[RowColumn, ...] = ()
    problems: tuple[str, ...] = ()


def row_columns(writer: TableSpec, fields: Iterable[Mapping[str, Type]]) -> list[RowColumn]:
    """The columns of an interval's rows.

    Args:
        writer: the settings for writing the rows.
        fields: the pinned schema's fields, as in Spark's JSON.
    """
    key, pinned = {*writer.record_key}, PinnedJdbc.of(writer)
    found = [
        RowColumn(str(f["name"]), f["type"], bool(f["nullable"]) and f["name"] not in key, quoted(str(f["name"])))
        for f in fields
        if f["name"] != pinned.without
    ]
    found += [
        RowColumn(n, t, False, v) for n, t, v in zip(pinned.place_fields, PLACE_TYPES, _PLACE_VALUES, strict=False)
    ]
    return found


def key_columns(writer: TableSpec) -> tuple[str, ...]:
    """The columns of the primary key that a new table gets."""
    return writer.record_key or PinnedJdbc.of(writer).place_fields


def matched(dialect: Dialect, rows: Sequence[RowColumn], table: Sequence[DatabaseColumn], zone: str) -> Matched:
    """Compare the rows' columns with a table's."""
    exact = {column.name: column for column in table}
    folded: dict[str, list[DatabaseColumn]] = {}
    for column in table:
        folded.setdefault(column.name.lower(), []).append(column)
    found: dict[str, DatabaseColumn] = {}
    missing, problems = [], []
    for row in rows:
        alike = folded.get(row.name.lower(), [])
        one = exact.get(row.name) or (alike[0] if len(alike) == 1 else None)
        if one is None:
            missing.append(row)
            if alike:
                problems.append(f"`{row.name}` may be any of {', '.join(c.name for c in alike)}")
            continue
        found[row.name] = one
        fit = dialect.fit(row.value, row.kind, one, zone)
        if isinstance(fit, str):
            problems.append(fit)
        if one.generated:
            problems.append(f"`{one.name}` is filled by the database alone")
    named = {column.name for column in found.values()}
    problems += [
        f"`{column.name}` must not be null, has no default, and no row has it"
        for column in table
        if column.name not in named and not column.nullable and not column.filled and not column.generated
    ]
    return Matched(found, tuple(missing), tuple(problems))


def created(
    dialect: Dialect, rows: Iterable[RowColumn], key: Sequence[str] = ()
) -> tuple[list[tuple[str, str, bool]], list[str]]:
    """Names, types and nullability of columns to create; and in words, the columns for which there is no type."""
    columns, problems = [], []
    for row in rows:
        kind = dialect.made(row.kind, len(key) if row.name in key else 0)
        if kind is None:
            problems.append(f"`{row.name}`: {dialect.name} has no type for {in_words(row.kind)}")
        else:
            columns.append((row.name, kind, row.nullable))
    return columns, problems


def sent(dialect: Dialect, row: RowColumn, column: DatabaseColumn, zone: str) -> Fit:
    """SQL for sending a column's values, and for the reason why one doesn't fit.

    Raises:
        ValueError: the types don't fit, which the caller should have checked before.
    """
    fit = dialect.fit(row.value, row.kind, column, zone)
    if isinstance(fit, str):
        raise ValueError(fit)
    if fit.problem is None:
        return fit
    words = literal(f"the value of {row.name} does not fit {column.type}: ")
    return Fit(fit.value, f"concat({words}, {fit.problem})")
