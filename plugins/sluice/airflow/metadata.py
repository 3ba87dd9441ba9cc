"""The metadata service in a Variable of Airflow: users who may edit Variables decide where streams are."""

from __future__ import annotations

from airflow.sdk import Variable
from airflow.sdk.exceptions import AirflowRuntimeError

from sluice.errors import ActionRequiredError, RetryableError
from sluice.sources.kafka.metadata import WrittenMapping


class VariableService(WrittenMapping):
    """Reads a Variable at each call; its value is JSON or YAML, as for the file service.

    Args:
        name: the Variable's key.
    """

    def __init__(self, name: str) -> None:
        super().__init__({"variable": name})
        self._name = name

    def text(self) -> str:
        """See `WrittenMapping`."""
        try:
            found = Variable.get(self._name, default=None)
        except AirflowRuntimeError as error:
            raise RetryableError(
                "Airflow's Variable of the streams can't be read just now.",
                next_step="look whether Airflow's API server and secrets backends are up; the step is retried.",
                reason=str(error).splitlines()[0],
                **self._where,
            ) from error
        if found is None:
            raise ActionRequiredError(
                "Airflow has no Variable of that name.",
                next_step="add it under Admin, Variables: "
                "{streams: {<stream>: {clusters: {<cluster>: {topics: [<topic>]}}}}}.",
                **self._where,
            )
        return str(found)
