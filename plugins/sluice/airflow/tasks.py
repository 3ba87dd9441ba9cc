"""The coordinator's steps as tasks: START-COMMIT, commit and abort. The write jobs are in `operators.py`."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from airflow.sdk import BaseOperator, BaseXCom, Context
from airflow.sdk.exceptions import AirflowRuntimeError, DownstreamTasksSkipped

from sluice.airflow import metrics, state
from sluice.airflow.assets import table_asset, tell_of_commit, told_up_to, without_assets
from sluice.airflow.connections import (
    private_settings_of,
    registry_settings,
    source_and_control,
    source_connections,
    streams_connection,
)
from sluice.airflow.failures import report_errors
from sluice.airflow.notes import ABORT, NOTE_KEY, START_COMMIT
from sluice.airflow.releases import number_of_runs
from sluice.airflow.transactions import INTERVAL_KEY, read_transaction
from sluice.airflow.trigger_form import reads_on, request_of
from sluice.connectors.connections import to_environment
from sluice.errors import IntervalError, SluiceError
from sluice.logs import log
from sluice.pipeline.model import Pipeline
from sluice.protocol.interval_facts import IntervalFacts, interval_facts
from sluice.protocol.request import Request
from sluice.protocol.standing import Standing

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from pydantic import JsonValue

    from sluice.coordinator import Coordinator, Outcome, Run, Started
    from sluice.protocol.messages import PlannedRange
    from sluice.protocol.transaction import Transaction

TRANSACTION_KEY = "transaction"
WORKERS_KEY = "workers"
"""The XCom of `start_commit` with the ranges that `write` tasks wait for, where the pipeline has workers."""
_STANDING_KEY = "standing"
_COUNTED_KEY = "counted"
_CLUSTERS_KEY = "sluice_metrics_clusters"  # of the asset: the clusters with gauges
_LONGEST_NAME = 200  # of 250 characters in Airflow's database for a mapped task's name


def on_transaction_topic(pipeline: Pipeline, transaction: dict[str, Any] | None) -> Pipeline:
    """The pipeline, on the control topic of a run's transaction by the XCom of `start_commit`."""
    if transaction is None or "control_offset" not in transaction:
        return pipeline
    return pipeline.on_control_topic(transaction.get("control_topic"))


def take_private_settings(pipeline: Pipeline) -> None:
    """Set the secrets of this task's process: settings of its Spark connection, source and sink.

    Its clients and its driver read them there.

    Raises:
        ActionRequiredError: a connection is missing or wrong.
    """
    os.environ.update(private_settings_of(pipeline).to_environment())
    os.environ.update(to_environment(source_connections(pipeline.own_connections)))


def in_words(ranges: Iterable[PlannedRange], *, by_cluster: bool = False) -> str:
    """A mapped task's name, by what its write job reads: topic, with its cluster or without, partitions and offsets."""
    ranges = tuple(ranges)
    names = [f"{r.cluster}/{r.topic}" if by_cluster else r.topic for r in ranges]
    full = ", ".join(f"{name}[{r.partition}] {r.start}-{r.end - 1}" for name, r in zip(names, ranges, strict=True))
    if len(full) <= _LONGEST_NAME:
        return full
    topics = Counter(names)
    named = ", ".join(f"{topic} ({number} partitions)" for topic, number in topics.items())
    return f"{named} {sum(r.end - r.start for r in ranges)} offsets"[:_LONGEST_NAME]


def is_running(dag_id: str, run_id: str) -> bool:
    """Whether a DAG run is still running. False for runs that Airflow doesn't know, such as manual ones."""
    return number_of_runs(dag_id, ["running"], [run_id]) > 0


