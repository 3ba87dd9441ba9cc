"""The registry's client against a server that answers as it is told: errors by what to do next, and no secret in them.

What a real registry answers is in `tests/guarantees/test_converters*.py`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from sluice.errors import ActionRequiredError, RetryableError
from sluice.schemas.registry.client import KnownVersion, Registered, Registry
from sluice.schemas.registry.config import VARIABLE, RegistrySettings, refuse_one_for_several, registry_of_environment

SECRET = "correct-horse-battery"


class Server:
    """Answers by path; what isn't there is a subject that the registry doesn't have."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, Any]] = {}
        self.asked: list[str] = []
        self.headers: dict[str, str] = {}
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(self.path)
                outer.headers = dict(self.headers)
                missing = (404, {"error_code": 40401, "message": "no such subject"})
                status, body = outer.answers.get(self.path.partition("?")[0], outer.answers.get("*", missing))
                content = body.encode() if isinstance(body, str) else json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def version(self, subject: str, number: int, schema_id: int, *, latest: bool = False, **more: Any) -> None:
        answer = {"subject": subject, "version": number, "id": schema_id, "schema": '"string"', **more}
        for name in (str(number), *(["latest"] if latest else [])):
            self.answers[f"/subjects/{subject}/versions/{name}"] = (200, answer)
        known = self.answers.get(f"/subjects/{subject}/versions", (200, []))[1]
        self.answers[f"/subjects/{subject}/versions"] = (200, sorted({*known, number}))

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.close()


@pytest.fixture
def connect(server: Server) -> Iterator[Callable[..., Registry]]:
    opened = []

    def make(**settings: Any) -> Registry:
        quick = {"max.retries": 1, "retries.wait.ms": 1, "retries.max.wait.ms": 2, "timeout": 5}
        given = {name.replace("__", "."): value for name, value in settings.items()}
        opened.append(Registry(RegistrySettings("c", {"url": server.url, **quick, **given})))
        return opened[-1]

    yield make
    for one in opened:
        one.close()


def known_of(found: list[Registered]) -> dict[tuple[str, int], KnownVersion]:
    return {(s.subject, s.version): KnownVersion(s.id, s.digest) for s in found}


def test_each_schema_is_asked_for_once(server, connect):
    server.version("a", 1, 7)
    server.version("a", 2, 9, latest=True)
    server.version("b", 1, 7, latest=True)
    registry = connect()
    found = registry.new_versions(["a", "b", "not-yet"], {})
    assert [(s.subject, s.version, s.id) for s in found] == [("a", 1, 7), ("a", 2, 9), ("b", 1, 7)]
    known = known_of(found)
    server.asked.clear()
    assert registry.new_versions(["a", "b"], known) == []
    paths = [f"/subjects/{s}/versions{part}" for s in "ab" for part in ("/latest", "")]
    assert [path.partition("?")[0] for path in server.asked] == paths
    server.version("a", 3, 11, latest=True)
    server.asked.clear()
    assert [s.id for s in registry.new_versions(["a"], known)] == [11]
    assert len(server.asked) == 2


def test_a_version_that_came_and_went_between_two_looks_is_found(server, connect):
    """It is deleted, so the latest is one that is known; records in the topic carry its id."""
    server.version("a", 1, 7, latest=True)
    known = known_of(connect().new_versions(["a"], {}))
    server.version("a", 2, 8)
    assert [(s.version, s.id) for s in connect().new_versions(["a"], known)] == [(2, 8)]
    assert "deleted=true" in server.asked[-1].lower()


def test_a_version_whose_text_is_another_now_is_among_the_answers(server, connect):
    server.version("a", 1, 7, latest=True)
    known = known_of(connect().new_versions(["a"], {}))
    server.version("a", 1, 7, latest=True, schema='"bytes"')
    assert [(s.id, s.text) for s in connect().new_versions(["a"], known)] == [(7, '"bytes"')]
    of_an_earlier_release = {("a", 1): KnownVersion(7, None)}
    assert [s.id for s in connect().new_versions(["a"], of_an_earlier_release)] == [7]


def test_a_subject_that_was_made_anew_is_read_anew(server, connect):
    server.version("a", 1, 21, latest=True)
    known = {("a", 1): KnownVersion(7, "of then"), ("a", 2): KnownVersion(9, "of then")}
    assert [s.id for s in connect().new_versions(["a"], known)] == [21]


def test_references_come_before_what_refers_to_them(server, connect):
    def refers(*subjects: str) -> list[dict[str, Any]]:
        return [{"name": f"{s}.json", "subject": s, "version": 1} for s in subjects]

    server.version("root", 1, 1, latest=True, references=refers("middle", "leaf"))
    server.version("middle", 1, 2, references=refers("leaf"))
    server.version("leaf", 1, 3)
    [found] = connect().new_versions(["root"], {})
    assert [reference.name for reference in found.references] == ["leaf.json", "middle.json"]
    del server.answers["/subjects/leaf/versions/1"]
    with pytest.raises(ActionRequiredError, match="leaf version 1"):
        connect().new_versions(["root"], {})


