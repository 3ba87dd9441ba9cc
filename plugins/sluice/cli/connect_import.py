"""Pipeline files of Kafka Connect's configurations, with the verdict on each key."""

from __future__ import annotations

import json as json_text
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from sluice.cli.connect_offsets import of_group, of_source
from sluice.cli.output import cell
from sluice.connect import Imported, ImportOptions, checked, configs_of, imported, text_of
from sluice.errors import ActionRequiredError

_COLOURS = {"honoured": "green", "harmless": "dim", "differs": "yellow", "not honoured": "red"}


def run(files: Sequence[Path], given: ImportOptions, out: Path | None, *, offsets: bool, json: bool) -> int:
    """Make the files, and print the findings; see `sluice.cli.import_connect`.

    Returns:
        The exit status.
    """
    connectors = [one for file in files for one in configs_of(read(file), str(file))]
    made = [_finished(one, offsets, given.worker) for connector in connectors for one in imported(connector, given)]
    made = _apart(made)
    _require_new(made, out)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        for one in made:
            if one.pipeline is not None:
                (out / f"{one.name}.yaml").write_text(text_of(one))
    if json:
        typer.echo(json_text.dumps({"connectors": [as_data(one, out) for one in made]}, indent=2))
    else:
        _show(made, out)
    statuses = {one.status for one in made}
    return 1 if 1 in statuses else max(statuses)


def read(file: Path) -> str:
    """A user's file.

    Raises:
        ActionRequiredError: it can't be read.
    """
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it isn't UTF-8"
        raise ActionRequiredError(
            "The file can't be read.", next_step="check its path.", file=file, reason=reason
        ) from None


def _finished(made: Imported, offsets: bool, worker: Mapping[str, str]) -> Imported:
    """The checked results, with offsets if they are requested."""
    made = checked(made)
    if not offsets or made.pipeline is None:
        return made
    if "hudi" in made.pipeline["sink"]:
        why = (
            "the table is a new one, and is loaded from the topics' beginning"
            if made.loads_anew
            else "the table's own checkpoint says where to resume"
        )
        return replace(made, steps=(*made.steps, f"no offsets were read: {why}"))
    return checked(of_source(made, worker) if "jdbc" in made.pipeline["source"] else of_group(made))


def _apart(made: list[Imported]) -> list[Imported]:
    """Check that no two pipelines have one name: it is the file's, and the DAG's."""
    seen: set[str] = set()
    for one in made:
        if one.pipeline is not None and one.name in seen:
            raise ActionRequiredError(
                f"Two connectors would both be the pipeline {one.name}.",
                next_step="give them names of letters, digits, _ . and - that differ; nothing was written.",
                file=one.connector.file,
            )
        seen.add(one.name if one.pipeline is not None else "")
    return made


def _require_new(made: list[Imported], out: Path | None) -> None:
    """Check that no file would be overwritten: a user may have edited it."""
    there = [
        one.name for one in made if one.pipeline is not None and out is not None and (out / f"{one.name}.yaml").exists()
    ]
    if there:
        raise ActionRequiredError(
            f"There is a file already: {there[0]}.yaml.",
            next_step="name another folder by --out, or move the file away; nothing was written.",
            folder=out,
        )


def _commands(made: Imported) -> Iterator[str]:
    for one in made.connections:
        yield one.command(lambda extra: json_text.dumps(extra, ensure_ascii=False))


def as_data(made: Imported, out: Path | None) -> Mapping[str, Any]:
    """The result for a connector, for programs."""
    return {
        "connector": made.connector.name,
        "file": made.connector.file,
        "what": made.what,
        "pipeline": made.name if made.pipeline is not None else None,
        "written": str(out / f"{made.name}.yaml") if out is not None and made.pipeline is not None else None,
        "yaml": text_of(made) if made.pipeline is not None else None,
        "refused": made.refused or None,
        "status": made.status,
        "keys": [
            {"key": one.key, "of": one.of, "verdict": one.verdict, "what": one.what, "next_step": one.next_step or None}
            for one in made.findings
        ],
        "missing": [".".join(path) for path in made.missing],
        "connections": list(_commands(made)),
        "steps": list(made.steps),
    }


def _show(made: list[Imported], out: Path | None) -> None:
    """Files go to standard output if no folder is named; findings go to standard error."""
    said = Console(stderr=out is None, highlight=False)
    for number, one in enumerate(made):
        if out is None and one.pipeline is not None:
            typer.echo(("---\n" if number else "") + text_of(one), nl=False)
        table = Table(title=cell(f"{one.connector.name}: {one.what}"), title_justify="left", header_style="bold")
        for column in ("key", "is", "as what, or why not", "next step"):
            table.add_column(column, overflow="fold")
        for found in one.findings:
            of = {"connector": "", "worker": " (worker)", "default": " (not set)"}[found.of]
            colour = _COLOURS[found.verdict]
            table.add_row(
                cell(f"{found.key}{of}"), cell(found.verdict, colour), cell(found.what), cell(found.next_step)
            )
        said.print(table)
        if one.refused:
            said.print(cell(f"Nothing was made of {one.connector.name}: {one.refused}", "red"))
            continue
        if out is not None:
            said.print(cell(f"Written to {out / one.name}.yaml."), soft_wrap=True)
        said.print(cell("Airflow connections, with … for values to fill in:"))
        for command in _commands(one):
            said.print(cell(f"  {command}"), soft_wrap=True)
        for place, step in enumerate(one.steps, 1):
            said.print(cell(f"{place}. {step}"), soft_wrap=True)
