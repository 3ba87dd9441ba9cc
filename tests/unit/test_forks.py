"""A fork of a process that has left Kafka clients behind, as Airflow forks a task to tell OpenLineage of it."""

from __future__ import annotations

import subprocess
import sys

import pytest

# A client that only the garbage collector frees, and a fork in which the collector runs.
_SCRIPT = """
import gc, os, signal
from confluent_kafka import Consumer, Producer
{setting}
gc.disable()
for make in (lambda: Producer({{"bootstrap.servers": "127.0.0.1:9", "log_level": 0}}),
             lambda: Consumer({{"bootstrap.servers": "127.0.0.1:9", "log_level": 0, "group.id": "g"}})):
    left = [make()]
    left.append(left)
    del left
pid = os.fork()
if not pid:
    gc.collect()
    os._exit(0)
signal.signal(signal.SIGALRM, lambda *_: os.kill(pid, signal.SIGKILL))
signal.alarm(3)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


@pytest.mark.parametrize(("setting", "fine"), [("import sluice.kafka.config", True), ("", False)])
def test_a_fork_does_not_wait_for_threads_that_it_does_not_have(setting: str, fine: bool) -> None:
    script = _SCRIPT.format(setting=setting)
    # Python 3.12 warns of every fork of a process with threads.
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    assert (done.stdout.strip() == "0") is fine, f"without Sluice it hangs or crashes; it ended with {done.stdout}"
