"""After a failover a table is read on where the new server has all that the last START's had, and refused elsewhere.

Real servers: a primary and a replica that is promoted, with the primary's last transactions or without.
"""

from __future__ import annotations

import pytest

from sluice.local.process import free_port

from ..cluster.servers import MariaDb, mariadb_programs, missing_mariadb
from .harness import wait_for
from .harness.databases import MariaDatabase, PostgresDatabase
from .harness.windows import COLUMNS, NUMBERED, TIMED, Polled


@pytest.fixture
def standby(postgresql):
    server = postgresql.server.replica()
    try:
        yield PostgresDatabase(server, password=postgresql.server.password)
    finally:
        server.stop()


@pytest.fixture
def promoted(postgresql, standby):
    """Promotes the standby, with all that the primary has, or without what it gets in the block before."""

    def cut_off():
        _follows(postgresql, standby)
        standby.run("ALTER SYSTEM SET primary_conninfo = ''")
        standby.query("SELECT pg_reload_conf()")
        wait_for(lambda: standby.query("SELECT count(*) FROM pg_stat_wal_receiver") == [(0,)], "the end of the stream")

    def promote():
        assert standby.query("SELECT pg_promote()") == [(True,)]
        return standby

    return cut_off, promote


def _follows(primary, standby):
    """The standby has all, and something that came after the last look."""
    primary.run("SELECT txid_current()")
    ((there,),) = primary.query("SELECT pg_current_wal_insert_lsn()::text")
    wait_for(lambda: standby.query(f"SELECT pg_last_wal_replay_lsn() >= '{there}'") == [(True,)], "the standby")


def insert(name, rows):
    return f"INSERT INTO {name} (version) SELECT generate_series(1, {rows})"


def polled_from(postgresql, name, section, rows=2):
    """A table that is read up to its present rows."""
    postgresql.run(insert(name, rows))
    polled, found = Polled(postgresql, name, **section), []
    wait_for(lambda: found.extend(polled.poll()) or len(found) == rows, "the rows")
    return polled


@pytest.mark.parametrize("section", [TIMED, NUMBERED], ids=["times", "numbers"])
def test_a_standby_that_has_all_is_read_on(postgresql, on_postgresql, standby, promoted, section):
    _, promote = promoted
    polled = polled_from(postgresql, on_postgresql, section)
    _follows(postgresql, standby)
    polled_by = polled.last["server"]
    promote()
    polled.moved(standby)
    standby.run(insert(on_postgresql, 3))
    found = []
    wait_for(lambda: found.extend(polled.poll("version")) or len(found) == 3, "the rows")
    assert polled.last["server"] != polled_by


def test_numbers_that_a_promoted_standby_gives_again_are_refused_until_a_person_has_numbered_them_anew(
    postgresql, on_postgresql, promoted
):
    """It lacks the last forty numbers, and has passed them by the next START."""
    cut_off, promote = promoted
    polled = polled_from(postgresql, on_postgresql, NUMBERED)
    cut_off()
    postgresql.run(insert(on_postgresql, 40))
    assert len(polled.poll()) == 40
    assert polled.position == 43
    standby = promote()
    polled.moved(standby)
    standby.run(insert(on_postgresql, 20))
    ((again, passed),) = standby.query(f"SELECT min(id), max(id) FROM {on_postgresql} WHERE id > 2")
    assert again < 43 <= passed
    refusal = polled.refusal()
    assert "it was promoted or restored at" in refusal
    assert f"{{{on_postgresql}: {{0: 43}}}}" in refusal
    assert polled.refusal() == refusal
    standby.run(f"UPDATE {on_postgresql} SET id = DEFAULT WHERE id BETWEEN {again} AND 42")  # they were never read
    polled.options = polled.options.model_copy(update={"starting_offsets": {on_postgresql: {0: 43}}})
    assert len(polled.poll()) == 20
    polled.options = polled.options.model_copy(update={"starting_offsets": "earliest"})
    standby.run(insert(on_postgresql, 2))
    assert len(polled.poll()) == 2


