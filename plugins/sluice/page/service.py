"""What the page's routes answer, put together from control topic, timeline, brokers and Airflow's database."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from sqlalchemy.orm import Session

from sluice.connectors.views import Timeline
from sluice.errors import PipelineFileError, RetryableError, SluiceError
from sluice.page import present
from sluice.page.access import BY_HAND, Viewer
from sluice.page.banners import banner, each_once, file_banner, read_banner, topic_banner
from sluice.page.cache import Cached, Snapshot, refresh_all
from sluice.page.catalogue import NOT_LOOKED_AT, Catalogue, Entry, may_look_at
from sluice.page.gate import Gate
from sluice.page.health import Health, Schedule, health
from sluice.page.present import Json
from sluice.page.runs import LATEST, DagFacts, RunFacts, dags, latest_runs, one_run, tagged_dags
from sluice.page.tables import Cluster, LogEnds, Shown, Tables, commit_facts
from sluice.page.workers import GroupId, Groups, Served, group_banners, groups_of
from sluice.pipeline.model import SERVICES_SUFFIX, ByArrival
from sluice.protocol.history import TableHistory, TransactionSummary
from sluice.protocol.messages import decode
from sluice.protocol.offsets import TopicPartition
from sluice.redact import redact
from sluice.sections import duration_in_words

_RUNS_IN_LIST = 10
_SPARK = 24  # transactions in the list's small chart
_BY_HAND = ("None", "Never, external triggers only")  # Airflow's names for it
_OTHERS = 12  # commits of other writers that are shown

_CLUSTERS, _TOPICS = 50, 5000  # of one pipeline, as messages name them, whose ends are asked for

# Requests that may read messages again at the same time; each may take tens of megabytes.
_reading_messages = Gate(
    2, "Messages are being read for other requests.", "try again in a moment: a few are read at a time."
)


class NotFoundError(Exception):
    """There is no such pipeline or transaction, or the user may not see it."""


class ForbiddenError(Exception):
    """The user may read the DAG's runs, and not what was asked for."""


@dataclass
class PipelineView:
    """What is known about one pipeline during one request."""

    entry: Entry
    history: TableHistory
    health: Health
    dag: DagFacts | None
    runs: list[RunFacts]
    ends: LogEnds
    banners: list[Json] = field(default_factory=list)

    @property
    def lag(self) -> int | None:
        """Waiting records by the logs' ends, also counting offsets without a record; None if the ends are unknown."""
        if not self.ends:
            return None
        return sum(max(end - self.history.committed.get(tp, (0, ""))[0], 0) for tp, end in self.ends.items())


