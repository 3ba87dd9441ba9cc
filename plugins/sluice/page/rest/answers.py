"""Kafka Connect's answers, made of what Airflow and the pipeline files know. Pure.

Shapes: Connect's REST API, and for offsets, stopping and restarting KIP-875 and KIP-745.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Any, Literal, Protocol

from sluice import __version__
from sluice.connectors import registry
from sluice.connectors.options import Positions
from sluice.page.health import failures_in_a_row
from sluice.page.present import LOGS_SAY_WHY
from sluice.pipeline.model import Pipeline
from sluice.protocol.offsets import TopicPartition
from sluice.redact import redact

Json = dict[str, Any]
State = Literal["RUNNING", "PAUSED", "STOPPED", "FAILED", "UNASSIGNED", "RESTARTING"]
Type = Literal["sink", "source"]
_OF_A_TASK: Mapping[str | None, State] = {
    "running": "RUNNING",
    "deferred": "RUNNING",
    "success": "RUNNING",  # its range is written, and it waits for the next interval
    "failed": "FAILED",
    "up_for_retry": "RESTARTING",
    "restarting": "RESTARTING",
}
_WORKING = ("RUNNING", "RESTARTING")


class Run(Protocol):
    """What is needed of a DAG run."""

    @property
    def run_id(self) -> str: ...  # noqa: D102

    @property
    def state(self) -> str: ...  # noqa: D102

    @property
    def started(self) -> Any: ...  # noqa: D102

    @property
    def note(self) -> str | None: ...  # noqa: D102


@dataclass(frozen=True)
class RangeTask:
    """One range of an interval, as the task instance that writes it.

    Attributes:
        number: the range's, which is the task's map index.
        state: Airflow's; None where it isn't scheduled yet.
        host: where it runs or ran.
        reads: the partitions and offsets, in words.
        error: why it failed last.
    """

    number: int
    state: str | None
    host: str = ""
    reads: str = ""
    error: str | None = None


@dataclass(frozen=True)
class Facts:
    """What Airflow's database says of one pipeline.

    Attributes:
        known: whether Airflow has its DAG.
        paused: whether the DAG is.
        runs: its latest runs, newest first.
        goes_on: whether a run is under way in which more than the ending is left to do.
        tasks: the ranges of the latest interval that had any.
        tasks_of: that interval's run.
        host: where the latest step of a run ran.
    """

    known: bool = False
    paused: bool = False
    runs: Sequence[Run] = ()
    goes_on: bool = False
    tasks: tuple[RangeTask, ...] = ()
    tasks_of: str | None = None
    host: str = ""

    @property
    def state(self) -> State:
        """The connector's.

        A failed interval counts until one goes well, also while the next one runs: as the page has it.
        """
        if not self.known:
            return "UNASSIGNED"
        if self.paused:
            return "PAUSED" if self.goes_on else "STOPPED"
        return "FAILED" if failures_in_a_row(self.runs) else "RUNNING"

    @property
    def latest_failed(self) -> Run | None:
        """The run that failed last, where none has gone well since."""
        failed = next((run for run in self.runs if run.state == "failed"), None)
        return failed if failures_in_a_row(self.runs) else None

    @property
    def under_way(self) -> Run | None:
        """The run that has begun and hasn't ended."""
        return next((run for run in self.runs if run.state == "running"), None)

    @property
    def waiting(self) -> bool:
        """Whether a run has been made that hasn't begun."""
        return any(run.state == "queued" for run in self.runs)

    def shown_tasks(self) -> Iterator[tuple[RangeTask, State]]:
        """The tasks with Connect's states; none where the connector is stopped."""
        connector = self.state
        if connector == "STOPPED":
            return
        newest_failed = self.latest_failed
        order = [run.run_id for run in self.runs]
        gone = newest_failed is not None and (
            self.tasks_of not in order or order.index(self.tasks_of) > order.index(newest_failed.run_id)
        )  # what failed last got no ranges: those of an interval before it say nothing of now
        for task in self.tasks:
            state = _OF_A_TASK.get(task.state, "UNASSIGNED")
            if gone or connector == "UNASSIGNED":
                state = "UNASSIGNED"
            elif connector == "PAUSED" and state in _WORKING and task.state != "running":
                state = "PAUSED"
            yield task, state


def error(status: int, message: str) -> Json:
    """An error."""
    return {"error_code": status, "message": message}


def type_of(pipeline: Pipeline | None) -> Type:
    """What a pipeline is in Connect's words: what loads a database into Kafka is a source, all others are sinks.

    Args:
        pipeline: of the file; None where it was made in Python.
    """
    if pipeline is None or pipeline.sink.name != "kafka":
        return "sink"
    return "source" if pipeline.source.capabilities.rows else "sink"


def status(name: str, facts: Facts, kind: Type) -> Json:
    """The state of a connector and its tasks."""
    connector: Json = {"state": facts.state, "worker_id": facts.host, "version": __version__}
    failed = facts.latest_failed
    if failed is not None and facts.state == "FAILED":
        connector["trace"] = redact(failed.note) or f"The DAG run {failed.run_id} has failed; its tasks' logs say why."
    return {
        "name": name,
        "connector": connector,
        "tasks": [_task_status(task, state) for task, state in facts.shown_tasks()],
        "type": kind,
    }


