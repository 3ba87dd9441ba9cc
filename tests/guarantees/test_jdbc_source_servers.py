"""Rows of tables are read of the one server that START-COMMIT was written by, and of none that lacks what that had.

A primary, its replica, and one of another cluster, of PostgreSQL and of MariaDB, behind one address.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import MagicMock

import pytest
from kafka_secrets import Authority, written

from sluice.connectors.connections import VARIABLE
from sluice.databases.connection import address_of, asked
from sluice.databases.engine import ELSEWHERE
from sluice.databases.kinds import KINDS
from sluice.errors import ActionRequiredError, RetryableError
from sluice.sources.jdbc.tables import SERVER

from ..cluster.servers import MariaDb, PostgreSql, mariadb_programs, missing, missing_mariadb, postgresql_programs
from .harness import wait_for
from .harness.databases import MariaDatabase, PostgresDatabase, Readable, SqliteFile
from .harness.switched import Switched
from .harness.windows import COLUMNS, NUMBERED, TIMED, Polled


class Pair:
    """A primary and its replica, which follows, or stands still."""

    def __init__(self, primary: Readable, replica: Readable, stop: str, resume: str) -> None:
        self.primary, self.replica, self._stop, self._resume = primary, replica, stop, resume

    @contextmanager
    def lagging(self, table: str) -> Iterator[None]:
        """The replica, which has the table as it is now, takes nothing more until the block ends."""
        newest = f"SELECT max(id) FROM {table}"
        wait_for(lambda: table in self.replica.tables() and self.replica.query(newest) == self.primary.query(newest),
                 "the replica")  # fmt: skip
        self.replica.query(self._stop)
        try:
            yield
        finally:
            self.replica.query(self._resume)


@pytest.fixture(scope="module")
def postgresql_pair(postgresql):
    server = postgresql.server.replica()
    try:
        replica = PostgresDatabase(server, password=postgresql.server.password)
        yield Pair(postgresql, replica, "SELECT pg_wal_replay_pause()", "SELECT pg_wal_replay_resume()")
    finally:
        server.stop()


@pytest.fixture(scope="module")
def mariadb_pair():
    if missing_mariadb() is not None:
        pytest.skip(str(missing_mariadb()))
    server = MariaDb(mariadb_programs(), **{"log-bin": "log"})
    servers = [server]
    try:
        server.start()
        servers.append(server.replica())
        yield Pair(MariaDatabase(server), MariaDatabase(servers[1]), "STOP SLAVE SQL_THREAD", "START SLAVE")
    finally:
        for one in servers:
            one.stop()


@pytest.fixture(params=["postgresql", "mariadb"])
def pair(request):
    return request.getfixturevalue(f"{request.param}_pair")


def test_a_write_job_that_is_led_to_a_replica_fails_and_no_row_is_left_behind(
    pair, make_flow, tmp_path, monkeypatch, topic_name
):
    """The replica lags: it lacks rows below the window's end, which START has found at the primary."""
    primary, name = pair.primary, topic_name("s").replace("-", "_")
    primary.run(f"CREATE TABLE {name} ({COLUMNS[primary.name]})")
    primary.run(f"INSERT INTO {name} (version) VALUES (1)")
    file = SqliteFile(tmp_path / "lake.db")
    with closing(Switched(primary.server.port)) as address:
        known = [replace(primary.connection, id="shop", port=address.port), file.connection]
        environment = {VARIABLE: json.dumps([asdict(one) for one in known])}
        flow = make_flow(0)
        flow.secret_environment.update(environment)
        monkeypatch.setenv(VARIABLE, environment[VARIABLE])
        jdbc = {"connection": "warehouse", "table": name, "auto_create": True}
        source = {"jdbc": {"connection": "shop", "tables": name, **NUMBERED}}
        flow.set(source=source, control__connection="kafka_default", sink__hudi=None, sink__jdbc=jdbc)
        assert flow.interval().records == 1
        with pair.lagging(name):
            primary.run(f"INSERT INTO {name} (version) VALUES (2), (3)")
            started = flow.start()
            address.to = pair.replica.server.port
            job = flow.write(started)
            assert job.wait() != 0, "rows were read of a replica"
            assert "another server than the one that START has looked at" in job.text()
        address.to = primary.server.port
        flow.write_all(started)
        assert flow.commit(started).records == 2
    assert sorted(file.query(f'SELECT version FROM "{name}"')) == [(1,), (2,), (3,)]


def _answer(database, server, name):
    """The error of a reader's session, or nothing."""
    engine = KINDS[database.name].engine
    try:
        database.query(engine.guard(server) or f"SELECT 1 FROM {engine.guarded(name, server)} WHERE id < 0")
    except Exception as error:
        return str(error)
    return ""


def test_a_session_reads_of_the_server_that_start_has_looked_at_and_of_none_that_lacks_what_it_had(pair, topic_name):
    """Neither of a replica, nor of the same server set back; an empty window is no exception."""
    primary, name = pair.primary, topic_name("s").replace("-", "_")
    primary.run(f"CREATE TABLE {name} ({COLUMNS[primary.name]})")
    with pair.lagging(name):
        pass
    polled = Polled(primary, name, **TIMED)
    server = json.loads(polled.state().reading[SERVER])
    assert _answer(primary, server, name) == ""
    assert ELSEWHERE in _answer(pair.replica, server, name)
    ahead = {"postgresql": "FF/0", "mariadb": str(int(server["log"], 10) + 10**12) if "/" not in server["log"] else ""}
    assert ELSEWHERE in _answer(primary, {**server, "log": ahead[primary.name]}, name)
    assert "replica" in Polled(pair.replica, name, **TIMED).refusal()