class Page:
    """Answers the requests of one API server process; its caches may be lost at any time."""

    def __init__(self) -> None:
        self._catalogue = Catalogue()
        self._tables = Tables()
        self._groups = Groups()

    # Routes --------------------------------------------------------------------------------------------------------

    def pipelines(self, viewer: Viewer, session: Session) -> Json:
        """The list."""
        entries, errors = self._entries(viewer, session)
        ids = [entry.dag_id for entry in entries if entry.dag_id]
        known, runs = dags(session, ids), latest_runs(session, ids, _RUNS_IN_LIST)
        rows, banners = [], [file_banner(e) for e in errors if viewer.may_read_import_errors()]
        refresh_all(cached for entry in entries for cached in self._ends(entry))
        for entry in entries:
            with self._view(entry, known, runs) as view:
                rows.append(self._row(view, viewer))
                banners += view.banners
        return {"pipelines": rows, "banners": each_once(banners), "at": _now()}

    def pipeline(self, viewer: Viewer, session: Session, key: str, before: str | None, limit: int) -> Json:
        """One pipeline with a window of its transactions."""
        entry = self._entry(viewer, session, key)
        ids = [entry.dag_id] if entry.dag_id else []
        runs = latest_runs(session, ids, LATEST)
        refresh_all([*self._ends(entry), *self._cached_timeline(entry, viewer)])
        timeline = self._timeline(entry, viewer)
        others = self._others(entry, timeline)
        with self._view(entry, dags(session, ids), runs) as view:
            readable = [t for t in view.history.newest() if self._may_read(viewer, entry, t)]
            start = next((i + 1 for i, t in enumerate(readable) if t.instant == before), 0) if before else 0
            window = readable[start : start + limit]
            oldest_first = window[::-1]
            banners = [*view.banners, *self._timeline_banner(entry, viewer, timeline)]
            return {
                **self._row(view, viewer),
                "transactions": [present.transaction(t, view.history, timeline.value) for t in window],
                "total": len(readable),
                "hidden": len(view.history.transactions) - len(readable),
                "newer": start > 0,
                "older": start + limit < len(readable),
                "first_shown": start,
                "runs_without_transaction": self._without(view, window, first_page=start == 0),
                "lag_lines": present.lag_lines(oldest_first),
                "partitions": present.partitions(
                    view.history, view.ends, present.last_record_times(islice(readable, 50))
                ),
                "partitions_total": len({*view.history.committed, *view.ends}),
                "others": others,
                "banners": each_once(banners),
                "at": _now(),
            }

    def transaction(self, viewer: Viewer, session: Session, key: str, instant: str) -> Json:
        """One transaction."""
        entry, found = self._transaction(viewer, session, key, instant)
        refresh_all(self._cached_timeline(entry, viewer))
        timeline = self._timeline(entry, viewer)
        follower = self._catalogue.follower(_control(entry))
        banners = topic_banner(entry, follower.cached.latest, follower.progress)
        banners += self._timeline_banner(entry, viewer, timeline)
        if timeline.value is not None and found.state == "committed" and timeline.value.standing(instant) == "absent":
            banners.append(
                banner(
                    "error",
                    "ACK-COMMIT is in the control topic, but the commit is no longer on the table's timeline: it was "
                    "rolled back, or the table was restored.",
                )
            )
        run = one_run(session, found.dag_id, found.run_id)
        detail = found
        if found.thinned:
            try:
                detail = self._read_again(entry, found)
            except SluiceError as error:
                banners.append(banner("error", str(error)))
        with follower.tables() as tables:
            history = tables.get(found.table) or TableHistory(found.table)
            whole = present.whole_transaction(found, history, timeline.value, detail)
        if not viewer.may_read(entry.dag_id if found.dag_id == BY_HAND else found.dag_id, DagAccessEntity.TASK_LOGS):
            whole = present.without_errors(whole)
        return {
            "pipeline": entry.key,
            "table": redact(entry.table),
            "positions": _positions(entry),
            **whole,
            "run": present.run(run) if run else None,
            "banners": banners,
            "at": _now(),
        }

    def messages(self, viewer: Viewer, session: Session, key: str, instant: str) -> Json:
        """One transaction's messages as they are in the control topic.

        Raises:
            ForbiddenError: the user may not read the DAG's code.
            SluiceError: the topic can't be read now.
        """
        entry, found = self._transaction(viewer, session, key, instant)
        if not viewer.may_read(entry.dag_id, DagAccessEntity.CODE):  # START-COMMIT has all that the file says
            raise ForbiddenError
        with _reading_messages.place():
            messages, left_out = self._catalogue.follower(_control(entry)).messages(found)
        return {
            "messages": [{"offset": offset, "message": redact(message)} for offset, message in messages],
            "left_out": left_out,
            "gone": len(found.offsets) - len(messages) - left_out,
        }

    def workers(self, viewer: Viewer, session: Session) -> Json:
        """The workers that stay, by the groups that pipelines name."""
        entries, _ = self._entries(viewer, session)
        served = [one for entry in entries if (one := self._served(entry)) is not None]
        cached = {one.of: self._groups.members(one.of) for one in served}
        refresh_all(cached.values())
        there = {of: one.latest for of, one in cached.items()}
        return {"groups": groups_of(served, there), "banners": group_banners(there), "at": _now()}

    def of_dag(self, viewer: Viewer, session: Session, dag_id: str) -> Json:
        """The pipelines of one DAG."""
        entries, _ = self._entries(viewer, session)
        return {"pipelines": [entry.key for entry in entries if entry.dag_id == dag_id]}

    def of_run(self, viewer: Viewer, session: Session, dag_id: str, run_id: str) -> Json:
        """The transactions of one DAG run, newest first."""
        entries, _ = self._entries(viewer, session)
        found = []
        for entry in entries:
            if entry.control is None or entry.table is None:
                continue
            with self._catalogue.follower(entry.control).tables() as tables:
                history = tables.get(entry.table, TableHistory(entry.table))
                found += [
                    {"pipeline": entry.key, "instant": t.instant, "state": t.state.value, "started": _iso(t.started)}
                    for t in history.of_run(dag_id, run_id)
                ]
        pipelines = [entry.key for entry in entries if entry.dag_id == dag_id]
        if not pipelines and not found:
            return {"pipelines": [], "transactions": [], "run": None}
        run = one_run(session, dag_id, run_id) if viewer.may_read(dag_id) else None
        visible = found if viewer.may_read(dag_id) else []
        return {"pipelines": pipelines, "transactions": visible[::-1], "run": present.run(run) if run else None}

    def positions(self, viewer: Viewer, session: Session, key: str) -> Json:
        """The positions of all partitions of one pipeline."""
        entry = self._entry(viewer, session, key)
        refresh_all(self._ends(entry))
        with self._view(entry, {}, {}) as view:
            return {
                "key": entry.key,
                "offsets": present.partitions(view.history, view.ends, {}, most=None),
                "banners": each_once(view.banners),
                "at": _now(),
            }

    def of_dags(self, viewer: Viewer, session: Session) -> list[Entry]:
        """The pipelines that have a DAG, each once, under its DAG's id; not their second DAGs, of table services."""
        entries, _ = self._entries(viewer, session)
        return [e for e in entries if e.key == e.dag_id and not e.key.endswith(SERVICES_SUFFIX)]

    def file_of(self, name: str) -> Path | None:
        """The pipeline file that has a pipeline of this name, for any caller; None if there is none."""
        return self._catalogue.file_of(name)

    def committed(self, entry: Entry) -> dict[TopicPartition, int]:
        """Each partition's position now, as the control topic has it; nothing before the first transaction.

        Raises:
            RetryableError: the control topic can't be read to its end now: what is known may be old.
        """
        if entry.control is None or entry.table is None:
            return {}
        follower = self._catalogue.follower(entry.control)
        refresh_all([follower.cached])
        unread = topic_banner(entry, follower.cached.latest, follower.progress)
        if unread:
            raise RetryableError(str(unread[0]["text"]), next_step="ask again.", topic=entry.control.topic)
        with follower.tables() as tables:
            history = tables.get(entry.table)
            return {tp: offset for tp, (offset, _) in history.committed.items()} if history else {}

    def cluster_ids(self, entries: Iterable[Entry]) -> set[str]:
        """Kafka's own ids of the clusters that these pipelines read, by their last transactions."""
        found: set[str] = set()
        for entry in entries:
            if entry.control is not None and entry.table is not None:
                with self._catalogue.follower(entry.control).tables() as tables:
                    history = tables.get(entry.table)
                    last = next(history.newest(), None) if history else None
                    found |= {one for one in (last.cluster_ids.values() if last else ()) if one}
        return found

    # What they share -----------------------------------------------------------------------------------------------

    def _entries(self, viewer: Viewer, session: Session) -> tuple[list[Entry], list[PipelineFileError]]:
        entries, errors = self._catalogue.entries(tagged_dags(session))
        return [entry for entry in entries if viewer.may_read(entry.dag_id)], errors

    def _entry(self, viewer: Viewer, session: Session, key: str) -> Entry:
        entries, _ = self._entries(viewer, session)
        for entry in entries:
            if entry.key == key:
                return entry
        raise NotFoundError

    def _transaction(
        self, viewer: Viewer, session: Session, key: str, instant: str
    ) -> tuple[Entry, TransactionSummary]:
        entry = self._entry(viewer, session, key)
        if entry.control is None or entry.table is None:
            raise NotFoundError
        with self._catalogue.follower(entry.control).tables() as tables:
            history = tables.get(entry.table)
            found = history.get(instant) if history else None
        if found is None or not self._may_read(viewer, entry, found):
            raise NotFoundError
        return entry, found

    def _read_again(self, entry: Entry, found: TransactionSummary) -> TransactionSummary:
        """The transaction with all its partitions, from its messages; as it is cached if the messages are gone."""
        with _reading_messages.place():
            messages, _ = self._catalogue.follower(_control(entry)).messages(found)
        decoded = [(offset, decode(json.dumps(message).encode())) for offset, message in messages]
        return TableHistory(found.table).extend(decoded).get(found.instant) or found

    @staticmethod
    def _may_read(viewer: Viewer, entry: Entry, found: TransactionSummary) -> bool:
        """A transaction may be another DAG's; those of manual commands belong to the pipeline."""
        return found.dag_id in (entry.dag_id, BY_HAND) or viewer.may_read(found.dag_id)

    @contextmanager
    def _view(
        self, entry: Entry, known: dict[str, DagFacts], runs: dict[str, list[RunFacts]]
    ) -> Iterator[PipelineView]:
        dag, of_dag = known.get(entry.dag_id or ""), runs.get(entry.dag_id or "", [])
        if entry.control is None or entry.table is None:
            yield PipelineView(entry, TableHistory(""), _health(dag, of_dag, TableHistory(""), None), dag, of_dag, {})
            return
        follower = self._catalogue.follower(entry.control)
        banners = topic_banner(entry, follower.cached.latest, follower.progress)
        ends: LogEnds = {}
        for cached in self._ends(entry):
            ends |= cached.latest.value or {}
            banners += read_banner("The logs' ends", cached.latest)
        with follower.tables() as tables:
            history = tables.get(entry.table) or TableHistory(entry.table)
            view = PipelineView(entry, history, Health("unknown", None, 0), dag, of_dag, ends, banners)
            view.health = _health(dag, of_dag, history, view.lag)
            yield view

    def _timeline(self, entry: Entry, viewer: Viewer) -> Snapshot[Timeline | None]:
        cached = self._cached_timeline(entry, viewer)
        return cached[0].latest if cached else Snapshot(None, None, None)

    def _cached_timeline(self, entry: Entry, viewer: Viewer) -> list[Cached[Timeline | None]]:
        if entry.table is None or not may_look_at(entry, viewer):
            return []
        cached = self._tables.timeline(_shown(entry, entry.table))
        return [] if cached is None else [cached]

    def _timeline_banner(self, entry: Entry, viewer: Viewer, timeline: Snapshot[Timeline | None]) -> list[Json]:
        if entry.table is not None and self._cached_timeline(entry, viewer):
            return read_banner(f"The timeline of {entry.table}", timeline)
        if entry.table is None or may_look_at(entry, viewer):
            return []
        return [banner("warning", f"The timeline of {entry.table} isn't looked at: {NOT_LOOKED_AT}")]

    def _ends(self, entry: Entry) -> list[Cached[LogEnds]]:
        """The logs' ends of the pipeline's topics, for each cluster."""
        if entry.control is None or entry.table is None:
            return []
        with self._catalogue.follower(entry.control).tables() as tables:
            by_cluster = _topics(entry, tables.get(entry.table))
        isolation = entry.pipeline.source.options.read_isolation if entry.pipeline else "read_committed"
        return [self._tables.log_ends(cluster, topics, isolation) for cluster, topics in by_cluster.items()]

    def _served(self, entry: Entry) -> Served | None:
        """What is known of the workers of a pipeline that names a group."""
        group = entry.pipeline.write.workers if entry.pipeline is not None else None
        if group is None or entry.control is None or entry.table is None:
            return None
        with self._catalogue.follower(entry.control).tables() as tables:
            history = tables.get(entry.table)
            seen = deepcopy(history.workers.by_name) if history else {}
        return Served(entry.key, GroupId(group, entry.control.connection), seen)

    def _others(self, entry: Entry, timeline: Snapshot[Timeline | None]) -> Json:
        """Commits on the timeline that aren't ours, the newest with their metadata."""
        if timeline.value is None or entry.table is None or entry.control is None:
            return {"commits": [], "more": 0, "services": {}}
        with self._catalogue.follower(entry.control).tables() as tables:
            history = tables.get(entry.table)
            ours = frozenset(history.transactions) if history else frozenset()
        found = timeline.value.of_others(ours)
        commits = [i for i in found if i.is_commit]
        services: dict[str, int] = {}
        for instant in found:
            if not instant.is_commit:
                services[instant.action] = services.get(instant.action, 0) + 1
        rows = []
        for instant in commits[:_OTHERS]:
            row = present.other_commit(instant)
            try:
                row["facts"] = present.facts(commit_facts(_shown(entry, entry.table), instant))
            except SluiceError as error:
                row["error"] = redact(str(error))
            rows.append(row)
        return {"commits": rows, "more": max(len(commits) - _OTHERS, 0), "services": services}

    @staticmethod
    def _without(view: PipelineView, window: list[TransactionSummary], *, first_page: bool) -> list[Json]:
        """Runs of the window's time that opened no transaction, newest first."""
        since = min((t.started for t in window), default=None)
        until = None if first_page else max((t.started for t in window), default=None)
        runs = []
        for run in view.runs:
            at = run.started or run.after
            inside = (since is None or at >= since) and (until is None or at <= until)
            if inside and not view.history.of_run(view.entry.dag_id or "", run.run_id):
                runs.append(present.run_without_transaction(run))
        return runs

    def _row(self, view: PipelineView, viewer: Viewer) -> Json:
        entry, history, last = view.entry, view.history, view.history.last_committed
        kafka = entry.pipeline.source.options if entry.pipeline else None
        topics = (kafka.topics if kafka else ()) or sorted({tp.topic for tp in history.committed})
        return {
            "key": entry.key,
            "dag_id": entry.dag_id,
            "table": redact(entry.table),
            "from_file": entry.pipeline is not None,
            "description": entry.pipeline.description if entry.pipeline else None,
            "operation": _operation(entry),
            "topics": list(topics),
            "positions": _positions(entry),
            "control_topic": entry.control.topic if entry.control else None,
            "schedule": _schedule(view),
            "state": view.health.word,
            "why": view.health.why,
            "failures": view.health.failures,
            "last_run": present.run(view.runs[0]) if view.runs else None,
            "next_run": _iso(view.dag.due) if view.dag and not view.dag.paused else None,
            "last_commit": _iso(last.acknowledged) if last else None,
            "last_instant": last.instant if last else None,
            "valid_through": _iso(history.valid_through),
            "lag": view.lag,
            "transactions_total": len(history.transactions),
            "recent": [
                {"state": t.state.value, "records": t.total("records_written"), "instant": t.instant}
                for t in islice((t for t in history.newest() if self._may_read(viewer, entry, t)), _SPARK)
            ][::-1],
        }


