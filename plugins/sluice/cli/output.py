"""What the commands print: a table for people, or JSON for programs.

Much of it was written by others: a record's key and value, a topic's name, a reason in the control topic. It reaches
the terminal as text: neither as markup nor as control characters, which move the cursor, set the clipboard or hide a
line.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from sluice.shown import plain


def cell(text: str, style: str = "") -> Text:
    """A text as a table's cell."""
    return Text(plain(text), style=style)


def say(text: str, *, err: bool = False) -> None:
    """Print a text for people."""
    typer.echo(plain(text), err=err)


@dataclass(frozen=True)
class Column:
    """A field of the rows as a table's column; `form` turns its value into text."""

    name: str
    right: bool = False
    form: Callable[[Any], str] | None = None

    def text(self, row: Mapping[str, Any]) -> str:
        """The field's text: numbers with thousands separators, nothing as a dash."""
        value = row[self.name]
        if self.form is not None:
            return self.form(value)
        if isinstance(value, bool):
            return "yes" if value else "NO"
        return "-" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def spans(ranges: Iterable[tuple[int, int]]) -> str:
    """Ranges of offsets as `0-99, 200-299`, each with its last offset."""
    return ", ".join(f"{start:,}-{end - 1:,}" for start, end in ranges) or "-"


def show(
    data: Mapping[str, Any], rows: str, columns: Sequence[Column], *, as_json: bool, caption: str | None = None
) -> None:
    """Print the data: all of it as JSON, or the rows under one of its keys as a table."""
    console = Console(highlight=False, soft_wrap=as_json)
    if as_json:
        console.print(json.dumps(data, indent=2, default=str), markup=False)
        return
    table = Table(caption=cell(caption) if caption is not None else None, caption_justify="left", header_style="bold")
    for column in columns:
        table.add_column(column.name.replace("_", " "), justify="right" if column.right else "left", overflow="fold")
    for row in data[rows]:
        table.add_row(*(cell(column.text(row)) for column in columns))
    console.print(table)
