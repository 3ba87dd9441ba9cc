"""A DAG that keeps a group of workers, for each file of `workers/`: `workers/default.yaml` keeps the group `default`.

Each task is one worker. A worker that fails is started again by its task's retry. All workers of a run end by
themselves, after their longest stay or when pipeline files or the release change, and the next run begins at once, with
the present file, connections and code.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import uuid
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

from airflow.sdk import DAG, BaseOperator, Context
from pydantic import BeforeValidator, Field

from sluice.airflow.connections import (
    kafka_settings,
    mapped_kafka_connections,
    private_settings_of,
    source_connections,
    spark_master,
)
from sluice.connectors.connections import to_environment
from sluice.errors import PipelineFileError, RetryableError
from sluice.logs import log
from sluice.pipeline.load import pipeline_folders, read_file, unforeseen, validated
from sluice.pipeline.model import Pipeline
from sluice.pipeline.workers import dag_of_workers, pipelines_of
from sluice.sections import Duration, Section, parse_duration

_RETRIES = 1000
_RETRY_DELAY = timedelta(seconds=10)
_GRACE = 3.0  # seconds in which an ending worker releases its claims; the supervisor allows five


class Workers(Section):
    """How many workers of a group Airflow keeps, and how they work."""

    workers: Annotated[int, Field(ge=1, le=100)] = 1
    """How many. Each takes a slot of Airflow's executor, always."""
    slots: Annotated[int, Field(ge=1)] = 2
    """How many ranges each writes at once."""
    memory: str = "2g"
    """Memory of each one's Spark driver."""
    lease: Annotated[timedelta, Field(ge=timedelta(seconds=6)), BeforeValidator(parse_duration)] = timedelta(seconds=30)
    """After how long others take over the claims of a silent worker."""
    longest_stay: Duration = timedelta(hours=12)
    """After how long they end, and others begin afresh."""
    trust_control_topic: bool = False
    """Whether unsigned START-COMMITs are accepted: only where Sluice alone may write to the control topic."""
    connections: tuple[str, ...] = ()
    """Further Kafka connections, besides those of the pipelines and of their `mapped_connections`."""
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    """On which the first one answers `/health`, `/ready` and `/metrics`; each further one on the next port."""
    host: str = "127.0.0.1"
    """The address that they listen on for that."""
    pool: str = "default_pool"
    """The Airflow pool of the tasks."""
    queue: str | None = None
    """The Airflow queue of the tasks, such as one of a machine with much memory."""


class WorkerOperator(BaseOperator):
    """Runs one worker to its end, and ends it when the task is stopped.

    Args:
        group: the group of workers.
        options: how it works.
        pipelines: the default folder of pipeline files.
        number: its number among those of the run, from 0.
    """

    def __init__(self, *, group: str, options: WorkerOptionsText, pipelines: str, number: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.group = group
        self.options = options.options
        self.pipelines = pipelines
        self.number = number
        self._process: subprocess.Popen[str] | None = None

    def execute(self, context: Context) -> None:  # noqa: ARG002
        """Run it.

        Raises:
            RetryableError: it ended as it should not.
            SluiceError: a requirement is missing.
        """
        command, environment = self._prepare()
        self._process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,  # closed by the kernel if this process is killed: the worker ends with it
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        assert self._process.stdout is not None
        try:
            for line in self._process.stdout:
                self.log.info("%s", line.rstrip())
            status = self._process.wait()
        finally:
            self._end()
        if status != 0:
            raise RetryableError(
                "A worker ended as it should not.",
                next_step="it is started again; if it comes back, read its log above.",
                group=self.group,
                exit=status,
            )
        log.info("the worker has ended well; the next run starts another", group=self.group)

    def on_kill(self) -> None:
        """End the worker: first by SIGTERM to its Python, which gives back its claims, then all of it by SIGKILL."""
        self._end()

    def _end(self) -> None:
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_GRACE)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)

    def _prepare(self) -> tuple[list[str], dict[str, str]]:
        from sluice.participant.launch.worker import WorkerOptions, worker_command, worker_environment

        given = self.options
        places = [folder.resolve() for folder in pipeline_folders(Path(self.pipelines)) if folder.is_dir()]
        served = pipelines_of(places, self.group)
        write = served[0].write
        os.environ.update(private_settings_of(*served).to_environment())
        os.environ.update(to_environment(source_connections(_own_connections(served))))
        options = WorkerOptions(
            self.group,
            given.slots,
            given.memory,
            given.lease,
            given.longest_stay,
            given.trust_control_topic,
            None if given.port is None else given.port + self.number,
            given.host,
        )
        further = (*given.connections, *mapped_kafka_connections(served))
        kafka = [kafka_settings(one) for one in _kafka_connections(served, further)]
        environment = worker_environment(options, spark_master(write.connection), write.conf, kafka)
        name = f"{self.group}-{self.number}-{uuid.uuid4().hex[:8]}"
        return worker_command(options, name, places, ends_with_stdin=True), environment


