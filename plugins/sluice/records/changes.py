"""Change data: Debezium's envelope, and the place of a change in its database's log as one number that orders changes.

Struct types are Spark's, as the JSON that Spark itself gives (`{"type": "struct", "fields": […]}`), expressions Spark
SQL. Field names are Debezium's: https://debezium.io/documentation/reference/stable/connectors/postgresql.html and
mysql.html, "Data change events".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from hashlib import md5
from typing import Any
from uuid import UUID

from sluice.identifiers import quoted
from sluice.records.structs import Type, field, names, nullable, struct
from sluice.untrusted import whole

POSITION = "_source_position"
"""The column by which changes of a key are ordered, in every table of a pipeline with `changes`."""
DELETED = "_deleted"
"""The column that is true where `delete: soft` has left a row in the table."""
POSITION_TYPE = "decimal(30,15)"
"""Integer part: the log file; fraction: the place in it. No wider one, for Hudi writes an ordering value into its
delete blocks as a decimal of 30 digits, 15 of them a fraction."""
OFFSET_TYPE = "long"
"""Of a topic of tombstones the position is the Kafka offset, with the era of the topic's log in the upper bits."""
ERA_BITS = 48
"""Below them is the offset. A topic that was deleted and made again begins at offset 0, in the next era."""

ROW_OPERATIONS = {"c": "create", "u": "update", "d": "delete", "r": "snapshot read"}
TRUNCATE = "t"
MESSAGE = "m"
IN_SNAPSHOT = ("true", "first", "first_in_data_collection", "last_in_data_collection", "last", "incremental")
"""The values of `source.snapshot` for a record read by a snapshot."""
KEEPABLE = ("string", "binary")
"""Types for which Hudi keeps a row's old value where a change has the placeholder for it."""
_PLACE_DIGITS, _REST_DIGITS = 10, 5
_LOW_BITS = 32
_FILE_LIMIT = 10**15
_ROW_LIMIT = 10**_REST_DIGITS // 2

_SOURCE = {"connector": "string", "snapshot": "string", "lsn": "long", "file": "string", "pos": "long", "row": "long"}


class NotAnEnvelopeError(ValueError):
    """The record's struct is not Debezium's."""


@dataclass(frozen=True)
class Envelope:
    """Where the parts of a Debezium event are in a record's struct.

    Attributes:
        path: fields that lead to the envelope: none, or `payload` in Kafka Connect's wrapper of schema and payload.
        row: the struct of a table row, which `before` and `after` have.
        images: which of `before` and `after` there are.
        source: the fields of `source`.
    """

    path: tuple[str, ...]
    row: Type
    images: tuple[str, ...]
    source: frozenset[str]

    def field(self, *names: str) -> str:
        """A field of the envelope as Spark SQL, where the record's own fields are columns."""
        return ".".join(quoted(name) for name in (*self.path, *names))


def envelope_of(record: Type) -> Envelope:
    """Read the envelope's shape off a record's struct.

    Raises:
        NotAnEnvelopeError: it has no `op`, `source`, and `before` or `after`, be it plain or in Connect's wrapper.
    """
    fields = _fields(record)
    if set(fields) == {"schema", "payload"} and _is_struct(fields["payload"]):
        inner = envelope_of(fields["payload"])
        return replace(inner, path=("payload", *inner.path))
    images = tuple(name for name in ("after", "before") if name in fields)
    rows = [fields[name] for name in images]
    missing = [name for name in ("op", "source") if name not in fields]
    if missing or not rows or not all(map(_is_struct, [*rows, fields.get("source")])):
        raise NotAnEnvelopeError(
            "a Debezium event has the fields before, after, source and op; "
            f"this record has {', '.join(fields) or 'none'}"
        )
    return Envelope((), rows[0], images, frozenset(_fields(fields["source"])))


def envelope_around(row: Type) -> Type:
    """The struct of an event for which only the table's row is known: JSON without a schema.

    `source` has the fields of both databases, of which an event fills its own.
    """
    source = struct(field(name, kind) for name, kind in _SOURCE.items())
    parts = {"before": nullable(row), "after": nullable(row), "source": source, "op": "string"}
    return struct(field(name, kind) for name, kind in parts.items())


def as_envelope(record: Type) -> Type:
    """A record's struct as an event's: it is one already, or it is the row's alone, as a person would write it."""
    try:
        envelope_of(record)
    except NotAnEnvelopeError:
        return envelope_around(record)
    return record


