"""Windows of a database's tables miss nothing and have nothing twice, while transactions of every kind go on beside.

Real databases, without Spark: a window's rows are read by its own predicate, as a write job reads them. What is refused
is in test_jdbc_source_exact.py.
"""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta

import pytest

from sluice.connectors.connections import given
from sluice.databases.engine import at
from sluice.errors import RetryableError
from sluice.sources.jdbc.source import source_of
from sluice.sources.jdbc.tables import looking, position_of, windowed_of

from .harness.databases import MariaDatabase, SqliteFile
from .harness.windows import COLUMNS, NUMBERED, TIMED, Polled, connect

# While writers go on


def _write(database, table, stop, seed):
    """Transactions that insert and update, quickly or slowly, and of which some are rolled back."""
    chance = random.Random(seed)
    if isinstance(database, SqliteFile):
        import sqlite3

        own = closing(sqlite3.connect(database.file, timeout=60, isolation_level=None))
    else:
        own = connect(database)
    with own as connection:
        while not stop.is_set():
            cursor = connection.cursor()
            if isinstance(database, SqliteFile):
                cursor.execute("BEGIN IMMEDIATE")
            else:
                cursor.execute("SELECT 1")
                time.sleep(chance.choice((0, 0, 0.05)))  # begins early
            for _ in range(chance.choice((1, 1, 3))):
                cursor.execute(f"INSERT INTO {table} (version) VALUES (0)")
                time.sleep(chance.choice((0, 0.01, 0.3)))  # commits late
            now = {"postgresql": ", changed = now()", "mariadb": "", "sqlite": ", changed = CURRENT_TIMESTAMP"}
            cursor.execute(f"SELECT max(id) FROM {table}")
            (newest,) = cursor.fetchone()
            if chance.random() < 0.3:
                with suppress(Exception):  # a deadlock, or a row that another has locked
                    cursor.execute(
                        f"UPDATE {table} SET version = version + 1{now[database.name]} WHERE id = {newest or 1}"
                    )
            connection.rollback() if chance.random() < 0.2 else connection.commit()
            time.sleep(0.02 if isinstance(database, SqliteFile) else 0)  # else it would starve others


@pytest.mark.parametrize("section", [TIMED, NUMBERED], ids=["times", "numbers"])
def test_each_row_version_is_in_one_window_while_writers_go_on(database, table, section):
    polled, stop = Polled(database, table, **section), threading.Event()
    writers = [
        threading.Thread(target=_write, args=(database, table, stop, seed), daemon=True)
        for seed in range(1 if isinstance(database, SqliteFile) else 4)
    ]
    for writer in writers:
        writer.start()
    seen = []
    try:
        began = time.monotonic()
        while (waited := time.monotonic() - began) < 4 or (
            not any(seen) and waited < 60
        ):  # a busy machine takes longer
            seen.append(polled.poll())
    finally:
        stop.set()
        for writer in writers:
            writer.join(60)
    assert any(seen), "no window had a row while writers went on"
    time.sleep(1.5)  # which the margin and SQLite's whole seconds keep back
    seen.append(polled.poll())
    rows = [row for window in seen for row in window]
    final = {tuple(row) for row in database.query(f"SELECT id, version FROM {table}")}
    if section is NUMBERED:  # changes aren't seen
        assert sorted(id_ for id_, _ in rows) == sorted(id_ for id_, _ in final)
    else:
        assert final <= {tuple(row) for row in rows}
        assert len(rows) == len({tuple(row) for row in rows})


# PostgreSQL