def task_status(facts: Facts, number: int) -> Json | None:
    """The state of one task; None if there is no such task."""
    found = (_task_status(task, state) for task, state in facts.shown_tasks() if task.number == number)
    return next(found, None)


def _task_status(task: RangeTask, state: State) -> Json:
    shown: Json = {"id": task.number, "state": state, "worker_id": task.host, "version": __version__}
    if state in ("FAILED", "RESTARTING"):
        shown["trace"] = redact(task.error) or LOGS_SAY_WHY
    return shown


def info(name: str, config: Mapping[str, str], facts: Facts, kind: Type) -> Json:
    """A connector with its configuration and the ids of its tasks."""
    ids = [{"connector": name, "task": task.number} for task, _ in facts.shown_tasks()]
    return {"name": name, "config": dict(config), "tasks": ids, "type": kind}


def tasks(name: str, config: Mapping[str, str], facts: Facts) -> list[Json]:
    """The tasks with what each reads."""
    of_all = {"task.class": config.get("connector.class", ""), "topics": config.get("topics", "")}
    return [
        {
            "id": {"connector": name, "task": task.number},
            "config": {**of_all, "reads": redact(task.reads), "airflow.dag_run_id": facts.tasks_of or ""},
        }
        for task, _ in facts.shown_tasks()
    ]


def offsets(committed: Mapping[TopicPartition, int], positions: Positions = "offsets") -> Json:
    """The position of each partition: the offset of the next record, as a consumer group has it (KIP-875).

    Where the pipeline reads several clusters, each partition also names its cluster. Of a database's tables a partition
    is a table, and its offset has the names that Connect's JDBC source has: all before it was read.
    """
    if positions != "offsets":
        return {"offsets": [_of_table(tp, at, positions) for tp, at in sorted(committed.items())]}
    several = len({tp.cluster for tp in committed}) > 1
    rows = []
    for tp, offset in sorted(committed.items()):
        partition: Json = {"kafka_topic": tp.topic, "kafka_partition": tp.partition}
        if several:
            partition["kafka_cluster"] = tp.cluster
        rows.append({"partition": partition, "offset": {"kafka_offset": offset}})
    return {"offsets": rows}


def _of_table(tp: TopicPartition, position: int, positions: Positions) -> Json:
    partition = {"table": tp.topic, "split": tp.partition}
    if positions != "times":
        return {"partition": partition, "offset": {"incrementing" if positions == "numbers" else positions: position}}
    nanos = position % 1_000_000 * 1000
    return {"partition": partition, "offset": {"timestamp": position // 1000, "timestamp_nanos": nanos}}


def topics_of(pipeline: Pipeline | None, committed: Callable[[], Iterable[TopicPartition]]) -> list[str]:
    """The topics of a connector: a source's are the topics that it writes.

    Args:
        pipeline: of the file; None where it was made in Python.
        committed: tells whose offsets the table has, where the file names none.
    """
    named = pipeline.source.options.topics if pipeline is not None else ()
    read = list(named) or sorted({tp.topic for tp in committed()})
    if pipeline is None or not pipeline.source.capabilities.rows:
        return read
    return list(pipeline.sink.options.written_topics(read))


def class_of(kind: registry.Kind, name: str) -> str:
    """The class of a source or a sink, by which Connect's API knows it."""
    section = registry.section(kind, name)
    return f"{section.__module__}.{section.__qualname__}" if section is not None else name


def config_of(pipeline: Pipeline) -> dict[str, str]:
    """What a pipeline file says, as Connect has configurations: flat, and all of it text.

    Keys are the file's with dots between. `connector.class`, `topics` and `topics.regex` are there besides, under
    the names that Connect's tools look for. Values with secret names are hidden, though a file has no secrets.
    Notifiers are shown by their classes: their arguments may hold addresses that take any caller's posts.
    """
    said = pipeline.model_dump(by_alias=True, exclude_unset=True)
    if "alerts" in said:
        said["alerts"] = {key: _without_arguments(value) for key, value in said["alerts"].items()}
    source, kind = pipeline.source.options, type_of(pipeline)
    flat = {
        "name": pipeline.name,
        "connector.class": class_of(kind, pipeline.source.name if kind == "source" else pipeline.sink.name),
        **({"topics": ",".join(source.topics)} if source.topics else {}),
        **({"topics.regex": source.topics_pattern} if source.topics_pattern else {}),
        **dict(_flat("", said)),
    }
    if pipeline.source.capabilities.rows:  # its topics are tables, which `options` lists under their names
        names = (
            "topics",
            "topics.regex",
            *(f"{pipeline.source.place}.{name}" for name in ("topics", "topics_pattern")),
        )
        flat = {key: value for key, value in flat.items() if key not in names}
    return dict(redact(flat))


def _without_arguments(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [one["notifier"] if isinstance(one, Mapping) and "notifier" in one else one for one in value]
    return value


def _flat(prefix: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _flat(f"{prefix}.{key}" if prefix else str(key), inner)
    elif value is not None and not (isinstance(value, Mapping) and not value):
        yield prefix, _text(value)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, timedelta):
        return f"{value.total_seconds():g} seconds"
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, list | tuple | set | frozenset):
        if all(isinstance(one, str | int) for one in value):
            return ",".join(map(str, value))
        return json.dumps(value, default=_text)
    return str(value)
