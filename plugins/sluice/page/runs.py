"""The pipelines' DAGs and their latest runs, from Airflow's database."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from airflow.models.dag import DagModel, DagTag
from airflow.models.dagrun import DagRun, DagRunNote
from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from sluice.airflow.dag import TAG

LATEST = 200  # runs to read of each DAG


@dataclass(frozen=True, slots=True)
class RunFacts:
    """One DAG run."""

    run_id: str
    state: str
    run_type: str
    after: datetime
    started: datetime | None
    ended: datetime | None
    note: str | None


@dataclass(frozen=True, slots=True)
class DagFacts:
    """One DAG. `due` is when its next run is to be created, `period` the time between runs; None if unscheduled."""

    dag_id: str
    paused: bool
    gone: bool
    schedule: str | None
    due: datetime | None
    period: timedelta | None


def tagged_dags(session: Session) -> frozenset[str]:
    """The ids of all DAGs that have Sluice's tag and are still in the DAGs folder."""
    rows = session.scalars(
        select(DagTag.dag_id)
        .join(DagModel, DagModel.dag_id == DagTag.dag_id)
        .where(DagTag.name == TAG, DagModel.is_stale.is_(False))
    )
    return frozenset(rows)


def dags(session: Session, dag_ids: Collection[str]) -> dict[str, DagFacts]:
    """Those of the given DAGs that Airflow knows."""
    wanted = (
        DagModel.dag_id,
        DagModel.is_paused,
        DagModel.is_stale,
        DagModel.timetable_summary,
        DagModel.next_dagrun_create_after,
        DagModel.next_dagrun_data_interval_start,
        DagModel.next_dagrun_data_interval_end,
    )
    found = {}
    for row in session.execute(select(*wanted).where(DagModel.dag_id.in_(dag_ids))):
        dag_id, paused, gone, schedule, due, begin, end = row
        period = end - begin if begin is not None and end is not None and end > begin else None
        found[dag_id] = DagFacts(dag_id, bool(paused), bool(gone), schedule, due, period)
    return found


def mark_gone(session: Session, dag_id: str) -> None:
    """Say that a DAG's file is gone, as Airflow's DAG processor does a minute later; it undoes that if it finds one."""
    session.execute(update(DagModel).where(DagModel.dag_id == dag_id).values(is_stale=True))
    session.commit()


def latest_runs(session: Session, dag_ids: Collection[str], number: int) -> dict[str, list[RunFacts]]:
    """The latest runs of each DAG, newest first."""
    rank = func.row_number().over(partition_by=DagRun.dag_id, order_by=DagRun.run_after.desc()).label("rank")
    ranked = select(DagRun.id.label("id"), rank).where(DagRun.dag_id.in_(dag_ids)).subquery()
    return _runs(session, DagRun.id.in_(select(ranked.c.id).where(ranked.c.rank <= number)))


def one_run(session: Session, dag_id: str, run_id: str) -> RunFacts | None:
    """One run; None if Airflow doesn't know it any more."""
    found = _runs(session, (DagRun.dag_id == dag_id) & (DagRun.run_id == run_id))
    return next(iter(found.get(dag_id, [])), None)


def _runs(session: Session, where: object) -> dict[str, list[RunFacts]]:
    wanted = (
        DagRun.dag_id,
        DagRun.run_id,
        DagRun.state,
        DagRun.run_type,
        DagRun.run_after,
        DagRun.start_date,
        DagRun.end_date,
        DagRunNote.content,
    )
    statement = (
        select(*wanted)
        .outerjoin(DagRunNote, DagRunNote.dag_run_id == DagRun.id)
        .where(where)  # type: ignore[arg-type]
        .order_by(DagRun.dag_id, DagRun.run_after.desc())
    )
    found: dict[str, list[RunFacts]] = {}
    for dag_id, run_id, state, run_type, after, started, ended, note in session.execute(statement):
        run = RunFacts(run_id, str(getattr(state, "value", state)), str(run_type), after, started, ended, note)
        found.setdefault(dag_id, []).append(run)
    return found
