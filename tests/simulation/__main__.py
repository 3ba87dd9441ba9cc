"""Run many histories, or tell one: `python -m tests.simulation --histories 200000`, `… 4711`."""

from __future__ import annotations

import argparse
import sys
import time

from .campaign import play, quiet
from .mutants import MUTANTS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("seed", nargs="?", type=int, help="tell this history")
    parser.add_argument("--histories", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--minutes", type=float, help="end after so many minutes")
    parser.add_argument("--mutants", metavar="NAME", nargs="?", const="", help="take rules out, each in turn")
    arguments = parser.parse_args()
    quiet()
    if arguments.mutants is not None:
        return _mutants(arguments.mutants, arguments.first, arguments.histories)
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
        if arguments.minutes and time.monotonic() - began > arguments.minutes * 60:
            break
    took = time.monotonic() - began
    print(f"{done:,} histories in {took:.0f} s, {done / took * 60:,.0f} a minute; violated: {violated}")
    return 1 if violated else 0


def _mutants(named: str, first: int, most: int) -> int:
    survived = 0
    for name, mutant in MUTANTS.items():
        if named not in name:
            continue
        with mutant():
            found = next(((seed, e) for seed in range(first, first + most) for e in [play(seed)[0]] if e), None)
        survived += found is None
        told = f"{found[0]} | {found[0] - first + 1} | {found[1][:90]}" if found else "SURVIVED | |"
        print(f"| {name} | {told} |", flush=True)
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
