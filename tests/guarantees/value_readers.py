"""What sinks have written, read by programs that share no code with Sluice, nor with Spark: rows by their id."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from .typed_values import EPOCH, Array, Fields, Kind, Mapped, Row, decimal, numbers_of, single

Rows = dict[int, Row]


def of_arrow(kind: Kind, value: Any) -> Any:
    """Arrow's maps are lists of pairs."""
    if value is None:
        return None
    if isinstance(kind, Array):
        return [of_arrow(kind.of, one) for one in value]
    if isinstance(kind, Mapped):
        return {key: of_arrow(kind.of, one) for key, one in value}
    if isinstance(kind, Fields):
        return {name: of_arrow(one, value[name]) for name, one in kind.of.items()}
    return value


def _of_table(table: pa.Table, columns: Mapping[str, Kind]) -> Rows:
    made = {name: [of_arrow(kind, value) for value in table[name].to_pylist()] for name, kind in columns.items()}
    return {number: {name: made[name][i] for name in columns} for i, number in enumerate(table["id"].to_pylist())}


def parquet(files: Sequence[str], columns: Mapping[str, Kind]) -> Rows:
    """By Arrow."""
    tables = (_of_table(pq.read_table(file, partitioning=None), columns) for file in files)
    return {number: row for table in tables for number, row in table.items()}


def hudi(folder: str, columns: Mapping[str, Kind]) -> Rows:
    """By Arrow: hudi-rs knows neither TIMESTAMP_NTZ nor maps. The table has one commit, and so no other files."""
    return parquet([str(file) for file in Path(folder).glob("*.parquet")], columns)


def avro(files: Sequence[str], columns: Mapping[str, Kind]) -> Rows:
    """By fastavro."""
    found = {}
    for file in files:
        with Path(file).open("rb") as opened:
            for row in fastavro.reader(opened):
                found[row["id"]] = {name: row[name] for name in columns}
    return found


def of_json(kind: Kind, value: Any) -> Any:
    """What JSON says of a type: times as ISO 8601, bytes in base64, numbers with all of their digits."""
    if value is None:
        return None
    if isinstance(kind, Array):
        return [of_json(kind.of, one) for one in value]
    if isinstance(kind, Mapped):
        return {key: of_json(kind.of, one) for key, one in value.items()}
    if isinstance(kind, Fields):
        assert value.keys() == kind.of.keys(), f"{[*value]}, not {[*kind.of]}"
        return {name: of_json(one, value[name]) for name, one in kind.of.items()}
    if kind == "BINARY":
        return base64.b64decode(value, validate=True)
    return of_text(kind, value) if isinstance(value, str) else of_number(kind, value)


def of_number(kind: str, value: Any) -> Any:
    if kind in ("FLOAT", "DOUBLE"):
        return single(float(value)) if kind == "FLOAT" else float(value)
    return Decimal(value) if kind.startswith("DECIMAL") else value


def of_text(kind: str, text: str) -> Any:
    """What a text says of a type that has no parts."""
    if kind == "BOOLEAN":
        return {"true": True, "false": False}[text]
    if kind in ("FLOAT", "DOUBLE"):
        return single(float(text)) if kind == "FLOAT" else float(text)
    if kind.startswith("DECIMAL"):
        return Decimal(text)
    if kind == "DATE":
        return date.fromisoformat(text)
    if kind in ("TIMESTAMP", "TIMESTAMP_NTZ"):
        return datetime.fromisoformat(text)
    return text if kind == "STRING" else int(text)


def loads(text: str | bytes) -> Any:
    return json.loads(text, parse_float=Decimal)


def lines(files: Sequence[str], columns: Mapping[str, Kind]) -> Rows:
    """JSON, a row a line."""
    found = {}
    for file in files:
        for line in Path(file).read_bytes().removesuffix(b"\n").split(b"\n"):
            row = loads(line)
            found[row["id"]] = {name: of_json(kind, row.get(name)) for name, kind in columns.items()}
    return found


def rfc_4180(text: str) -> Iterator[list[str | None]]:
    """Lines of CSV: nothing between two commas is None, and two quotes are an empty text, unlike for Python's own."""
    row: list[str | None] = []
    place, end = 0, len(text)
    while place < end:
        value: str | None
        if text[place] == '"':
            close = place + 1
            while text[close : close + 2] == '""' or text[close] != '"':
                close += 2 if text[close] == '"' else 1
            value, place = text[place + 1 : close].replace('""', '"'), close + 1
        else:
            stop = min(at if (at := text.find(mark, place)) >= 0 else end for mark in ",\n")
            value, place = text[place:stop] or None, stop
        row.append(value)
        if place == end or text[place] == "\n":
            yield row
            row = []
        else:
            assert text[place] == ",", f"{text[place - 20 : place + 20]!r}"
            if text[place + 1 : place + 2] in ("\n", ""):
                row.append(None)
                yield row
                row, place = [], place + 1
        place += 1


