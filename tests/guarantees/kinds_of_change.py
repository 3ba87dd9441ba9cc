"""Kinds of change as events, and the meaning of each word in the tables of docs/guarantees/kinds-of-change.md.

The page is the table of expectations: a test reads its cells there, and looks their words up here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .debezium import event, postgresql

PAGE = Path(__file__).parents[2] / "docs" / "guarantees" / "kinds-of-change.md"
UPSERTS = {"Hudi, upsert": "hudi", "a database, upsert": "jdbc", "a topic, `tombstones`": "kafka"}
"""The sinks of the page's first two tables."""
REFUSED = "refused when the file is loaded"
PLACEHOLDER = "__debezium_unavailable_value"

Event = Mapping[str, Any]
Record = tuple[int | None, Event | None]
"""A record by the number in its key, and its event or row; without either it has none."""
Values = tuple[Any, ...]
Rows = Mapping[int, Values]


@dataclass(frozen=True)
class Kind:
    """A kind of change, tried with keys of its own.

    Attributes:
        name: the page's words for it.
        sent: its records.
        means: by the words of a cell, the rows of its keys afterwards.
        later: records of the next interval; `means` then says the rows after that one.
        at_first: the rows after the first interval where there is a next one, if `means` doesn't say them.
        reason: of the words `a bad record`: a pattern that is in the reason.
        tombstones: the keys whose last record in a topic is a tombstone after the first interval.
    """

    name: str
    sent: tuple[Record, ...]
    means: Mapping[str, Rows]
    later: tuple[Record, ...] = ()
    at_first: Rows = field(default_factory=dict)
    reason: str = ""
    tombstones: tuple[int, ...] = ()


def row(number: int, v: str | None, p: str | None = "north", **more: Any) -> dict[str, Any]:
    return {"id": number, "v": v, "p": p, **more}


def _create(number: int, v: str) -> Record:
    return number, event("c", postgresql(1000 + number), None, row(number, v))


def _update(number: int, before: Event | None, after: Event, at: int = 2000) -> Record:
    return number, event("u", postgresql(at + number), before, after)


def _delete(number: int, before: Event | None, at: int = 3000) -> Record:
    return number, event("d", postgresql(at + number), before, None)


def _snapshot(number: int, v: str, snapshot: str) -> Record:
    return number, event("r", postgresql(500, snapshot=snapshot), None, row(number, v))


_ROW, _NO_ROW, _TOMBSTONE = "the row", "no row", "a tombstone of the key"
BAD = "a bad record"
_NOTHING = "nothing"
_LAST = "the last record of the key"
_NO_EFFECT = "has no effect"