def position_sql(envelope: Envelope) -> str:
    """The position of an event as Spark SQL of type `POSITION_TYPE`; null where the event has none.

    PostgreSQL: the LSN, which is `X/Y` in its own notation, as X.Y. Changes of one row have rising LSNs, since the
    row is locked from the change to its commit. MySQL and MariaDB: the number of the binlog file, the position in it,
    and twice the row in the event, plus one: below each change there is room for what it undoes. A snapshot's row has
    the position at which its snapshot was taken, and comes before the change at the same one; where it names none, it
    comes before all changes.
    """

    def source(name: str) -> str:
        return envelope.field("source", name)

    cases = []
    in_snapshot = "false"
    if "snapshot" in envelope.source:
        names = ", ".join(f"'{name}'" for name in IN_SNAPSHOT)
        in_snapshot = f"coalesce(cast({source('snapshot')} as string) in ({names}), false)"
    if "lsn" in envelope.source:
        lsn = f"cast({source('lsn')} as bigint)"
        flag = f"if({in_snapshot}, '{0:0{_REST_DIGITS}}', '{1:0{_REST_DIGITS}}')"
        low = f"lpad(cast({lsn} & {2**_LOW_BITS - 1} as string), {_PLACE_DIGITS}, '0')"
        number = f"concat(shiftright({lsn}, {_LOW_BITS}), '.', {low}, {flag})"
        cases.append(f"when {lsn} >= 0 then cast({number} as {POSITION_TYPE})")
    if {"file", "pos"} <= envelope.source:
        file = f"cast(substring_index({source('file')}, '.', -1) as bigint)"
        place = f"cast({source('pos')} as bigint)"
        row = f"coalesce(cast({source('row')} as bigint), 0)" if "row" in envelope.source else "0"
        number = (
            f"concat({file}, '.', lpad(cast({place} as string), {_PLACE_DIGITS}, '0'), "
            f"lpad(cast(2 * {row} + 1 as string), {_REST_DIGITS}, '0'))"
        )
        within = (
            f"{file} >= 0 and {file} < {_FILE_LIMIT} and {place} >= 0 and {place} < {10**_PLACE_DIGITS} "
            f"and {row} >= 0 and {row} < {_ROW_LIMIT}"
        )
        cases.append(f"when {within} then cast({number} as {POSITION_TYPE})")
    cases.append(f"when {in_snapshot} then cast(0 as {POSITION_TYPE})")
    return f"case {' '.join(cases)} end"


def position_of(source: Mapping[str, Any]) -> Decimal | None:
    """The position of an event's `source`, by the same rule as `position_sql`."""
    in_snapshot = str(source.get("snapshot")).lower() in IN_SNAPSHOT
    lsn, file, place = source.get("lsn"), source.get("file"), source.get("pos")
    row = source.get("row") or 0
    if lsn is not None and lsn >= 0:
        return _decimal(lsn >> _LOW_BITS, lsn & (2**_LOW_BITS - 1), 0 if in_snapshot else 1)
    number = whole(str(file).rpartition(".")[2])
    if file is not None and place is not None and number is not None:
        within = number < _FILE_LIMIT and 0 <= place < 10**_PLACE_DIGITS and 0 <= row < _ROW_LIMIT
        if within:
            return _decimal(number, place, 2 * row + 1)
    return Decimal(0) if in_snapshot else None


def unavailable_sql(column: str, kind: Any, placeholder: str) -> str | None:
    """Whether a column holds the placeholder for a value that the database didn't log, as Spark SQL.

    PostgreSQL leaves values that are stored out of line (TOAST) out of its log where an update doesn't change them. The
    connector puts its placeholder there, as the column's type has it (Debezium's UnchangedToastedPlaceholder).

    Args:
        column: the column as Spark SQL.
        kind: its type.
        placeholder: the connector's `unavailable.value.placeholder`.

    Returns:
        A condition that may be null, or None where the type has no placeholder.
    """
    text = f"unhex('{placeholder.encode().hex()}')"
    as_string, codes = f"cast({text} as string)", placeholder.encode()
    if kind == "string":
        return f"{column} = {as_string}"
    if kind == "binary":
        return f"{column} = {text}"
    if not isinstance(kind, Mapping):
        return None
    if kind["type"] == "map" and kind["keyType"] == kind["valueType"] == "string":
        return f"element_at({column}, {as_string}) = {as_string}"
    if kind["type"] != "array":
        return None
    element = kind["elementType"]
    if element == "string":
        uuid = UUID(bytes=md5(codes, usedforsecurity=False).digest(), version=3)  # Java's nameUUIDFromBytes
        return f"{column} in (array({as_string}), array('{uuid}'))"
    if element == "binary":
        return f"{column} = array({text})"
    if element in ("integer", "long"):
        numbers = ", ".join(map(str, codes))
        return f"{column} = cast(array({numbers}) as array<{'int' if element == 'integer' else 'bigint'}>)"
    return None


def columns_with_changes(columns: Type, changes_format: str, *, soft: bool) -> Type:
    """A table's columns with the columns that `changes` adds, each once."""
    present = {str(found["name"]).lower() for found in columns["fields"]}
    added = [field(POSITION, OFFSET_TYPE if changes_format == "tombstones" else POSITION_TYPE)]
    added += [field(DELETED, "boolean")] if soft else []
    return struct([*columns["fields"], *(new for new in added if new["name"] not in present)])


def keys_missing_in_tombstones(key: Type, record_key: Iterable[str], partition_fields: Iterable[str]) -> list[str]:
    """The columns that locate a row, but aren't in the key: a tombstone has only the key.

    Args:
        key: the key's struct.
        record_key: the table's record key.
        partition_fields: the table's partition fields.
    """
    known = {name.lower() for name in names(key)}
    return [name for name in (*record_key, *partition_fields) if name.lower() not in known]


def _decimal(file: int, place: int, rest: int) -> Decimal:
    return Decimal(f"{file}.{place:0{_PLACE_DIGITS}}{rest:0{_REST_DIGITS}}")


def _fields(kind: Type) -> dict[str, Any]:
    return {str(found["name"]): found["type"] for found in kind["fields"]}


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, Mapping) and kind.get("type") == "struct"