def test_a_number_that_was_taken_is_waited_for_though_newer_ones_are_there(postgresql, on_postgresql):
    polled = Polled(postgresql, on_postgresql, **NUMBERED | {"horizon_wait": "0 seconds"})
    with connect(postgresql) as late:
        late.cursor().execute(f"SELECT nextval(pg_get_serial_sequence('{on_postgresql}', 'id'))")
        postgresql.run(f"INSERT INTO {on_postgresql} (version) VALUES (7)")
        assert polled.poll() == []
        assert "newer rows wait for session" in polled.remarks[0]
        late.cursor().execute(f"INSERT INTO {on_postgresql} (id) VALUES (1)")
        late.commit()
    assert sorted(polled.poll()) == [(1, 0), (2, 7)]


def test_a_number_that_a_crash_would_take_back_is_waited_for(preparing, topic_name):
    """Rolled back, and not yet on the server's disk: after a crash the sequence gives it again, to a row that stays."""
    name, insert = topic_name("c").replace("-", "_"), "INSERT INTO {} (version) SELECT 0 FROM generate_series(1, {})"
    preparing.run(f"CREATE TABLE {name} ({COLUMNS['postgresql']})")
    preparing.run(insert.format(name, 1))
    polled = Polled(preparing, name, **NUMBERED)
    with connect(preparing) as connection, preparing.server.stands_still("walwriter"):
        connection.cursor().execute(insert.format(name, 100))
        connection.rollback()
        assert polled.poll() == []
        assert ["disk" in one for one in polled.remarks] == [True]
        preparing.server.kill()
    preparing.server.restart()
    preparing.run(insert.format(name, 200))
    assert len(polled.poll()) == 201


def test_a_number_that_was_rolled_back_holds_nothing_up(preparing, topic_name):
    name = topic_name("c").replace("-", "_")
    preparing.run(f"CREATE TABLE {name} ({COLUMNS['postgresql']})")
    preparing.run(f"INSERT INTO {name} (version) VALUES (1)")
    polled = Polled(preparing, name, **NUMBERED | {"horizon_wait": "0 seconds"})
    with connect(preparing) as connection:
        connection.cursor().execute(f"INSERT INTO {name} (version) SELECT 0 FROM generate_series(1, 100)")
        connection.rollback()
    assert (polled.poll(), polled.remarks, polled.position) == ([(1, 1)], (), 102)


def test_completeness_is_told_up_to_when_numbers_were_looked_at_and_not_past_rows_that_wait(postgresql, on_postgresql):
    """START waits for the transaction of a number, while others commit rows whose numbers it doesn't go up to."""
    polled = Polled(postgresql, on_postgresql, **NUMBERED)
    insert, asked = f"INSERT INTO {on_postgresql} DEFAULT VALUES", datetime.now(UTC)
    with connect(postgresql) as late, ThreadPoolExecutor(1) as start:
        late.cursor().execute(insert)
        state = start.submit(polled.state)
        time.sleep(0.7)  # it has looked at the sequence by then, and waits
        postgresql.run(insert)
        committed = datetime.now(UTC)
        late.commit()
        (bounds,) = state.result().partitions
        assert bounds.window_end == 2
        assert asked < state.result().valid_through(None) < committed
        late.cursor().execute(insert)
        held = polled.state()
        assert [held.valid_through(None), held.valid_through(asked)] == [None, asked]


def test_rows_that_an_interval_has_no_room_for_are_no_word_of_completeness(postgresql, on_postgresql):
    """They may be of any time, since numbers say nothing of it."""
    polled, asked = Polled(postgresql, on_postgresql, **NUMBERED, max_records=2), datetime.now(UTC)
    postgresql.run(f"INSERT INTO {on_postgresql} (version) VALUES (0), (0), (0)")
    assert polled.state().valid_through(asked) == asked
    assert [len(polled.poll()), polled.state().valid_through(None) > asked] == [2, True]