EVENTS = (
    Kind(
        "create, update, snapshot read",
        (
            _create(11, "made"), _create(12, "made"), _update(12, row(12, "made"), row(12, "changed")),
            _snapshot(13, "read", "true"), _snapshot(14, "read", "incremental"),
            _update(14, None, row(14, "changed since")),
        ),
        {
            _ROW: {
                11: ("made", "north"), 12: ("changed", "north"), 13: ("read", "north"), 14: ("changed since", "north"),
            }
        },
    ),
    Kind(
        "delete, with its tombstone",
        (_create(21, "made"), _delete(21, row(21, "made")), (21, None)),
        {_NO_ROW: {}, _TOMBSTONE: {}},
        tombstones=(21,),
    ),
    Kind(
        "delete with nothing in `before`: the record's key says which row",
        (_create(26, "made"), _delete(26, None), (26, None)),
        {_NO_ROW: {}, _TOMBSTONE: {}},
        tombstones=(26,),
    ),
    Kind(
        "change of a row's key: a delete and a create at one position",
        (
            _create(31, "made"), _delete(31, row(31, "made")), (31, None),
            (32, event("c", postgresql(3031), None, row(32, "made"))),
        ),
        {
            "the row of the new key": {32: ("made", "north")},
            "a tombstone of the old key, a record of the new one": {32: ("made", "north")},
        },
        tombstones=(31,),
    ),
    Kind(
        "update without the value of a text or bytes (TOAST), not in `before` either",
        (_create(41, "made"), _update(41, None, row(41, PLACEHOLDER, "south"))),
        {"the row keeps its value": {41: ("made", "south")}, BAD: {41: ("made", "north")}},
        reason="the database did not log the value of v",
    ),
    Kind(
        "the same, with the value in `before`",
        (_create(46, "made"), _update(46, row(46, "made"), row(46, PLACEHOLDER, "south"))),
        {"the value of `before`": {46: ("made", "south")}},
    ),
    Kind(
        "an older version that comes later",
        (_create(51, "made"), _update(51, row(51, "made"), row(51, "changed"))),
        {_NO_EFFECT: {51: ("changed", "north")}, _LAST: {51: ("late", "north")}},
        later=(_update(51, None, row(51, "late"), at=1500),),
        at_first={51: ("changed", "north")},
    ),
    Kind(
        "an older version that comes after the delete",
        (_create(56, "made"), _delete(56, row(56, "made")), (56, None)),
        {
            "has no effect until the delete is compacted": {},
            "the row is back": {56: ("late", "north")},
            _LAST: {56: ("late", "north")},
        },
        later=(_update(56, None, row(56, "late"), at=1500),),
        tombstones=(56,),
    ),
    Kind(
        "a newer version that comes after the delete",
        (_create(58, "made"), _delete(58, row(58, "made")), (58, None)),
        {_ROW: {58: ("again", "north")}},
        later=(_update(58, None, row(58, "again"), at=4000),),
        tombstones=(58,),
    ),
    Kind("`truncate: ignore`", ((None, event("t", postgresql(9000))),), {_NOTHING: {}}),
    Kind("message (`m`)", ((None, event("m", postgresql(9001))),), {_NOTHING: {}}),
    Kind(
        "an event with an unknown `op`",
        ((61, {**event("c", postgresql(1061), None, row(61, "made")), "op": "?"}),),
        {BAD: {}},
        reason=r"op is \?, which is unknown",
    ),
    Kind(
        "a row without its envelope (ExtractNewRecordState)",
        ((66, row(66, "made", __deleted="false")), (67, row(67, None, None, __deleted="true"))),
        {BAD: {}},
        reason="the value is no Debezium event: it has no op|has none of the fields before, after, source, op",
    ),
)  # fmt: skip
"""With `format: debezium` and `delete: hard`."""

SOFT = (
    Kind(
        "delete, with `delete: soft`",
        (_create(11, "made"), _create(12, "made"), _delete(12, row(12, "made")), (12, None)),
        {"the row of `before`, with `_deleted`": {11: ("made", "north", False), 12: ("made", "north", True)}},
    ),
    Kind(
        "an older version after that",
        (_create(21, "made"), _delete(21, row(21, "made")), (21, None)),
        {_NO_EFFECT: {21: ("made", "north", True)}, _LAST: {21: ("late", "north", False)}},
        later=(_update(21, None, row(21, "late"), at=1500),),
        at_first={21: ("made", "north", True)},
    ),
    Kind(
        "a newer version after that",
        (_create(26, "made"), _delete(26, row(26, "made")), (26, None)),
        {"the row, without `_deleted`": {26: ("again", "north", False)}},
        later=(_update(26, None, row(26, "again"), at=4000),),
        at_first={26: ("made", "north", True)},
    ),
)
"""With `delete: soft`."""

