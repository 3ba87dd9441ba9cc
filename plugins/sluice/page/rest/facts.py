"""What Connect's status is made of, from Airflow's database alone: so it answers without any broker."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from airflow.models.dagrun import DagRun
from airflow.models.taskinstance import TaskInstance
from airflow.models.xcom import XComModel
from airflow.utils.state import State
from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from sluice.airflow.notes import ABORT, ALERT, NOTE_KEY, START_COMMIT, WRITE
from sluice.page.rest.answers import Facts, RangeTask
from sluice.page.runs import dags, latest_runs

_RUNS = 20  # looked at for each DAG
_LOT = 100  # DAGs in one query: databases limit its parameters
_ENDING = (ABORT, ALERT)  # teardowns, which remain when a person has marked a run failed


def facts_of(session: Session, dag_ids: Sequence[str]) -> dict[str, Facts]:
    """The facts of each DAG."""
    found: dict[str, Facts] = {}
    for first in range(0, len(dag_ids), _LOT):
        found |= _facts_of(session, dag_ids[first : first + _LOT])
    return found


def _facts_of(session: Session, dag_ids: Collection[str]) -> dict[str, Facts]:
    known, runs = dags(session, dag_ids), latest_runs(session, dag_ids, _RUNS)
    going = _going_on(session, dag_ids)
    run_ids = {run.run_id for of in runs.values() for run in of}
    steps = _steps(session, dag_ids, run_ids)
    errors = _errors(session, dag_ids, run_ids)
    found = {}
    for dag_id in dag_ids:
        dag, of = known.get(dag_id), runs.get(dag_id, [])
        mapped = next((r.run_id for r in of if any(i.map_index >= 0 for i in steps.get((dag_id, r.run_id), ()))), None)
        latest = next((steps[dag_id, r.run_id] for r in of if (dag_id, r.run_id) in steps), [])
        found[dag_id] = Facts(
            known=dag is not None and not dag.gone,
            paused=dag is not None and dag.paused,
            runs=of,
            goes_on=dag_id in going,
            tasks=tuple(
                RangeTask(i.map_index, i.state, i.host, i.reads, errors.get((dag_id, i.run_id, i.map_index)))
                for i in (steps[dag_id, mapped] if mapped is not None else ())
                if i.map_index >= 0
            ),
            tasks_of=mapped,
            host=next((i.host for i in latest if i.host), ""),
        )
    return found


def _going_on(session: Session, dag_ids: Collection[str]) -> frozenset[str]:
    """The DAGs that have a run under way with a step to do that isn't its ending."""
    left = or_(TaskInstance.state.is_(None), TaskInstance.state.not_in([s for s in State.finished if s is not None]))
    rows = session.scalars(
        select(TaskInstance.dag_id)
        .join(DagRun, (DagRun.dag_id == TaskInstance.dag_id) & (DagRun.run_id == TaskInstance.run_id))
        .where(
            TaskInstance.dag_id.in_(dag_ids),
            DagRun.state == "running",
            TaskInstance.task_id.not_in(_ENDING),
            left,
        )
        .distinct()
    )
    return frozenset(rows)


class _Step(NamedTuple):
    """A task instance."""

    run_id: str
    map_index: int
    state: str | None
    host: str
    reads: str


def _steps(session: Session, dag_ids: Collection[str], run_ids: Collection[str]) -> dict[tuple[str, str], list[_Step]]:
    """The first step and the ranges of each run, the ranges in order."""
    wanted = (
        TaskInstance.dag_id,
        TaskInstance.run_id,
        TaskInstance.map_index,
        TaskInstance.state,
        TaskInstance.hostname,
        TaskInstance._rendered_map_index,  # the property of that name has no column
    )
    rows = session.execute(
        select(*wanted)
        .where(
            TaskInstance.dag_id.in_(dag_ids),
            TaskInstance.run_id.in_(run_ids),
            TaskInstance.task_id.in_((START_COMMIT, WRITE)),
        )
        .order_by(TaskInstance.map_index)
    )
    found: dict[tuple[str, str], list[_Step]] = {}
    for dag_id, run_id, map_index, state, host, reads in rows:
        step = _Step(run_id, map_index, None if state is None else str(state), host or "", reads or "")
        found.setdefault((dag_id, run_id), []).append(step)
    return found


def _errors(session: Session, dag_ids: Collection[str], run_ids: Collection[str]) -> dict[tuple[str, str, int], str]:
    """The writing tasks' reports of their last failure."""
    rows = session.scalars(
        select(XComModel).where(
            XComModel.dag_id.in_(dag_ids),
            XComModel.run_id.in_(run_ids),
            XComModel.task_id == WRITE,
            XComModel.key == NOTE_KEY,
        )
    )
    return {(row.dag_id, row.run_id, row.map_index): str(XComModel.deserialize_value(row)) for row in rows}
