"""The known pipelines: those of the pipeline files, and those known only from control topics and DAG tags."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from airflow.configuration import conf

from sluice.airflow.connections import kafka_settings
from sluice.errors import ActionRequiredError, PipelineFileError
from sluice.page.access import BY_HAND, Viewer
from sluice.page.cache import refresh_all
from sluice.page.follower import ControlFollower, MemoryBudget
from sluice.pipeline.load import load_each, pipeline_files
from sluice.pipeline.model import SHARED_CONTROL_TOPIC, Pipeline, default_control_topic
from sluice.pipeline.workers import keeps_workers
from sluice.protocol.messages import StartCommit
from sluice.sources.kafka.options import Kafka

TOPICS_VARIABLE = "SLUICE_CONTROL_TOPICS"
ROOTS_VARIABLE = "SLUICE_TABLE_ROOTS"
_SINK_WITHOUT_A_FILE = str(StartCommit.model_fields["sink"].default)
NOT_LOOKED_AT = (
    f"no pipeline file names it. For users who may read all DAGs it is read below the folders that {ROOTS_VARIABLE} "
    "names in the API server's environment."
)


class ControlTopicId(NamedTuple):
    """A control topic, and the Airflow connection of its cluster."""

    connection: str
    topic: str


@dataclass(frozen=True)
class Entry:
    """One pipeline.

    Attributes:
        key: its name on the page: the DAG's id, or the table's path if no DAG is known.
        dag_id: its DAG; None if only manual commands have written the table.
        table: the table's path; None for a DAG without a pipeline file that has started no transaction yet.
        control: the control topic of its messages.
        pipeline: the pipeline of its file; None if there is no file.
    """

    key: str
    dag_id: str | None
    table: str | None
    control: ControlTopicId | None
    pipeline: Pipeline | None

    @property
    def sink(self) -> str:
        """The name of its sink; messages tell of tables without a file, which were Hudi's before they named a sink."""
        return self.pipeline.sink.name if self.pipeline is not None else _SINK_WITHOUT_A_FILE


def may_look_at(entry: Entry, viewer: Viewer) -> bool:
    """Whether the table's files may be read for a user.

    A path known only from messages may come from any principal with write access to a control topic, who must not
    make this process read arbitrary places with its rights. So it must be in a folder that the environment names. Such
    a message also names the DAG, by which the table would show to readers of any DAG: the user must be permitted to
    read all of them.
    """
    if entry.pipeline is not None:
        return True
    roots = [root.strip().rstrip("/") for root in os.environ.get(ROOTS_VARIABLE, "").split(",")]
    below = any(root and (entry.table or "").startswith(f"{root}/") for root in roots)
    return below and viewer.may_read(None)


