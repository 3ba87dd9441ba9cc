"""Results as a Rich table, as Markdown for the docs, and as JSON."""

from __future__ import annotations

import json
import logging
import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import structlog
from rich.table import Table

from bench.participants import SLUICE, Participant
from bench.scenarios import TARGETS, Scenario, Target, spread

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import Console

    from bench.runner import Sample

COLUMNS = (
    "participant",
    "wall s",
    "CPU s",
    "Sluice ÷ this, wall",
    "Sluice ÷ this, CPU",
    "reader s",
    "others' CPU s",
    "valid runs",
)
NONE = "-"
RESULTS = Path(__file__).resolve().parent / "results"


def medians(samples: list[Sample]) -> dict[str, dict[str, float]]:
    """Median wall and CPU of each participant that has a valid run, over samples of one scenario."""
    found: dict[str, dict[str, float]] = {}
    for name in {s.participant for s in samples if s.void is None}:
        valid = [s for s in samples if s.participant == name and s.void is None]
        found[name] = {"wall": spread([s.wall for s in valid])[0], "cpu": spread([s.cpu for s in valid])[0]}
    return found


def rows(scenario: Scenario, samples: list[Sample]) -> list[tuple[str, ...]]:
    """One row of COLUMNS for each participant that was asked to run."""
    middle = medians(samples)
    return [
        _row(p, [s for s in samples if s.participant == p.name], middle)
        for p in scenario.participants
        if any(s.participant == p.name for s in samples)
    ]


def _row(participant: Participant, samples: list[Sample], middle: dict[str, dict[str, float]]) -> tuple[str, ...]:
    valid = [s for s in samples if s.void is None]
    count = f"{len(valid)} of {len(samples)}"
    if not valid:
        return (participant.title, "void", "void", NONE, NONE, NONE, NONE, count)
    ours, this = middle.get(SLUICE.name), middle[participant.name]
    ratios = [f"{ours[m] / this[m]:.2f}" if ours and participant is not SLUICE else NONE for m in ("wall", "cpu")]
    reads = [s.read_seconds for s in valid if s.read_seconds is not None]
    return (
        participant.title,
        shown_spread([s.wall for s in valid]),
        shown_spread([s.cpu for s in valid]),
        *ratios,
        f"{spread(reads)[0]:.1f}" if reads else NONE,
        f"{spread([s.others_cpu for s in valid])[0]:.1f}",
        count,
    )


def shown_spread(values: list[float], digits: int = 1) -> str:
    """Median, and least to greatest."""
    middle, least, most = (f"{value:.{digits}f}" for value in spread(values))
    return f"{middle} ({least} to {most})" if len(values) > 1 else middle


def verdicts(scenario: Scenario, samples: list[Sample]) -> list[tuple[Target, float | None, str]]:
    """Each target of the scenario with its ratio and `pass`, `FAIL`, `no data`, or `void`.

    A participant that loses rows in one of its runs passes no target with the others: `void`.
    """
    middle, found = medians(samples), []
    lossy = any(s.void is not None for s in samples if s.participant == SLUICE.name)
    for target in (t for t in TARGETS if t.scenario == scenario.name):
        ratio = target.ratio(middle)
        if ratio is None:
            verdict = "no data"
        elif lossy:
            verdict = "void"
        else:
            verdict = "pass" if ratio <= target.factor else "FAIL"
        found.append((target, ratio, verdict))
    return found


def show(console: Console, scenario: Scenario, samples: list[Sample]) -> None:
    """Prints the scenario's tables."""
    table = Table(title=f"{scenario.name}: {scenario.says}", title_justify="left")
    for number, column in enumerate(COLUMNS):
        table.add_column(column, justify="right" if number else "left", no_wrap=True)
    for row in rows(scenario, samples):
        table.add_row(*row)
    console.print(table)
    for target, ratio, verdict in verdicts(scenario, samples):
        colour = {"pass": "green", "FAIL": "bold red", "void": "bold red"}.get(verdict, "yellow")
        console.print(f"  [{colour}]{verdict:7}[/] {target.says}" + (f": {ratio:.2f}" if ratio is not None else ""))


def markdown(scenario: Scenario, samples: list[Sample]) -> str:
    """The scenario's tables, to paste into the docs."""
    lines = [f"### {scenario.name}: {scenario.says}", "", markdown_table(COLUMNS, rows(scenario, samples))]
    if judged := verdicts(scenario, samples):
        lines += ["", "| target | ratio | |", "|---|---:|---|"]
        lines += [f"| {t.says} | {NONE if r is None else f'{r:.2f}'} | {v} |" for t, r, v in judged]
    return "\n".join(lines)


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose first column is text, and the others figures."""
    lines = ["| " + " | ".join(columns) + " |", "|---" + "|---:" * (len(columns) - 1) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def only_warnings() -> None:
    """Let Sluice's steps say less where they run in this process, whose output is the figures."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))


def setting(records: int, runs: int, seed: int, master: str, driver_memory: str) -> dict[str, object]:
    """What one has to know to repeat it; nothing that names the machine."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 30
    return {
        "records": records,
        "runs": runs,
        "seed": seed,
        "master": master,
        "driver_memory": driver_memory,
        "cpus": os.cpu_count(),
        "memory_gib": memory,
        "python": platform.python_version(),
        "pyspark": version("pyspark"),
    }


def write(name: str, how: dict[str, object], measured: dict[str, tuple[Scenario, list[Sample]]]) -> tuple[Path, Path]:
    """Writes results/NAME.json and results/NAME.md; returns their paths."""
    RESULTS.mkdir(exist_ok=True)
    as_json, as_markdown = RESULTS / f"{name}.json", RESULTS / f"{name}.md"
    document = {
        "setting": how,
        "scenarios": {
            key: {
                "says": scenario.says,
                "samples": [s.as_json() for s in samples],
                "targets": [{"says": t.says, "ratio": r, "verdict": v} for t, r, v in verdicts(scenario, samples)],
            }
            for key, (scenario, samples) in measured.items()
        },
    }
    as_json.write_text(json.dumps(document, indent=1) + "\n")
    told = ", ".join(
        f"{key.replace('_', ' ')} {value:,}" if isinstance(value, int) else f"{key.replace('_', ' ')} {value}"
        for key, value in how.items()
    )
    note = (
        "Whole processes from cold start, in seconds: median (least to most) of interleaved runs. "
        "CPU is user and system time of the whole process tree."
    )
    as_markdown.write_text(
        "\n\n".join([note, told + "."] + [markdown(s, found) for s, found in measured.values()]) + "\n"
    )
    return as_json, as_markdown
