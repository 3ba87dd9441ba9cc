"""The note of a run is written whatever else writes to Airflow's database at that moment, and blocks nobody."""

from __future__ import annotations

import sqlite3
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from airflow.models import import_all_models
from airflow.models.base import Base
from airflow.models.dagrun import DagRun, DagRunNote
from airflow.models.taskinstance import TaskInstance
from airflow.models.xcom import XComModel
from airflow.utils.types import DagRunType
from sqlalchemy import Engine, create_engine, event, insert
from sqlalchemy.orm import Session

from sluice.airflow import listeners

RUN = {"dag_id": "orders", "run_id": "manual"}
TEXT = "Committed instant 7: 3 rows."


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "airflow.db"


@pytest.fixture
def engine(database: Path) -> Iterator[Engine]:
    """Airflow's tables in a SQLite that is set up as Airflow does it, with one run whose only task has ended."""
    import_all_models()
    engine = create_engine(f"sqlite:///{database}")

    @event.listens_for(engine, "connect")
    def write_ahead(connection: Any, _record: Any) -> None:
        connection.execute("PRAGMA journal_mode=WAL")

    Base.metadata.create_all(engine)
    with Session(engine, autoflush=False) as session:
        run = DagRun(**RUN, run_type=DagRunType.MANUAL)
        run.state = "running"
        session.add(run)
        session.flush()
        task = {**RUN, "task_id": "commit", "map_index": -1}
        shape = {"pool": "default_pool", "pool_slots": 1, "try_number": 1, "max_tries": 1, "priority_weight": 1}
        ended = {"id": uuid.uuid4(), "state": "success", "operator": "StartCommitOperator", **shape}
        session.execute(insert(TaskInstance.__table__).values(**task, **ended))
        note = {"key": listeners.NOTE_KEY, "value": TEXT, "timestamp": datetime.now(UTC)}
        session.execute(insert(XComModel.__table__).values(**task, **note, dag_run_id=run.id))
        session.commit()
    yield engine
    engine.dispose()


def _end(engine: Engine) -> tuple[str, str | None]:
    """End the run as the scheduler does it; its state and its note, as a reader sees them afterwards."""
    with Session(engine, autoflush=False) as session:
        run = session.query(DagRun).one()
        run.set_state("success")
        listeners.on_dag_run_success(run)
        session.flush()
        session.commit()
    with Session(engine) as session:
        run = session.query(DagRun).one()
        return str(run.state), run.note


def _before_the_note(engine: Engine, act: Callable[[], None]) -> list[str]:
    """Do something once, between what the listener reads and what it writes; the statements that it was done before."""
    done: list[str] = []

    @event.listens_for(engine, "before_cursor_execute")
    def before(_connection: Any, _cursor: Any, statement: str, *_more: Any) -> None:
        if "dag_run_note" in statement and not statement.startswith("SELECT") and not done:
            done.append(statement)
            act()

    return done


def test_another_process_has_written_meanwhile(engine: Engine, database: Path) -> None:
    def write() -> None:
        with closing(sqlite3.connect(database)) as other, other:
            other.execute("UPDATE dag_run SET clear_number = 5")

    done = _before_the_note(engine, write)
    assert _end(engine) == ("success", TEXT)
    assert done


def test_another_process_is_writing(engine: Engine, database: Path) -> None:
    other = sqlite3.connect(database, isolation_level=None, check_same_thread=False)

    def hold() -> None:
        other.execute("BEGIN IMMEDIATE")
        threading.Timer(0.3, other.execute, ["ROLLBACK"]).start()

    done = _before_the_note(engine, hold)
    with closing(other):
        assert _end(engine) == ("success", TEXT)
    assert done


def test_a_persons_note_stays_above_ours(engine: Engine) -> None:
    with Session(engine) as session:
        session.query(DagRun).one().dag_run_note = DagRunNote(content="Look at this.", user_id="7")
        session.commit()
    for _ in range(2):
        assert _end(engine) == ("success", f"Look at this.\n\nSluice: {TEXT}")


def test_a_note_that_cannot_be_written_settles_the_run_all_the_same(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    DagRunNote.__table__.drop(engine)
    with Session(engine, autoflush=False) as session:
        run = session.query(DagRun).one()
        run.set_state("success")
        listeners.on_dag_run_success(run)
        session.commit()
        assert run.state == "success"
    assert "could not be written" in caplog.text
