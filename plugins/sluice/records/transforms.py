"""The pipeline file's transforms as Spark SQL, one step after the other. Pure: it knows the columns, and no Spark."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

from sluice.records.fits import RESERVED
from sluice.records.settings import Flatten, Mask, Route, Transform
from sluice.records.structs import Type, names


class StepError(ValueError):
    """A step that doesn't fit the columns there are; the message says why."""


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
        transform: what the pipeline file says.
        columns: the columns before it, as Spark's JSON.

    Raises:
        StepError: it names a column that isn't there, or makes one twice.
    """
    given: Any = getattr(transform, transform.kind)
    if transform.kind == "filter":
        return Step(where=given)
    if transform.kind == "route":
        return _route(given)
    if transform.kind == "python":
        return Step(function=given)
    return _MAKE[transform.kind](given, columns)


def works_on(transform: Transform, column: str) -> bool:
    """Whether a step may look at a column's value or change it; one that only keeps or drops the column doesn't."""
    given: Any = getattr(transform, transform.kind)
    if transform.kind in ("drop", "flatten"):
        return False
    if transform.kind == "python":
        return True
    if transform.kind == "select":
        given = [e for e in given if e.strip().strip("`").lower() != column.lower()]
    elif isinstance(given, Mask):
        given = given.columns
    elif isinstance(given, Route):
        given = given.by
    return re.search(rf"(?<!\w){re.escape(column)}(?!\w)", str(given), re.IGNORECASE) is not None


def quoted(name: str) -> str:
    """A column's name as SQL has it, whatever it is."""
    escaped = name.replace("`", "``")
    return f"`{escaped}`"


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
    """The column of that name as it is written; Spark tells names apart whatever their case."""
    known = names(columns)
    if name in known:
        return name
    found = [k for k in known if k.lower() == name.lower()]
    if len(found) != 1:
        raise StepError(f"there is no column {name}")
    return found[0]


def _as(expression: str, name: str) -> str:
    return (
        f"({expression}\n) AS {quoted(name)}"  # on a line of its own, so that a comment at the end comments nothing out
    )


def _select(given: tuple[str, ...], columns: Type) -> Step:
    every = [quoted(name) for name in names(columns)]
    return Step(select=tuple(e for expression in given for e in (every if expression.strip() == "*" else [expression])))


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
    problems = [
        f"CASE WHEN {quoted(n)} IS NOT NULL AND TRY_CAST({quoted(n)} AS {kind}) IS NULL THEN "
        f"{text(f'the column {n} ({kinds[n]}) has a value that is no {kind}')} END"
        for n, kind in wanted.items()
    ]
    kept = (
        f"TRY_CAST({quoted(n)} AS {wanted[n]}) AS {quoted(n)}" if n in wanted else quoted(n) for n in names(columns)
    )
    return Step(select=tuple(kept), problem=f"COALESCE({', '.join(problems)}, CAST(NULL AS STRING))")


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
    words = f"CONCAT({text(f'it belongs to no route: {given.by} is ')}, COALESCE(LEFT({value}, 100), 'null'))"
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
