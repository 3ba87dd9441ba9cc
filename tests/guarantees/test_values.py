"""A value is the same in every sink as its producer has sent it, of every type and by every converter.

Years 1 to 9999 and the ends of each type are in each run. What is sent is made, and what is written is read, by
programs that share no code with Sluice. The product runs on machines whose zone and day are others than the test's:
neither is to be seen in any value.
"""

from __future__ import annotations

import json
import math
import os
import pickle
import re
import subprocess
import sys
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path
from typing import Any

import fastavro
import pytest

from ..thorough import also
from . import value_readers as read
from .harness.databases import Readable, SqliteFile
from .harness.processes import other_clock
from .typed_values import COLUMNS, Array, Fields, Kind, Mapped, Row, columns_ddl, differences
from .value_producers import message_of, producers

ROWS = 60
"""Of each converter: each edge of the type with the most of them, and some that are drawn."""
ALL = Fields(COLUMNS)
FLAT = {name: kind for name, kind in COLUMNS.items() if isinstance(kind, str) and kind != "BINARY"}
IN_PROTOBUF = {name: kind for name, kind in COLUMNS.items() if name not in ("local", "locals")}
ALIKE = ("short", "integer", "float")
"""Converters of a number that are as `long` and `double`, but for the width."""


@dataclass(frozen=True)
class Place:
    """A machine: its zone, how far its clock is off, and the values that it gets."""

    zone: str
    clock: str = ""
    seed: int = 1
    rows: int = ROWS


NEXT_YEAR = Place("America/St_Johns", "+400d")
LAST_YEAR = Place("Pacific/Apia", "-300d", 7, 1500)
TODAY = Place("Asia/Kolkata")


# What a sink doesn't hold, as its page says: the error's words, and whether a row has it ------------------------------


def _has(kind: Kind, value: Any, wrong: Callable[[Any], bool]) -> bool:
    """Whether something is wrong with a value, or in it."""
    if isinstance(value, list):
        return any(_has(kind, one, wrong) for one in value)
    if isinstance(value, dict):
        return any(_has(kind, one, wrong) or wrong(key) for key, one in value.items())
    return value is not None and wrong(value)


def _number(row: Row, wrong: Callable[[float], bool]) -> bool:
    return any(row[name] is not None and wrong(row[name]) for name in ("single", "double"))


def _nul(row: Row) -> bool:
    return _has(ALL, row, lambda one: isinstance(one, str) and "\0" in one)


UNHELD: Mapping[str, Mapping[str, Callable[[Row], bool]]] = {
    "sqlite": {"it is NaN, which SQLite takes for null": lambda row: _number(row, math.isnan)},
    "mariadb": {"it is NaN or infinite": lambda row: _number(row, lambda one: not math.isfinite(one))},
    "postgresql": {
        "text: it has a character of code 0": lambda row: "\0" in (row["text"] or ""),
        "jsonb: it has a character of code 0": lambda row: "\0" not in (row["text"] or "") and _nul(row),
    },
}


