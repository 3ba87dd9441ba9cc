"""What is read of a Hudi table's timeline over the bridge: which commit has the checkpoint, and what completes one."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from sluice.protocol.offsets import Checkpoint
from sluice.sinks.hudi.commits import completed_commit, last_checkpoint
from sluice.sinks.hudi.completions import completions, delete, registered

CHECKPOINT = Checkpoint().to_metadata()


class _List(list[Any]):
    """A list of Java's."""

    def size(self) -> int:
        return len(self)

    def get(self, index: int) -> Any:
        assert index >= 0
        return self[index]


class _Timeline:
    """A timeline with commits by instant, oldest first, each with its extra metadata."""

    def __init__(self, **commits: dict[str, str | None]) -> None:
        self._commits = commits
        self.read: list[str] = []
        self.loaded: list[tuple[str, ...]] = []

    def getCommitsTimeline(self) -> _Timeline:  # noqa: N802
        return self

    def filterCompletedInstants(self) -> _Timeline:  # noqa: N802
        return self

    def getInstants(self) -> _List:  # noqa: N802
        return _List(SimpleNamespace(requestedTime=lambda name=name: name[1:]) for name in self._commits)

    def readCommitMetadata(self, instant: Any) -> Any:  # noqa: N802
        self.read.append(instant.requestedTime())
        return SimpleNamespace(getExtraMetadata=lambda: self._commits[f"i{instant.requestedTime()}"])

    def isBeforeTimelineStarts(self, instant: str) -> bool:  # noqa: N802
        return instant < min(name[1:] for name in self._commits)

    def loadCompletedInstantDetailsInMemory(self, *between: str) -> None:  # noqa: N802
        self.loaded.append(between)


def _hudi(files: dict[str, tuple[str, str]], stretches: list[_Timeline]) -> Any:
    """Hudi's package, with the archive's files by name, each with its first and last instant."""
    made = iter(stretches)
    lsm = SimpleNamespace(
        latestSnapshotManifest=lambda _meta, path: SimpleNamespace(
            getFiles=lambda: [
                SimpleNamespace(getFileName=lambda name=name: name) for name in files if path == "archive"
            ]
        ),
        getMinInstantTime=lambda name: files[name][0],
        getMaxInstantTime=lambda name: files[name][1],
    )

    def archived(_meta: Any, loads: bool) -> _Timeline:
        assert loads is False
        return next(made)

    versioning = SimpleNamespace(v2=SimpleNamespace(ArchivedTimelineV2=archived))
    timeline = SimpleNamespace(LSMTimeline=lsm, versioning=versioning)
    util = SimpleNamespace(JsonUtils=SimpleNamespace(toString=json.dumps))
    return SimpleNamespace(common=SimpleNamespace(table=SimpleNamespace(timeline=timeline), util=util))


def _meta(active: _Timeline, archived: _Timeline | None = None, layout: int = 2) -> Any:
    return SimpleNamespace(
        reloadActiveTimeline=lambda: active,
        getActiveTimeline=lambda: active,
        getArchivedTimeline=lambda: archived,
        getArchivePath=lambda: "archive",
        getTimelineLayoutVersion=lambda: SimpleNamespace(getVersion=lambda: layout),
    )


def test_the_newest_commit_with_a_checkpoint_is_found_behind_those_of_others():
    active = _Timeline(i1=CHECKPOINT, i2={**CHECKPOINT, "by": "two", "none": None}, i3={"by": "another"}, i4={})
    assert last_checkpoint(_hudi({}, []), _meta(active)) == {**CHECKPOINT, "by": "two"}
    assert active.read == ["4", "3", "2"]
    first = _Timeline(i1={**CHECKPOINT, "by": "one"}, i2={})
    assert last_checkpoint(_hudi({}, []), _meta(first)) == {**CHECKPOINT, "by": "one"}


def test_the_archive_is_read_stretch_by_stretch_from_its_end_up_to_a_checkpoint():
    files = {"old": ("100", "199"), "new": ("300", "399"), "middle": ("200", "299"), "within": ("320", "350")}
    stretches = [_Timeline(i300={}), _Timeline(i250=CHECKPOINT), _Timeline(i150=CHECKPOINT)]
    assert last_checkpoint(_hudi(files, stretches), _meta(_Timeline(i400={}))) == CHECKPOINT
    loaded = [one.loaded for one in stretches]
    assert loaded == [[("299", "9" * 17)], [("199", "300")], []]
    empty = [_Timeline(i300={}), _Timeline(i250={}), _Timeline(i150={})]
    assert last_checkpoint(_hudi(files, empty), _meta(_Timeline(i400={}))) is None
    assert empty[2].loaded == [("99", "200")]