def test_times_are_refused_where_the_promoted_standby_lacks_what_was_read(postgresql, on_postgresql, promoted):
    cut_off, promote = promoted
    polled = polled_from(postgresql, on_postgresql, TIMED)
    cut_off()
    postgresql.run(f"UPDATE {on_postgresql} SET version = 7, changed = now() WHERE id = 1")
    wait_for(lambda: polled.poll() == [(1, 7)], "the newer version")
    standby = promote()
    polled.moved(standby)
    assert "it was promoted or restored at" in polled.refusal()
    polled.options = polled.options.model_copy(update={"starting_offsets": {on_postgresql: {0: polled.position}}})
    standby.run(f"UPDATE {on_postgresql} SET changed = now() WHERE id = 1")
    wait_for(lambda: polled.poll() == [(1, 1)], "the version that is there")


def test_a_standby_that_was_promoted_while_the_old_primary_still_answered_is_refused(
    postgresql, on_postgresql, standby, promoted
):
    """It dates a row before the end of a window that START has found at the old primary."""
    postgresql.run(insert(on_postgresql, 2))
    _follows(postgresql, standby)
    promoted[1]()
    standby.run(insert(on_postgresql, 1))
    polled, found = Polled(postgresql, on_postgresql, **TIMED), []
    later = "SELECT clock_timestamp() > (SELECT max(changed) + interval '1 second' FROM {})"
    wait_for(lambda: standby.query(later.format(on_postgresql)) == [(True,)], "the clock")
    assert len(polled.poll()) == 2
    polled.moved(standby)
    assert "it was promoted or restored at" in polled.refusal()
    polled.options = polled.options.model_copy(update={"starting_offsets": {on_postgresql: {0: polled.position}}})
    standby.run(f"UPDATE {on_postgresql} SET version = 9, changed = now() WHERE id > 2")
    wait_for(lambda: found.extend(polled.poll("version")) or found == [(9,)], "the row")


def test_a_login_that_may_not_read_where_timelines_part_is_told_how_it_may(
    postgresql, on_postgresql, standby, promoted
):
    role = f"{on_postgresql}_reader"
    postgresql.run(
        f"CREATE ROLE {role} LOGIN PASSWORD 'only-reads'; GRANT pg_read_all_stats TO {role}; "
        f"GRANT SELECT ON {on_postgresql} TO {role}"
    )
    try:
        polled = polled_from(PostgresDatabase(postgresql.server, role, "only-reads"), on_postgresql, TIMED)
        _follows(postgresql, standby)
        promoted[1]()
        polled.moved(PostgresDatabase(standby.server, role, "only-reads"))
        refusal = polled.refusal()
        (look,) = (part.partition(": ")[0] for part in refusal.split("superuser sees by ")[1:])
        ((history,),) = standby.query(look)
        assert history.startswith("1\t")
        standby.run(f"{refusal[refusal.index('GRANT EXECUTE') :].partition(' TO ')[0]} TO {role}")
        polled.start()
    finally:
        postgresql.run(f"DROP OWNED BY {role}; DROP ROLE {role}")


# MariaDB


@pytest.fixture
def maria():
    """A primary with a binary log."""
    if missing_mariadb() is not None:
        pytest.skip(str(missing_mariadb()))
    server = MariaDb(mariadb_programs(), **{"log-bin": "log"})
    try:
        server.start()
        yield MariaDatabase(server)
    finally:
        server.stop()


@pytest.fixture
def replica(maria):
    server = maria.server.replica()
    try:
        yield MariaDatabase(server)
    finally:
        server.stop()


def _begun(maria, section):
    maria.run(f"CREATE TABLE t ({COLUMNS['mariadb']})")
    maria.run("INSERT INTO t (version) VALUES (1), (2)")
    polled, found = Polled(maria, "t", **section), []
    wait_for(lambda: found.extend(polled.poll()) or len(found) == 2, "the rows")
    return polled


def _has_all(maria, replica):
    ((position,),) = maria.query("SELECT @@global.gtid_binlog_pos")
    assert replica.query(f"SELECT master_gtid_wait('{position}', 60)") == [(0,)]