class _CoordinatorOperator(BaseOperator):
    """A step of the coordinator; errors of `_step` go into the DAG run's note."""

    def __init__(self, *, pipeline: Pipeline, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline

    def execute(self, context: Context) -> Any:
        with report_errors(context, self.pipeline), metrics.timed_step(self.pipeline, self.task_id):
            return self._step(context)

    @abstractmethod
    def _step(self, context: Context) -> Any:
        """The coordinator's step; its result is the task's XCom."""

    def _coordinator(self, transaction: dict[str, Any] | None = None) -> Coordinator:
        """The pipeline's coordinator; for a transaction that was started, on that transaction's control topic."""
        from sluice.coordinator import Coordinator  # imports Kafka and Py4J, which parsing a DAG doesn't need

        take_private_settings(self.pipeline)
        clusters = source_and_control(self.pipeline)
        pipeline = on_transaction_topic(self.pipeline, transaction)
        return Coordinator(
            pipeline,
            *clusters,
            is_running=is_running,
            registries=registry_settings,
            connections=partial(streams_connection, self.pipeline),
        )

    def _run(self, context: Context, request: Request | None = None) -> Run:
        from sluice.coordinator import Run

        return Run(context["ti"].dag_id, context["run_id"], request or Request())

    @staticmethod
    def _transaction(context: Context) -> dict[str, Any] | None:
        found: dict[str, Any] | None = context["ti"].xcom_pull(task_ids=START_COMMIT, key=TRANSACTION_KEY)
        return found


class StartCommitOperator(_CoordinatorOperator):
    """Plans the interval and opens its transaction; returns one dictionary of arguments for each write job.

    The XCom `transaction` identifies the transaction for `commit` and `abort`, or says that the window was empty.
    """

    def _step(self, context: Context) -> list[dict[str, Any]]:
        from sluice.coordinator import Outcome

        started = self._coordinator().start(self._run(context, request_of(context, self.pipeline)))
        ti = context["ti"]
        if started.standing is not None:
            ti.xcom_push(key=_STANDING_KEY, value=started.standing.model_dump(mode="json"))
        if isinstance(started, Outcome):
            # A second attempt doesn't know the first one's open transaction after its death: `abort` finds it by
            # itself.
            empty = {
                "empty": started.summary,
                "first_try": ti.try_number == 1,
                "remarks": list(started.remarks),
                "lag_records": started.lag_records,
                "valid_through": started.valid_through.isoformat() if started.valid_through is not None else None,
            }
            ti.xcom_push(key=TRANSACTION_KEY, value=empty)
            return []
        transaction = {
            "control_offset": started.control_offset,
            "instant": started.instant,
            "control_topic": started.control_topic,
            "digest": started.digest,
            **({"connections": list(started.connections)} if started.connections else {}),
        }
        ti.xcom_push(key=TRANSACTION_KEY, value=transaction)
        if self.pipeline.write.workers is not None:
            ti.xcom_push(key=WORKERS_KEY, value=self._awaited(started, self.pipeline.write.workers))
        return [
            {"range_number": number, "reads": in_words(ranges, by_cluster=bool(started.connections)), **transaction}
            for number, ranges in enumerate(started.ranges)
        ]

    def _awaited(self, started: Started, workers: str) -> dict[str, Any]:
        """What each range is waited for by, but its number; see `control.waiters.Awaited`."""
        pipeline = self.pipeline.on_control_topic(started.control_topic)
        return {
            "connection": pipeline.control.connection or pipeline.kafka_connection,
            "table": pipeline.table_id,
            "control_topic": pipeline.control_topic,
            "control_offset": started.control_offset,
            "workers": workers,
            "claim_within": pipeline.write.claim_within.total_seconds(),
        }


class CommitOperator(_CoordinatorOperator):
    """Commits the interval, or reports that its window was empty. Safe to run again at any time.

    Every commit, and nothing else, updates the table's asset. After it, `abort` is skipped, which saves its process.
    """

    def __init__(self, *, pipeline: Pipeline, **kwargs: Any) -> None:
        super().__init__(pipeline=pipeline, outlets=[table_asset(pipeline)], **kwargs)
        self._committed: tuple[Transaction, str, dict[str, str]] | None = None

    def prepare_for_execution(self) -> CommitOperator:
        """The copy that runs; it has no outlets until it has committed."""
        return without_assets(super().prepare_for_execution())

    def execute(self, context: Context) -> Any:
        """Do it, and skip `abort` if nothing can be left open.

        Raises:
            DownstreamTasksSkipped: `abort` is skipped; to Airflow this is success. The XCom was pushed.
        """
        result = super().execute(context)
        if result["state"] == "empty" and not (self._transaction(context) or {}).get("first_try"):
            return result
        context["ti"].xcom_push(key=BaseXCom.XCOM_RETURN_KEY, value=result)
        # Not by Airflow's SkipMixin: with that, `abort` would be skipped when a person clears it alone, too.
        raise DownstreamTasksSkipped(tasks=[ABORT])  # type: ignore[no-untyped-call]

    def get_openlineage_facets_on_complete(self, ti: Any) -> OperatorLineage[Any, Any]:  # noqa: ARG002  # Airflow's name
        """The records read and written, for OpenLineage; empty if nothing was committed."""
        from sluice.airflow.lineage import interval_lineage, no_lineage  # the provider is an optional extra

        return interval_lineage(*self._committed) if self._committed else no_lineage()

    def _step(self, context: Context) -> dict[str, Any]:
        transaction = self._transaction(context)
        if transaction is None:  # with `on_missing_range: commit` this task runs whatever happened before
            raise IntervalError(
                f"There is nothing to commit: {START_COMMIT} did not open a transaction.",
                next_step=f"read the log of {START_COMMIT}.",
                run=context["run_id"],
            )
        if "empty" in transaction:
            result: dict[str, Any] = {"state": "empty", "summary": transaction["empty"], "instant": None, "records": 0}
            if reads_on(context) and _is_first_time(context, "empty"):
                through = transaction.get("valid_through")  # missing if an earlier release started the run
                metrics.empty(
                    self.pipeline,
                    transaction.get("lag_records"),
                    datetime.fromisoformat(through) if through is not None else None,
                )
                self._tell_of_clusters(context)
            log.info("nothing to commit: no transaction was opened")
        else:
            result = asdict(self._committed_outcome(transaction))
            self._tell(context, transaction)
        context["ti"].xcom_push(key=NOTE_KEY, value=result["summary"])
        return result

    def _committed_outcome(self, transaction: dict[str, Any]) -> Outcome:
        digest = transaction.get("digest")  # missing if an earlier release started the run
        return self._coordinator(transaction).commit(transaction["control_offset"], transaction["instant"], digest)

    def _tell(self, context: Context, opened: dict[str, Any]) -> None:
        """Publish the commit as metrics and asset event; it remains committed even if that fails."""
        try:
            source, control = source_and_control(self.pipeline)
            transaction = read_transaction(
                on_transaction_topic(self.pipeline, opened), control, opened["control_offset"]
            )
            of_clusters = _addresses(self.pipeline, transaction)
        except SluiceError as error:
            log.warning("committed, but the figures can't be read back: no metrics this time", reason=str(error))
            return
        facts = interval_facts(transaction)
        context["ti"].xcom_push(key=INTERVAL_KEY, value=facts.model_dump(mode="json"))
        self._committed = (transaction, source.bootstrap_servers, of_clusters)
        if _is_first_time(context, facts.instant):
            metrics.committed(self.pipeline, facts)
        self._announce(context, facts)

    def _tell_standing(self, context: Context, facts: IntervalFacts) -> None:
        metrics.stands(self.pipeline, facts)
        self._tell_of_clusters(context)

    def _tell_of_clusters(self, context: Context) -> None:
        """Set the clusters' gauges, those of clusters that have left since included."""
        found = context["ti"].xcom_pull(task_ids=START_COMMIT, key=_STANDING_KEY)
        if found is None:  # no interval of the schedule, or one that an earlier release started
            return
        standing = Standing.model_validate(found)
        if standing.metadata_failures is None:
            metrics.clusters(self.pipeline, standing, ())
            return
        store = state.of_asset(context.get("asset_state_store"), table_asset(self.pipeline))
        now = sorted(standing.clusters)
        try:
            before = cast("list[str]", store.get(_CLUSTERS_KEY, default=[]))
        except AirflowRuntimeError as error:
            log.warning("metrics of clusters that have left may keep their last values", reason=str(error))
            metrics.clusters(self.pipeline, standing, ())
            return
        metrics.clusters(self.pipeline, standing, sorted(set(before) - set(now)))
        if before != now:  # after they are set: a task that dies in between sets them to 0 again
            store.set(_CLUSTERS_KEY, cast("JsonValue", now))

    def _announce(self, context: Context, facts: IntervalFacts) -> None:
        """Leave an asset event to Airflow, unless the commit's rows are announced already.

        A step that finishes an earlier attempt's commit may run after later commits: their events reach back over its
        rows, and an event that goes back would have them read twice.
        """
        asset = table_asset(self.pipeline)
        try:
            told = told_up_to(asset)
        except AirflowRuntimeError as error:
            reason = str(error)
            log.warning("no asset event, as earlier ones can't be read: the next has this commit's rows", reason=reason)
            self._tell_standing(context, facts)
            return
        if told is not None and facts.instant <= told:
            log.info("asset events have announced this commit's rows already", up_to=told)
            return
        self._tell_standing(context, facts)
        self.outlets = [asset]  # Airflow creates an event for each outlet that a task ends with
        tell_of_commit(self.pipeline, context, facts, told)


def _is_first_time(context: Context, counted: str) -> bool:
    """Whether no attempt of this task has counted the same before; a person who clears the task counts nothing."""
    store = state.of_task(context)
    try:
        if store.get(_COUNTED_KEY) == counted:
            return False
        store.set(_COUNTED_KEY, counted)
    except AirflowRuntimeError as error:
        log.warning("whether this was counted before isn't known: it is counted", reason=str(error))
    return True


def _addresses(pipeline: Pipeline, transaction: Transaction) -> dict[str, str]:
    """Where the clusters of streams are that an interval has read, by their names."""
    streams = transaction.start.streams
    read = {r.cluster for r in transaction.start.offset_ranges}
    there = {name: one for name, one in streams.clusters.items() if name in read} if streams is not None else {}
    return {
        name: one.bootstrap_servers or streams_connection(pipeline, one.connection).bootstrap_servers
        for name, one in there.items()
    }


class AbortOperator(_CoordinatorOperator):
    """Ends a run's open transaction if it hasn't committed. Starts no JVM if there is none."""

    def _step(self, context: Context) -> str:
        transaction = self._transaction(context)
        coordinator = self._coordinator(transaction)
        if transaction is not None and not self._left_open(coordinator, transaction):
            log.info("nothing was left open")
            return "nothing"
        outcome = coordinator.abort(self._run(context))
        if outcome.state == "aborted":
            metrics.aborted(self.pipeline)
            stands = "nothing of it is seen, and the next run starts from the same offsets."
            context["ti"].xcom_push(key=NOTE_KEY, value=f"Aborted instant {outcome.instant}: {stands}")
        else:
            log.info(outcome.summary)
        if outcome.state not in ("aborted", "nothing"):
            context["ti"].xcom_push(key=NOTE_KEY, value=outcome.summary)
        return outcome.state

    @staticmethod
    def _left_open(coordinator: Coordinator, transaction: dict[str, Any]) -> bool:
        if "empty" in transaction:
            return not transaction["first_try"]
        return coordinator.needs_abort(transaction["control_offset"])


class CatalogSyncOperator(_CoordinatorOperator):
    """Updates the table in the catalogs. If that fails, the next interval's sync catches up."""

    def _step(self, context: Context) -> str:  # noqa: ARG002
        from sluice.coordinator.catalog import sync

        take_private_settings(self.pipeline)
        synced = ", ".join(sync(self.pipeline))
        log.info("catalogs are in step with the table", catalogs=synced)
        return synced
