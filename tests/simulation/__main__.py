"""Run many histories, tell one, or exhaust small worlds: `python -m tests.simulation --histories 200000`, `… 4711`."""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

from .campaign import play, quiet
from .mutants import MUTANTS, known_seeds
from .small import WORLDS, explore


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("seed", nargs="?", type=int, help="tell this history")
    parser.add_argument("--histories", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--minutes", type=float, help="end after so many minutes")
    parser.add_argument("--mutants", metavar="NAME", nargs="?", const="", help="take rules out, each in turn")
    parser.add_argument("--into", metavar="FILE", type=Path, help="with --mutants: write the table there")
    parser.add_argument("--small", metavar="NAME", nargs="?", const="", help="exhaust small worlds, and draw nothing")
    parser.add_argument("--faults", type=int, default=1, help="with --small: how many there are at most")
    parser.add_argument("--switches", type=int, default=1, help="with --small: how often another process comes between")
    arguments = parser.parse_args()
    quiet()
    if arguments.small is not None:
        return _small(arguments.small, arguments.faults, arguments.switches)
    if arguments.mutants is not None:
        seeds = range(arguments.first, arguments.first + arguments.histories)
        return _mutants(arguments.mutants, seeds, arguments.into)
    if arguments.seed is not None:
        error, story = play(arguments.seed, tell=True)
        print("\n".join(story))
        print(f"\nVIOLATED: {error}" if error else "\nNothing was lost, nothing doubled.")
        return 1 if error else 0
    began, violated = time.monotonic(), 0
    done = 0
    for seed in range(arguments.first, arguments.first + arguments.histories):
        error, _ = play(seed)
        done += 1
        if error:
            violated += 1
            print(f"seed {seed}: {error}", flush=True)
        if done % 1000 == 0:
            print(f"{done:,} histories after {time.monotonic() - began:.0f} s; violated: {violated}", flush=True)
        if arguments.minutes and time.monotonic() - began > arguments.minutes * 60:
            break
    took = time.monotonic() - began
    print(f"{done:,} histories in {took:.0f} s, {done / took * 60:,.0f} a minute; violated: {violated}")
    return 1 if violated else 0


def _small(named: str, faults: int, switches: int) -> int:
    violated = 0
    for name, world in WORLDS.items():
        if named not in name:
            continue
        began = time.monotonic()
        found = explore(replace(world, faults=faults, switches=switches))
        took = time.monotonic() - began
        print(f"{name}: {found.states:,} states and {found.ends:,} ends in {took:.0f} s", flush=True)
        for error, choices in found.violated:
            violated += 1
            print(f"VIOLATED: {error}\n    " + "\n    ".join(choices), flush=True)
    return 1 if violated else 0


def _first_notice(name: str, seeds: Sequence[int]) -> tuple[int, str] | None:
    """The first seed whose history notices that a rule is gone, with what it says."""
    quiet()
    with MUTANTS[name]():
        return next(((seed, error) for seed in seeds for error in [play(seed)[0]] if error), None)


def _mutants(named: str, seeds: range, into: Path | None) -> int:
    lines, survived = [], []
    names = [name for name in MUTANTS if named in name]
    known = known_seeds(into.read_text()) if into is not None else {}  # what is rare is found in longer campaigns
    tried = [[*seeds, *([known[name]] if name in known else [])] for name in names]
    with ProcessPoolExecutor() as pool:
        for name, found in zip(names, pool.map(_first_notice, names, tried), strict=True):
            if found is None:
                survived.append(name)
                print(f"| {name} | SURVIVED | |", flush=True)
                continue
            lines.append(f"| {name} | {found[0]} | {_in_short(found[1])} |")
            print(lines[-1], flush=True)
    if into is not None:
        head = ["| taken out | first seed that notices | what it says |", "|---|---:|---|"]
        rest = [f"Not noticed within {len(seeds)} histories: {'; '.join(survived)}."] if survived else []
        table = "\n".join(["", *head, *lines, "", *rest]).rstrip() + "\n\n"
        marks = re.compile("(<!-- mutants -->\n).*(<!-- /mutants -->)", re.DOTALL)
        into.write_text(marks.sub(lambda m: m[1] + table + m[2], into.read_text()))
    return 1 if survived else 0


def _in_short(violation: str) -> str:
    """What was violated, without the names of this history."""
    what = re.sub(r"\d{17}|\('topic.*?\)|\[.*?\]", "…", violation)
    what = re.sub(r"\b(run\d+|duel) (\w+?)\d*/\w+", r"the \2", what)
    return re.sub(r", such as ….*|: …$| \d+ (?=records)| after \d+ runs.*| to \d+:.*", " ", what).strip()


if __name__ == "__main__":
    sys.exit(main())