TOMBSTONES = (
    Kind(
        "record",
        ((11, row(11, "made", __deleted="false")), (12, row(12, "made", __deleted="false")),
         (12, row(12, "changed", __deleted="false"))),
        {_ROW: {11: ("made", "north"), 12: ("changed", "north")}},
    ),
    Kind(
        "tombstone",
        ((21, row(21, "made", __deleted="false")), (21, None), (22, None)),
        {_NO_ROW: {}, _TOMBSTONE: {}},
        tombstones=(21, 22),
    ),
    Kind(
        "an unwrapped delete (`delete.tombstone.handling.mode: rewrite`), with a filter on `__deleted`",
        ((31, row(31, "made", __deleted="false")), (31, row(31, "made", None, __deleted="true")),
         (32, row(32, "made", __deleted="false")), (32, row(32, None, None, __deleted="true")), (32, None)),
        {_NO_ROW: {}, _TOMBSTONE: {}},
        tombstones=(31, 32),
    ),
    Kind(
        "a record after the tombstone",
        ((41, row(41, "made", __deleted="false")), (41, None)),
        {_ROW: {41: ("again", "north")}},
        later=((41, row(41, "again", __deleted="false")),),
        tombstones=(41,),
    ),
)  # fmt: skip
"""With `format: tombstones`."""

AS_ROWS = (
    Kind(
        "event of any `op`",
        (
            _create(11, "made"), _snapshot(12, "read", "true"), _update(13, row(13, "made"), row(13, "changed")),
            _delete(14, row(14, "made")), (None, event("t", postgresql(9000))), (None, event("m", postgresql(9001))),
        ),
        {
            "a row": {
                0: ("c", None, "made"), 1: ("r", None, "read"), 2: ("u", "made", "changed"), 3: ("d", "made", None),
                4: ("t", None, None), 5: ("m", None, None),
            }
        },
    ),
    Kind("tombstone", ((14, None),), {BAD: {}}, reason=r"the value is null \(a tombstone\)"),
)  # fmt: skip
"""Without `changes`: rows by the offsets of their records."""


@dataclass(frozen=True)
class Expected:
    """What one of the page's tables may say.

    Attributes:
        columns: by the head of a column, the sink.
        kinds: the kinds of change that go through one pipeline of each cell.
        others: rows that tests of their own try, each with the words that it may have.
    """

    columns: Mapping[str, str]
    kinds: tuple[Kind, ...]
    others: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


_FILES = {"files, append": "files"}
TRUNCATE_FAILS, TRUNCATE_APPLY = "`truncate: fail`, the default", "`truncate: apply`"
REDRIVE, CHANGES = "redrive of records that were set aside", "`changes`"
SENT, BY_HAND = "sent; older versions have no effect", "refused without `--as-newest`"
ALL_GO, FAILS = "all rows before it go", "the interval fails"
DEBEZIUM, BY_TOMBSTONES, AS_THEY_ARE = (
    "`changes: {format: debezium}`",
    "`changes: {format: tombstones}`",
    "no `changes`",
)
TABLES: Mapping[str, Expected] = {
    DEBEZIUM: Expected(
        UPSERTS | _FILES,
        (*EVENTS, *SOFT),
        {TRUNCATE_FAILS: (FAILS,), TRUNCATE_APPLY: (ALL_GO, REFUSED), REDRIVE: (SENT, BY_HAND)},
    ),
    BY_TOMBSTONES: Expected(UPSERTS | _FILES, TOMBSTONES),
    AS_THEY_ARE: Expected(
        _FILES | {"Hudi, append": "hudi", "a database, insert": "jdbc", "a topic": "kafka"},
        AS_ROWS,
        {CHANGES: (REFUSED,)},
    ),
}
"""The page's tables, by what is in the corner of each."""


def cells(table: str, sink: str) -> dict[str, str]:
    """The words of a table of the page for a sink, by the names of the rows."""
    column = next(head for head, known in TABLES[table].columns.items() if known == sink)
    return {name: words[column] for name, words in tables()[table].items()}


def tables() -> dict[str, dict[str, dict[str, str]]]:
    """The page's tables: by the corner, the rows' names, each with its cells by their columns."""
    found: dict[str, dict[str, dict[str, str]]] = {}
    for block in _blocks(PAGE.read_text()):
        (corner, *columns), _, *rows = block
        found[corner] = {name: dict(zip(columns, cells, strict=True)) for name, *cells in rows}
    return found


def _blocks(text: str) -> Iterator[list[list[str]]]:
    block: list[list[str]] = []
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            block.append([cell.strip() for cell in line.strip("| ").split("|")])
        elif block:
            yield block
            block = []
