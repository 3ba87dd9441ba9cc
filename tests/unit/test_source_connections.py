"""A source's own connections: handed over by environment, and shown nowhere."""

from __future__ import annotations

import json

import pytest

from sluice.connectors.connections import VARIABLE, ConnectionSettings, connection, connections, to_environment
from sluice.errors import ActionRequiredError
from sluice.redact import secret_values
from sluice.sections import expand

SECRET = "s3cr3t-of-the-crm"
CRM = ConnectionSettings("crm", "http", "crm.example", 443, None, "svc", SECRET, {"api_key": SECRET, "page": 100})


def test_what_was_handed_over_is_what_is_found(monkeypatch):
    other = ConnectionSettings("other", "ftp")
    for name, value in to_environment([CRM, other]).items():
        monkeypatch.setenv(name, value)
    assert connections() == {"crm": CRM, "other": other}
    assert connection("crm").password == SECRET


def test_none_is_no_variable(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    assert to_environment([]) == {}
    assert connections() == {}


def test_nothing_of_it_shows():
    assert repr(CRM) == "ConnectionSettings(id='crm', type='http')"


def test_one_that_was_not_handed_over_is_named_with_those_that_were(monkeypatch):
    monkeypatch.setenv(VARIABLE, to_environment([CRM])[VARIABLE])
    with pytest.raises(ActionRequiredError, match=r"was not given the connection billing.*given=crm") as caught:
        connection("billing")
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("text", [SECRET, json.dumps([SECRET]), json.dumps([{"id": "a", "typo": SECRET}]), "3"])
def test_a_variable_that_cannot_be_read_is_named_without_its_text(monkeypatch, text):
    monkeypatch.setenv(VARIABLE, text)
    with pytest.raises(ActionRequiredError, match=f"{VARIABLE} is not a JSON array of connections") as caught:
        connections()
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_pipeline_file_may_not_name_it(monkeypatch):
    monkeypatch.setenv(VARIABLE, "x")
    with pytest.raises(ValueError, match="may not be named here"):
        expand(f"${{{VARIABLE}}}")


def test_what_a_name_calls_secret_is_found_however_deep():
    value = {"a": [{"client_secret": "one"}], "credentials": {"user": "two", "on": True}, "page": "not", "n": 3}
    assert sorted(secret_values(value)) == ["one", "two"]