def test_of_several_servers_that_a_url_names_the_one_that_writes_is_read(postgresql_pair, topic_name):
    """The replica is the first, and the driver's default takes any: that is refused, and its way out works."""
    primary, replica, name = postgresql_pair.primary, postgresql_pair.replica, topic_name("s").replace("-", "_")
    primary.run(f"CREATE TABLE {name} ({COLUMNS['postgresql']})")
    url = f"jdbc:postgresql://127.0.0.1:{replica.server.port},127.0.0.1:{primary.server.port}/postgres"
    with postgresql_pair.lagging(name):
        polled = Polled(primary, name, **TIMED)
        polled.leads_to(url)
        assert "targetServerType=primary (and none of the settings loadBalanceHosts" in polled.refusal()
        polled.leads_to(f"{url}?targetServerType=preferSecondary")
        assert "keep its promise with: targetServerType." in polled.refusal()
        polled.leads_to(f"{url}?targetServerType=primary")
        assert _answer(primary, json.loads(polled.state().reading[SERVER]), name) == ""


def test_neither_a_promoted_replica_nor_another_cluster_is_read(postgresql_pair, preparing, topic_name):
    primary, replica, name = postgresql_pair.primary, postgresql_pair.replica, topic_name("s").replace("-", "_")
    primary.run(f"CREATE TABLE {name} ({COLUMNS['postgresql']})")
    server = json.loads(Polled(primary, name, **TIMED).state().reading[SERVER])
    assert ELSEWHERE in _answer(preparing, server, name)
    with postgresql_pair.lagging(name):
        pass
    replica.query("SELECT pg_promote()")
    assert ELSEWHERE in _answer(replica, server, name)
    Polled(replica, name, **TIMED).state()


def test_a_replica_of_mariadb_s_that_was_promoted_is_another_server(mariadb_pair, topic_name):
    primary, replica, name = mariadb_pair.primary, mariadb_pair.replica, topic_name("s").replace("-", "_")
    primary.run(f"CREATE TABLE {name} ({COLUMNS['mariadb']})")
    with mariadb_pair.lagging(name):
        server = json.loads(Polled(primary, name, **TIMED).state().reading[SERVER])
    replica.run("STOP SLAVE; RESET SLAVE ALL")
    assert ELSEWHERE in _answer(replica, server, name)
    Polled(replica, name, **TIMED).state()


class _Proxied:
    """A cursor that a proxy leads to one server after another, with each second transaction."""

    def __init__(self, cursors):
        self._cursors, self._transactions = cursors, 0

    @property
    def _cursor(self):
        return self._cursors[self._transactions // 2 % 2]

    def execute(self, sql, *values):
        self._transactions += sql.startswith(("BEGIN", "START TRANSACTION"))
        return self._cursor.execute(sql, *values)

    def __getattr__(self, name):
        return getattr(self._cursor, name)


@pytest.mark.parametrize("both", ["postgresql", "mariadb"])
def test_answers_of_two_servers_are_not_put_together(both, request, monkeypatch):
    pair = request.getfixturevalue(f"{both}_pair")
    driver = __import__({"postgresql": "psycopg", "mariadb": "pymysql"}[both])
    own, ports = driver.connect, [one.server.port for one in (pair.primary, pair.replica)]

    def connected(**settings):
        made = [own(**{**settings, "port": type(settings["port"])(port)}) for port in ports]
        opened.extend(made)
        proxied, to = MagicMock(wraps=made[0]), [one.cursor() for one in made]
        proxied.cursor.side_effect, proxied.close = lambda: _Proxied(to), lambda: None
        return proxied

    opened = []
    monkeypatch.setattr(driver, "connect", connected)
    try:
        with asked(address_of(pair.primary.connection)) as ask:
            ask("SELECT 1")
            with pytest.raises(RetryableError, match="Two servers answer"):
                [ask("SELECT 1") for _ in range(4)]
    finally:
        for one in opened:
            one.close()


def test_a_certificate_of_postgresql_s_that_is_not_accepted_is_a_person_s_to_correct():
    """libpq says it without a SQLSTATE, as it does where no server answers."""
    if missing() is not None:
        pytest.skip(str(missing()))
    authority = Authority()
    identity = authority.identify("server", of_host="elsewhere.example")
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # the server has an account that isn't the test's
        pems = {
            "ca": authority.pem,
            "other": Authority().identify("other").pem,
            "namesake": Authority().pem,
            "cert": identity.pem,
            "key": identity.key_pem(),
        }
        files = written(Path(folder), **pems)
        programs = postgresql_programs()
        assert programs is not None
        server = PostgreSql(programs, ssl="on", ssl_cert_file=files["cert"], ssl_key_file=files["key"])
        server.owns(files["key"])
        try:
            server.start()
            settings = PostgresDatabase(server).connection
            refused = pytest.raises(ActionRequiredError, match="certificate isn't one that the page accepts")
            for mode, root, outcome in (
                ("verify-ca", "ca", nullcontext()),
                ("verify-full", "ca", refused),
                ("verify-ca", "other", refused),
                ("verify-ca", "namesake", refused),  # of which OpenSSL says that a signature is wrong
            ):
                address = address_of(replace(settings, extra={"sslmode": mode, "sslrootcert": files[root]}))
                with outcome, asked(address) as ask:
                    assert ask("SELECT 1") == [(1,)]
        finally:
            server.stop()
