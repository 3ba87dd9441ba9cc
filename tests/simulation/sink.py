"""The sink in memory, as one process has it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from sluice.connectors.sink import Pinned
from sluice.pipeline.model import Pipeline
from sluice.protocol.mapping import ClusterTopics
from sluice.records.plan import RecordPlan

from .kafka_sink import SimTopics
from .other_sinks import SimDatabase, SimFiles
from .table import SimHudi, SimTable
from .world import Process, World

SomeTable = SimTable | SimTopics
TABLES: Mapping[str, Callable[..., SomeTable]] = {
    "hudi": SimHudi,
    "files": SimFiles,
    "jdbc": SimDatabase,
    "kafka": SimTopics,
}
"""By the name of the pipeline's sink."""


class SimSink:
    """Opens the table."""

    def __init__(self, world: World, process: Process, pipeline: Pipeline) -> None:
        self._world = world
        self._process = process
        self._table = TABLES[pipeline.sink.name](
            world,
            process,
            pipeline.writer("id BIGINT", "{}"),
            pipeline.control.clock_wait,
            pipeline.control.commit_timeout,
        )

    @contextmanager
    def open(self) -> Iterator[SomeTable]:
        yield self._table

    @contextmanager
    def look(self) -> Iterator[SomeTable | None]:
        yield self._table

    def pin(self, table: SomeTable, last: Pinned | None, clusters: Sequence[ClusterTopics]) -> Pinned:
        return Pinned(RecordPlan(), table.writer)
