"""Writes the note of Sluice's DAG runs when they end. Runs in the scheduler, so it must never fail or block it.

It also imports, before Airflow forks processes for tasks and DAG files, what each of them would import by itself.
"""

from __future__ import annotations

import logging
import sys
from importlib import import_module
from typing import TYPE_CHECKING

from airflow.configuration import conf
from airflow.listeners import hookimpl

from sluice.airflow.notes import LONGEST, NOTE_KEY, TaskNote, compose

if TYPE_CHECKING:
    from airflow.models.dagrun import DagRun
    from sqlalchemy.engine import Connection, Row

_log = logging.getLogger(__name__)
_AUTHOR = "sluice"
_BELOW = "\n\nSluice: "  # between a person's note and Sluice's
_OPERATORS = ("StartCommitOperator", "TableServiceOperator")  # each run of a Sluice DAG has a task of one of them

_OF_EACH_TASK = ("sluice.airflow.dag", "sluice.coordinator", "sluice.control.topic", "sluice.airflow.lineage")


@hookimpl
def on_starting() -> None:
    """Import what tasks and DAG files need, in the process that is forked for each: it saves 1.3 s of CPU per fork.

    These processes are the DAG processor, and the scheduler if LocalExecutor runs the tasks. A failed import is left to
    the DAG file, whose import error Airflow shows.
    """
    if not _forks(sys.argv, conf.get("core", "executor", fallback="")):
        return
    for module in _OF_EACH_TASK:
        try:
            import_module(module)
        except Exception:
            _log.exception("%s could not be imported ahead of the DAG files and tasks that need it", module)


def _forks(command: list[str], executor: str) -> bool:
    """Whether this Airflow command forks itself for DAG files, or for the tasks of this executor."""
    name = command[1] if len(command) > 1 else ""
    return name == "dag-processor" or (name == "scheduler" and "LocalExecutor" in executor)


@hookimpl
def on_dag_run_success(dag_run: DagRun) -> None:
    """Write a note on the commit."""
    _note(dag_run, succeeded=True)


@hookimpl
def on_dag_run_failed(dag_run: DagRun) -> None:
    """Note what failed, where, and what to do now."""
    _note(dag_run, succeeded=False)


def _note(dag_run: DagRun, *, succeeded: bool) -> None:
    """Write the note in the scheduler's own transaction.

    It uses the session's connection, under its own savepoints: another session would wait for the row locks that the
    scheduler holds, and the scheduler's session forbids nested transactions. After an error it rolls back to the
    savepoint and logs; the run's state is settled all the same.

    Reading and writing have a savepoint each. SQLite refuses at once to write in a transaction that has read while
    another process writes or has written since (https://sqlite.org/rescode.html#busy_snapshot), and would then refuse
    the scheduler's next write as well; a transaction that begins with a write waits for its turn.
    """
    from sqlalchemy.orm import object_session

    try:
        session = object_session(dag_run)
        if session is None:
            return
        connection = session.connection()
        with connection.begin_nested():
            tasks = _tasks(connection, dag_run.dag_id, dag_run.run_id)
            there = _there(connection, dag_run.id) if tasks else None
        if tasks:
            with connection.begin_nested():
                _write(connection, dag_run.id, there, compose(tasks, succeeded=succeeded))
    except Exception:
        _log.exception("the note of DAG run %s of %s could not be written", dag_run.run_id, dag_run.dag_id)


def _tasks(connection: Connection, dag_id: str, run_id: str) -> list[TaskNote]:
    """The run's task instances with their texts; none if it isn't a run of Sluice's."""
    from airflow.models.taskinstance import TaskInstance
    from airflow.models.xcom import XComModel
    from sqlalchemy import select

    ours = (TaskInstance.dag_id == dag_id, TaskInstance.run_id == run_id)
    wanted = (TaskInstance.task_id, TaskInstance.map_index, TaskInstance.state, TaskInstance.operator)
    rows = connection.execute(select(*wanted).where(*ours)).all()
    if not any(row.operator in _OPERATORS for row in rows):
        return []
    xcoms = select(XComModel.task_id, XComModel.map_index, XComModel.value).where(
        XComModel.dag_id == dag_id, XComModel.run_id == run_id, XComModel.key == NOTE_KEY
    )
    texts = {(x.task_id, x.map_index): str(XComModel.deserialize_value(x)) for x in connection.execute(xcoms)}
    return [TaskNote(row.task_id, row.map_index, row.state, texts.get((row.task_id, row.map_index))) for row in rows]


def _there(connection: Connection, dag_run_id: int) -> Row[str | None, str | None] | None:
    """The run's note as it is, with its author; None without a note."""
    from airflow.models.dagrun import DagRunNote
    from sqlalchemy import select

    wanted = select(DagRunNote.content, DagRunNote.user_id).where(DagRunNote.dag_run_id == dag_run_id)
    return connection.execute(wanted).one_or_none()


def _write(connection: Connection, dag_run_id: int, there: Row[str | None, str | None] | None, text: str) -> None:
    """Set the note; a person's note stays, with Sluice's below it."""
    from airflow.models.dagrun import DagRunNote
    from sqlalchemy import insert, update

    if there is None:
        connection.execute(insert(DagRunNote).values(dag_run_id=dag_run_id, content=text, user_id=_AUTHOR))
        return
    content, author = there
    if author != _AUTHOR and content:
        text = f"{content.partition(_BELOW)[0]}{_BELOW}{text}"[:LONGEST]
    connection.execute(update(DagRunNote).where(DagRunNote.dag_run_id == dag_run_id).values(content=text))