@pytest.mark.parametrize(
    ("status", "body", "kind", "says"),
    [
        (500, {"error_code": 50001, "message": "store"}, RetryableError, "had an internal error.*status=500"),
        (429, {"error_code": 429, "message": "slow"}, RetryableError, "had an internal error.*status=429"),
        (401, {"error_code": 401, "message": f"no {SECRET}"}, ActionRequiredError, "refuses the connection's log-in"),
        (403, {"error_code": 40301, "message": "denied"}, ActionRequiredError, "refuses the connection's log-in"),
        (404, "<html>nothing here</html>", ActionRequiredError, "not a schema registry.*/apis/ccompat/v7"),
        (200, "<html>welcome</html>", ActionRequiredError, "not a schema registry"),
        (422, {"error_code": 42201, "message": "odd"}, ActionRequiredError, "refuses the request.*odd"),
    ],
)
def test_an_answer_that_is_none(server, connect, status, body, kind, says):
    server.answers["*"] = (status, body)
    with pytest.raises(kind, match=says) as caught:
        connect(basic__auth__user__info=f"svc:{SECRET}").new_versions(["a"], {})
    assert SECRET not in str(caught.value)
    assert "connection=c" in str(caught.value)
    assert len(server.asked) == (2 if kind is RetryableError else 1)  # what may pass is asked once more


def test_nobody_there(server, connect):
    registry = connect(url="http://127.0.0.1:1")
    with pytest.raises(RetryableError, match="does not answer"):
        registry.new_versions(["a"], {})


def test_no_subject_at_all(server, connect):
    with pytest.raises(
        ActionRequiredError, match=r"none of the subjects.*subjects=a, b.*the source's `value\.subject`"
    ):
        connect().new_versions(["a", "b"], {})


def test_log_ins(server, connect):
    server.version("a", 1, 1, latest=True)
    connect(basic__auth__user__info="svc:pw").new_versions(["a"], {})
    assert server.headers["Authorization"] == "Basic c3ZjOnB3"
    connect(bearer__auth__token=SECRET).new_versions(["a"], {})
    assert server.headers["Authorization"] == f"Bearer {SECRET}"
    connect(url=server.url.replace("://", f"://svc:{SECRET}@")).new_versions(["a"], {})
    assert server.headers["Authorization"].startswith("Basic ")


def test_settings_hide_what_is_secret():
    settings = RegistrySettings("c", {"url": f"https://svc:{SECRET}@r:8081/path/", "bearer.auth.token": SECRET})
    assert settings.url == "https://r:8081/path"
    assert SECRET not in f"{settings!r} {settings.url}"


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({}, "no address"),
        ({"url": "registry:8081"}, "no address"),
        ({"url": "http://r", "basic.auth.userinfo": SECRET}, "doesn't know: basic.auth.userinfo"),
        ({"url": "https://r", "ssl.ca.location": "/nowhere.pem"}, "settings can't be used"),
        ({"url": "https://r", "ssl.key.location": "/k.pem"}, "settings can't be used.*ssl.certificate.location"),
        ({"url": "https://r", "timeout": 5, "max.retries": "many"}, "settings can't be used"),
    ],
)
def test_wrong_settings(settings, says):
    with pytest.raises(ActionRequiredError, match=says) as caught:
        Registry(RegistrySettings("c", settings))
    assert SECRET not in str(caught.value)


def test_the_environment_names_several_registries(monkeypatch):
    several = {"east": "http://e:8081/", "west": {"url": "http://w", "timeout": 3}}
    monkeypatch.setenv(VARIABLE, json.dumps(several))
    east, west = map(registry_of_environment, several)
    assert (east.name, east.url, west.name, west.client()["timeout"]) == ("east", "http://e:8081", "west", 3)
    refuse_one_for_several([east, west])
    with pytest.raises(ActionRequiredError, match="doesn't name it"):
        registry_of_environment("north")
    monkeypatch.setenv(VARIABLE, json.dumps({"west": [SECRET]}))
    with pytest.raises(ActionRequiredError, match="neither a URL nor settings") as caught:
        registry_of_environment("west")
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("text", ["http://r:8081", '{"url": "http://r:8081"}'])
def test_one_registry_is_not_taken_for_several(monkeypatch, text):
    monkeypatch.setenv(VARIABLE, text)
    one, other = map(registry_of_environment, ("east", "west"))
    refuse_one_for_several([one])
    with pytest.raises(ActionRequiredError, match="the clusters have several: east, west"):
        refuse_one_for_several([one, other])


def test_the_environment_names_a_registry(monkeypatch):
    monkeypatch.setenv(VARIABLE, "http://r:8081/")
    assert (registry_of_environment("c").name, registry_of_environment("c").url) == ("c", "http://r:8081")
    monkeypatch.setenv(VARIABLE, '{"url": "http://r", "timeout": 3}')
    assert registry_of_environment("c").client()["timeout"] == 3
    monkeypatch.setenv(VARIABLE, RegistrySettings("other", {"url": "http://r"}).to_environment()[VARIABLE])
    assert registry_of_environment("c").name == "other"
    monkeypatch.setenv(VARIABLE, f'{{"url": {SECRET}')
    with pytest.raises(ActionRequiredError, match="not JSON") as caught:
        registry_of_environment("c")
    assert SECRET not in str(caught.value)
    monkeypatch.delenv(VARIABLE)
    with pytest.raises(ActionRequiredError, match=VARIABLE):
        registry_of_environment("c")
