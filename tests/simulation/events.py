"""What happens to a world that no process of ours does."""

from __future__ import annotations

from datetime import timedelta
from random import Random

from sluice.protocol.offsets import TRANSACTION_KEY

from .runs import Runs


class Events(Runs):
    """The topic's producers, its brokers, other writers of the table, and time.

    Attributes:
        restores: draws what is restored.
        cut_under: intervals that had read a log before it came to have another leader.
    """

    cut_under: list[str]
    restores: Random

    def _time_passes(self) -> None:
        self.world.clock += timedelta(seconds=self.random.choice((5, 61, 400)))

    def _one_is_killed(self) -> None:
        ready = [p for p in self.world.processes if p.state == "ready"]
        if ready and self.world.faults.kill:
            self.world.kill(self.random.choice(ready))

    def _a_transaction_ends(self) -> None:
        self.world.skip_offsets(self.random.randrange(self.partitions), 1)

    def _producers_go_on(self) -> None:
        assert self.world.producers is not None
        self.world.producers.go_on()

    def _rows_are_committed(self) -> None:
        assert self.world.shop is not None
        self.world.shop.end(commits=self.random.random() < 0.8)

    def _kafka_compacts(self) -> None:
        self.world.compact(self.random.randrange(self.partitions))

    def _retention(self) -> None:
        log = self.random.randrange(self.partitions)
        self.world.tell(f"retention takes records of partition {log}")
        self.world.delete_before(log, self.world.logs[log].start + 3)

    def _another_leader(self) -> None:
        log, lacks = self.random.randrange(self.partitions), self.random.choice((0, 1, 3, 6))
        self.world.tell(f"another leader of partition {log}, which lacks {lacks} offsets")
        before = [r.key for r in self.world.logs[log].records.values()][-lacks:] if lacks else []
        self.cut_under = [n for n, i in sorted(self.world.timeline.items()) if i.completed]
        self.world.elect(log, lacks)
        if self.random.random() < 0.5:  # their producer sends them again
            self.world.send(before)
        if lacks and self.random.random() < 0.7:
            self.loss = "earliest"  # somebody has seen to it

    def _the_topic_is_made_again(self) -> None:
        self.world.tell("the topic is deleted and made again")
        (cluster,) = self.world.clusters
        before = [r.key for r in self.world.produced.values() if r.log == cluster.log_id]
        self.world.make_topic(cluster)
        if self.random.random() < 0.5:  # its producer fills it again
            self.world.send(before)
        if self.random.random() < 0.7:
            self.loss = "earliest"  # somebody has seen to it

    def _others_cluster(self) -> None:
        """Another writer puts rows of some files into one, where no commit of ours is about to replace them."""
        world = self.world
        planned = {path for i in world.timeline.values() if i.is_pending for path in i.plan}
        if self.operation != "append" or self._log().unfinished() is not None or any(world.committing.values()):
            return
        if any(c.is_late for i in world.timeline.values() for c in i.completed) and self._to_be_taken_off():
            return  # docs/guarantees/conditions.md: what is made of such a commit's files stays
        where = f"p{self.random.randrange(world.spread)}"
        files = sorted(
            path for path, file in world.committed_files().items() if file.partition == where and path not in planned
        )
        if files:
            world.cluster(self.random.sample(files, min(2, len(files))))

    def _the_table_is_restored(self) -> None:
        """A person restores the table to a commit of Sluice's, while no run is under way and no process commits."""
        world = self.world
        kept = [n for n, i in sorted(world.timeline.items()) if i.completed and TRANSACTION_KEY in i.completed[0].extra]
        if not kept or self._to_be_taken_off():
            return
        for process in [p for inside in world.committing.values() for p in inside if p in world.processes]:
            world.kill(process)
        world.rows_are_gone(world.restore(self.restores.choice(kept[-4:-1] or kept)))
        self.came_before = {process.name for process in world.processes}

    def _produce(self) -> None:
        self.world.produce(self.random.choice((1, 4, 12)), 6)


EVENTS = {
    Events._produce: 40,
    Events._time_passes: 10,
    Events._one_is_killed: 7,
    Events._a_transaction_ends: 6,
    Events._kafka_compacts: 6,
    Events._retention: 4,
    Events._the_topic_is_made_again: 2,
}
