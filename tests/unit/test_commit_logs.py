"""The page's view of a table's own commits: of files by their log, of databases by the rows of `_sluice_instants`.

That of topics is tried with a broker: tests/guarantees/test_kafka_sink.py.
"""

from __future__ import annotations

import shutil
import sqlite3
import ssl
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from kafka_secrets import Authority

from sluice.connectors.connections import ConnectionSettings, connection, given
from sluice.connectors.views import CommitFacts, commit_log_of, shows_commits
from sluice.databases.connection import address_of, asked
from sluice.databases.kinds import KINDS
from sluice.databases.mariadb.client import pymysql as pymysql_settings
from sluice.databases.postgresql import client as postgresql
from sluice.databases.postgresql.client import libpq
from sluice.errors import ActionRequiredError, RetryableError
from sluice.protocol.offsets import OFFSETS_KEY
from sluice.sinks import reading
from sluice.sinks.files import commits
from sluice.sinks.files.options import Files
from sluice.sinks.files.options.names import DataFile, committable, staging
from sluice.sinks.files.renames import RenamedTable
from sluice.sinks.files.storage import LocalStorage
from sluice.sinks.jdbc import statements
from sluice.sinks.jdbc.statements import Target

INSTANTS = [f"2026112310111213{n}" for n in range(5)]
PASSWORD = "hunter2-of-the-database"


@pytest.fixture
def files(tmp_path: Path) -> RenamedTable:
    writer = Files(path=f"{tmp_path}/lake", schema_="id BIGINT").writer("t", None, maintained=False)
    table = RenamedTable(LocalStorage(tmp_path / "lake"), writer, timedelta(minutes=1), "this")
    table.prepare()
    return table


def commit(files: RenamedTable, folder: Path, instant: str) -> None:
    """An interval of three files of 5 bytes, in two folders."""
    found = []
    for number in range(3):
        partition = number % 2
        staged = f"{staging(instant)}/a/0/{number}.avro"
        place = folder / staged
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(b"12345")
        found.append(DataFile(staged, f"topics/{instant}/t/partition={partition}/{number}.avro", 5, "crc32:0"))
    files.last_checkpoint()
    files.open(instant)
    files.commit(instant, [committable(f"{staging(instant)}/a/0", "interval", found, 7)], {OFFSETS_KEY: "{}"})
    files.publish(instant)


def test_files_are_shown_by_their_log(files, tmp_path, monkeypatch):
    log = commit_log_of("files", f"file://{tmp_path}/lake")
    assert shows_commits("files")
    assert log.read().instants == {}
    commit(files, tmp_path / "lake", INSTANTS[0])
    commit(files, tmp_path / "lake", INSTANTS[1])
    files.open(INSTANTS[2])
    timeline = log.read()
    stands = [timeline.standing(instant) for instant in INSTANTS]
    assert stands == ["completed", "completed", "pending", "absent", "absent"]
    assert timeline.standing("20200101000000000") == "absent"
    (other,) = timeline.of_others(INSTANTS[1:])
    assert (other.requested, other.action, other.is_commit) == (INSTANTS[0], "interval", True)
    assert other.modified is not None
    assert log.facts(other) == CommitFacts("append", 7, 15, 3, 2, (OFFSETS_KEY,))
    files.rollback(INSTANTS[2])
    assert log.read().standing(INSTANTS[2]) == "absent"
    monkeypatch.setattr(commits, "SHOWN", 1)
    bounded = log.read()
    assert list(bounded.instants) == [INSTANTS[1]]
    assert bounded.standing(INSTANTS[0]) == "archived"


def test_the_last_interval_of_a_log_is_looked_at_anew_since_it_may_be_taken_off(files, tmp_path):
    commit(files, tmp_path / "lake", INSTANTS[0])
    log = commit_log_of("files", f"file://{tmp_path}/lake")
    assert log.read().standing(INSTANTS[0]) == "completed"
    (tmp_path / "lake" / "_sluice" / "committed" / "0000000001").unlink()  # as before it is published
    files.take_off(INSTANTS[0], [])
    files.rollback(INSTANTS[0])
    commit(files, tmp_path / "lake", INSTANTS[1])
    assert list(log.read().instants) == [INSTANTS[1]]


def test_a_table_that_is_made_anew_at_the_same_path_is_shown_as_it_is_now(files, tmp_path):
    for instant in INSTANTS[:2]:
        commit(files, tmp_path / "lake", instant)
    log = commit_log_of("files", f"file://{tmp_path}/lake")
    assert list(log.read().instants) == INSTANTS[:2]
    shutil.rmtree(tmp_path / "lake")
    files.prepare()
    for instant in INSTANTS[2:4]:
        commit(files, tmp_path / "lake", instant)
    assert list(log.read().instants) == INSTANTS[2:4]


