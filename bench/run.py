"""`python -m bench.run [SCENARIO…]`: Sluice against its peers, as ratios within one run."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from bench import report
from bench.broker import embedded_broker
from bench.database import database
from bench.runner import Bench, Sample
from bench.scenarios import Scenario, scenarios


def main(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[append|upsert|files|folder|jdbc|small|empty|coordinator]…")
    ] = None,
    records: Annotated[int, typer.Option(help="Records in append and upsert.", min=8)] = 2_000_000,
    runs: Annotated[int, typer.Option(help="Runs of each participant, interleaved.", min=1)] = 3,
    only: Annotated[list[str] | None, typer.Option(help="Only this participant; may be repeated.")] = None,
    name: Annotated[str, typer.Option(help="Name of the results' files.")] = "latest",
    onto_empty: Annotated[bool, typer.Option(help="Upsert into a new table, not over an existing one.")] = False,
    before: Annotated[
        Path | None, typer.Option(help="Another checkout of Sluice, which takes part beside this one.", exists=True)
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the records.")] = 7,
    master: Annotated[str, typer.Option(help="Spark master of all participants.")] = "local[2]",
    driver_memory: Annotated[str, typer.Option(help="Driver memory of all participants.")] = "2g",
    timeout: Annotated[float, typer.Option(help="Seconds that one process may take.")] = 1800.0,
    work: Annotated[
        Path | None, typer.Option(help="Where to put tables and logs, kept afterwards. Default: temporary.")
    ] = None,
) -> None:
    """Compares whole processes, cold start to readable. Exit code 1: a target missed, or a run void."""
    terminal = Console()
    console = terminal if terminal.is_terminal else Console(width=160)
    chosen = _choose(
        scenarios(records, onto_empty, before.resolve() if before else None), names or [], frozenset(only or ())
    )
    folder = work.resolve() / f"bench-{name}" if work else Path(tempfile.mkdtemp(prefix="bench-"))
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    how = report.setting(records, runs, seed, master, driver_memory)
    measured: dict[str, tuple[Scenario, list[Sample]]] = {}
    try:
        with embedded_broker(folder) as bootstrap, ExitStack() as stack:
            bench = Bench(
                bootstrap,
                folder,
                seed,
                master,
                driver_memory,
                timeout,
                lambda line: console.print(f"[dim]{line}[/]"),
            )
            for scenario in chosen:
                samples: list[Sample] = []
                measured[scenario.name] = scenario, samples
                own = replace(bench, database=stack.enter_context(database())) if scenario.name == "jdbc" else bench
                for sample in own.samples(scenario, runs, frozenset(only or ())):
                    samples.append(sample)
                    _tell(console, sample)
                    report.write(
                        name, how, measured
                    )  # after every run, so that an interrupted benchmark leaves what it has
                report.show(console, scenario, samples)
    finally:
        if work is None:
            shutil.rmtree(folder, ignore_errors=True)
    console.print(f"results/{name}.json, results/{name}.md")
    raise typer.Exit(_exit_code(measured))


def _choose(known: dict[str, Scenario], names: list[str], only: frozenset[str]) -> list[Scenario]:
    if unknown := set(names) - set(known):
        raise typer.BadParameter(f"no such scenario: {', '.join(sorted(unknown))}")
    if strangers := only - {p.name for s in known.values() for p in s.participants}:
        raise typer.BadParameter(f"no such participant: {', '.join(sorted(strangers))}")
    return [s for s in known.values() if not names or s.name in names]


def _tell(console: Console, sample: Sample) -> None:
    if sample.void is None:
        console.print(
            f"  {sample.participant}: wall {sample.wall:.1f} s, CPU {sample.cpu:.1f} s "
            f"(broker and all others: {sample.others_cpu:.1f} s)"
        )
    else:
        console.print("  VOID ", style="bold white on red", end="")
        console.print(f" {sample.participant}: {sample.void}", style="red", markup=False)


def _exit_code(measured: dict[str, tuple[Scenario, list[Sample]]]) -> int:
    void = any(s.void is not None for _, samples in measured.values() for s in samples)
    missed = any(v == "FAIL" for found in measured.values() for _, _, v in report.verdicts(*found))
    return int(void or missed)


if __name__ == "__main__":
    typer.run(main)