def _shown(entry: Entry, table: str) -> Shown:
    return Shown(entry.sink, table, entry.pipeline.sink.options.connections if entry.pipeline is not None else ())


def _operation(entry: Entry) -> str | None:
    if entry.pipeline is None:
        return None
    return "upsert" if entry.pipeline.sink.capabilities.upsert else "append"


def _positions(entry: Entry) -> str:
    return entry.pipeline.source.options.positions if entry.pipeline is not None else "offsets"


def _control(entry: Entry) -> Any:
    if entry.control is None:
        raise NotFoundError
    return entry.control


def _topics(entry: Entry, history: TableHistory | None) -> dict[Cluster, set[str]]:
    """The pipeline's topics by cluster: those of its file or its mapping, else those whose offsets it has committed."""
    if entry.pipeline is None or not entry.pipeline.source.capabilities.holds_control_log:
        return {}  # messages alone make this server log in nowhere; and other sources have no log ends
    options = entry.pipeline.source.options
    own = Cluster(options.connection, options.connection)
    if options.topics:
        return {own: set(options.topics)}
    if options.streams_settings is None:
        committed = (tp.topic for tp in (history.committed if history else ()) if tp.cluster == options.connection)
        topics = set(islice(committed, _TOPICS))
        return {own: topics} if topics else {}
    streams = history.streams if history else None
    allowed = {options.connection, *options.streams_settings.connections}
    return {
        Cluster(name, at.connection, at.bootstrap_servers): set(islice(streams.topics(name), _TOPICS))
        for name, at in (islice(streams.clusters.items(), _CLUSTERS) if streams is not None else ())
        if at.connection in allowed and streams is not None
    }