@pytest.mark.parametrize("section", [TIMED, NUMBERED | {"horizon_wait": "0 seconds"}], ids=["times", "numbers"])
def test_a_prepared_transaction_holds_what_is_newer_than_the_last_window(preparing, section, topic_name):
    name = topic_name("p").replace("-", "_")
    preparing.run(f"CREATE TABLE {name} ({COLUMNS['postgresql']})")
    preparing.run(f"INSERT INTO {name} (version) VALUES (1)")
    polled = Polled(preparing, name, **section)
    time.sleep(0.4)
    assert polled.poll() == [(1, 1)]
    with connect(preparing) as connection:
        connection.cursor().execute(f"INSERT INTO {name} (version) VALUES (2)")
        connection.cursor().execute(f"PREPARE TRANSACTION '{name}'")
    preparing.run(f"INSERT INTO {name} (version) VALUES (3)")
    time.sleep(0.4)
    assert polled.poll() == []
    assert "prepared transaction" in polled.remarks[0]
    preparing.run(f"COMMIT PREPARED '{name}'")
    assert sorted(polled.poll()) == [(2, 2), (3, 3)]


def test_what_another_loader_has_read_is_gone_on_from_only_where_no_row_can_come_before_it(postgresql, on_postgresql):
    """It may not have waited for transactions that began before the last row that it has read."""
    now = Polled(postgresql, on_postgresql, **TIMED).state().partitions[0].high_watermark
    ahead = Polled(postgresql, on_postgresql, **TIMED, starting_offsets={on_postgresql: {0: now + 3_600_000_000}})
    assert "lie ahead of what the database has given" in ahead.refusal()
    with connect(postgresql) as early:
        early.cursor().execute("SELECT 1")
        ((starts,),) = postgresql.query("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")
        time.sleep(0.6)
        timed = Polled(postgresql, on_postgresql, **TIMED, starting_offsets={on_postgresql: {0: starts}})
        assert "or an earlier interval didn't wait for it" in timed.refusal()
        early.commit()
    (bounds,) = timed.state().partitions
    assert bounds.window_end >= starts

    numbers = {**NUMBERED, "horizon_wait": "0 seconds"}
    for starts in ({on_postgresql: {0: 2}}, "latest"):
        numbered = Polled(postgresql, on_postgresql, **numbers, starting_offsets=starts)
        with connect(postgresql) as late:
            late.cursor().execute(f"INSERT INTO {on_postgresql} (version) VALUES (1)")
            with pytest.raises(RetryableError, match="It isn't known yet whether rows of session"):
                numbered.state()
            late.commit()
        numbered.state()
    ahead = Polled(postgresql, on_postgresql, **numbers, starting_offsets={on_postgresql: {0: 9}})
    assert "lie ahead of what the database has given" in ahead.refusal()


def test_a_window_of_times_that_rows_may_still_come_to_is_tried_again_until_the_transaction_ends(
    postgresql, on_postgresql
):
    polled = Polled(postgresql, on_postgresql, **TIMED)
    window = at(polled.state().partitions[0].high_watermark) + timedelta(seconds=0.4), at(0)
    look = source_of(polled.options, None)
    with given(polled._known), connect(postgresql) as late:
        late.cursor().execute(f"INSERT INTO {on_postgresql} (version) VALUES (1)")
        time.sleep(0.7)
        with pytest.raises(RetryableError, match="Rows of this window may be still to come, of session"):
            look.state((on_postgresql,), *window)
        late.commit()
        (bounds,) = look.state((on_postgresql,), *window).partitions
    assert at(bounds.window_end) == window[0]


# MariaDB


def test_a_number_that_a_crash_of_mariadb_s_takes_back_is_not_gone_past(topic_name):
    """Of a server that brings its log to its disk when it pleases: the row that is given the number again stays."""
    from ..cluster.servers import MariaDb, mariadb_programs, missing_mariadb

    if missing_mariadb() is not None:
        pytest.skip(str(missing_mariadb()))
    server = MariaDb(mariadb_programs(), **{"innodb-flush-log-at-timeout": 2700})
    try:
        server.start()
        database, name = MariaDatabase(server), topic_name("c").replace("-", "_")
        database.run(f"CREATE TABLE {name} ({COLUMNS['mariadb']})")
        polled, rows = Polled(database, name, **NUMBERED), []
        for version in (1, 2):
            database.run(f"INSERT INTO {name} (version) VALUES ({version})")
            rows += polled.poll()
            server.kill()
            server.restart()
        database.run(f"INSERT INTO {name} (version) VALUES (3)")
        database.run("SET GLOBAL innodb_flush_log_at_timeout = 1")
        rows += polled.poll()
        assert set(database.query(f"SELECT id, version FROM {name}")) <= set(rows)
    finally:
        server.stop()