class WorkerOptionsText:
    """The options as an argument of a mapped operator: Airflow stores such arguments in its database as text."""

    def __init__(self, options: Workers) -> None:
        self.options = options

    def __str__(self) -> str:
        return str(self.options)

    __repr__ = __str__


def _own_connections(served: tuple[Pipeline, ...]) -> dict[str, None]:
    return dict.fromkeys(one for pipeline in served for one in pipeline.own_connections)


def _kafka_connections(served: tuple[Pipeline, ...], further: tuple[str, ...]) -> dict[str, None]:
    """The ids of all Kafka connections that the pipelines name."""
    named = [one for p in served for one in (p.kafka_connection, p.control.connection) if one is not None]
    return dict.fromkeys([*named, *further])


def build_workers_dag(file: Path, pipelines: Path, *, auto_register: bool = True) -> DAG:
    """The DAG that keeps the workers of one group.

    Args:
        file: says how many, and how they work; its name is the group's.
        pipelines: the default folder of pipeline files.
        auto_register: whether Airflow picks the DAG up even if no name in the module refers to it.

    Raises:
        PipelineFileError: the file is wrong.
    """
    data, node = read_file(file) if file.read_bytes().strip() else ({}, None)
    options = validated(Workers, data, file, node)
    with DAG(
        dag_id=dag_of_workers(file.stem),
        description=f"Keeps {options.workers} workers of the group {file.stem}",
        doc_md=__doc__,
        schedule="@continuous",
        catchup=False,
        max_active_runs=1,
        is_paused_upon_creation=True,
        tags={"sluice", "workers"},
        auto_register=auto_register,
        default_args={"retries": _RETRIES, "retry_delay": _RETRY_DELAY},
    ) as dag:
        more = {} if options.queue is None else {"queue": options.queue}
        WorkerOperator.partial(
            task_id="worker",
            group=file.stem,
            options=WorkerOptionsText(options),
            pipelines=str(pipelines),
            pool=options.pool,
            **more,
        ).expand(number=list(range(options.workers)))
    return dag


def build_workers_dags(folder: Path, pipelines: Path, *, auto_register: bool = True) -> list[DAG]:
    """The DAGs of all valid files of a folder (`raise_worker_errors` reports the wrong ones)."""
    dags = []
    for file in sorted([*folder.glob("*.yaml"), *folder.glob("*.yml")]):
        with contextlib.suppress(PipelineFileError):
            dags.append(_built(file, pipelines, auto_register=auto_register))
    return dags


def raise_worker_errors(folder: Path, pipelines: Path) -> None:
    """Raise the mistake of the first wrong file, if there is one.

    Raises:
        PipelineFileError: with file, line, key and remedy.
    """
    for file in sorted([*folder.glob("*.yaml"), *folder.glob("*.yml")]):
        _built(file, pipelines, auto_register=False)


def _built(file: Path, pipelines: Path, *, auto_register: bool) -> DAG:
    """See `build_workers_dag`; whatever else goes wrong with a file is its own mistake, and no other's."""
    try:
        return build_workers_dag(file, pipelines, auto_register=auto_register)
    except PipelineFileError:
        raise
    except Exception as error:
        raise unforeseen(file, error) from error
