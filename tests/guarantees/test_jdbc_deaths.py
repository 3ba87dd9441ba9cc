"""Whatever dies or stands still while a database is loaded: its table has an interval whole or not at all.

After each disturbance the rows are compared with the records that were sent, as the database's own clients see them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from sluice.errors import IntervalError
from sluice.protocol.messages import WriteStatus

from ..thorough import also
from .harness import Pause, once_the_lease_is_free
from .harness.databases import MariaDatabase, PostgresDatabase, SqliteFile
from .harness.jdbc import require_refused

COMMIT_POINTS = [
    "coordinator.before_hudi_commit",
    "jdbc.before_transaction",
    "jdbc.before_database_commit",
    "jdbc.after_database_commit",
    "coordinator.before_ack_commit",
]


@pytest.mark.parametrize("point", [*COMMIT_POINTS[2:4], *also(*COMMIT_POINTS[:2], COMMIT_POINTS[4])])
def test_a_coordinator_that_is_killed_while_it_commits(make_jdbc, point):
    """The interval is there whole or not at all, then and when the next one has come by."""
    table = make_jdbc()
    table.flow.produce(40)
    started = table.flow.start()
    table.flow.write_all(started)
    offset = str(started.control_offset)
    step = table.flow.step("commit", "--control-offset", offset, failpoint=f"{point}=kill")
    assert step.killed, step.err
    done = point in ("jdbc.after_database_commit", "coordinator.before_ack_commit")
    assert len(table.rows()) == (40 if done else 0)
    assert sum(table.position().values()) == (40 if done else 0)
    if COMMIT_POINTS.index(point) % 2:
        assert table.flow.commit(started).state == "committed"
    table.flow.produce(20)
    table.flow.interval()
    table.check()


@pytest.mark.parametrize("point", ["after_open_instant", *also("before_start_commit", "after_start_commit")])
def test_a_coordinator_that_is_killed_while_it_starts(make_jdbc, database, point):
    table = make_jdbc()
    table.flow.produce(40)
    step = table.flow.step("start", "--run-id", "first", failpoint=f"coordinator.{point}=kill")
    assert step.killed, step.err
    table.flow.interval()
    table.check()
    sql = f"SELECT state FROM _sluice_instants WHERE sink_table LIKE '%{table.name}'"
    assert database.query(sql) == [("completed",)]


@pytest.mark.parametrize("end", ["committed", *also("aborted")])
def test_a_zombie_reaches_nothing_but_a_staging_table_of_its_own(make_jdbc, end):
    table = make_jdbc()
    table.flow.produce(40)
    run = table.flow.run()
    started = table.flow.start(run)
    zombie = table.flow.zombie(started)
    if end == "aborted":
        table.flow.abort(run)
    else:
        table.flow.write(started).succeed()
        table.flow.commit(started)
        table.check()
    before = table.rows()
    zombie.write()
    assert len(table.staging()) == 1
    assert table.rows() == before
    zombie.hear()
    statuses = [m for m in table.flow.messages() if isinstance(m, WriteStatus) and m.error is None]
    assert len(statuses) == (0 if end == "aborted" else 1)
    table.flow.produce(20)
    table.flow.interval()
    table.check()


@pytest.mark.thorough
def test_of_two_attempts_one_counts(make_jdbc):
    table = make_jdbc()
    table.flow.produce(40)
    started = table.flow.start()
    zombie = table.flow.zombie(started)
    table.flow.write(started).succeed()
    zombie.write()
    assert len(table.staging()) == 2
    table.flow.commit(started)
    table.check()
    zombie.hear()


def test_an_interval_that_is_committed_twice_is_there_once(make_jdbc):
    table = make_jdbc()
    table.flow.produce(40)
    started = table.flow.start()
    table.flow.write_all(started)
    for _ in range(2):
        assert table.flow.commit(started).records == 40
        table.check()


@pytest.mark.thorough
def test_of_two_runs_at_once_one_commits(make_jdbc):
    table = make_jdbc()
    table.flow.produce(40)
    first = table.flow.start()
    table.flow.write_all(first)
    second = table.flow.start()
    table.flow.write_all(second)
    with pytest.raises(IntervalError):
        table.flow.commit(first)
    assert table.rows() == []
    table.flow.commit(second)
    table.check()


def test_an_interval_that_is_aborted_leaves_nothing(make_jdbc):
    table = make_jdbc()
    table.flow.produce(40)
    run = table.flow.run()
    table.flow.write_all(table.flow.start(run))
    assert len(table.staging()) == 1
    assert table.flow.abort(run).state == "aborted"
    assert (table.rows(), table.staging(), table.position()) == ([], set(), {})
    table.flow.interval()
    table.check()


def test_a_process_that_stands_still_before_its_transaction_commits_nothing_afterwards(make_jdbc):
    """The run is aborted meanwhile: the database has to refuse what nobody could take off again."""
    table = make_jdbc(control__commit_timeout="1 second")
    table.flow.produce(40)
    run = table.flow.run()
    started = table.flow.start(run)
    table.flow.write_all(started)
    pause, frozen = table.flow.frozen_commit(started, "jdbc.before_transaction")
    assert once_the_lease_is_free(lambda: table.flow.abort(run)).state == "aborted"
    pause.release()
    require_refused(table, frozen)


def test_a_commit_is_refused_whose_interval_is_taken_back_within_its_transaction(make_jdbc, database):
    """ABORT deletes the interval's row without waiting for a commit that has looked at the row already."""
    if isinstance(database, SqliteFile):
        pytest.skip("SQLite has one writer at a time: ABORT waits for the commit")
    table = make_jdbc()
    table.flow.produce(40)
    started = table.flow.start()
    table.flow.write_all(started)
    pause, frozen = table.flow.frozen_commit(started, "jdbc.before_position")
    database.run(f"DELETE FROM _sluice_instants WHERE sink_table LIKE '%{table.name}' AND state = 'pending'")
    pause.release()
    require_refused(table, frozen)


