"""A worker's parts: its Spark application, its pipelines, and their control topics."""

from __future__ import annotations

import signal
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import psutil
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from sluice.connectors.data import reader_of, writer_of
from sluice.control.clients import Clients
from sluice.control.followed import Following
from sluice.control.presence import Membership, Presence
from sluice.control.topic import ControlTopic
from sluice.errors import ActionRequiredError, SluiceError
from sluice.kafka.config import Connections, KafkaSettings
from sluice.logs import log
from sluice.participant.claiming import End, ServedTable, Terms
from sluice.participant.participant import RangeJob
from sluice.participant.session import KeptSession, spark_session, stop
from sluice.participant.spark_job import SparkJob
from sluice.participant.vitals import Vitals
from sluice.participant.worker import Worker
from sluice.pipeline.model import Pipeline
from sluice.pipeline.workers import ServedFiles, pipelines_of
from sluice.protocol.claims import Steady
from sluice.protocol.quarantine import quarantine_path
from sluice.protocol.transaction import Transaction

_LOOK_AT_FILES = 10.0  # seconds
_ASK_WITHIN = 2.0  # seconds: the thread that asks also renews claims
_PROMPT = 0.2  # seconds in which an idle JVM answers
_ANSWERS_WITHIN = 30.0  # seconds in which a busy JVM answers, even during a full garbage collection
_LOOKS = 20
_FULLEST = 0.9  # share of the old generation in use after a collection
_OLD = ("Old", "Tenured")  # in its pool's name: G1 and Parallel, Serial


class SparkApplication:
    """A worker's Spark application; see `worker.Application`."""

    def __init__(self, spark: SparkSession, steady: Steady) -> None:
        self._spark = spark
        self._steady = steady
        self._asking = ThreadPoolExecutor(1, thread_name_prefix="sluice-asking")
        self._asked: Future[bool] | None = None
        self._since = 0.0  # when it was asked
        self._looks = 0  # looks without an answer

    def health_problem(self) -> End | None:
        """UNHEALTHY without JVM or context, or with a full heap after a collection; or JVM_UNRESPONSIVE."""
        if self._asked is None:
            self._since, self._looks = self._steady(), 0
            self._asked = self._asking.submit(self._is_well)
        try:
            is_well = self._asked.result(_PROMPT)
        except TimeoutError:
            self._looks += 1
            # Looks count too: on a suspended machine time passes in which no JVM can answer.
            is_unresponsive = self._looks >= _LOOKS and self._steady() - self._since >= _ANSWERS_WITHIN
            return End.JVM_UNRESPONSIVE if is_unresponsive else None
        self._asked = None
        return None if is_well else End.UNHEALTHY

    def silent_for(self) -> float:
        """Seconds for which its JVM has owed an answer; 0 where it owes none. From any thread."""
        asked = self._asked
        return 0.0 if asked is None or asked.done() else self._steady() - self._since

    def _is_well(self) -> bool:
        context = self._spark.sparkContext
        try:
            assert context._jvm is not None
            if context._jsc.sc().isStopped():
                return False
            pools = context._jvm.java.lang.management.ManagementFactory.getMemoryPoolMXBeans()
            for pool in pools:
                usage = pool.getCollectionUsage()
                if any(old in pool.getName() for old in _OLD) and usage is not None and usage.getMax() > 0:
                    return bool(usage.getUsed() < _FULLEST * usage.getMax())
        except (Py4JError, OSError, AttributeError, TypeError):  # each can be the symptom of a lost JVM
            return False
        return True


class Files:
    """The files of a worker's pipelines, and whether they are still the same; looked at every ten seconds at most."""

    def __init__(self, places: Sequence[Path], group: str, steady: Steady) -> None:
        self._files = ServedFiles(places, group)
        self._steady = steady
        self._looked = steady()

    def are_same(self) -> bool:
        """Whether they are unchanged, as of some seconds ago."""
        now = self._steady()
        if now - self._looked < _LOOK_AT_FILES:
            return True
        self._looked = now
        return self._files.are_same()


