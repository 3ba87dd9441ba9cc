"""The write job as a task: `spark-submit` for one range, with Kafka's settings hidden from the command line."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowException
from airflow.triggers.base import StartTriggerArgs

from sluice.airflow.connections import source_and_control, spark_master, streams_connection
from sluice.airflow.failures import report_errors
from sluice.airflow.tasks import take_private_settings
from sluice.errors import IntervalError, RetryableError, SluiceError, from_report
from sluice.kafka.config import KafkaSettings
from sluice.logs import log
from sluice.pipeline.model import Pipeline
from sluice.private import PrivateSettings
from sluice.protocol.claims import Verdict

if TYPE_CHECKING:
    from sluice.protocol.transaction import Transaction

_LONG_AGO = datetime.min.replace(tzinfo=UTC)
_GRACE = 3.0  # seconds between SIGTERM and SIGKILL; the supervisor gives the task itself five


class OnePipeline:
    """A pipeline as an argument of a mapped operator: Airflow stores such arguments in its database as text."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline

    def __str__(self) -> str:
        return f"pipeline {self.pipeline.name}"

    __repr__ = __str__


class DriverHook(SparkSubmitHook):
    """The provider's hook, but the driver inherits its environment, and ends as a process group.

    The provider's `env_vars` would work for a local driver, but they are a template field, and on YARN and Kubernetes
    they go onto the command line. In client mode the driver is our child process, so it simply inherits one.
    """

    environment: dict[str, str] | None = None

    def submit(self, application: str = "", **kwargs: Any) -> None:
        """Run spark-submit to its end, in a separate process group."""
        super().submit(application, env=self.environment, start_new_session=True, **kwargs)

    def on_kill(self) -> None:
        """End the JVM and the Python driver: first by SIGTERM, so that Spark can clean up, then by SIGKILL."""
        process = self._submit_sp
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


class SluiceWriteOperator(SparkSubmitOperator):
    """Writes one range of an interval in a Spark job (the transaction participant).

    Everything that identifies the range is plain data, since it comes through XCom; connections are looked up when
    it runs.

    Args:
        pipeline: the pipeline, wrapped.
        range_number: number of the range in the plan, from 0.
        control_offset: the START-COMMIT's offset in the control topic.
        instant: the transaction's id, for the logs.
        reads: topic, partitions and offsets, which name the mapped task.
        control_topic: that topic's name; None for a run that an earlier release started.
        digest: the START-COMMIT's digest, by which the job recognizes it.
        connections: the Airflow connections of streams' clusters.
    """

    template_fields: Sequence[str] = (
        "reads",
        "instant",
        "range_number",
        "control_offset",
        "control_topic",
        "digest",
        "connections",
    )

    def __init__(
        self,
        *,
        pipeline: OnePipeline,
        range_number: int,
        control_offset: int,
        instant: str,
        reads: str,
        control_topic: str | None = None,
        digest: str | None = None,
        connections: Sequence[str] = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline.pipeline
        self.connections = connections
        self.range_number = range_number
        self.control_offset = control_offset
        self.instant = instant
        self.reads = reads
        self.control_topic = control_topic
        self.digest = digest

    def execute(self, context: Context) -> None:
        """Run the job; a failure is raised as the error that the participant reported.

        Raises:
            SluiceError: the participant's reported error, with its recovery class; without a report, a RetryableError.
        """
        with report_errors(context, self.pipeline):
            self.pipeline = self.pipeline.on_control_topic(self.control_topic)
            source, control = source_and_control(self.pipeline)
            if context["ti"].try_number > 1 and self._reported(self._transaction(control)):
                log.info("an earlier attempt has reported this range already", range=self.reads)
                return
            self._prepare(source, control)
            begun = datetime.now(UTC)
            try:
                super().execute(context)
            except AirflowException as error:
                transaction = self._transaction(control)
                if not self._reported(transaction):
                    raise self._reason(transaction, begun, str(error)) from None
                log.warning("spark-submit failed after its WRITE-STATUS; the range is written", range=self.reads)

    def _prepare(self, source: KafkaSettings, control: KafkaSettings) -> None:
        from sluice.coordinator import Started
        from sluice.participant.launch.settings import spark_conf
        from sluice.participant.launch.submit import APPLICATION, application_arguments, driver_environment

        write = self.pipeline.write
        master = spark_master(write.connection)
        started = Started(self.instant, self.control_offset, (), self.control_topic, self.digest)
        self.application = str(APPLICATION)
        self.application_args = application_arguments(self.pipeline, started, self.range_number)
        take_private_settings(self.pipeline)
        self.conf = spark_conf(master, write.conf, PrivateSettings.from_environment().conf)
        self._hook = DriverHook(
            conf=self.conf,
            conn_id=write.connection,
            driver_memory=write.driver_memory,
            name=f"sluice-{self.pipeline.name}-{self.instant}-{self.range_number}",
            application_args=self.application_args,
        )
        clusters = [streams_connection(self.pipeline, connection) for connection in self.connections]
        self._hook.environment = driver_environment(source, control, master, clusters)

    def _transaction(self, control: KafkaSettings) -> Transaction | None:
        from sluice.control.topic import ControlTopic

        topic = ControlTopic(control, self.pipeline.control_topic)
        return topic.table_log(self.pipeline.table_id, self.control_offset).at(self.control_offset)

    def _reported(self, transaction: Transaction | None) -> bool:
        return transaction is not None and transaction.status_of(self.range_number) is not None

    def _reason(self, transaction: Transaction | None, begun: datetime, submit_says: str) -> SluiceError:
        """Why this attempt failed; reports of earlier attempts don't count."""
        where = {"table": self.pipeline.table_id, "instant": self.instant, "range": self.reads}
        if transaction is not None:
            failure = transaction.failure_of(self.range_number)
            if failure is not None and failure.time >= begun:
                return from_report(failure.recovery or "fail_run", failure.error or "")
            if not transaction.is_open:
                return IntervalError(
                    f"The transaction is not open any more: it is {transaction.state.value}.",
                    next_step="none for this task: a later run took over, or this one was aborted.",
                    **where,
                )
        return RetryableError(
            "The Spark job ended without a WRITE-STATUS.",
            next_step="the task is retried; if it comes back, read Spark's log above (out of memory, no executors, a "
            "driver that could not start).",
            exit=submit_says.rpartition("Error code is: ")[2].rstrip(".")[:200],
            **where,
        )


class WaitingWriteOperator(SluiceWriteOperator):
    """A `write` task of a pipeline that has workers: it begins in the triggerer (`waiting.py`), and may end there.

    Its arguments are those of `SluiceWriteOperator`.
    """

    start_from_trigger = True
    start_trigger_args = StartTriggerArgs(trigger_cls="sluice.airflow.waiting.RangeTrigger", next_method="resume")

    def resume(self, context: Context, event: str) -> None:
        """Continue in a process: submit the Spark job, or raise the worker's error.

        Raises:
            SluiceError: the error reported by the worker or the Spark job.
        """
        verdict = Verdict(event)
        if verdict is Verdict.SUBMIT:
            log.info("no worker writes the range: a separate Spark job does", range=self.reads)
            self.execute(context)
            return
        with report_errors(context, self.pipeline):
            self.pipeline = self.pipeline.on_control_topic(self.control_topic)
            transaction = self._transaction(source_and_control(self.pipeline)[1])
            raise self._reason(transaction, _LONG_AGO, verdict.value)
