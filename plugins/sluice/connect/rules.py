"""The rules of which a connector's table of keys is made. Pure.

A connector is a table from keys to rules, so that a new one is a table. Keys that depend on each other, such as those
of partitioners, are read first by code, which reports them itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from sluice.connect.draft import HIDDEN, Draft, RefusedError, UnfitError
from sluice.untrusted import whole


@dataclass(frozen=True)
class Maps:
    """The key maps to one of the pipeline file.

    Attributes:
        to: the key there, as of `Draft.put`.
        form: converts the text to the value there; raises `UnfitError` if it can't.
        note: a further remark.
    """

    to: str
    form: Callable[[str], Any] = str
    note: str = ""

    def apply(self, draft: Draft, key: str) -> None:
        """Map the key, or report why it can't be mapped."""
        try:
            made = self.form(draft.get(key))
        except UnfitError as error:
            draft.lost(key, str(error), error.next_step)
        except RefusedError as error:
            draft.lost(key, error.why, error.next_step)
        else:
            said = draft.put(self.to, made)
            draft.honoured(key, f"{said}; {self.note}" if self.note else said)


@dataclass(frozen=True)
class Ignored:
    """It has no meaning here, and rows are the same."""

    why: str

    def apply(self, draft: Draft, key: str) -> None:
        """Report the key as harmless."""
        draft.harmless(key, self.why)


@dataclass(frozen=True)
class Unsupported:
    """The key isn't honoured, unless its value asks for the behaviour here."""

    why: str
    next_step: str = ""
    fine: tuple[str, ...] = ()

    def apply(self, draft: Draft, key: str) -> None:
        """Report the key as not honoured, or as harmless by its value."""
        if draft.given.config[key].strip().lower() in ("", *self.fine):
            draft.harmless(key, "this value asks for the behaviour here")
        else:
            draft.lost(key, self.why, self.next_step)


@dataclass(frozen=True)
class Secret:
    """A secret for an Airflow connection; `kind` and `conn_type` are as of `Draft.connection`."""

    kind: str
    conn_type: str
    name: str

    def apply(self, draft: Draft, key: str) -> None:
        """Leave a placeholder in the connection; the value isn't copied."""
        connection = draft.connection(self.kind, self.conn_type)
        connection.fields[self.name] = HIDDEN
        draft.honoured(key, f"{self.name} of the Airflow connection {connection.id}", "put it in there")


Rule = Maps | Ignored | Unsupported | Secret
Table = Mapping[str, Rule]
"""Rules by keys; `*` matches any text."""
UNKNOWN = Unsupported(
    "this key is unknown here",
    "if it belongs to the connector, find out what it does before you switch; Connect itself ignores keys that it"
    " doesn't know",
)


def apply(draft: Draft, *tables: Table) -> None:
    """Report every key not reported by a step, by the first table with its name or a matching pattern."""
    for key in draft.given.config:
        if ("connector", key) not in draft.findings:
            (_rule(key, tables) or UNKNOWN).apply(draft, key)


def _rule(key: str, tables: tuple[Table, ...]) -> Rule | None:
    exact = next((table[key] for table in tables if key in table), None)
    patterns = (rule for table in tables for name, rule in table.items() if "*" in name and fnmatchcase(key, name))
    return exact if exact is not None else next(patterns, None)


def whole_number(text: str) -> int:
    """A whole number above zero.

    Raises:
        UnfitError: it isn't one.
    """
    number = whole(text)
    if not number:
        raise UnfitError("it is no whole number above 0")
    return number


def number_up_to(most: int, instead: str) -> Callable[[str], int]:
    """Makes a parser of whole numbers up to `most`; `instead` says what to do with a larger one."""

    def form(text: str) -> int:
        number = whole_number(text)
        if number > most:
            raise UnfitError(f"there are {most} at most", instead)
        return number

    return form


def retries(text: str) -> int:
    """A number of retries.

    Raises:
        UnfitError: it isn't one.
    """
    number = whole(text)
    if number is None:
        raise UnfitError("it is no number of retries")
    return number


def duration(text: str) -> str:
    """Milliseconds as a pipeline file's duration.

    Raises:
        UnfitError: it isn't a number above zero.
    """
    milliseconds = whole_number(text)
    for unit, size in (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000), ("second", 1000)):
        if milliseconds % size == 0:
            number = milliseconds // size
            return f"{number} {unit}{'s' if number > 1 else ''}"
    return f"{milliseconds / 1000:g} seconds" if milliseconds >= 1 else "1 second"


def true_or_false(text: str) -> bool:
    """A flag.

    Raises:
        UnfitError: it is neither.
    """
    if text.lower() not in ("true", "false"):
        raise UnfitError("it is neither true nor false")
    return text.lower() == "true"


def names(text: str) -> list[str]:
    """A list of names, as Connect writes them with commas between."""
    return [one.strip() for one in text.split(",") if one.strip()]


def one_of(*allowed: str) -> Callable[[str], str]:
    """Makes a parser that accepts only these values, in any case."""

    def form(text: str) -> str:
        if text.lower() not in allowed:
            raise UnfitError(f"it is none of {', '.join(allowed)}, which there are here")
        return text.lower()

    return form