def description() -> Callable[[], dict[str, Any]]:
    """A new worker's `Terms.described`: when it began, and the MiB that its processes use at each call."""
    began, own = datetime.now(UTC), psutil.Process()

    def describe() -> dict[str, Any]:
        resident = 0
        for process in (own, *own.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):  # it has ended meanwhile
                resident += process.memory_info().rss
        return {"began": began, "memory": resident >> 20}

    return describe


def misfit(
    pipeline: Pipeline, control: ControlTopic, known: Connections, transaction: Transaction, *, trusting: bool
) -> str | None:
    """Why a transaction is left to separate Spark jobs; None where it can be written here.

    A write job checks its START-COMMIT against a digest from its coordinator, passed outside the topic. A worker has
    only the topic, and START-COMMIT decides which code runs: so it requires a signature, unless a person trusts the
    topic.
    """
    start = transaction.start
    if not trusting and not control.signatures.are_required(pipeline.table_id, transaction.start_offset):
        return "its START-COMMIT isn't signed"
    if start.writer.path != pipeline.table_id:
        return "its table is another than the pipeline's"
    if start.quarantine is not None and start.quarantine.path != quarantine_path(pipeline.table_id, pipeline.errors):
        return "its quarantine is another than the pipeline's"
    if not {one.writer.path for one in start.tables} <= {one.table_id for _, one in pipeline.further_tables}:
        return "it loads a table that the pipeline doesn't"
    clusters = start.streams.clusters.values() if start.streams is not None else ()
    try:
        reader_of(start.source), writer_of(start.sink)
        for address in clusters:
            known(address.connection)
    except SluiceError as error:
        return error.what
    return None


def require_trust(pipelines: Iterable[Pipeline], control_of: Callable[[Pipeline], KafkaSettings]) -> None:
    """Check that plans on the control topics are signed.

    Raises:
        ActionRequiredError: a connection has no secret.
    """
    for pipeline in pipelines:
        if not control_of(pipeline).control_secrets:
            raise ActionRequiredError(
                "Workers take what they run from the control topic, and its messages aren't signed.",
                next_step="set `sluice.control.secret` in the extra field of the control topic's connection "
                "(docs/production.md), or, if only Sluice may write to the topic, start workers with "
                "--trust-control-topic.",
                pipeline=pipeline.name,
                connection=control_of(pipeline).name,
            )


def serve(
    files: Sequence[Path],
    group: str,
    terms: Terms,
    settings: Callable[[Pipeline], tuple[KafkaSettings, KafkaSettings]],
    connections: Callable[[Pipeline], Connections],
    steady: Steady,
    *,
    trusting: bool,
    vitals: Vitals | None = None,
) -> End:
    """Run a worker, from the start of its Spark application until it ends.

    Args:
        files: pipeline files, and folders of them; those of other groups are left alone.
        group: the group of workers.
        terms: how it works.
        settings: gives the clusters of a pipeline's records and of its control topic.
        connections: gives the Kafka connections of a pipeline's streams by their ids.
        steady: a monotonic clock, in seconds.
        trusting: whether unsigned START-COMMITs are accepted.
        vitals: what others are to know of it.

    Raises:
        PipelineFileError, ActionRequiredError: files, connections or control topics can't be used.
    """
    vitals = vitals or Vitals(terms, group, steady)
    of_files = Files(files, group, steady)
    pipelines = pipelines_of(
        files, group, lambda error: log.warning("a pipeline file is wrong, and left alone", reason=str(error))
    )
    if not trusting:
        require_trust(pipelines, lambda pipeline: settings(pipeline)[1])
    spark = spark_session(f"sluice worker {terms.name}")
    sessions = KeptSession(spark)
    clusters: dict[str, KafkaSettings] = {}
    clients: dict[str, Clients] = {}
    topics: dict[str, dict[str, ControlTopic]] = defaultdict(dict)
    tables: dict[tuple[str, str], ServedTable] = {}
    for pipeline in pipelines:
        source, control = settings(pipeline)
        shared = clients.setdefault(control.name, Clients(control))
        of_cluster = topics[control.name]
        topic = of_cluster.get(pipeline.control_topic) or ControlTopic(control, pipeline.control_topic, shared)
        if not trusting:
            topic.signatures.require_all()
        if not _is_usable(topic, pipeline):  # a group can't be joined without any existing topic
            continue
        of_cluster[pipeline.control_topic] = topic
        clusters[control.name] = control
        known = connections(pipeline)
        job: RangeJob = SparkJob(source, known, sessions)
        fits = partial(misfit, pipeline, topic, known, trusting=trusting)
        timeout = pipeline.write.timeout.total_seconds()
        tables[pipeline.control_topic, pipeline.table_id] = ServedTable(
            topic, job, timeout, fits, pipeline.name, pipeline.table_name
        )
    if not tables:
        raise ActionRequiredError(
            "None of the group's control topics can be used.",
            next_step="do what the warnings above say of each topic; then start the worker again.",
            group=group,
        )
    topics = {name: of for name, of in topics.items() if of}
    groups = Groups(clusters, group, terms.name, {name: sorted(of) for name, of in topics.items()})
    application = SparkApplication(spark, steady)
    worker = Worker(terms, tables, application, groups.workers, steady, of_files.are_same, vitals.figures)
    followers = [
        Following(
            clusters[name],
            of,
            _tables_of(of, tables),
            worker.said,
            worker.reads_from,
            partial(worker.end, End.CONTROL_TOPICS_LOST),
        )
        for name, of in topics.items()
    ]
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: worker.end())
    why: End | None = None
    try:
        for follower in followers:
            follower.start()
        vitals.runs(worker, application, followers, groups.are_joined)
        why = worker.run()
        return why
    finally:
        groups.leave()
        for follower in followers:
            follower.stop()
        # A stuck thread's Spark call may block stopping Spark, too: the process exits without it.
        if why is None or not why.leaves_threads:
            stop(spark)


