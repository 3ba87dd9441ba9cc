"""An error's recovery class decides whether Airflow retries the task or fails it at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowFailException

from sluice.airflow.notes import ERROR_KEY, NOTE_KEY
from sluice.airflow.releases import HAS_RETRY_POLICIES
from sluice.errors import SluiceError
from sluice.logs import log
from sluice.pipeline.model import Pipeline

if HAS_RETRY_POLICIES:
    from airflow.sdk import RetryDecision, RetryPolicy

    class RecoveryPolicy(RetryPolicy):
        """Retries errors that may pass by `SluiceError.recovery`, and unforeseen ones; fails at once on all others.

        It is a retry policy instead of an AirflowFailException so that the task's log ends with the error itself, once.
        """

        def evaluate(
            self,
            exception: BaseException,
            try_number: int,  # noqa: ARG002
            max_tries: int,  # noqa: ARG002
            context: Context | None = None,  # noqa: ARG002
        ) -> RetryDecision:
            """Decide by the exception alone; the number of retries and the wait are the task's own settings."""
            if isinstance(exception, SluiceError) and exception.recovery != "retry":
                return RetryDecision.fail()
            return RetryDecision.default()

        def serialize(self) -> dict[str, Any]:
            """It has no settings."""
            return {}

        @classmethod
        def deserialize(cls, data: dict[str, Any]) -> RecoveryPolicy:  # noqa: ARG003
            """Any instance is like any other."""
            return cls()


def task_defaults(pipeline: Pipeline) -> dict[str, Any]:
    """The default arguments of tasks in all of a pipeline's DAGs: how they are retried."""
    return {
        "retries": pipeline.retries,
        "retry_delay": pipeline.retry_delay,
        "retry_exponential_backoff": 2.0,
        "max_retry_delay": max(timedelta(minutes=10), pipeline.retry_delay),
        **({"retry_policy": RecoveryPolicy()} if HAS_RETRY_POLICIES else {}),
    }


@contextmanager
def report_errors(context: Context, pipeline: Pipeline) -> Iterator[None]:
    """Put the error that stops the task into XComs, for note and alert, and let the log end with its message.

    Raises:
        AirflowFailException: an error that isn't to be retried, in an Airflow without retry policies.
    """
    try:
        yield
    except SluiceError as error:
        error.reword(pipeline.with_file_keys)
        context["ti"].xcom_push(key=NOTE_KEY, value=str(error))
        what = str(error).removesuffix(f" Next step: {error.next_step}")
        reported = {"what": what, "next_step": error.next_step, "recovery": error.recovery}
        context["ti"].xcom_push(key=ERROR_KEY, value=reported)
        if error.__cause__ is not None:
            log.debug("this is what the error rests on", cause=repr(error.__cause__))
        error.__cause__, error.__suppress_context__ = None, True
        if not HAS_RETRY_POLICIES and error.recovery != "retry":
            raise AirflowFailException(str(error)) from None
        raise
