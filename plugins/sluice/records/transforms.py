"""The pipeline file's transforms as Spark SQL, one step after the other. Pure: it knows the columns, and no Spark."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

from sluice.identifiers import quoted
from sluice.records.fits import RESERVED
from sluice.records.settings import Flatten, Mask, Route, Transform
from sluice.records.structs import Type, names
from sluice.records.times import is_time, of_text

_TOKENS = re.compile(r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"|`(?:``|[^`])*`|--[^\n]*|/\*.*?\*/|\s+|\w+|.", re.DOTALL)
"""Spark SQL's texts, quoted names, comments, blanks, words, and all else by single characters."""


class StepError(ValueError):
    """A step that doesn't fit the present columns; the message says why."""


@dataclass(frozen=True)
class Step:
    """One step in Spark SQL.

    Attributes:
        select: the columns after it, as expressions; None where they stay as they are.
        where: the condition of the rows that stay.
        problem: an expression that says in words why a record is a bad one, null where it isn't; on the columns before.
        function: the user's function as `module:function`, which is all there is to such a step.
    """

    select: tuple[str, ...] | None = None
    where: str | None = None
    problem: str | None = None
    function: str | None = None


def compiled(transform: Transform, columns: Type) -> Step:
    """A step in Spark SQL.

    Args:
        transform: the step of the pipeline file.
        columns: the columns before it, as Spark's JSON.

    Raises:
        StepError: it names a missing column, or makes one twice.
    """
    given: Any = getattr(transform, transform.kind)
    if transform.kind == "filter":
        return Step(where=_with_columns(given, columns))
    if transform.kind == "route":
        return _route(given.model_copy(update={"by": _with_columns(given.by, columns)}))
    if transform.kind == "python":
        return Step(function=given)
    if transform.kind == "select":
        given = tuple(e if e.strip() == "*" else _with_columns(e, columns) for e in given)
    elif transform.kind == "set_":
        given = {name: _with_columns(e, columns) for name, e in given.items()}
    return _MAKE[transform.kind](given, columns)