def _is_usable(topic: ControlTopic, pipeline: Pipeline) -> bool:
    """Whether a pipeline's control topic can be used. If not, the pipeline is left to separate Spark jobs.

    Raises:
        RetryableError: the cluster can't be reached, which may concern all pipelines.
    """
    try:
        topic.ensure()
    except ActionRequiredError as error:
        log.warning("a pipeline is left to its own Spark jobs", pipeline=pipeline.name, reason=str(error))
        return False
    return True


def _tables_of(topics: Mapping[str, ControlTopic], tables: Iterable[tuple[str, str]]) -> dict[str, frozenset[str]]:
    return {topic: frozenset(table for its, table in tables if its == topic) for topic in topics}


class Groups:
    """A worker's membership in its group, on each cluster that holds control topics of its pipelines.

    Args:
        clusters: those clusters, by name.
        group: the group of workers.
        worker: the worker's name.
        topics: the control topics on each.
    """

    def __init__(
        self, clusters: Mapping[str, KafkaSettings], group: str, worker: str, topics: Mapping[str, Sequence[str]]
    ) -> None:
        self._group = group
        self._own = worker
        self._present = [Presence(cluster, _ASK_WITHIN) for cluster in clusters.values()]
        self._known: tuple[str, ...] | None = None
        self._changes = 0
        self._memberships = [
            Membership(cluster, group, worker, topics[name], self._changed) for name, cluster in clusters.items()
        ]

    def workers(self) -> tuple[str, ...]:
        """The names of the present workers, as of the last change of membership."""
        known = self._known
        if known is None:
            changes, known = self._changes, self._ask()
            if changes == self._changes:  # else membership changed meanwhile: ask again next time
                self._known = known
        return known

    def are_joined(self) -> bool:
        """Whether the worker is a member on all clusters."""
        return all(membership.is_member for membership in self._memberships)

    def leave(self) -> None:
        """Leave the group on all clusters."""
        for membership in self._memberships:
            membership.leave()

    def _changed(self) -> None:
        self._changes += 1
        self._known = None

    def _ask(self) -> tuple[str, ...]:
        found = {self._own}
        for present in self._present:
            try:
                found |= {member.worker for member in present.members(self._group)}
            except SluiceError as error:  # then it assumes that it is alone, and claims without delay
                log.warning("it isn't known which workers are there", reason=str(error))
        return tuple(sorted(found))