@pytest.mark.parametrize("found", [CHECKPOINT, {}])
def test_the_archive_of_an_earlier_layout_is_read_as_a_whole(found):
    archived = _Timeline(i150=found)
    assert last_checkpoint(_hudi({}, []), _meta(_Timeline(i400={}), archived, layout=1)) == (found or None)
    assert archived.loaded == [()]


@pytest.mark.parametrize(
    ("instant", "expected", "loaded"),
    [("300", "active", []), ("350", None, []), ("200", "archived", [("199", "200")]), ("250", None, [("249", "250")])],
)
def test_a_completed_commit_is_found_on_the_timeline_that_may_have_it(instant, expected, loaded):
    active, archived = _Timeline(i300={"of": "active"}, i400={}), _Timeline(i100={}, i200={"of": "archived"})
    found = completed_commit(_meta(active, archived), instant)
    assert (found and found.getExtraMetadata()) == (expected and {"of": expected})
    assert archived.loaded == loaded


# What completes an instant


class _Storage:
    """A timeline's folder, and the table's files."""

    def __init__(self, listed: str = "", there: tuple[str, ...] = ()) -> None:
        self._listed, self._there = listed, there
        self.deleted: list[str] = []

    def listDirectEntries(self, _path: Any) -> Any:  # noqa: N802
        return SimpleNamespace(toString=lambda: self._listed)

    def deleteFile(self, path: str) -> None:  # noqa: N802
        self.deleted.append(path)

    def exists(self, path: str) -> bool:
        return path in self._there


def _folder(storage: _Storage, **more: Any) -> Any:
    path = SimpleNamespace(toString=lambda: "/t/.hoodie/timeline")
    return SimpleNamespace(getStorage=lambda: storage, getTimelinePath=lambda: path, **more)


def test_a_commit_is_completed_by_each_file_that_names_a_time():
    first, second, third, service = (f"2026010100000{number}000" for number in range(4))
    names = [
        f"{first}.commit.requested", f"{first}.commit.inflight", f"{first}_20260101000009000.commit",
        f"{first}_20260101000008000.commit", f"{second}_20260101000010000.deltacommit",
        f"{third}.commit.requested", f"{third}.commit.inflight",
        f"{service}.clean.requested", f"{service}_20260101000011000.clean", "hoodie.properties",
    ]  # fmt: skip
    listed = (
        "[" + ", ".join(f"StoragePathInfo{{path=file:/t/.hoodie/timeline/{name}, length=1}}" for name in names) + "]"
    )
    found = completions(_folder(_Storage(listed)))
    assert {instant: (one.action, one.files, one.requested) for instant, one in found.items()} == {
        first: ("commit", [f"{first}_20260101000008000.commit", f"{first}_20260101000009000.commit"], True),
        second: ("deltacommit", [f"{second}_20260101000010000.deltacommit"], False),
    }
    assert completions(_folder(_Storage("[]"))) == {}


def test_files_of_the_timeline_are_deleted_in_its_folder():
    storage = _Storage()
    delete(_folder(storage), str, ["a", "b"])
    assert storage.deleted == ["/t/.hoodie/timeline/a", "/t/.hoodie/timeline/b"]


def test_the_files_that_a_completing_file_names_are_counted_with_those_that_are_gone():
    stats = {"day=1": [SimpleNamespace(getPath=lambda: "day=1/a"), SimpleNamespace(getPath=lambda: "day=1/b")],
             "day=2": [SimpleNamespace(getPath=lambda: "day=2/c")]}  # fmt: skip
    asked: list[Any] = []

    def read(instant: Any) -> Any:
        asked.append(instant)
        return SimpleNamespace(getPartitionToWriteStats=lambda: stats)

    meta = _folder(
        _Storage(there=("/t/day=1/a",)),
        getInstantGenerator=lambda: SimpleNamespace(createNewInstant=lambda *given: given),
        getActiveTimeline=lambda: SimpleNamespace(readCommitMetadata=read),
        getBasePath=lambda: SimpleNamespace(toString=lambda: "/t"),
    )
    storage = SimpleNamespace(StoragePath=str)
    apache = SimpleNamespace(hudi=SimpleNamespace(storage=storage))
    jvm: Any = SimpleNamespace(
        nested=lambda _: SimpleNamespace(COMPLETED="done"), jvm=SimpleNamespace(org=SimpleNamespace(apache=apache))
    )
    found = registered(jvm, meta, "20260101000000000_20260101000009000.commit")
    assert (found.files, found.lost, found.is_void) == (3, 2, False)
    assert asked == [("done", "commit", "20260101000000000", "20260101000009000")]
    with pytest.raises(ValueError, match="completes no instant"):
        registered(jvm, meta, "hoodie.properties")
