"""What is MariaDB's own among the databases of the JDBC sink: its types, keys, engines and limits."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from kafka_secrets import Authority, written

from sluice.connectors.connections import VARIABLE
from sluice.databases.connection import address_of, asked
from sluice.databases.dialect import DatabaseColumn
from sluice.errors import ActionRequiredError

from ..cluster.servers import MariaDb, mariadb_programs
from .harness.databases import MariaDatabase
from .harness.jdbc import UPSERT, refused

pytestmark = [
    pytest.mark.parametrize("database", ["mariadb"], indirect=True),
    # PySpark leaves it to the garbage collector to close the socket that rows came by.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]


def test_columns_of_the_user_s_own_hold_what_they_hold_exactly(make_jdbc, database):
    database.run(
        "CREATE TABLE own (seq SERIAL, \"ID\" UUID PRIMARY KEY, how ENUM('fine', '7') CHARACTER SET latin1, "
        "code CHAR(3), small MEDIUMINT UNSIGNED, big BIGINT UNSIGNED, m DECIMAL(5,2), at TIMESTAMP(3) NOT NULL, "
        "local DATETIME, doc JSON, blob_ VARBINARY(3), added DATETIME NOT NULL DEFAULT now()) ENGINE=InnoDB"
    )
    ddl = (
        "id STRING, how STRING, code STRING, small INT, big BIGINT, m DECIMAL(10,4), at TIMESTAMP, local TIMESTAMP, "
        "doc MAP<STRING, INT>, blob_ BINARY"
    )
    own = {"table": "own", "auto_create": False, "db_timezone": "Europe/Berlin", "schema": ddl}
    table = make_jdbc(1, section=own)
    unique = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
    row = {"id": unique, "how": "7", "code": "übe", "small": 2**24 - 1, "big": 2**63 - 1, "m": "-999.99",
           "at": "2026-07-01T10:00:00.123Z", "local": "2026-07-01T10:00:00Z", "doc": {"a": 1},
           "blob_": "AP8B"}  # fmt: skip
    table.flow.produce_values([json.dumps(row).encode()])
    table.flow.interval()
    columns = '"ID", how, code, small, big, m, at, local, doc, blob_'
    assert table.rows(columns) == [
        (unique, "7", "übe", 2**24 - 1, 2**63 - 1, Decimal("-999.99"), datetime(2026, 7, 1, 10, 0, 0, 123000),
         datetime(2026, 7, 1, 12), '{"a":1}', b"\x00\xff\x01")
    ]  # fmt: skip
    assert len(table.rows("seq")) == 1


NOT_HELD = [
    ("enum('fine','it''s')", "'other'", "string", "none of its members"),
    ("enum('fine','it''s')", '"it\'s"', "string", None),
    ("char(3)", "'a '", "string", "ends with a blank"),
    ("varchar(3)", "'a  '", "string", None),
    ("tinytext", "repeat('ü', 128)", "string", "longer than 255 bytes"),
    ("varbinary(3)", "X'00010203'", "binary", "longer than 3 bytes"),
    ("mediumint(8) unsigned", "-1", "integer", "not from 0 to 16777215"),
    ("bigint(20) unsigned", "9223372036854775807L", "long", None),
    ("tinyint(4)", "128", "integer", "not from -128 to 127"),
    ("decimal(5,2)", "1.001", "decimal(10,4)", "more than 5 digits with 2"),
    ("decimal(5,2)", "'1.001'", "string", "more than 5 digits with 2"),
    ("decimal(5,2)", "'001.10\n'", "string", "no decimal number"),
    ("decimal(65,30)", "'-12345678901234567890123456789012345.1'", "string", None),
    ("timestamp(3)", "timestamp'2026-07-01T10:00:00.1234Z'", "timestamp", "more than 3 digits"),
    ("timestamp", "timestamp'2040-01-01T00:00:00Z'", "timestamp", "after 2038"),
    ("timestamp", "timestamp'1970-01-01T00:00:00Z'", "timestamp", "before 1970"),
    ("datetime", "timestamp_ntz'2026-07-01T10:00:00.1'", "timestamp_ntz", "more than 0 digits"),
    ("datetime(6)", "timestamp_ntz'2026-07-01T10:00:00.000001'", "timestamp_ntz", None),
    ("double", "double('NaN')", "double", "NaN or infinite"),
    ("double", "double('-infinity')", "double", "NaN or infinite"),
]


def test_values_that_a_column_does_not_hold_are_found(spark, database):
    dialect = address_of(database.connection).dialect
    problems = []
    for declared, value, kind, _ in NOT_HELD:
        fit = dialect.fit(value, kind, DatabaseColumn("c", declared), "UTC")
        assert not isinstance(fit, str), fit
        problems.append(f"{fit.problem or 'CAST(NULL AS STRING)'} AS c{len(problems)}")
    (found,) = spark.range(1).selectExpr(*problems).collect()
    for (declared, value, _, says), problem in zip(NOT_HELD, found, strict=True):
        assert (problem is None) if says is None else (says in (problem or "")), (declared, value, problem)


def test_keys_that_differ_in_case_or_blanks_are_different_rows(make_jdbc):
    section = {**UPSERT, "schema": "id STRING NOT NULL, v STRING", "pk_mode": "record_value", "delete_enabled": False}
    table = make_jdbc(1, section=section)
    keys = ["a", "A", "a ", "á", "a" * 255]
    for number in range(2):
        table.flow.produce_values(
            [json.dumps({"id": key, "v": f"{i}-{number}"}).encode() for i, key in enumerate(keys)]
        )
        table.flow.interval()
    assert dict(table.rows()) == {key: f"{i}-1" for i, key in enumerate(keys)}
    table.flow.produce_values([json.dumps({"id": "a" * 256}).encode()])
    assert "it is longer than 255 characters" in str(refused(table.flow))


@pytest.mark.parametrize(
    ("create", "says"),
    [
        (
            "CREATE TABLE unfit (id BIGINT, v VARCHAR(9)) ENGINE=MyISAM",
            "its engine is MyISAM, which has no transactions",
        ),
        ("CREATE VIEW unfit AS SELECT 1 AS id, 'a' AS v", "it is a view"),
    ],
)
def test_a_table_without_transactions_is_refused_by_its_engine(make_jdbc, database, create, says):
    database.run("DROP TABLE IF EXISTS unfit")
    database.run(create)
    table = make_jdbc(1, section={"table": "unfit", "auto_create": False})
    table.flow.produce(1, partitions=[0])
    with pytest.raises(ActionRequiredError, match=says):
        table.flow.start()


def test_a_row_that_no_packet_holds_is_told(make_jdbc, database):
    table = make_jdbc(1)
    table.flow.produce(3, partitions=[0])
    table.flow.produce(1, partitions=[0], values="v" * 200_000)
    ((before,),) = database.query("SELECT @@max_allowed_packet")
    database.run("SET GLOBAL max_allowed_packet = 65536")
    try:
        error = refused(table.flow)
    finally:
        database.run(f"SET GLOBAL max_allowed_packet = {before}")
    assert "its row is longer than the 65536 bytes of the database's max_allowed_packet" in str(error)
    assert "offset=3" in str(error)
    assert (table.rows(), table.position(), table.staging()) == ([], {}, set())
    table.flow.interval()
    assert len(table.rows()) == 4


@pytest.mark.parametrize(
    ("of_host", "mode", "answers"),
    [
        (None, "verify-full", True),
        ("elsewhere.example", "verify-full", False),
        ("elsewhere.example", "verify-ca", True),
    ],
)
def test_a_server_of_another_name_is_not_asked(database, monkeypatch, of_host, mode, answers):
    """The authority is one of the machine's, as a public one is: its certificate alone says nothing of the server."""
    authority = Authority()
    identity = authority.identify("server", of_host=of_host)
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # the server has an account that isn't the test's
        files = written(Path(folder), ca_pem=authority.pem, cert_pem=identity.pem, key_pem=identity.key_pem())
        server = MariaDb(mariadb_programs(), **{"ssl-cert": files["cert_pem"], "ssl-key": files["key_pem"]})
        try:
            server.start()
            monkeypatch.setenv("SSL_CERT_FILE", files["ca_pem"])
            settings = MariaDatabase(server).connection
            address = address_of(replace(settings, extra={"properties": {"sslMode": mode}}))
            if answers:
                with asked(address) as ask:
                    ((_, cipher),) = ask("SHOW STATUS LIKE 'Ssl_cipher'")
                    assert cipher
            else:
                with pytest.raises(ActionRequiredError, match="CERTIFICATE_VERIFY_FAILED"), asked(address):
                    pass
        finally:
            server.stop()


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("setting", "says"),
    [({"lower_case_table_names": 1}, "changes the case of tables' names"), ({"version": "8.0.42"}, "it is MySQL")],
)
def test_a_server_that_the_sink_is_not_made_for_is_refused(make_jdbc, database, monkeypatch, setting, says):
    server = MariaDb(mariadb_programs(), **{name.replace("_", "-"): value for name, value in setting.items()})
    try:
        server.start()
        table = make_jdbc(1)
        table.flow.produce(1, partitions=[0])
        monkeypatch.setenv(VARIABLE, MariaDatabase(server).environment()[VARIABLE])
        with pytest.raises(ActionRequiredError, match=says):
            table.flow.start()
    finally:
        server.stop()