def _health(dag: DagFacts | None, runs: list[RunFacts], history: TableHistory, lag: int | None) -> Health:
    behind_since = history.valid_through if lag else None
    schedule = None if dag is None or dag.gone else Schedule(dag.paused, dag.due, dag.period)
    return health(schedule, runs, datetime.now(UTC), behind_since=behind_since, has_history=bool(history.transactions))


def _schedule(view: PipelineView) -> str | None:
    pipeline = view.entry.pipeline
    streams = pipeline.source.options.streams_settings if pipeline else None
    if pipeline is None or streams is None or streams.watched_every is None:
        return _by_schedule(view)
    by_clock = _by_schedule(view) if pipeline.schedule is not None else None
    return ", and ".join(filter(None, (by_clock, "when the streams' mapping changes")))


def _by_schedule(view: PipelineView) -> str | None:
    found = view.entry.pipeline.schedule if view.entry.pipeline else None
    if isinstance(found, timedelta):
        return _every(found)
    if isinstance(found, ByArrival):
        return f"by {found.records} records, at least {_every(found.at_least_every)}"
    of_airflow = view.dag.schedule if view.dag else None
    return found or (of_airflow if of_airflow not in _BY_HAND else None)


def _every(time: timedelta) -> str:
    return f"every {duration_in_words(time).removeprefix('1 ')}"


def _iso(time: datetime | None) -> str | None:
    return time.isoformat() if time is not None else None


def _now() -> str:
    return datetime.now(UTC).isoformat()