def text(value: str) -> str:
    """A string as a literal of Spark SQL."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def refuse_reserved(made: Collection[str]) -> None:
    """Check the names of columns.

    Raises:
        StepError: one is Sluice's or Hudi's own, or there are two that differ in case alone.
    """
    own = [name for name in made if name.lower().startswith(RESERVED)]
    if own:
        raise StepError(f"names that begin with {', '.join(RESERVED)} are kept for Sluice and Hudi: {', '.join(own)}")
    seen: set[str] = set()
    for name in made:
        if name.lower() in seen:
            raise StepError(f"the column {name} would be there twice")
        seen.add(name.lower())


def _found(name: str, columns: Type) -> str:
    """The column of that name in its own spelling; Spark ignores the case of names."""
    known = names(columns)
    if name in known:
        return name
    found = [k for k in known if k.lower() == name.lower()]
    if len(found) != 1:
        raise StepError(f"there is no column {name}")
    return found[0]


def _as(expression: str, name: str) -> str:
    return f"({expression}\n) AS {quoted(name)}"  # on a separate line, so that a trailing comment comments nothing out


def _select(given: tuple[str, ...], columns: Type) -> Step:
    every = [quoted(name) for name in names(columns)]
    return Step(select=tuple(e for expression in given for e in (every if expression.strip() == "*" else [expression])))


def _with_columns(expression: str, columns: Type) -> str:
    """The expression with the columns named in the place of each `*` for all of them, as in `struct(*)`.

    Rows carry further columns of Sluice's along, which Spark would take for some of the rows' own. A star where an
    expression begins is for all columns; it multiplies everywhere else.
    """
    made, begins = [], True
    every = [quoted(name) for name in names(columns)]
    for token in _TOKENS.finditer(expression):
        piece = token.group()
        if piece == "*" and begins:
            piece = ", ".join(every)
        elif not (piece.isspace() or piece.startswith(("--", "/*"))):
            begins = piece in ("(", ",") or piece.upper() == "DISTINCT"
        made.append(piece)
    return "".join(made)


def _set(given: dict[str, str], columns: Type) -> Step:
    wanted = {name.lower(): _as(expression, name) for name, expression in given.items()}
    kept = [wanted.pop(name.lower(), quoted(name)) for name in names(columns)]
    return Step(select=(*kept, *wanted.values()))


def _rename(given: dict[str, str], columns: Type) -> Step:
    new = {_found(old, columns): name for old, name in given.items()}
    return Step(select=tuple(f"{quoted(n)} AS {quoted(new[n])}" if n in new else quoted(n) for n in names(columns)))


def _drop(given: tuple[str, ...], columns: Type) -> Step:
    gone = {_found(name, columns) for name in given}
    left = tuple(quoted(name) for name in names(columns) if name not in gone)
    if not left:
        raise StepError("it leaves no column")
    return Step(select=left)


def _cast(given: dict[str, str], columns: Type) -> Step:
    """With TRY_CAST, which gives null where CAST would cut a number that is too large down to some other number."""
    kinds = {f["name"]: f["type"] for f in columns["fields"]}
    wanted = {_found(name, columns): kind for name, kind in given.items()}
    nested = [name for name in wanted if not isinstance(kinds[name], str)]
    if nested:
        raise StepError(f"{nested[0]} is no single value: make it with `set`, for instance by transform(...)")
    made = {n: _cast_of(quoted(n), kinds[n], kind) for n, kind in wanted.items()}
    problems = [
        f"CASE WHEN {quoted(n)} IS NOT NULL AND {made[n]} IS NULL THEN "
        f"{text(f'the column {n} ({kinds[n]}) has a value that is no {kind}')} END"
        for n, kind in wanted.items()
    ]
    kept = (f"{made[n]} AS {quoted(n)}" if n in made else quoted(n) for n in names(columns))
    return Step(select=tuple(kept), problem=f"COALESCE({', '.join(problems)}, CAST(NULL AS STRING))")


def _cast_of(column: str, has: str, wanted: str) -> str:
    """A column's value as a type. A text is a time only by the formats that converters know, never by Spark's CAST."""
    kind = {"timestamp_ltz": "timestamp"}.get(wanted.strip().lower(), wanted.strip().lower())
    return of_text(column, kind) if has == "string" and is_time(kind) else f"TRY_CAST({column} AS {wanted})"


def _flatten(given: Flatten, columns: Type) -> Step:
    chosen = {_found(name, columns) for name in given.columns}
    found: list[str] = []
    for field in columns["fields"]:
        if _is_struct(field["type"]) and (not chosen or field["name"] in chosen):
            found += _leaves(quoted(field["name"]), field["name"], field["type"], given.separator)
            continue
        if field["name"] in chosen:
            raise StepError(f"{field['name']} is no struct")
        found.append(quoted(field["name"]))
    return Step(select=tuple(found))


def _leaves(path: str, name: str, kind: Type, separator: str) -> Iterator[str]:
    for field in kind["fields"]:
        inner, called = f"{path}.{quoted(field['name'])}", f"{name}{separator}{field['name']}"
        if _is_struct(field["type"]):
            yield from _leaves(inner, called, field["type"], separator)
        else:
            yield f"{inner} AS {quoted(called)}"


def _is_struct(kind: Type) -> bool:
    return isinstance(kind, dict) and kind["type"] == "struct"


def _mask(given: Mask, columns: Type) -> Step:
    kinds = {f["name"]: f["type"] for f in columns["fields"]}
    masked = {_found(name, columns) for name in given.columns}

    def made(name: str) -> str:
        column = quoted(name)
        if given.with_ == "null":
            return f"IF(FALSE, {column}, NULL)"  # of the column's own type
        if given.with_ == "text":
            return f"IF({column} IS NULL, NULL, {text(given.text)})"
        kind = kinds[name]
        as_text = f"TO_JSON({column})" if not isinstance(kind, str) else f"CAST({column} AS STRING)"
        return f"SHA2({column if kind == 'binary' else as_text}, 256)"

    return Step(select=tuple(_as(made(n), n) if n in masked else quoted(n) for n in names(columns)))


def _route(given: Route) -> Step:
    value = f"CAST(({given.by}\n) AS STRING)"
    own = f"({value} <=> {text(given.is_)})"
    known = ", ".join(text(name) for name in (given.is_, *given.others))
    strange = f"NOT COALESCE({value} IN ({known}), FALSE)"
    if given.otherwise == "ignore":
        return Step(where=own)
    if given.otherwise == "take":
        return Step(where=f"{own} OR {strange}")
    words = text(f"it belongs to no route: {given.by} is none of the values that routes name")  # no record's contents
    return Step(where=f"{own} OR {strange}", problem=f"IF({strange}, {words}, CAST(NULL AS STRING))")


_MAKE: dict[str, Callable[[Any, Type], Step]] = {
    "select": _select,
    "set_": _set,
    "rename": _rename,
    "cast": _cast,
    "drop": _drop,
    "flatten": _flatten,
    "mask": _mask,
}