def test_a_folder_that_is_none_of_a_table_s_is_told_from_one_that_cannot_be_read(tmp_path):
    assert commit_log_of("files", f"file://{tmp_path}/none").read() is None
    with pytest.raises(ActionRequiredError, match="no path of a table"):
        commit_log_of("files", "http://169.254.169.254/latest").read()


def test_hdfs_without_its_library_says_what_is_missing(monkeypatch):
    def lacking(*_):
        raise OSError("Unable to load libjvm: secret.host")

    monkeypatch.setattr(reading.fsspec.core, "url_to_fs", lacking)
    with pytest.raises(ActionRequiredError, match=r"lacks Hadoop's libhdfs, or Java.*ARROW_LIBHDFS_DIR") as caught:
        commit_log_of("files", "hdfs://namenode/lake").read()
    assert "secret.host" not in str(caught.value)


# Databases


@pytest.fixture
def sqlite(tmp_path: Path) -> ConnectionSettings:
    file = tmp_path / "lake.db"
    with closing(sqlite3.connect(file)) as made, made:
        for _, statement in statements.bookkeeping(Target(KINDS["sqlite"].dialect, "", "orders")):
            made.execute(statement)
        done = "(sink_table, instant, state, completed, rows_written, rows_deleted, metadata)"
        rows = [
            ("orders", INSTANTS[0], "completed", INSTANTS[1], 5, 2, '{"sluice.offsets": "{}"}'),
            ("orders", INSTANTS[1], "pending", None, None, None, None),
            ("others", INSTANTS[2], "completed", INSTANTS[3], 1, 0, "{}"),
        ]
        made.executemany(f"INSERT INTO _sluice_instants {done} VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
    return ConnectionSettings("warehouse", "sqlite", host=str(file), password=PASSWORD)


def test_a_database_s_table_is_shown_by_its_intervals(sqlite):
    log = commit_log_of("jdbc", "jdbc://warehouse/Orders")  # names of SQLite are the same in either case
    with given([sqlite]):
        timeline = log.read()
        assert [timeline.standing(i) for i in INSTANTS[:3]] == ["completed", "pending", "absent"]
        assert timeline.standing("20200101000000000") == "absent"
        (other,) = timeline.of_others([])
        assert (other.requested, other.completed) == (INSTANTS[0], INSTANTS[1])
        assert f"{other.modified:%Y%m%d%H%M%S%f}"[:17] == INSTANTS[1]
        assert log.facts(other) == CommitFacts(None, 7, 0, 0, 0, ("sluice.offsets",))


def test_a_database_is_looked_at_with_the_connections_of_now_and_nothing_is_written(sqlite, tmp_path):
    log = commit_log_of("jdbc", "jdbc://warehouse/orders")
    with pytest.raises(ActionRequiredError, match="not given the connection warehouse"):
        log.read()
    elsewhere = ConnectionSettings("warehouse", "sqlite", host=f"{tmp_path}/none.db", password=PASSWORD)
    with given([elsewhere]):
        with given([sqlite]):
            assert connection("warehouse") is sqlite
        with pytest.raises(RetryableError, match="file of SQLite can't be read") as caught:
            log.read()
    assert PASSWORD not in str(caught.value)
    assert not (tmp_path / "none.db").exists()


def test_a_table_that_was_never_written_has_no_timeline(tmp_path):
    with closing(sqlite3.connect(tmp_path / "empty.db")) as made, made:
        made.execute("CREATE TABLE orders (id INTEGER)")
    with given([ConnectionSettings("warehouse", "sqlite", host=f"{tmp_path}/empty.db")]):
        assert commit_log_of("jdbc", "jdbc://warehouse/orders").read() is None


POSTGRES = ConnectionSettings("warehouse", "postgres", "db", None, "lake", "sluice", PASSWORD, {"sslmode": "require"})


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (POSTGRES, {"host": "db", "port": "5432", "dbname": "lake", "user": "sluice", "sslmode": "require"}),
        (
            ConnectionSettings(
                "warehouse", "jdbc", "jdbc:postgresql://a:1,[::1]:2/l%20k?ssl=true&currentSchema=x,%20y&loginTimeout=3",
                login="sluice", password=PASSWORD,
            ),
            {"host": "a,::1", "port": "1,2", "dbname": "l k", "user": "sluice", "sslmode": "verify-full",
             "options": "-c search_path=x,y"},
        ),
    ],
)  # fmt: skip
def test_libpq_goes_where_the_jdbc_driver_goes(settings, expected):
    found = dict(libpq(address_of(settings)))
    assert found.pop("password") == PASSWORD
    assert found == expected


