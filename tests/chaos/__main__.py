"""Go on for so many rounds: `python -m tests.chaos --rounds 300`."""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path

import structlog

from ..processes import make_many_cheap
from .campaign import Campaign, ViolationError


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--compare", type=int, default=10, help="after how many rounds all rows are compared")
    parser.add_argument(
        "--seed", type=int, default=random.randrange(1_000_000), help="draws the faults, not their moments"
    )
    parser.add_argument("--only", nargs="+", help="topics of pipelines, such as append, upsert, workers")
    parser.add_argument("--tell", action="store_true", help="show the story as it happens")
    arguments = parser.parse_args()
    make_many_cheap()
    folder = Path(tempfile.mkdtemp(prefix="sluice-chaos-"))
    undisturbed = (folder / "undisturbed.log").open("w", buffering=1)  # those steps run in this process
    structlog.configure(logger_factory=structlog.WriteLoggerFactory(undisturbed))
    story: list[str] = []

    def listen(line: str) -> None:
        story.append(line)
        if arguments.tell:
            print(line, flush=True)

    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))  # with all that it has started
    campaign, keep = Campaign(folder, arguments.seed, listen, arguments.only), False
    try:
        has_disk = campaign.open()
        print(f"seed {arguments.seed}, in {folder}{'' if has_disk else '; no disk is filled: that needs root'}")
        _play(campaign, arguments.rounds, arguments.compare, story)
    except Exception as error:  # of the campaign itself, too: tables and logs say what came of it
        keep = True
        print("\n".join(story))
        what = f"VIOLATED: {error}" if isinstance(error, ViolationError) else traceback.format_exc()
        print(f"\n{what}\nTables, logs and the broker's data are left in {folder}; {folder}/disk may be a mount.")
        return 1
    finally:
        campaign.close(keep=keep)
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    print("Nothing was lost, nothing doubled.")
    return 0


def _play(campaign: Campaign, rounds: int, compare: int, story: list[str]) -> None:
    began = time.monotonic()
    for number in range(1, rounds + 1):
        campaign.round(number)
        if number % compare == 0 or number == rounds:
            rows, counts = campaign.rest(), campaign.counts
            faults = ", ".join(f"{fault} {n}" for fault, n in sorted(counts.faults.items()))
            print(
                f"{number} rounds after {time.monotonic() - began:.0f} s: {counts.runs} runs, {counts.committed} "
                f"committed; {faults}. Equal to Kafka: {rows}",
                flush=True,
            )
            story.clear()


if __name__ == "__main__":
    sys.exit(main())
