"""A worker's process ends when the worker does, whatever a thread of its is stuck in."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

APPLICATION = Path(__file__).parents[2] / "spark_jobs" / "worker.py"
STUCK = """
import runpy, sys, threading
from concurrent.futures import ThreadPoolExecutor
from sluice.participant import serving
from sluice.participant.claiming import End

def serve(*_, **__):
    pool = ThreadPoolExecutor(1)
    if {stuck}:
        pool.submit(threading.Event().wait)
    pool.shutdown(wait=False)
    return End.{end}

serving.serve = serve
sys.argv = ["worker", "--group", "g", "--name", "w", "--slots", "1", "--lease", "30", "p.yaml"]
runpy.run_path({application!r}, run_name="__main__")
"""


@pytest.mark.parametrize(
    ("end", "stuck", "status"),
    [("STUCK", True, 1), ("SILENT", True, 1), ("SICK", False, 1), ("OLD", False, 0), ("ASKED", False, 0)],
)
def test_the_process_of_a_worker_ends_with_it(end, stuck, status):
    code = STUCK.format(end=end, stuck=stuck, application=str(APPLICATION))
    done = subprocess.run([sys.executable, "-c", code], check=False, timeout=60, capture_output=True, text=True)
    assert done.returncode == status, done.stderr