def test_what_secures_a_connection_secures_libpq_s_too():
    url = "jdbc:postgresql://a/l?channelBinding=require&gssEncMode=require&sslmode=verify-full"
    found = libpq(address_of(ConnectionSettings("warehouse", "jdbc", url)))
    assert (found["channel_binding"], found["gssencmode"], found["sslmode"]) == ("require", "require", "verify-full")


@pytest.mark.parametrize(
    ("mode", "checked", "name"),
    [
        *((mode, ssl.CERT_REQUIRED, True) for mode in ("verify-full", "VERIFY_FULL", "VERIFY_IDENTITY", "true", "1")),
        *((mode, ssl.CERT_REQUIRED, False) for mode in ("verify-ca", "VERIFY_CA")),
        *((mode, ssl.CERT_NONE, False) for mode in ("trust", "REQUIRED")),
        ("unheard-of", ssl.CERT_REQUIRED, True),
    ],
)
@pytest.mark.parametrize("authority", [None, "a file", "PEM"])
def test_mariadb_s_client_checks_what_the_jdbc_driver_checks(mode, checked, name, authority, tmp_path):
    import pymysql

    pem = Authority().pem
    (tmp_path / "ca.pem").write_text(pem)
    given = {"serverSslCert": pem if authority == "PEM" else f"{tmp_path}/ca.pem"} if authority else {}
    settings = ConnectionSettings(
        "warehouse", "mysql", "db", 3306, "lake", "u", PASSWORD, {"properties": {"sslMode": mode, **given}}
    )
    made = pymysql.connect(**pymysql_settings(address_of(settings)), defer_connect=True)
    assert (made.ctx.verify_mode, made.ctx.check_hostname, made._ssl_required) == (checked, name, True)


def test_an_authority_s_certificate_that_is_not_there_is_named(tmp_path):
    extra = {"properties": {"sslMode": "verify-full", "serverSslCert": f"{tmp_path}/none.pem"}}
    settings = ConnectionSettings("warehouse", "mysql", "db", 3306, "lake", "u", PASSWORD, extra)
    with pytest.raises(ActionRequiredError, match="authority can't be read"):
        pymysql_settings(address_of(settings))


def test_a_wrong_certificate_of_mariadb_s_is_a_person_s_to_correct(monkeypatch):
    """PyMySQL keeps what has ended its connecting beside its error, whose code is that of any server out of reach."""
    import pymysql

    def connect(**_: object) -> None:
        error = pymysql.err.OperationalError(2003, "Can't connect ([SSL: CERTIFICATE_VERIFY_FAILED])")
        error.original_exception = original
        raise error

    monkeypatch.setattr(pymysql, "connect", connect)
    address = address_of(ConnectionSettings("warehouse", "mysql", "db", 3306, "lake", "u", PASSWORD))
    original: Exception = ssl.SSLCertVerificationError("certificate verify failed")
    with pytest.raises(ActionRequiredError, match=r"isn't one that the page accepts") as caught, asked(address):
        pass
    assert "`serverSslCert`" in caught.value.next_step
    original = ConnectionRefusedError()
    with pytest.raises(RetryableError), asked(address):
        pass


def test_a_process_without_a_client_says_what_to_install(monkeypatch):
    monkeypatch.setattr(postgresql, "_DRIVERS", ("no_such_client",))
    with given([POSTGRES]), pytest.raises(ActionRequiredError, match=r"no client for PostgreSQL.*sluice\[postgres\]"):
        commit_log_of("jdbc", "jdbc://warehouse/orders").read()


@pytest.mark.parametrize("table", ["kafka://target", "kafka://target/a/b", "kafka://a b/log", "jdbc://target/log"])
def test_an_id_that_is_none_of_a_table_of_topics_leads_nowhere(table):
    with pytest.raises(ActionRequiredError, match="no id of a table of Kafka topics"):
        commit_log_of("kafka", table).read()


@pytest.mark.parametrize(
    "table", ["jdbc://warehouse", "jdbc://warehouse/", "jdbc:///orders", "kafka://warehouse/orders"]
)
def test_an_id_that_is_none_of_a_database_s_table_leads_nowhere(table):
    with pytest.raises(ActionRequiredError, match="no id of a database's table"):
        commit_log_of("jdbc", table).read()


def test_topics_are_looked_at_with_the_connections_of_now():
    with given([]), pytest.raises(ActionRequiredError, match="not given the connection target"):
        commit_log_of("kafka", "kafka://target/_sluice.out").read()
