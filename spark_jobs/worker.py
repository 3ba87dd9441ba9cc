"""Entry point of a worker: a Spark application that stays, and writes the ranges that it claims."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from sluice.control.waiting import steady
from sluice.errors import SluiceError
from sluice.launch.worker import connections_here, settings_here
from sluice.logs import log
from sluice.participant.claiming import End, Terms
from sluice.participant.serving import serve


def main() -> int:
    """Be a worker; the exit status is 0 when it ended as it should, and another is to be started in its place."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--group", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--slots", required=True, type=int, help="ranges that are written at once")
    parser.add_argument("--lease", required=True, type=float, help="seconds for which a claim lasts")
    parser.add_argument("--longest-stay", type=float, help="seconds after which it ends")
    parser.add_argument("--trust-control-topic", action="store_true")
    parser.add_argument("files", nargs="+", type=Path)
    given = parser.parse_args()
    terms = Terms(given.name, given.lease, given.slots, given.longest_stay)
    try:
        end = serve(
            given.files,
            given.group,
            terms,
            settings_here,
            connections_here,
            steady,
            trusting=given.trust_control_topic,
        )
    except SluiceError as error:
        log.error(str(error), recovery=error.recovery)
        return 1
    return 1 if end in (End.SICK, End.STUCK) else 0


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.exit(status)
