"""Pipeline files, tables and topics of a release before go on with this one: nothing has to be migrated.

What each archive of `recorded` holds is told by `record.py`, which made it in a checkout of that release.
"""

from __future__ import annotations

import fcntl
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sluice.control.reader import ControlReader
from sluice.coordinator import Run
from sluice.local.broker import LocalBroker
from sluice.protocol.messages import AckCommit, StartCommit

from .harness import Drivers, Flow, Sent, SharedJvm, kafka_settings
from .quarantined import quarantine
from .record import LEFT, ROOT, settings

ARCHIVES = sorted(Path(__file__).with_name("recorded").glob("*.tar.xz"))


@pytest.fixture(scope="module", params=ARCHIVES, ids=lambda archive: archive.name.partition(".")[0])
def left(request, home) -> Iterator[str]:
    """The bootstrap servers of a broker that goes on with what the release before left."""
    with Path(f"{ROOT}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the folder has to have this name, and another checkout may run its suite
        shutil.rmtree(ROOT, ignore_errors=True)
        ROOT.mkdir()
        subprocess.run(["tar", "--extract", f"--file={request.param}", "-C", str(ROOT)], check=True)
        (ROOT / "broker" / "ports.json").unlink()  # other ports: today a process of this machine may have those
        with LocalBroker(home, ROOT / "broker") as broker:
            yield broker.bootstrap
        shutil.rmtree(ROOT)


def _flow(bootstrap: str, shared_jvm: SharedJvm, drivers: Drivers, name: str) -> Flow:
    file = ROOT / f"{name}.yaml"
    recorded = file.read_text()
    flow = Flow(ROOT, bootstrap, shared_jvm, drivers, name, **settings(name))
    file.write_text(recorded)
    flow.sent = [Sent(**sent) for sent in json.loads((ROOT / f"{name}.sent.json").read_text())]
    flow.produce(0, ids=())
    return flow


def _more(flow: Flow, count: int) -> None:
    first = max(sent.id for sent in flow.sent) + 1
    flow.produce(count, ids=range(first, first + count))


@pytest.mark.parametrize("name", [name for name in LEFT if name not in ("retried", "aborted")])
def test_the_pipeline_goes_on(left, shared_jvm, drivers, name):
    flow = _flow(left, shared_jvm, drivers, name)
    before = len(flow.messages())
    assert before, "none of the messages of the release before can be read"
    _more(flow, 20)
    if "upsert" in name:
        flow.produce(5, ids=range(1, 11, 2), values="c")
    flow.interval()
    flow.check()
    assert flow.jvm.pending(str(flow.path)) == []
    epochs = [m.epoch for m in flow.messages() if isinstance(m, StartCommit)]
    assert epochs == sorted(set(epochs)), epochs
    acknowledged = [m.transaction for m in flow.messages() if isinstance(m, AckCommit)]
    assert {commit["instant"] for commit in flow.commits()} <= set(acknowledged)
    if name == "quarantine":
        assert len(quarantine(flow)) == 1
    if name in ("append", "upsert"):
        flow.interval(kind="replay", instant=flow.commits()[0]["instant"])
        flow.check()


def test_a_commit_of_an_interval_that_began_before_is_retried(left, shared_jvm, drivers):
    flow = _flow(left, shared_jvm, drivers, "retried")
    outcome = flow.coordinator().commit(_open(flow))
    assert (outcome.state, outcome.records) == ("committed", 20)
    flow.check()


def test_a_run_that_began_before_is_aborted(left, shared_jvm, drivers):
    flow = _flow(left, shared_jvm, drivers, "aborted")
    assert flow.abort(Run("tests", "run-2")).state == "aborted"
    assert flow.jvm.pending(str(flow.path)) == []
    flow.interval()
    flow.check()


def _open(flow: Flow) -> int:
    """Control offset of the last START-COMMIT."""
    reader = ControlReader(kafka_settings(flow.bootstrap), flow.control_topic)
    bounds = reader.bounds()
    messages = [found for batch in reader.read(bounds.first, bounds.end) for found in batch]
    return max(offset for offset, message in messages if isinstance(message, StartCommit))
