"""Lists the files in the timeline's folder that complete a table's instants.

Hudi checks that an instant is pending, reads the clock, and creates the file that completes it, with that time in its
name. These steps are not atomic: a process that was suspended in between creates its file when it resumes, whatever
has happened to the instant meanwhile. Hudi's timeline shows one file per instant, so it hides such files.
"""

from __future__ import annotations

import re
from typing import Any

from sluice.connectors.sink import Completion, Registered
from sluice.jvm.gateway import HudiJvm
from sluice.sinks.hudi.timeline import COMMITS

STATE = "org.apache.hudi.common.table.timeline.HoodieInstant$State"
_NAME = re.compile(r"/(?P<instant>\d{14,17})(?:_(?P<completed>\d{14,17}))?\.(?P<action>[a-z]+)(?P<rest>\.[a-z]+)?[,} ]")


def completions(meta: Any) -> dict[str, Completion]:
    """The completed commits of a table, or of a metadata table, by instant."""
    listed = str(meta.getStorage().listDirectEntries(meta.getTimelinePath()).toString())  # one call over the bridge
    found: dict[str, Completion] = {}
    requested: set[str] = set()
    for name in _NAME.finditer(listed):
        if name["rest"] == ".requested":
            requested.add(name["instant"])
        elif name["rest"] is None and name["action"] in COMMITS:
            completion = found.setdefault(name["instant"], Completion(name["action"]))
            completion.files.append(name[0][1:-1])
    for instant, completion in found.items():
        completion.files.sort()
        completion.requested = instant in requested
    return found


def delete(meta: Any, path_class: Any, names: list[str]) -> None:
    """Delete files of the timeline's folder; another process may have deleted them already."""
    folder = str(meta.getTimelinePath().toString())
    for name in names:
        meta.getStorage().deleteFile(path_class(f"{folder}/{name}"))


def registered(jvm: HudiJvm, meta: Any, name: str) -> Registered:
    """The data files named by one of an instant's completing files, of which Hudi's timeline shows only one."""
    found = _NAME.search(f"/{name},")
    if found is None:
        raise ValueError(f"{name} completes no instant")
    done, generator = jvm.nested(STATE).COMPLETED, meta.getInstantGenerator()
    instant = generator.createNewInstant(done, found["action"], found["instant"], found["completed"])
    statistics = meta.getActiveTimeline().readCommitMetadata(instant).getPartitionToWriteStats()
    storage, path = meta.getStorage(), jvm.jvm.org.apache.hudi.storage.StoragePath
    base = str(meta.getBasePath().toString())
    files = {f"{base}/{stat.getPath()}" for stats in dict(statistics).values() for stat in stats}
    return Registered(len(files), sum(not storage.exists(path(file)) for file in files))