def _milliseconds(kind: Kind, value: Any) -> Any:
    """What Connect's Timestamp holds of a value."""
    if kind in ("TIMESTAMP", "TIMESTAMP_NTZ") and value is not None:
        return value.replace(microsecond=value.microsecond // 1000 * 1000)
    return _each(kind, value, _milliseconds)


def _full(kind: Kind, value: Any) -> Any:
    """A value as Protobuf has it: a list or map is never null."""
    if value is None and isinstance(kind, Array | Mapped):
        return [] if isinstance(kind, Array) else {}
    return _each(kind, value, _full)


def _unsigned_zero(kind: Kind, value: Any) -> Any:
    """A value without the sign of a zero."""
    return value + 0.0 if isinstance(value, float) else _each(kind, value, _unsigned_zero)


def _each(kind: Kind, value: Any, change: Callable[[Kind, Any], Any]) -> Any:
    if isinstance(kind, Array) and value is not None:
        return [change(kind.of, one) for one in value]
    if isinstance(kind, Mapped) and value is not None:
        return {key: change(kind.of, one) for key, one in value.items()}
    if isinstance(kind, Fields) and value is not None:
        return {name: change(one, value[name]) for name, one in kind.of.items()}
    return value


def _null_inside(kind: Kind, value: Any) -> bool:
    """Whether a list or map in a value has a null."""
    if value is None or isinstance(kind, str):
        return False
    if isinstance(kind, Fields):
        return any(_null_inside(one, value[name]) for name, one in kind.of.items())
    elements = value if isinstance(kind, Array) else value.values()
    return any(one is None or _null_inside(kind.of, one) for one in elements)


# The runs -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Refused:
    """What a converter doesn't read, and the words of the error.

    Attributes:
        value: the pipeline's `source.kafka.value`.
        ddl: the table's column.
        words: a pattern.
        record: a record.
        schema: the schema file, where the converter needs one.
    """

    value: Mapping[str, Any]
    ddl: str
    words: str
    record: bytes = b"1"
    schema: Any = None


_JSON_TEXT = {"type": "object", "properties": {"local": {"type": "string", "format": "date-time"}}}
_JSON, _CSV = {"converter": "json"}, {"converter": "csv"}
_ENVELOPE = {**_JSON, "options": {"schemas.enable": "true"}}
_OF_TYPE = "is not JSON, or a field is not of its column's type"
REFUSED = {
    "a time without zone of JSON Schema": Refused(
        {"converter": "json_schema"}, "local TIMESTAMP_NTZ", "local: TIMESTAMP .*TIMESTAMP_NTZ", b"{}", _JSON_TEXT
    ),
    "a DATE in a list of an envelope": Refused(_ENVELOPE, "days ARRAY<DATE>", "can't be read from an envelope: days"),
    "a list in CSV": Refused(_CSV, "texts ARRAY<STRING>", "can hold neither a struct.*: texts"),
    "bytes in CSV": Refused(_CSV, "raw BINARY", "nor bytes: raw"),
    "NaN in JSON": Refused(_JSON, "double DOUBLE", _OF_TYPE, b'{"double": NaN}'),
    "a text of NaN in JSON": Refused(_JSON, "double DOUBLE", _OF_TYPE, b'{"double": "NaN"}'),
    "a number beyond a DOUBLE in JSON": Refused(_JSON, "double DOUBLE", "beyond the range", b'{"double": 1e400}'),
    "a number beyond a FLOAT in CSV": Refused(_CSV, "single FLOAT", "beyond the range", b"1e39"),
    "a number beyond a DOUBLE in CSV": Refused(_CSV, "double DOUBLE", "beyond the range", b"-1e309"),
    "no character in CSV": Refused(_CSV, "text STRING", "has U[+]FFFF", "a\uffffb".encode()),
    "a year after 9999 in CSV": Refused(_CSV, "at TIMESTAMP", "of its column's type", b"10000-01-01T00:00:00Z"),
    "the year 0 in JSON": Refused(_JSON, "day DATE", "not between the years|of its column's", b'{"day": "0000-12-31"}'),
}


def _refused(one: Refused) -> tuple[dict[str, Any], str]:
    schema = None if one.schema is None else json.dumps(one.schema).encode()
    return {"value": one.value, "schema": schema, "id": None, "records": [(0, one.record)]}, one.ddl


class World:
    """What a machine has made of the records, and the rows that they should be."""

    def __init__(self, place: Place, folder: Path, databases: Mapping[str, Readable], without: Sequence[str]) -> None:
        self.place, self.folder, self.databases = place, folder, databases
        self.rows: dict[int, Row] = {}
        converters = {}
        for name, producer in producers(folder).items():
            if name in without:
                continue
            records = []
            for sent in producer.records(place.seed, place.rows):
                records.append((len(self.rows), sent.value))
                self.rows[len(self.rows)] = {**dict.fromkeys(COLUMNS), **sent.row}
            said = {"value": producer.converter, "schema": producer.schema, "id": producer.id}
            converters[name] = {**said, "records": records}
        self.unheld = {
            sink: {words: [number for number, row in self.rows.items() if wrong(row)] for words, wrong in cases.items()}
            for sink, cases in UNHELD.items()
        }
        jdbc = {"connection": "warehouse", "table": "wild", "auto_create": True}
        self._done = self._run(
            {
                "ddl": columns_ddl(COLUMNS),
                "converters": converters,
                "refused": {name: _refused(one) for name, one in REFUSED.items()},
                "unheld": self.unheld,
                "files": {"parquet": [*COLUMNS], "avro": [*COLUMNS], "json": [*COLUMNS], "csv": [*FLAT]},
                "tables": {
                    "hudi": ("hudi", {"path": str(folder / "hudi")}, {}),
                    **{name: ("jdbc", jdbc, one.environment()) for name, one in databases.items()},
                },
                "topics": {
                    **{name: [*COLUMNS] for name in ("json", "json_with_schema", "avro", "json_schema")},
                    "protobuf": [*IN_PROTOBUF],
                },
                "single": [*COLUMNS],
                "pinning": {"protobuf": ["local"]},
                "opening": {"csv": {"files": {"path": str(folder / "opened"), "format": "csv", "layout": "connect"}}},
            }
        )  # fmt: skip

    def _run(self, task: Mapping[str, Any]) -> dict[str, Any]:
        (self.folder / "task").write_bytes(pickle.dumps(task))
        clock = other_clock(self.place.clock, self.folder) if self.place.clock else {}
        command = [sys.executable, "-m", "tests.guarantees.value_machine", str(self.folder)]
        log = self.folder / "log"
        with log.open("wb") as out:
            ended = subprocess.run(
                command, cwd=Path(__file__).parents[2], env={**os.environ, **clock, "TZ": self.place.zone},
                stdout=out, stderr=subprocess.STDOUT,
            )  # fmt: skip
        assert ended.returncode == 0, log.read_text()[-5000:]
        done: dict[str, Any] = pickle.loads((self.folder / "done").read_bytes())
        return done

    def __getitem__(self, name: str) -> Any:
        return self._done[name]

    def wanted(self, change: Callable[[Kind, Any], Any] | None = None, *, of: str = "") -> dict[int, Row]:
        """The rows that a sink holds, with what its format changes, as its page says."""
        unheld = {number for ids in self.unheld.get(of, {}).values() for number in ids}
        return {
            number: change(ALL, row) if change else row for number, row in self.rows.items() if number not in unheld
        }


@pytest.fixture(scope="module", params=[NEXT_YEAR, *also(LAST_YEAR)], ids=lambda place: place.zone)
def world(request: pytest.FixtureRequest, home: Any, tmp_path_factory: pytest.TempPathFactory) -> World:
    """One machine."""
    folder = tmp_path_factory.mktemp("values")
    databases: dict[str, Readable] = {"sqlite": SqliteFile(folder / "warehouse.db")}
    thorough = any(map(request.config.getoption, ("--thorough", "--all-cells")))
    for name in ("postgresql", *(["mariadb"] if thorough else [])):
        try:
            databases[name] = request.getfixturevalue(name)
        except pytest.skip.Exception:
            continue
        databases[name].run("DROP TABLE IF EXISTS wild")
    return World(request.param, folder, databases, () if thorough else ALIKE)


def same(found: Mapping[int, Row], wanted: Mapping[int, Row], columns: Mapping[str, Kind] = COLUMNS) -> None:
    assert differences(found, wanted, [*columns]) == []


# Converters, and what is refused -------------------------------------------------------------------------------------


def test_every_record_is_a_row(world):
    assert world["bad"] == {}
    assert world["zone"] == world.place.zone


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_converter_cannot_read_is_refused_in_words(world, case):
    said = world["refused"][case]
    assert re.search(REFUSED[case].words, said), said


# Sinks ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["parquet", "avro", "json", "csv"])
def test_files(world, kind):
    readers = {"parquet": read.parquet, "avro": read.avro, "json": read.lines, "csv": read.csv}
    columns = FLAT if kind == "csv" else COLUMNS
    same(readers[kind](world["files"][kind], columns), world.wanted(), columns)
    if kind == "csv":
        assert "can hold neither nested values nor bytes: days, deep," in world["refused"]["csv"]


def test_hudi(world):
    same(read.hudi(str(world.folder / "hudi"), COLUMNS), world.wanted())


@pytest.mark.parametrize("name", ["sqlite", "postgresql", *also("mariadb")])
def test_databases(world, name):
    if name not in world.databases:
        pytest.skip(f"{name} is not installed")
    query = world.databases[name].query
    reader = read.postgresql if name == "postgresql" else read.database
    change = {"sqlite": _unsigned, "postgresql": _jsonb, "mariadb": _unsigned}[name]
    same(reader(query, COLUMNS), world.wanted(change, of=name))
    for words, ids in world.unheld[name].items():
        column, _, why = words.rpartition(": ")
        assert ids
        assert why in world["unheld"][name][words]
        assert f"does not fit {column or ''}" in world["unheld"][name][words]


def _unsigned(kind: Kind, row: Row) -> Row:
    """SQLite keeps no sign of a zero, and MariaDB's driver sends none; their JSON is text."""
    return {name: one + 0.0 if isinstance(one, float) else one for name, one in row.items()}


def _jsonb(kind: Kind, row: Row) -> Row:
    """PostgreSQL's JSON has decimal numbers, which have no zero with a sign."""
    return {n: one if isinstance(one, float) else _unsigned_zero(COLUMNS[n], one) for n, one in row.items()}


def test_topics_of_json(world):
    made = world["topics"]["json"]
    same(read.by_id(made["values"], lambda value: read.json_value(value, COLUMNS)), world.wanted())


def test_topics_of_json_schema(world):
    made = world["topics"]["json_schema"]
    same(read.by_id(made["values"], lambda value: read.json_value(value[5:], COLUMNS)), world.wanted())


def test_topics_of_connects_envelope(world):
    made = world["topics"]["json_with_schema"]
    same(read.by_id(made["values"], lambda value: read.enveloped(value, COLUMNS)), world.wanted(_milliseconds))


def test_topics_of_avro(world):
    made = world["topics"]["avro"]
    schema = fastavro.parse_schema(read.loads(made["schema"]))
    same(read.by_id(made["values"], lambda value: read.avro_value(schema, value[5:])), world.wanted())


def test_topics_of_protobuf(world):
    made = world["topics"]["protobuf"]
    message = message_of(b64decode(made["pinned"]["text"]), made["pinned"]["message"])
    kind = Fields(IN_PROTOBUF)
    refused = {number for number, row in world.rows.items() if _null_inside(kind, row)}
    assert made["refused"].keys() == refused
    assert all("a null in a list or a map, which Protobuf doesn't have" in why for why in made["refused"].values())
    wanted = {number: _full(kind, row) for number, row in world.rows.items() if number not in refused}
    found = read.by_id(made["values"], lambda value: read.message(message.FromString(value[6:]), kind))
    same(found, wanted, IN_PROTOBUF)
    assert "local: Protobuf has no timestamp_ntz" in world["refused"]["protobuf"]


def test_topics_of_single_columns(world):
    """Texts have times in UTC; what has parts is JSON; bytes are as they are."""
    for name, values in world["single"].items():
        found = {number: {name: _of_bytes(COLUMNS[name], value)} for number, value in values.items()}
        same(found, world.rows, {name: COLUMNS[name]})


def _of_bytes(kind: Kind, value: bytes | None) -> Any:
    if value is None or kind == "BINARY":
        return value
    found = read.of_text(kind, value.decode()) if isinstance(kind, str) else read.of_json(kind, read.loads(value))
    return found.replace(tzinfo=UTC) if kind == "TIMESTAMP" else found


@pytest.mark.thorough
@pytest.mark.parametrize("world", [NEXT_YEAR], indirect=True, ids=["America/St_Johns"])
def test_bytes_are_the_same_on_machines_of_other_zones_and_days(world, tmp_path):
    """Not only what readers make of them."""
    made = []
    for one in (world, World(TODAY, tmp_path, {}, ())):
        texts = [[Path(file).read_bytes() for file in sorted(one["files"][kind])] for kind in ("json", "csv")]
        made.append((texts, {name: found["values"] for name, found in one["topics"].items()}, one["single"]))
    assert made[0] == made[1]
