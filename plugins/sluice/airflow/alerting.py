"""The task `alert`, the last of each run: it notifies people.

It is a task and not Airflow's callback or listener: the callback runs in the DAG processor, once, with no retry and
nothing visible in the UI; the listener runs in the scheduler, which must not wait for a mail server. As a teardown it
runs however the run went, and its own failure doesn't change the run's outcome. docs/alerts.md has more.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowRuntimeError
from tenacity import Retrying, stop_after_attempt, wait_exponential

from sluice.airflow import state
from sluice.airflow.alerts import Alert, Failure, History, Links, Outcome, Report, after, decide
from sluice.airflow.assets import table_asset, without_assets
from sluice.airflow.connections import source_and_control
from sluice.airflow.failures import report_errors
from sluice.airflow.links import log_url, page_url, run_url
from sluice.airflow.notes import ALERT, CATALOG_SYNC, COMMIT, ERROR_KEY, START_COMMIT
from sluice.airflow.notifiers import make_notifier
from sluice.airflow.releases import ended_tasks, redacted
from sluice.airflow.tasks import TRANSACTION_KEY, on_transaction_topic
from sluice.airflow.transactions import INTERVAL_KEY, read_transaction
from sluice.airflow.trigger_form import reads_on
from sluice.errors import RetryableError, SluiceError
from sluice.logs import log
from sluice.pipeline.alerts import Notifier
from sluice.pipeline.model import Pipeline
from sluice.protocol.interval_facts import IntervalFacts, interval_facts
from sluice.protocol.messages import PlannedRange
from sluice.protocol.transaction import State

if TYPE_CHECKING:
    from pydantic import JsonValue

_HISTORY_KEY = "sluice_alerts"
_TOLD_KEY = "told"
_ATTEMPTS = 3  # where no task can be retried
_LOOK_BACK = 2000  # offsets of the control topic to search for the table's last commit


class AlertOperator(BaseOperator):
    """Decides which alerts a run gives rise to, and sends them through the pipeline's notifiers.

    Its state between runs, such as failures in a row, is in Airflow's state store of the table's asset. Which alerts
    were sent is in the task's own store, so that a retry doesn't send them twice.
    """

    def __init__(self, *, pipeline: Pipeline, **kwargs: Any) -> None:
        super().__init__(inlets=[table_asset(pipeline)], **kwargs)
        self.pipeline = pipeline

    def prepare_for_execution(self) -> AlertOperator:
        """The copy that runs."""
        return without_assets(super().prepare_for_execution())

    def execute(self, context: Context) -> None:
        """Send the run's alerts.

        Raises:
            RetryableError: a notifier failed; all others were called.
        """
        with report_errors(context, self.pipeline):
            report = _report(self.pipeline, context)
            rules = self.pipeline.alerts
            history = self._history(context, report)
            alerts = decide(report, history, rules)
            if not alerts:
                log.info("no alert is due", outcome=report.outcome)
            self._tell(alerts, context)

    def _history(self, context: Context, report: Report) -> History:
        """The history before this run; it is updated at once, but a retry still finds the earlier state."""
        store = state.of_asset(context.get("asset_state_store"), table_asset(self.pipeline))
        try:
            stored = cast("dict[str, Any]", store.get(_HISTORY_KEY, default={}))
        except AirflowRuntimeError as error:  # another DAG has the table's URI as an asset of another name
            log.warning("what came before is not known, as far as alerts go", reason=str(error))
            return History()
        latest = History.model_validate(stored.get("latest") or {})
        before = History.model_validate(stored.get("before") or {}) if latest.run_id == report.run_id else latest
        now = after(report, before, self.pipeline.alerts)
        both = {"latest": now.model_dump(mode="json"), "before": before.model_dump(mode="json")}
        store.set(_HISTORY_KEY, cast("JsonValue", both))
        return before

    def _tell(self, alerts: list[Alert], context: Context) -> None:
        store = state.of_task(context)
        done = list(cast("list[str]", store.get(_TOLD_KEY, default=[])))
        failed: list[str] = []
        for alert in alerts:
            for name, key, send in _messages(self.pipeline, alert, context):
                if key in done:
                    continue
                try:
                    send()
                except Exception as error:  # a notifier may raise anything; the others must be called
                    problem = type(error).__name__
                    log.error("a notifier failed", alert=alert.kind, notifier=name, error=problem, reason=str(error))
                    failed.append(f"{name} ({alert.kind}): {problem}")
                else:
                    log.info("alert sent", alert=alert.kind, notifier=name, subject=alert.subject)
                    done.append(key)
                    store.set(_TOLD_KEY, cast("JsonValue", done))
        if failed:
            raise RetryableError(
                f"{len(failed)} message{'s' if len(failed) > 1 else ''} could not be sent.",
                next_step="they are sent again; if that fails too, correct the notifier's arguments or connection.",
                notifiers="; ".join(failed),
            )
        store.delete(_TOLD_KEY)  # a run that a person clears may have new alerts


def tell_all(pipeline: Pipeline, alert: Alert, context: Context) -> None:
    """Send one alert through each of its notifiers, from where no task can be retried.

    Raises:
        ExceptionGroup: some of them failed; all others were called.
    """
    failed: list[Exception] = []
    for name, _, send in _messages(pipeline, alert, context):
        try:
            Retrying(stop=stop_after_attempt(_ATTEMPTS), wait=wait_exponential(1), reraise=True)(send)
        except Exception as error:
            failed.append(error)
        else:
            log.info("alert sent", alert=alert.kind, notifier=name, subject=alert.subject)
    if failed:
        raise ExceptionGroup("messages could not be sent", failed)


def _messages(pipeline: Pipeline, alert: Alert, context: Context) -> Iterator[tuple[str, str, Any]]:
    """Each notifier's name, a key for the message, and what sends it.

    Each attempt has a notifier for itself: rendering writes into its fields, and what an alert says, such as a topic's
    name, would be a template of the next attempt, with the notifier's own secrets among the variables.
    """
    said = redacted(alert.reworded(pipeline.with_file_keys).variables())
    own = cast("Context", {**context, "sluice": said})
    for number, notifier in enumerate(pipeline.alerts.notifiers(alert.occasion)):
        place = f"alerts.{alert.occasion}.{number}"
        key = f"{alert.kind} {alert.data.get('limit', '')}/{number}"
        yield notifier.notifier.rpartition(".")[2], key, partial(_send, notifier, place, own)


def _send(notifier: Notifier, place: str, context: Context) -> None:
    own = cast("Context", {**context})  # a notifier adds its own arguments to the context
    make_notifier(notifier, place)(own)


def _report(pipeline: Pipeline, context: Context) -> Report:
    ti = context["ti"]
    # This task's own retries are in the list, too, as waiting tasks.
    ended = [t for t in ended_tasks(context) if t["task_id"] != ALERT]
    states = {t["task_id"]: t["state"] for t in ended}
    committed = states.get(COMMIT) == "success" and states.get(CATALOG_SYNC) != "failed"
    common: dict[str, Any] = {
        "pipeline": pipeline.name,
        "table": pipeline.table_id,
        "run_id": ti.run_id,
        "reads_on": reads_on(context),
        "began": context["dag_run"].start_date or datetime.now(UTC),
        "ended": datetime.now(UTC),
        "links": Links(run_url(ti.dag_id, ti.run_id), page_url(ti.dag_id, ti.run_id)),
    }
    opened = ti.xcom_pull(task_ids=START_COMMIT, key=TRANSACTION_KEY) or {}
    if committed:
        ended_well = _ended_well(pipeline, context, opened)
        if not isinstance(ended_well, Failure):
            through = opened.get("valid_through")
            common |= {
                "remarks": tuple(opened.get("remarks", ())),
                "lag_records": opened.get("lag_records"),
                "valid_through": datetime.fromisoformat(through) if through is not None else None,
            }
            return Report(**common, **ended_well)
        failures: tuple[Failure, ...] = (ended_well,)
    else:
        failures = tuple(_failure(context, t["task_id"], t["map_index"]) for t in ended if t["state"] == "failed")
    return Report(outcome="failed", failures=failures, **common, **_from_control_topic(pipeline, context))


def _ended_well(pipeline: Pipeline, context: Context, opened: dict[str, Any]) -> dict[str, Any] | Failure:
    """Outcome and facts of a run whose `commit` counts as successful, or the contradiction found.

    A person may have marked the task. It has then returned nothing, and the control topic has the run's outcome.
    """
    ti = context["ti"]
    returned = ti.xcom_pull(task_ids=COMMIT)
    if returned is not None:
        facts = ti.xcom_pull(task_ids=COMMIT, key=INTERVAL_KEY)
        outcome: Outcome = "committed" if returned["state"] == "committed" else "empty"
        return {"outcome": outcome, "facts": IntervalFacts.model_validate(facts) if facts else None}
    if "empty" in opened:
        return {"outcome": "empty"}
    facts = _from_control_topic(pipeline, context).get("facts")
    if facts is not None and facts.state is State.COMMITTED:
        return {"outcome": "committed", "facts": facts}
    return Failure(
        task=COMMIT,
        what="The task was marked as successful by hand, but its interval isn't known to be committed.",
        next_step="none, if the interval was to be given up: the next run reads the same offsets. Else clear the "
        f"tasks {START_COMMIT} and all after it.",
        recovery="fail_run",
        log=log_url(ti.dag_id, ti.run_id, COMMIT),
    )


def _failure(context: Context, task_id: str, map_index: int) -> Failure:
    ti = context["ti"]
    error = ti.xcom_pull(task_ids=task_id, key=ERROR_KEY, map_indexes=map_index if map_index >= 0 else None) or {
        "what": "No reason was recorded: the task was killed, or something unforeseen stopped it.",
        "next_step": "read its log.",
    }
    name = f"{task_id}[{map_index}]" if map_index >= 0 else task_id
    return Failure(task=name, log=log_url(ti.dag_id, ti.run_id, task_id, map_index), **error)


def _from_control_topic(pipeline: Pipeline, context: Context) -> dict[str, Any]:
    """The run's transaction, or the table's position at its last commit; alerts must be sent without them, too."""
    opened = context["ti"].xcom_pull(task_ids=START_COMMIT, key=TRANSACTION_KEY) or {}
    try:
        _, control = source_and_control(pipeline)
        if "control_offset" in opened:
            return {
                "facts": interval_facts(
                    read_transaction(on_transaction_topic(pipeline, opened), control, opened["control_offset"])
                )
            }
        ti = context["ti"]
        return of_run_or_last(pipeline, control, ti.dag_id, ti.run_id)
    except SluiceError as error:
        log.warning("the control topic can't be read; the message goes out without offsets", reason=str(error))
        return {"unknown": error.what}


def of_run_or_last(pipeline: Pipeline, control: Any, dag_id: str, run_id: str) -> dict[str, Any]:
    """A run's transaction, or else the table's position, from the control topic's last messages.

    Raises:
        RetryableError, ActionRequiredError: the control topic can't be read.
    """
    from sluice.control.topic import ControlTopic
    from sluice.protocol.transaction import TableLog

    table = pipeline.table_id
    messages = ControlTopic(control, pipeline.control_topic).recent(table, _LOOK_BACK)
    table_log = TableLog(table).extend(messages)
    of_run = table_log.of_run(dag_id, run_id)
    if of_run:
        return {"facts": interval_facts(of_run[-1])}
    last = [t for t in table_log.transactions.values() if t.state is State.COMMITTED]
    stands: tuple[PlannedRange, ...] = interval_facts(last[-1]).stands if last else ()
    return {"stands": stands}