def csv(files: Sequence[str], columns: Mapping[str, Kind]) -> Rows:
    """CSV with a header."""
    found = {}
    for file in files:
        header, *rest = rfc_4180(Path(file).read_bytes().decode())
        for values in rest:
            row = dict(zip(header, values, strict=True))
            found[int(str(row["id"]))] = {
                name: None if row[name] is None else of_text(str(kind), str(row[name]))
                for name, kind in columns.items()
            }
    return found


# Tables of databases


def postgresql(query: Any, columns: Mapping[str, Kind]) -> Rows:
    """By psycopg, with times as texts in UTC, and JSON as text."""
    asked = {}
    for name, kind in columns.items():
        quoted = f'"{name}"'
        if kind == "TIMESTAMP":
            quoted = f"to_char({quoted} AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US+00:00')"
        elif not isinstance(kind, str):
            quoted = f"{quoted}::text"
        asked[name] = quoted
    return _of_query(query, columns, asked)


def database(query: Any, columns: Mapping[str, Kind]) -> Rows:
    """By sqlite3 and PyMySQL, as the columns are."""
    return _of_query(query, columns, {name: f'"{name}"' for name in columns})


def _of_query(query: Any, columns: Mapping[str, Kind], asked: Mapping[str, str]) -> Rows:
    rows = query(f"SELECT id, {', '.join(asked.values())} FROM wild")
    return {
        number: {n: of_column(kind, one) for (n, kind), one in zip(columns.items(), values, strict=True)}
        for number, *values in rows
    }


def of_column(kind: Kind, value: Any) -> Any:
    """A driver's value; texts are times in UTC, decimals, or JSON."""
    if value is None:
        return None
    if not isinstance(kind, str):
        return of_json(kind, loads(value))
    if kind == "TIMESTAMP":
        found = datetime.fromisoformat(value) if isinstance(value, str) else value
        return found if found.tzinfo else found.replace(tzinfo=UTC)
    if isinstance(value, str) and kind != "STRING":
        return of_text(kind, value)
    if kind == "FLOAT":
        return single(value)
    if kind == "BOOLEAN":
        return bool(value)
    return bytes(value) if isinstance(value, memoryview | bytearray) else value


# Records of topics


def json_value(value: bytes, columns: Mapping[str, Kind]) -> Row:
    row: Row = of_json(Fields(columns), loads(value))
    return row


def enveloped(value: bytes, columns: Mapping[str, Kind]) -> Row:
    """Connect's envelope, by the record's own schema."""
    read = loads(value)
    assert read.keys() == {"schema", "payload"}
    row: Row = _payload(read["schema"], read["payload"], Fields(columns))
    return row


def _payload(schema: Mapping[str, Any], value: Any, kind: Kind) -> Any:
    if value is None:
        return None
    name = str(schema.get("name", "")).removeprefix("org.apache.kafka.connect.data.")
    if name == "Date":
        return date(1970, 1, 1) + timedelta(days=value)
    if name == "Timestamp":
        moment = EPOCH + timedelta(milliseconds=value)
        return moment.replace(tzinfo=None) if kind == "TIMESTAMP_NTZ" else moment
    if name == "Decimal":
        unscaled = int.from_bytes(base64.b64decode(value, validate=True), "big", signed=True)
        return decimal(unscaled, int(schema["parameters"]["scale"]))
    if isinstance(kind, Fields):
        inner = {one["field"]: one for one in schema["fields"]}
        assert value.keys() == kind.of.keys() == inner.keys()
        return {n: _payload(inner[n], value[n], one) for n, one in kind.of.items()}
    if isinstance(kind, Array):
        return [_payload(schema["items"], one, kind.of) for one in value]
    if isinstance(kind, Mapped):
        return {key: _payload(schema["values"], one, kind.of) for key, one in value.items()}
    return of_json(kind, value)


def avro_value(schema: Any, value: bytes) -> Row:
    row: Any = fastavro.schemaless_reader(BytesIO(value), schema)
    return dict(row)


def message(found: Any, kind: Fields) -> Row:
    """A message as Python's values: absent is None, and a message with a meaning is what it means."""
    row: Row = {}
    for name, one in kind.of.items():
        field = found.DESCRIPTOR.fields_by_name[name]
        value = getattr(found, name)
        absent = field.has_presence and not found.HasField(name)
        row[name] = None if absent else _part(value, one)
    return row


def _part(value: Any, kind: Kind) -> Any:
    if isinstance(kind, Array):
        return [_part(one, kind.of) for one in value]
    if isinstance(kind, Mapped):
        return {key: _part(one, kind.of) for key, one in value.items()}
    if isinstance(kind, Fields):
        return message(value, kind)
    if kind == "TIMESTAMP":
        return EPOCH + timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)
    if kind == "DATE":
        return date(value.year, value.month, value.day)
    if kind.startswith("DECIMAL"):
        assert (value.precision, value.scale) == numbers_of(kind)
        return decimal(int.from_bytes(value.value, "big", signed=True), value.scale)
    return value


def by_id(rows: Mapping[int, bytes | None], read: Any) -> Rows:
    return {number: read(value) for number, value in rows.items() if value is not None}
