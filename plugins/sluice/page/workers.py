"""The workers that stay: which are there, by their consumer groups, and what each holds, by its claims."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import partial
from threading import Lock
from typing import NamedTuple

from sluice.airflow.connections import kafka_settings
from sluice.control.presence import Member, Presence
from sluice.kafka.config import KafkaSettings
from sluice.page.banners import read_banner
from sluice.page.cache import Cached, Snapshot
from sluice.page.present import Json
from sluice.protocol.workers_seen import WorkerSeen

_LASTS = 5.0  # seconds until a group's members are asked for again
Found = tuple[Member, ...]


class GroupId(NamedTuple):
    """A group of workers on a cluster of control topics: its name, and the cluster's Airflow connection."""

    group: str
    connection: str


class Served(NamedTuple):
    """A pipeline whose ranges a group writes, and what its messages tell of workers."""

    key: str
    of: GroupId
    seen: Mapping[str, WorkerSeen]


class Groups:
    """The members of all groups, cached; one client for each cluster. One for each API server process."""

    def __init__(self) -> None:
        self._clusters: dict[str, tuple[KafkaSettings, Presence]] = {}
        self._cached: dict[GroupId, Cached[Found]] = {}
        self._lock = Lock()

    def members(self, of: GroupId) -> Cached[Found]:
        """Who is there now, as far as the cluster knows."""
        with self._lock:
            if of not in self._cached:
                self._cached[of] = Cached(f"The group of workers {of.group}", partial(self._read, of), _LASTS)
            return self._cached[of]

    def _read(self, of: GroupId) -> Found:
        settings = kafka_settings(of.connection)
        with self._lock:
            known = self._clusters.get(settings.name)
            if known is None or known[0] != settings:  # the connection was changed in Airflow
                known = self._clusters[settings.name] = settings, Presence(settings)
        return known[1].members(of.group)


def groups_of(served: Iterable[Served], there: Mapping[GroupId, Snapshot[Found]]) -> list[Json]:
    """Each group with its pipelines and workers. Pure.

    Args:
        served: the pipelines that name groups.
        there: who is a member of which group.
    """
    by_group: dict[str, list[Served]] = defaultdict(list)
    for one in served:
        by_group[one.of.group].append(one)
    return [_group(name, of, there) for name, of in sorted(by_group.items())]


def _group(name: str, served: list[Served], there: Mapping[GroupId, Snapshot[Found]]) -> Json:
    clusters = {one.of: there[one.of] for one in served}
    hosts = {m.worker: m.host for snapshot in clusters.values() for m in snapshot.value or ()}
    known = all(snapshot.value is not None for snapshot in clusters.values())
    holders = {seen.worker for one in served for seen in one.seen.values() if seen.holds}
    workers = [_worker(worker, hosts.get(worker), served, known) for worker in sorted({*hosts, *holders})]
    return {"group": name, "pipelines": sorted({one.key for one in served}), "known": known, "workers": workers}


def _worker(name: str, host: str | None, served: list[Served], known: bool) -> Json:
    seen = [(one.key, one.seen[name]) for one in served if name in one.seen]
    latest = max((s for _, s in seen), key=lambda s: s.last, default=None)
    holds = [
        {"pipeline": key, "instant": hold.instant, "range": hold.number, "since": hold.since.isoformat()}
        for key, s in seen
        for hold in s.holds.values()
    ]
    absent = "lost" if known else "unknown"
    return {
        "name": name,
        "state": absent if host is None else "writing" if holds else "idle",
        "host": host,
        "began": _iso(max((s.began for _, s in seen if s.began is not None), default=None)),
        "memory": latest.memory if latest is not None else None,
        "last_heard": _iso(latest.last if latest is not None else None),
        "holds": sorted(holds, key=lambda hold: str(hold["since"])),
    }


def group_banners(there: Mapping[GroupId, Snapshot[Found]]) -> list[Json]:
    """Which groups can't be asked for, and why."""
    return [one for of, snapshot in there.items() for one in read_banner(f"The group of workers {of.group}", snapshot)]


def _iso(time: datetime | None) -> str | None:
    return time.isoformat() if time is not None else None
