"""Streams over several clusters: what happens to them, and to what is said of them."""

from __future__ import annotations

from random import Random
from typing import Any

from sluice.protocol.known_streams import KnownStreams

from .events import Events
from .kafka import TOPIC, Cluster
from .mapping import CONNECTIONS, NAMES, Mapped


class StreamEvents(Events):
    """What happens to clusters, and to what is said of them."""

    _refused = 0  # runs one after the other

    def _lay_streams(self, draw: Random, clusters: int, partitions: int) -> None:
        """Several clusters, of which the service names one or some."""
        names = NAMES[:clusters]
        made = [self.world.add_cluster(one, draw.choice((1, partitions))) for one in CONNECTIONS[:clusters]]
        self.mapped = Mapped()
        self.on_removed = draw.choice(("drain", "drain", "drop", "fail"))
        self.on_unreachable = draw.choice(("fail", "skip"))
        for cluster, name in list(zip(made, names, strict=True))[: draw.randint(1, clusters)]:
            self.mapped.names[cluster] = name
        self.mapped.say()

    @property
    def _said(self) -> Mapped:
        """What the metadata service says, in a history with streams."""
        if self.mapped is None:
            raise LookupError("This history has no streams.")
        return self.mapped

    def _a_cluster_is_down(self) -> None:
        cluster = self.random.choice(self.world.clusters)
        self.world.tell(f"{cluster.connection} is down")
        cluster.is_up = False

    def _clusters_are_up(self) -> None:
        for cluster in self.world.clusters:
            cluster.is_up = True

    def _one_is_mapped_or_not(self) -> None:
        left = {str(said["cluster"]) for said in self._said.moves.values()}
        cluster = self.random.choice([c for c in self.world.clusters if c.has_producers])
        if cluster in self._said.names:
            name = self._said.names.pop(cluster)
            self.world.tell(f"{name} isn't mapped any more")
        else:
            name = self.random.choice([cluster.connection, cluster.connection.removeprefix("kafka_")])
            if name in (*self._said.names.values(), *left):
                return
            self.world.tell(f"{cluster.connection} is mapped as {name}")
            self._said.names[cluster] = name
        self._said.say()

    def _one_has_another_name(self) -> None:
        if not self._said.names:
            return
        cluster = self.random.choice(list(self._said.names))
        was, now = self._said.names[cluster], f"{cluster.connection}_{len(self._said.answers)}"
        self.world.tell(f"{was} is called {now}")
        self._said.names[cluster] = now
        self._said.say()

    def _two_swap_names(self) -> None:
        if len(self._said.names) < 2:
            return
        one, other = self.random.sample(list(self._said.names), 2)
        names = self._said.names
        names[one], names[other] = names[other], names[one]
        self.world.tell(f"{names[one]} and {names[other]} have each other's names")
        self._said.say()

    def _a_connection_is_mistaken(self) -> None:
        """Somebody writes down another cluster's connection, or corrects it."""
        if self._said.leads_to or not self._said.names:
            self._said.leads_to.clear()
        else:
            name = self.random.choice(list(self._said.names.values()))
            connection = self.random.choice(self.world.clusters).connection
            self.world.tell(f"{name} is said to be at {connection}")
            self._said.leads_to[name] = connection
        self._said.say()

    def _the_stream_moves(self) -> None:
        """Producers are switched to a cluster that was never mapped. An append goes on so, from what it has read."""
        new = [c for c in self.world.clusters if c not in self._said.ever]
        old = [c for c in self._said.names if c not in self._said.moves and self._is_read_now(c)]
        if not new or not old or self.operation != "append" or self.on_removed != "drain":
            return
        was, now = self.random.choice(old), self.random.choice(new)
        name = self._said.names.pop(was)
        said = {"cluster": name, **({"drain_for": "60 seconds"} if self.random.random() < 0.5 else {})}
        self._said.names[now], self._said.moves[now] = now.connection, said
        was.has_producers = False
        self.world.tell(f"the stream moves from {name} to {now.connection}")
        self._said.say()

    def _is_read_now(self, cluster: Cluster) -> bool:
        """Whether the last commit was planned by a mapping that names the cluster's topic as the last one does."""
        checkpoint, note = self.checkpoint()
        topic = checkpoint.topic(cluster.connection, TOPIC)
        known = KnownStreams.model_validate(note.get("streams") or {})
        is_same = topic is not None and topic.topic_id == cluster.log_id and not self._to_be_taken_off()
        return is_same and known.ids.get(self._said.names[cluster]) == cluster.id

    def _another_topic(self) -> None:
        """A cluster's topic is made again, or another cluster is found at its address."""
        cluster = self.random.choice([c for c in self.world.clusters if c.has_producers])
        if self.random.random() < 0.3 and not self._said.moves:
            self.world.tell(f"another cluster is at {cluster.connection}")
            cluster.id = f"cluster-of-topic-{self.world.made + 1}"
        else:
            self.world.tell(f"the topic of {cluster.connection} is deleted and made again")
        self.world.make_topic(cluster)
        if self.random.random() < 0.7:
            self.loss = "earliest"  # somebody has seen to it

    def _see_to_it(self, last: Any) -> None:
        """What a person does by a refusal's next step, before the run after the last one.

        Where another cluster is found in place of one that was to be read to its end, that is given up. Where a topic
        is to be moved that isn't read any more, it is mapped where it was for one interval. Both may be needed at once.
        """
        if self.mapped is None:
            return
        moved = {self._left_for(new): new for new in self.mapped.moves}
        self._refused = self._refused + 1 if last is None else 0
        if self._refused % 3 != 1 and self._refused and moved:
            for old, new in moved.items():
                self.mapped.names.pop(new, None)
                self.mapped.names[old] = str(self.mapped.moves[new]["cluster"])
        else:
            for old in moved:
                self.mapped.names.pop(old, None)
        self.on_removed = "drain" if self._refused % 3 == 0 else "drop"
        self._all_is_well(but_not=tuple(new for old, new in moved.items() if old in self.mapped.names))

    def _left_for(self, new: Cluster) -> Cluster:
        """The cluster that the stream left when it moved."""
        return next(c for c in self.world.clusters if not c.has_producers and c is not new)

    def _all_is_well(self, but_not: tuple[Cluster, ...] = ()) -> None:
        """All clusters answer, and the service names them all, but for those that the stream has left."""
        if self.mapped is None:
            return
        self._clusters_are_up()
        self._said.leads_to.clear()
        for cluster in self.world.clusters:
            if cluster.has_producers and cluster not in but_not:
                self._said.names.setdefault(cluster, f"{cluster.connection}_at_last")
        self._said.say()


STREAM_EVENTS = {
    StreamEvents._a_cluster_is_down: 10,
    StreamEvents._clusters_are_up: 20,
    StreamEvents._one_is_mapped_or_not: 14,
    StreamEvents._one_has_another_name: 6,
    StreamEvents._two_swap_names: 5,
    StreamEvents._a_connection_is_mistaken: 8,
    StreamEvents._the_stream_moves: 40,
}
