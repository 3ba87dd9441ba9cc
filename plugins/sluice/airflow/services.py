"""The table services as tasks: by Hudi's Java client, or by a Spark job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowException, AirflowSkipException

from sluice.airflow.connections import source_and_control, spark_master
from sluice.airflow.failures import report_errors
from sluice.airflow.notes import NOTE_KEY
from sluice.airflow.operators import DriverHook
from sluice.airflow.tasks import is_running, take_private_settings
from sluice.errors import IntervalError, RetryableError, SluiceError
from sluice.logs import log
from sluice.pipeline.model import Pipeline
from sluice.private import PrivateSettings

if TYPE_CHECKING:
    from sluice.coordinator import Run
    from sluice.coordinator.services import Planned, Services
    from sluice.protocol.services import Service


CHANGE_VERSION = "table_version"
"""The field of the trigger form that asks for the service `table_version`."""


def services_of(pipeline: Pipeline) -> Services:
    """The pipeline's table services, with the connections that its intervals use.

    Raises:
        ActionRequiredError: a connection is missing or wrong.
    """
    from sluice.coordinator.services import Services  # imports Kafka and Py4J, which parsing a DAG doesn't need

    take_private_settings(pipeline)
    return Services(pipeline, *source_and_control(pipeline), is_running=is_running)


def run_of(context: Context) -> Run:
    """The DAG run, for messages."""
    from sluice.coordinator import Run

    return Run(context["ti"].dag_id, context["run_id"])


class TableServiceOperator(BaseOperator):
    """Cleaning, archiving, or the metadata table's own compaction: seconds, in the coordinator's JVM."""

    def __init__(self, *, pipeline: Pipeline, service: Service, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline
        self.service = service

    def execute(self, context: Context) -> str:
        """Run the service under its own transaction.

        Raises:
            RetryableError: an interval holds the table for too long, or Kafka or Hudi fail.
            IntervalError: another run took the table over.
        """
        with report_errors(context, self.pipeline):
            outcome = services_of(self.pipeline).run(run_of(context), self.service)
        context["ti"].xcom_push(key=NOTE_KEY, value=outcome.summary)
        return outcome.summary


class TableVersionOperator(TableServiceOperator):
    """A change of the table's version, in a run whose trigger form asks for it."""

    def execute(self, context: Context) -> str:
        """Run the service, as `TableServiceOperator`.

        Raises:
            AirflowSkipException: the run doesn't ask for it.
        """
        if not context["params"][CHANGE_VERSION]:
            raise AirflowSkipException("This run doesn't ask for a change of the table's version.")
        return super().execute(context)


class SparkServiceOperator(SparkSubmitOperator):
    """Compaction or clustering: planned in the coordinator's JVM, and carried out by a Spark job if there is a plan."""

    template_fields = ()

    def __init__(self, *, pipeline: Pipeline, service: Service, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline
        self.service = service

    def execute(self, context: Context) -> None:
        """Plan, run the job, and release the table if it fails.

        Raises:
            AirflowSkipException: nothing is due.
            SluiceError: planning or the job failed.
        """
        from sluice.coordinator.services import Planned

        with report_errors(context, self.pipeline):
            services = services_of(self.pipeline)
            planned = services.plan(run_of(context), self.service)
            if not isinstance(planned, Planned):
                context["ti"].xcom_push(key=NOTE_KEY, value=planned.summary)
                raise AirflowSkipException(planned.summary)
            try:
                self._prepare(planned)
                self._submit(context, services, planned)
            except SluiceError as error:
                services.give_up(planned.control_offset, str(error))
                raise
        summary = f"Done: {self.service} {', '.join(planned.instants)}."
        context["ti"].xcom_push(key=NOTE_KEY, value=summary)

    def _submit(self, context: Context, services: Services, planned: Planned) -> None:
        from sluice.protocol.transaction import State

        failure = ""
        try:
            super().execute(context)
        except AirflowException as error:
            failure = str(error).rpartition("Error code is: ")[2].rstrip(".")[:200]
        state = services.state(planned.control_offset)
        if state is State.COMMITTED:
            if failure:
                log.warning("spark-submit failed after its ACK-COMMIT; the service is done", service=self.service)
            return
        where = {"table": self.pipeline.table_id, "service": self.service, "exit": failure or None}
        if state in (State.SUPERSEDED, State.ABORTED):
            raise IntervalError(
                f"The table service lost its hold on the table: its transaction is {state.value}.",
                next_step="none: nothing of it is seen, and the service's next run does the work.",
                **where,
            )
        raise RetryableError(
            "The Spark job of a table service failed.",
            next_step="the task is retried; if it comes back, read Spark's log above.",
            **where,
        )

    def _prepare(self, planned: Planned) -> None:
        from sluice.participant.launch.settings import spark_conf
        from sluice.participant.launch.submit import (
            SERVICE_APPLICATION,
            driver_environment,
            service_arguments,
            service_settings,
        )

        write = self.pipeline.write
        conf, memory = service_settings(self.pipeline)
        self.application = str(SERVICE_APPLICATION)
        self.application_args = service_arguments(self.pipeline, planned.control_offset, planned.digest)
        master = spark_master(write.connection)
        self.conf = spark_conf(master, conf, PrivateSettings.from_environment().conf)
        self._hook = DriverHook(
            conf=self.conf,
            conn_id=write.connection,
            driver_memory=memory,
            name=f"sluice-{self.pipeline.name}-{self.service}",
            application_args=self.application_args,
        )
        self._hook.environment = driver_environment(*source_and_control(self.pipeline), master)