@pytest.mark.parametrize("section", [TIMED, NUMBERED], ids=["times", "numbers"])
def test_a_statement_that_calls_a_slow_function_is_waited_for_to_its_end(mariadb, on_mariadb, section):
    """Each instruction of the function has another id and another beginning; what it inserts is dated by the first."""
    function = f"{on_mariadb}_f"
    with connect(mariadb) as slow:
        cursor = slow.cursor()
        cursor.execute("SET GLOBAL log_bin_trust_function_creators = 1")
        cursor.execute(
            f"CREATE FUNCTION {function}(x INT) RETURNS INT BEGIN DO sleep(0.3); DO sleep(0.3); RETURN x; END"
        )
        insert = f"INSERT INTO {on_mariadb} (version) SELECT sum({function}(seq)) FROM seq_1_to_6"
        polled = Polled(mariadb, on_mariadb, **{**section, "horizon_wait": "1 second"})
        with ThreadPoolExecutor(1) as other:
            running = other.submit(cursor.execute, insert)
            time.sleep(0.5)
            windows = [polled.poll()]
            assert not running.done()
            assert "newer rows wait for thread" in polled.remarks[0]
            running.result(30)
        windows.append(polled.poll())  # the transaction is open
        slow.commit()
        time.sleep(0.4)
        windows.append(polled.poll())
        mariadb.run(f"DROP FUNCTION {function}")
    assert sorted(row for window in windows for row in window) == [(1, 21)]


def test_a_transaction_is_waited_for_though_others_look_so_often_that_the_server_s_list_is_old(mariadb, on_mariadb):
    """A monitor that looks all the time keeps InnoDB's list of transactions as it was; loaders do not."""
    polled = Polled(mariadb, on_mariadb, **{**TIMED, "horizon_wait": "0 seconds"})
    stop = threading.Event()

    def monitor():
        with connect(mariadb) as connection:
            while not stop.wait(0.005):
                connection.cursor().execute("SELECT count(*) FROM information_schema.innodb_trx")

    watching = [threading.Thread(target=monitor, daemon=True) for _ in range(3)]
    for one in watching:
        one.start()
    try:
        time.sleep(0.3)
        with connect(mariadb) as late:
            late.cursor().execute(f"INSERT INTO {on_mariadb} (version) VALUES (7)")
            time.sleep(0.4)
            windows = [polled.poll()]
            late.commit()
    finally:
        stop.set()
        for one in watching:
            one.join(60)
    with ThreadPoolExecutor(8) as loaders:
        others = [Polled(mariadb, on_mariadb, **{**TIMED, "horizon_wait": "5 seconds"}) for _ in range(8)]
        time.sleep(0.4)
        states = list(loaders.map(lambda other: other.state(), others))
    assert all(state.partitions[0].window_end > 0 and not state.remarks for state in states)
    windows.append(polled.poll())
    assert [row for window in windows for row in window] == [(1, 7)]