@pytest.mark.thorough
def test_of_two_processes_that_carry_a_commit_out_one_does(make_jdbc):
    table = make_jdbc(control__commit_timeout="1 second")
    table.flow.produce(40)
    started = table.flow.start()
    table.flow.write_all(started)
    pause, frozen = table.flow.frozen_commit(started, "jdbc.before_transaction")
    once_the_lease_is_free(lambda: table.flow.commit(started))
    table.check()
    pause.release()
    assert frozen.wait(600) == 0, frozen.communicate()
    table.check()
    frozen.communicate()


def test_rows_that_are_gone_from_staging_are_never_taken_for_none(make_jdbc, database):
    """As when PostgreSQL crashes, which keeps no rows of an unlogged table."""
    table = make_jdbc()
    table.flow.produce(40)
    started = table.flow.start()
    table.flow.write_all(started)
    (staged,) = table.staging()
    database.run(f'DELETE FROM "{staged}" WHERE id = 3')
    with pytest.raises(IntervalError, match=r"staged are gone.*found=39, reported=40"):
        table.flow.commit(started)
    assert (table.rows(), table.position()) == ([], {})
    table.flow.interval()
    table.check()


@pytest.mark.thorough
def test_rows_that_spark_has_staged_twice_are_taken_once(make_jdbc, database):
    table = make_jdbc()
    table.flow.produce(40)
    started = table.flow.start()
    table.flow.write_all(started)
    (staged,) = table.staging()
    database.run(f'INSERT INTO "{staged}" SELECT * FROM "{staged}"')
    table.flow.commit(started)
    table.check()


def test_a_server_that_crashes_while_rows_are_staged_and_while_they_are_committed(make_jdbc, database, tmp_path):
    """Each step says so in one message, and what comes next finds the table as it was."""
    if isinstance(database, SqliteFile):
        pytest.skip("SQLite has no server")
    table = make_jdbc(1)
    table.flow.produce(40, partitions=[0])
    run = table.flow.run()
    started = table.flow.start(run)
    pause = Pause("jdbc.before_staging", tmp_path)
    job = table.flow.write(started, failpoint=pause.failpoint)
    pause.wait(job)
    with crashed(database):
        pause.release()
        assert job.wait() != 0
        assert "[error] The database failed while" in job.text()
        assert "recovery=retry" in job.text()
    table.flow.abort(run)
    assert (table.rows(), table.position(), table.staging()) == ([], {}, set())
    started = table.flow.start()
    table.flow.write_all(started)
    pause, step = table.flow.frozen_commit(started, "jdbc.before_database_commit")
    with crashed(database):
        pause.release()
        assert step.wait(600) != 0
        out, err = step.communicate()
        assert "The database failed while committing the interval" in err, out + err
    assert (table.rows(), table.position()) == ([], {})
    if isinstance(database, MariaDatabase):  # PostgreSQL keeps nothing of an unlogged table
        assert table.flow.commit(started).state == "committed"
    else:
        with pytest.raises(IntervalError, match="staged are gone"):
            table.flow.commit(started)
        table.flow.interval()
    table.check()


@contextmanager
def crashed(database: PostgresDatabase | MariaDatabase) -> Iterator[None]:
    """The server was killed, and is there again after the block."""
    database.server.kill()
    try:
        yield
    finally:
        database.server.restart()
