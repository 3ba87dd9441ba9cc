"""A worker's process ends when the worker does, whatever a thread of its is stuck in."""

from __future__ import annotations

import subprocess
import sys

import psutil
import pytest

from sluice.participant.launch.worker import WORKER_APPLICATION as APPLICATION

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
    [
        ("RANGE_HUNG", True, 1),
        ("JVM_UNRESPONSIVE", True, 1),
        ("UNHEALTHY", False, 1),
        ("CONTROL_TOPICS_LOST", False, 1),
        ("OLD", False, 0),
        ("ASKED", False, 0),
    ],
)
def test_the_process_of_a_worker_ends_with_it(end, stuck, status):
    code = STUCK.format(end=end, stuck=stuck, application=str(APPLICATION))
    done = subprocess.run([sys.executable, "-c", code], check=False, timeout=60, capture_output=True, text=True)
    assert done.returncode == status, done.stderr


KEPT = """
import os, runpy, sys, threading
from sluice.participant import serving

def serve(*_, **__):
    print("serving", os.getpid(), flush=True)
    threading.Event().wait()

serving.serve = serve
sys.argv = ["worker", "--ends-with-stdin", "--group", "g", "--name", "w", "--slots", "1", "--lease", "30", "p.yaml"]
runpy.run_path({application!r}, run_name="__main__")
"""
KEEPER = """
import sys
from types import SimpleNamespace
from sluice.airflow.workers_dag import WorkerOperator, Workers, WorkerOptionsText

operator = WorkerOperator(
    task_id="worker", group="g", options=WorkerOptionsText(Workers()), pipelines="pipelines", number=0
)
operator._prepare = lambda: ([sys.executable, "-c", {kept!r}], None)
said = lambda *said: print(said[-1], flush=True)
type(operator).log = SimpleNamespace(info=said, debug=said, warning=said, error=said)
operator.execute({{}})
"""


def test_a_worker_ends_with_the_task_that_keeps_it_though_that_is_killed():
    """Its process group is its own, so that no signal to the task reaches it; its standard input is a pipe."""
    code = KEEPER.format(kept=KEPT.format(application=str(APPLICATION)))
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as keeper:
        said = next(line for line in keeper.stdout if line.startswith("serving"))
        worker = psutil.Process(int(said.split()[1]))
        keeper.kill()
        worker.wait(30)