def test_a_thread_that_is_always_busy_holds_nothing_up_when_its_transactions_end(mariadb, on_mariadb):
    # A look has to meet the thread between two statements, or in a transaction: on a crowded machine it takes many.
    polled, stop = Polled(mariadb, on_mariadb, **{**TIMED, "horizon_wait": "60 seconds"}), threading.Event()

    def load():
        with connect(mariadb) as connection:
            connection.autocommit(True)
            while not stop.is_set():
                connection.cursor().execute(f"INSERT INTO {on_mariadb} (version) SELECT sleep(0.02)")

    busy = threading.Thread(target=load, daemon=True)
    busy.start()
    try:
        time.sleep(0.5)
        windows = [(polled.poll(), polled.position, polled.remarks) for _ in range(3)]
    finally:
        stop.set()
        busy.join(60)
    rows, ends, remarks = zip(*windows, strict=True)
    assert remarks == ((), (), ())
    assert ends[0] < ends[1] < ends[2]
    assert any(rows)


@pytest.mark.parametrize("section", [TIMED, NUMBERED], ids=["times", "numbers"])
def test_a_transaction_that_mariadb_has_prepared_holds_its_rows_until_it_ends(mariadb, topic_name, section):
    """By XA, whose session may be gone: the server goes on with it, also when it was started anew."""
    name = topic_name("x").replace("-", "_")
    mariadb.run(f"CREATE TABLE {name} ({COLUMNS['mariadb']})")
    polled = Polled(mariadb, name, **{**section, "horizon_wait": "0.3 seconds"})
    with connect(mariadb) as connection:
        cursor = connection.cursor()
        for statement in (f"XA START '{name}'", f"INSERT INTO {name} (version) VALUES (1)", f"XA END '{name}'"):
            cursor.execute(statement)
        cursor.execute(f"XA PREPARE '{name}'")
    mariadb.run(f"INSERT INTO {name} (version) VALUES (2)")
    time.sleep(0.4)
    try:
        assert polled.poll() == []
        assert "newer rows wait for" in polled.remarks[0]
    finally:
        mariadb.run(f"XA COMMIT '{name}'")
    time.sleep(0.4)
    assert sorted(polled.poll()) == [(1, 1), (2, 2)]
    mariadb.run(f"DROP TABLE {name}")


# Any database


def test_a_big_table_is_loaded_in_windows_of_at_most_so_many_rows(database, table):
    for _ in range(3):
        database.run(f"INSERT INTO {table} (version) VALUES (1), (2), (3), (4)")
    numbered = Polled(database, table, **NUMBERED, max_records=5)
    assert [len(numbered.poll()) for _ in range(4)] == [5, 5, 2, 0]
    timed = Polled(database, table, **TIMED, max_records=2)
    time.sleep(1.5)
    sizes = []
    while found := timed.poll():
        sizes.append(len(found))
    assert sum(sizes) == 12  # rows of one time stay together
    database.run(f"DELETE FROM {table}")
    assert timed.poll() == []


def test_rows_of_the_last_time_that_another_loader_has_read_are_left_out_by_their_numbers(database, table):
    same = {"postgresql": "now()", "mariadb": "current_timestamp(6)", "sqlite": "CURRENT_TIMESTAMP"}[database.name]
    database.run(f"INSERT INTO {table} (changed) SELECT {same} FROM (SELECT 1 UNION SELECT 2 UNION SELECT 3) three")
    section = {**TIMED, "mode": "timestamp+incrementing", "incrementing_column": "id"}
    time.sleep(1.5)
    first = Polled(database, table, **section)
    first.poll()
    with given(first._known), looking(first.options) as (ask, engine):
        windowed = windowed_of(ask, engine, first.options, table)
        ((at,),) = ask(f"SELECT DISTINCT {position_of(engine, first.options, windowed)} FROM {windowed.relation.sql}")
    starts = {"starting_offsets": {table: {0: int(at)}}, "starting_ids": {table: 2}}
    assert Polled(database, table, **section, **starts).poll("id") == [(3,)]
    none_left = Polled(database, table, **section, **{**starts, "starting_ids": {table: 3}})
    assert none_left.poll("id") == []
    database.run(f"INSERT INTO {table} (version) VALUES (7)")
    time.sleep(1.5)
    assert none_left.poll("id, version") == [(4, 7)]
