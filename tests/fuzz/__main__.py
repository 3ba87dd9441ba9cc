"""Hostile inputs for all parsers and routes: `python -m tests.fuzz --minutes 60`; one again: `--play NAME BLOB`."""

from __future__ import annotations

import argparse
import random
import sys
import time
from pathlib import Path

from .campaign import TURN, Finding, Turn, play, shares, take_turn
from .subjects import SUBJECTS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=None, help="the first seed; by default another one each time")
    parser.add_argument("--seeds", type=int, default=None, help="how many seeds each turn tries at most")
    parser.add_argument("--only", metavar="NAME", action="append", choices=SUBJECTS, help="only these subjects")
    parser.add_argument("--turn", type=float, default=TURN, help="seconds of a subject's turn")
    parser.add_argument("--into", metavar="FILE", type=Path, help="write the findings there, too")
    parser.add_argument("--play", nargs=2, metavar=("NAME", "BLOB"), help="play a finding again")
    arguments = parser.parse_args()
    if arguments.play is not None:
        name, blob = arguments.play
        error = play(SUBJECTS[name], blob)
        if error is None:
            print("It is handled as it should be.")
            return 0
        raise error
    first = random.SystemRandom().randrange(10**9) if arguments.seed is None else arguments.seed
    subjects = [SUBJECTS[name] for name in arguments.only or SUBJECTS]
    return _run(arguments, subjects, first)


def _run(arguments: argparse.Namespace, subjects: list, first: int) -> int:
    print(f"seed {first}; {len(subjects)} subjects; {arguments.minutes:g} minutes", flush=True)
    began = time.monotonic()
    done: dict[str, Turn] = {one.name: Turn() for one in subjects}
    known: dict[tuple[str, str, str], Finding] = {}
    for turns, subject in enumerate(shares(subjects), start=1):
        left = began + arguments.minutes * 60 - time.monotonic()
        once = arguments.seeds is not None and all(one.seeds for one in done.values())
        if left <= 0 or once:
            break
        so_far = done[subject.name]
        turn = take_turn(subject, first + so_far.seeds, min(arguments.turn, left), arguments.seeds)
        so_far.examples, so_far.seeds = so_far.examples + turn.examples, so_far.seeds + turn.seeds
        for finding in turn.findings or ():
            if finding.kind not in known:
                known[finding.kind] = finding
                _tell(finding, arguments.into)
        if turns % 10 == 0:
            took = (time.monotonic() - began) / 60
            tried = sum(one.examples for one in done.values())
            print(f"{took:.1f} minutes: {tried:,} examples, {len(known)} findings; {subject.name}", flush=True)
    took, tried = (time.monotonic() - began) / 60, sum(one.examples for one in done.values())
    for name, one in done.items():
        print(f"  {name:24} {one.examples:>9,}")
    print(f"{tried:,} examples in {took:.1f} minutes from seed {first}; {len(known)} findings")
    for finding in known.values():
        print(f"  {finding.subject}: {finding.error[:150]}\n    {finding.command}")
    return 1 if known else 0


def _tell(finding: Finding, into: Path | None) -> None:
    text = (
        f"\n=== {finding.subject}, seed {finding.seed}: {finding.error}\n"
        f"at {finding.place}\nexample: {finding.example}\n"
        f"again: {finding.command}\n"
    )
    print(text, flush=True)
    if into is not None:
        with into.open("a") as file:
            file.write(f"{text}{finding.trace}\n")


if __name__ == "__main__":
    sys.exit(main())
