"""Records what a release leaves behind: a broker's data, tables, pipeline files, and what was sent.

Run it in a checkout of that release, with this file copied into it: `python -m tests.guarantees.record BEFORE.tar.xz`.
`test_upgrade.py` goes on from the archive with later code. Tables are known by their absolute paths in control
messages, so everything lies in one folder whose name is the same everywhere.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

from sluice.local.broker import LocalBroker
from sluice.local.home import SluiceHome
from sluice.logs import log

from .harness import Drivers, Flow, SharedJvm

ROOT = Path("/tmp/sluice-recorded")
UPSERT = {"sink__hudi__operation": "upsert", "sink__hudi__record_key": "id"}
QUARANTINE = {"errors__tolerance": "all", "errors__max_records": 100}
BAD = b'{"id": "seven"}'
# Each pipeline, and where the release was stopped: by a SIGKILL of its coordinator, or nowhere.
LEFT = {
    "append": "",
    "upsert": "",
    "quarantine": "",
    "started": "after_open_instant",
    "written": "before_end_commit",
    "decided": "before_hudi_commit",
    "unacknowledged": "after_hudi_commit",
    "upsert-written": "before_end_commit",
    "retried": "before_end_commit",
    "aborted": "before_end_commit",
}


def settings(name: str) -> dict[str, object]:
    """The pipeline's settings beside those of every pipeline of the tests."""
    return {**(UPSERT if "upsert" in name else {}), **(QUARANTINE if name == "quarantine" else {})}


def _leave(flow: Flow, point: str) -> None:
    flow.create_topic(2)
    flow.produce(40)
    if flow.topic == "quarantine":
        flow.produce_raw(BAD, partition=1)
    flow.interval()
    flow.produce(20)
    if "upsert" in flow.topic:
        flow.produce(10, ids=range(0, 20, 2), values="b")
    if not point:
        flow.interval()
        return
    killed = f"coordinator.{point}=kill"
    if point == "after_open_instant":
        step = flow.step("start", "--run-id", "left", failpoint=killed)
    else:
        started = flow.start()
        flow.write_all(started)
        step = flow.step("commit", "--control-offset", str(started.control_offset), failpoint=killed)
    assert step.status == -signal.SIGKILL, step.err


def main(archive: Path) -> None:
    """Make the archive."""
    shutil.rmtree(ROOT, ignore_errors=True)
    ROOT.mkdir()
    jvm, drivers = SharedJvm(), Drivers(ROOT / "drivers")
    try:
        with LocalBroker(SluiceHome.from_env(), ROOT / "broker") as broker:
            for name, point in LEFT.items():
                flow = Flow(ROOT, broker.bootstrap, jvm, drivers, name, **settings(name))
                _leave(flow, point)
                (ROOT / f"{name}.sent.json").write_text(json.dumps([asdict(sent) for sent in flow.sent]))
                log.info("left", pipeline=name, records=len(flow.sent), killed=point or None)
    finally:
        drivers.close()
        jvm.close()
    unwanted = [f"--exclude={pattern}" for pattern in ("./drivers", "./broker/broker.log*", "./write-*.log")]
    tar = ["tar", "--create", "--xz", "--sparse", f"--file={archive.absolute()}", *unwanted, "-C", str(ROOT), "."]
    subprocess.run(tar, check=True)
    shutil.rmtree(ROOT)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