class Catalogue:
    """Pipeline files, and the followers of all control topics. One for each API server process."""

    def __init__(self) -> None:
        self._files: dict[Path, tuple[tuple[int, int], tuple[Pipeline, ...] | PipelineFileError]] = {}
        self._followers: dict[ControlTopicId, ControlFollower] = {}
        self._budget = MemoryBudget()
        self._lock = Lock()

    def follower(self, control: ControlTopicId) -> ControlFollower:
        """The one follower of a control topic."""
        with self._lock:
            if control not in self._followers:
                settings = partial(kafka_settings, control.connection)
                self._followers[control] = ControlFollower(settings, control.topic, self._budget)
            return self._followers[control]

    def entries(self, tagged: frozenset[str]) -> tuple[list[Entry], list[PipelineFileError]]:
        """All pipelines by name, and the errors of files that can't be loaded.

        Args:
            tagged: the ids of the DAGs that Airflow knows under the tag `sluice`.
        """
        pipelines, errors = self._pipelines()
        of_files = [Entry(p.name, p.name, p.table_id, control_topic(p), pipeline=p) for p in pipelines.values()]
        others = frozenset(dag_id for dag_id in tagged - set(pipelines) if not keeps_workers(dag_id))
        try:
            topics = self._topics(of_files, others)
        except ActionRequiredError as error:
            topics = dict.fromkeys(e.control for e in of_files if e.control)
            errors.append(PipelineFileError(error.what, next_step=error.next_step, **error.where))
        found = of_files + self._of_topics(of_files, topics)
        unknown = others - {entry.dag_id for entry in found}
        found += [Entry(dag_id, dag_id, None, None, None) for dag_id in unknown]
        return sorted(found, key=lambda entry: entry.key), errors

    def _topics(self, of_files: list[Entry], others: frozenset[str]) -> Mapping[ControlTopicId, None]:
        topics = [entry.control for entry in of_files if entry.control]
        connection = Kafka.model_fields["connection"].default
        for dag_id in sorted(others):  # DAGs made in Python have default topics, unless the environment names others
            topics.append(ControlTopicId(connection, default_control_topic(dag_id)))
        if others:
            topics.append(ControlTopicId(connection, SHARED_CONTROL_TOPIC))
        for item in filter(None, os.environ.get(TOPICS_VARIABLE, "").split(",")):
            connection, separator, topic = item.strip().partition(":")
            if not (connection and separator and topic):
                raise ActionRequiredError(
                    f"{TOPICS_VARIABLE} is not a list of connection:topic.",
                    next_step="write it as kafka_default:its-topic,other:its-topic in the API server's environment.",
                )
            topics.append(ControlTopicId(connection, topic))
        return dict.fromkeys(topics)

    def _of_topics(self, of_files: list[Entry], topics: Mapping[ControlTopicId, None]) -> list[Entry]:
        """Tables that are in control topics but in no file, under the DAG that last wrote them."""
        found: dict[str, Entry] = {}
        known, keys = {e.table for e in of_files}, {e.key for e in of_files}
        refresh_all(self.follower(control).cached for control in topics)
        for control in topics:
            follower = self.follower(control)
            with follower.tables() as tables:
                latest = {
                    table: next((d for d in history.dag_ids() if d != BY_HAND), None)
                    for table, history in tables.items()
                    if table not in known and history.transactions
                }
            for table, dag_id in latest.items():
                entry = Entry(dag_id or table, dag_id, table, control, None)
                if entry.key in keys or entry.key in found:  # a DAG whose table was changed
                    entry = replace(entry, key=f"{dag_id} {table}")
                found[entry.key] = entry
        return list(found.values())

    def file_of(self, name: str) -> Path | None:
        """The pipeline file that has a pipeline of this name; None if there is none, or it can't be loaded."""
        for path in _files():
            found = self._load(path)
            if not isinstance(found, PipelineFileError) and any(pipeline.name == name for pipeline in found):
                return path
        return None

    def _pipelines(self) -> tuple[dict[str, Pipeline], list[PipelineFileError]]:
        pipelines: dict[str, Pipeline] = {}
        errors = []
        for path in _files():
            found = self._load(path)
            if isinstance(found, PipelineFileError):
                errors.append(found)
            else:
                for pipeline in found:  # files that share a name become no DAG, which Airflow shows as an error
                    pipelines.setdefault(pipeline.name, pipeline)
        return pipelines, errors

    def _load(self, path: Path) -> tuple[Pipeline, ...] | PipelineFileError:
        """Load a file; it is parsed again only when it has changed."""
        try:
            status = path.stat()
            stamp = (status.st_mtime_ns, status.st_size)
        except OSError:
            stamp = (0, 0)
        kept = self._files.get(path)
        if kept is not None and kept[0] == stamp:
            return kept[1]
        pipelines, errors = load_each([path])
        found = errors[0] if errors else tuple(pipeline for _, pipeline in pipelines)
        self._files[path] = (stamp, found)
        return found


def default_folder() -> Path:
    """The folder of pipeline files below the DAGs folder."""
    return Path(conf.get("core", "dags_folder")) / "pipelines"


def _files() -> Iterable[Path]:
    return dict.fromkeys(path.resolve() for path in pipeline_files(default_folder()))


def control_topic(pipeline: Pipeline) -> ControlTopicId:
    """The control topic of a pipeline's messages."""
    control = pipeline.control
    return ControlTopicId(control.connection or pipeline.kafka_connection, pipeline.control_topic)
