"""What the metadata service says of the stream, and what it has said before."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from greenlet import getcurrent

from sluice.protocol.mapping import Stream

from .kafka import TOPIC, Cluster
from .world import World

STREAM = "orders"
NAMES = ("east", "west", "south")
CONNECTIONS = tuple(f"kafka_{name}" for name in NAMES)
_STALE = 0.1
"""How often the service answers as it did some time before: one of its replicas is behind."""


@dataclass
class Mapped:
    """What the metadata service says now, and what it has said before.

    Attributes:
        names: the clusters that it names.
        moves: by the cluster to which the stream was moved what is said of where it was.
        ever: the clusters that it has ever named.
        answers: what it has said, the last one now.
        leads_to: names of which a person has written down another's connection.
    """

    names: dict[Cluster, str] = field(default_factory=dict)
    moves: dict[Cluster, dict[str, Any]] = field(default_factory=dict)
    ever: list[Cluster] = field(default_factory=list)
    answers: list[dict[str, dict[str, Any]]] = field(default_factory=list)
    leads_to: dict[str, str] = field(default_factory=dict)

    def say(self) -> None:
        """What is said from now on."""
        self.ever += [cluster for cluster in self.names if cluster not in self.ever]
        answer = {}
        for cluster, name in self.names.items():
            moved = {"moved_from": self.moves[cluster]} if cluster in self.moves else {}
            connection = self.leads_to.get(name, cluster.connection)
            answer[name] = {"topics": TOPIC, "connection": connection, **moved}
        self.answers.append(answer)


class SimService:
    """The metadata service."""

    def __init__(self, world: World, mapped: Mapped) -> None:
        self._world = world
        self._mapped = mapped

    def all_streams(self) -> Mapping[str, Stream]:
        return self.describe_streams([STREAM])

    def describe_streams(self, stream_ids: Collection[str]) -> Mapping[str, Stream]:
        process = next(p for p in self._world.processes if p.greenlet is getcurrent())

        def answer() -> dict[str, Stream]:
            answers = self._mapped.answers
            stale = process.faults and self._world.random.random() < _STALE
            said = self._world.random.choice(answers) if stale else answers[-1]
            return {STREAM: Stream.model_validate({"clusters": said})}

        said: dict[str, Stream] = self._world.call(process, "asks the metadata service", answer)
        return said

    def is_cluster_active(self, cluster: str) -> bool:
        return True


class OneAfterTheOther:
    """Asks clusters in this thread: processes take turns at their calls, and have no threads."""

    def __init__(self, _at_once: int) -> None:
        pass

    def __enter__(self) -> OneAfterTheOther:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    map = staticmethod(map)
