"""Which settings of a database's connection are taken, by sources that are exact and by the sink."""

from __future__ import annotations

import pytest

from sluice.connectors.connections import ConnectionSettings
from sluice.databases.connection import address_of
from sluice.databases.postgresql.client import libpq
from sluice.databases.settings import require_known
from sluice.errors import ActionRequiredError

POSTGRES, MARIADB = "jdbc:postgresql://a:1/lake", "jdbc:mariadb://a:1/lake"
TWO = POSTGRES.replace("a:1", "a:1,b:2")


def of(url, **extra):
    return address_of(ConnectionSettings("shop", "jdbc", url, login="me", password="pw", extra=extra))


def refusal(address, *, exact):
    with pytest.raises(ActionRequiredError) as caught:
        require_known(address, exact=exact)
    return str(caught.value)


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize(
    ("url", "extra"),
    [
        (POSTGRES, {"sslmode": "verify-full", "connect_timeout": 5, "options": "-c search_path=x,y --work_mem=64MB"}),
        (f"{POSTGRES}?ssl=true&ApplicationName=us&prepareThreshold=0", {"properties": {"socketTimeout": 30}}),
        (f"{POSTGRES}?options=-c%20search_path%3Dx%20-cstatement_timeout%3D5", {}),
        (f"{TWO}?targetServerType=primary", {}),
        (TWO, {"properties": {"targetServerType": "master"}}),
        (f"{MARIADB}?sslMode=trust", {"properties": {"connectTimeout": "1"}}),
        ("jdbc:sqlite:/lake.db?cache_size=4", {}),
        ("jdbc:sqlite:file:/lake.db?mode=rw", {}),
    ],
)
def test_settings_that_are_known_are_taken(url, extra, exact):
    require_known(of(url, **extra), exact=exact)


@pytest.mark.parametrize(
    ("url", "extra", "name"),
    [
        (f"{POSTGRES}?service=other", {}, "service"),
        (f"{POSTGRES}?ssl=true&socketFactory=a.B", {}, "socketFactory"),
        (f"{POSTGRES}?stringtype=varchar", {}, "stringtype"),
        (POSTGRES, {"properties": {"PGHOST": "b"}}, "PGHOST"),
        (POSTGRES, {"properties": {"sessionInitStatement": "SELECT 1"}}, "sessionInitStatement"),
        (POSTGRES, {"options": "-c TimeZone=Asia/Tokyo"}, "options: TimeZone"),
        (POSTGRES, {"options": "-c search_path=x -cDateStyle=German"}, "options: DateStyle"),
        (POSTGRES, {"options": "-d 5"}, "options"),
        (f"{MARIADB}?sessionVariables=time_zone='%2B05:00'", {}, "sessionVariables"),
        (f"{MARIADB}?connectionTimeZone=SERVER", {}, "connectionTimeZone"),
        (MARIADB, {"properties": {"transactionReplay": "true"}}, "transactionReplay"),
        (MARIADB, {"properties": {"localSocket": "/run/other"}}, "localSocket"),
        ("jdbc:sqlite:/lake.db?read_uncommitted=true", {}, "read_uncommitted"),
        ("jdbc:sqlite:file:/lake.db?immutable=1", {}, "immutable"),
    ],
)
@pytest.mark.parametrize("exact", [True, False])
def test_a_setting_that_is_not_known_is_refused_by_name(url, extra, name, exact):
    said = refusal(of(url, **extra), exact=exact)
    assert said.partition("keep its promise with: ")[2].startswith(f"{name}. ")


@pytest.mark.parametrize(
    ("url", "says"),
    [
        (f"{POSTGRES}?targetServerType=preferSecondary", "targetServerType"),
        (f"{TWO}?targetServerType=primary&loadBalanceHosts=true", "loadBalanceHosts"),
        (f"{POSTGRES}?hostRecheckSeconds=5", "hostRecheckSeconds"),
        (TWO, "it names several, without targetServerType=primary"),
        ("jdbc:mariadb://a:1,b:2/lake", "it names several"),
    ],
)
def test_what_chooses_among_servers_is_refused_for_exact_and_not_by_the_sink(url, says):
    said = refusal(of(url), exact=True)
    assert says in said
    assert "primary" in said or "Name one server" in said
    require_known(of(url))


@pytest.mark.parametrize("mode", ["sequential", "loadbalance", "load-balance-read", "replication", "aurora"])
@pytest.mark.parametrize("exact", [True, False])
def test_a_mode_of_mariadb_s_driver_is_refused(mode, exact):
    assert "a mode of the driver's" in refusal(of(f"jdbc:mariadb:{mode}://a:1,b:2/lake"), exact=exact)
    assert "in brackets" in refusal(of("jdbc:mariadb://address=(host=a)(port=1)(type=replica)/lake"), exact=exact)


def test_a_part_of_a_password_is_not_quoted_as_a_setting():
    said = refusal(of(f"{POSTGRES}?password=ab&Cd9"), exact=True)
    assert "one without a name" in said
    assert "Cd9" not in said


def test_start_looks_for_the_server_that_writes_where_the_driver_does():
    assert libpq(of(f"{TWO}?targetServerType=primary"))["target_session_attrs"] == "read-write"
    assert "target_session_attrs" not in libpq(of(POSTGRES))


def test_a_connection_of_another_type_is_shown_the_types_that_name_databases():
    with pytest.raises(ActionRequiredError, match="mysql or mariadb for MariaDB, postgres or postgresql"):
        address_of(ConnectionSettings("shop", "http", "shop.example"))