def test_a_replica_of_mariadb_s_with_all_transactions_is_read_on_by_times_and_refused_by_numbers(maria, replica):
    """A number of a transaction that was rolled back isn't replicated, and the replica gives it to a row."""
    timed = _begun(maria, TIMED)
    numbered = Polled(maria, "t", **NUMBERED)
    with maria.server.connect() as session, session.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("INSERT INTO t (version) VALUES (3)")
        session.rollback()
    assert len(numbered.poll()) == 2
    assert numbered.position == 4
    timed.start()
    maria.run("CREATE TABLE later (id INT)")  # so that it is known that the replica was promoted after START has looked
    _has_all(maria, replica)
    replica.run("STOP SLAVE; RESET SLAVE ALL")
    replica.run("INSERT INTO t (version) VALUES (3), (4)")
    assert replica.query("SELECT min(id) FROM t WHERE version > 2") == [(3,)]
    for polled in (timed, numbered):
        polled.moved(replica)
    wait_for(lambda: timed.poll() == [(3, 3), (4, 4)], "the rows")
    refusal = numbered.refusal()
    assert "it is another server: its server_id is 2, and was 1" in refusal
    assert "{t: {0: 4}}" in refusal
    replica.run("ALTER TABLE t AUTO_INCREMENT = 5; UPDATE t SET id = 5 WHERE id = 3; ALTER TABLE t AUTO_INCREMENT = 6")
    numbered.options = numbered.options.model_copy(update={"starting_offsets": {"t": {0: 4}}})
    assert sorted(numbered.poll()) == [(4, 4), (5, 3)]


def test_a_replica_of_mariadb_s_without_the_last_transactions_is_refused(maria, replica):
    polled = _begun(maria, TIMED)
    _has_all(maria, replica)
    replica.query("STOP SLAVE")
    maria.run("INSERT INTO t (version) VALUES (3)")
    wait_for(lambda: polled.poll() == [(3, 3)], "the row")
    replica.run("RESET SLAVE ALL")
    replica.run("INSERT INTO t (version) VALUES (4), (5)")
    polled.moved(replica)
    assert "it has no transaction 0-1-" in polled.refusal()
    polled.options = polled.options.model_copy(update={"starting_offsets": {"t": {0: polled.position}}})
    wait_for(lambda: polled.poll("version") == [(4,), (5,)], "the rows")


def test_a_replica_of_mariadb_s_that_was_promoted_while_the_old_primary_still_answered_is_refused(maria, replica):
    maria.run(f"CREATE TABLE t ({COLUMNS['mariadb']})")
    maria.run("INSERT INTO t (version) VALUES (1), (2)")
    _has_all(maria, replica)
    replica.run("STOP SLAVE; RESET SLAVE ALL; INSERT INTO t (version) VALUES (3)")
    later = "SELECT now(6) > (SELECT max(changed) + INTERVAL 1 SECOND FROM t)"
    wait_for(lambda: replica.query(later) == [(1,)], "the clock")
    polled = Polled(maria, "t", **TIMED)
    assert len(polled.poll()) == 2
    polled.moved(replica)
    assert "it may have dated rows before START looked there" in polled.refusal()


@pytest.mark.parametrize("section", [TIMED, NUMBERED], ids=["times", "numbers"])
def test_a_server_of_mariadb_s_that_has_moved_is_the_same(maria, section):
    """As where a container is made anew: its host and port are others, and its `server_uid` with them."""
    polled = _begun(maria, section)
    maria.run("INSERT INTO t (version) VALUES (3)")
    maria.run("SET GLOBAL innodb_flush_log_at_trx_commit = 1")
    maria.run("INSERT INTO t (version) VALUES (4)")  # with it both are on the disk
    maria.server.kill()
    maria.server.port = free_port()
    maria.server.restart()
    polled.moved(maria)
    found = []
    wait_for(lambda: found.extend(polled.poll()) or sorted(found) == [(3, 3), (4, 4)], "the rows")
