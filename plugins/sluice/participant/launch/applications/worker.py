"""Entry point of a worker: a Spark application that stays, and writes the ranges that it claims."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from contextlib import nullcontext
from pathlib import Path
from typing import NoReturn

from sluice.control.waiting import steady
from sluice.errors import SluiceError
from sluice.logs import log
from sluice.participant.claiming import End, Terms
from sluice.participant.endpoint import answering
from sluice.participant.launch.worker import connections_here, settings_here
from sluice.participant.serving import description, serve
from sluice.participant.vitals import Vitals


def main() -> End | None:
    """Be a worker until it ends; None where it could not begin."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--group", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--slots", required=True, type=int, help="ranges that are written at once")
    parser.add_argument("--lease", required=True, type=float, help="seconds for which a claim lasts")
    parser.add_argument("--longest-stay", type=float, help="seconds after which it ends")
    parser.add_argument("--trust-control-topic", action="store_true")
    parser.add_argument("--ends-with-stdin", action="store_true", help="end when standard input is closed")
    parser.add_argument("--port", type=int, help="on which it answers /health, /ready and /metrics")
    parser.add_argument("--host", help="the address that it listens on for that")
    parser.add_argument("files", nargs="+", type=Path)
    given = parser.parse_args()
    if given.ends_with_stdin:
        threading.Thread(target=_end_with_stdin, name="sluice-keeper", daemon=True).start()
    terms = Terms(given.name, given.lease, given.slots, given.longest_stay, description())
    vitals = Vitals(terms, given.group, steady)
    try:
        with answering(given.host, given.port, vitals) if given.port is not None else nullcontext():
            return serve(
                given.files,
                given.group,
                terms,
                settings_here,
                connections_here,
                steady,
                trusting=given.trust_control_topic,
                vitals=vitals,
            )
    except SluiceError as error:
        log.error(str(error), recovery=error.recovery)
        return None


def _end_with_stdin() -> None:
    """End as on SIGTERM when the process that keeps the worker has ended, however it did."""
    while os.read(sys.stdin.fileno(), 1024):
        pass
    with Path(os.devnull).open("wb") as nowhere:  # its output is a pipe of that process as well
        for stream in (sys.stdout, sys.stderr):
            os.dup2(nowhere.fileno(), stream.fileno())
    os.kill(os.getpid(), signal.SIGTERM)


def leave(end: End | None) -> NoReturn:
    """End this process: with status 0 if it ended regularly, and a new worker should replace it.

    Python joins a pool's threads. A stuck one never ends, and the process that keeps workers would wait for ever.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    if end is not None and end.leaves_threads:
        os._exit(1)
    sys.exit(1 if end in (None, End.UNHEALTHY, End.CONTROL_TOPICS_LOST) else 0)


if __name__ == "__main__":
    leave(main())
