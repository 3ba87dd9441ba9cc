"""The routes of the page, its read API and Connect's API, as one whole app: paths, queries, headers and bodies.

Whatever is sent, the answer is one that the routes document: never an error of the server's, never a secret.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest
import yaml
from fastapi import FastAPI, Request
from fastapi.dependencies.utils import get_flat_dependant
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient
from hypothesis import strategies as st
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount

from sluice.page.app import PREFIX, make_app
from sluice.page.catalogue import control_topic
from sluice.page.rest import changes, found, reads, writes
from sluice.page.rest.answers import Facts, RangeTask
from sluice.pipeline.load import load_pipelines
from sluice.protocol.history import TableHistory
from sluice.protocol.messages import AbortCommit, AckCommit, EndCommit, StartCommit

from ..unit.light_page import for_a_user, without_airflow
from ..unit.protocol_messages import TIME, WRITER, planned, status
from .hostile import as_json, changed, documents, edited, texts
from .parsers import CONNECTORS, PASSWORD, PIPELINES
from .subject import Subject, ViolationError

_LARGEST = 4 * 1024 * 1024  # bytes of an answer
_LONGEST = 6000  # bytes of a part of an address: a server takes no request line of more than 64 KiB
_METHODS = ("GET", "PUT", "POST", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "QUERY")
_OPEN, _ABORTED, _COMMITTED = "20260101000002000", "20260101000001000", "20260101000000000"
_NAMED = (
    *("orders", "numbers", "broken", _OPEN, _ABORTED, _COMMITTED, "run", "dag", "0", "1", "status", "info", "app.js"),
    *(
        "index.html",
        "sluice.sinks.hudi.options.Hudi",
        "hudi",
        "JdbcSink",
        "io.confluent.connect.jdbc.JdbcSinkConnector",
    ),
)
_QUERY = ("key", "before", "limit", "instant", "dag_id", "run_id", "expand", "includeTasks", "onlyFailed", "forward")
_HEADERS = (
    *("Authorization", "Cookie", "Content-Type", "Content-Length", "Accept", "Accept-Encoding", "Host", "Origin"),
    *("X-Forwarded-For", "X-Forwarded-Prefix", "Range", "If-None-Match", "Transfer-Encoding", "X-HTTP-Method-Override"),
)
_SECRETS = ("connection.password", "database.password", "connection.url")
_FILES = {
    "orders": {
        "name": "orders",
        "source": {"kafka": {"topics": ["orders"]}},
        "sink": {"hudi": {"path": "/lake/orders", "schema": "id BIGINT"}},
        "alerts": {
            "on_failure": [
                {"notifier": "sluice.airflow.webhook.WebhookNotifier", "arguments": {"url": f"https://h/{PASSWORD}"}}
            ]
        },
    },
    "broken": {"name": "broken", "sink": {"hudi": {"options": {"hoodie.x.password": PASSWORD}}}},
}


@dataclass(frozen=True)
class Asked:
    """A request.

    Attributes:
        method: HTTP's.
        path: below the page's prefix, as bytes of the request line.
        query: likewise.
        headers: names and values as bytes.
        body: the body.
        rights: what the user may do, as a mask of the entities.
        airflow: what Airflow's own API answers.
        connect: whether a folder is named for connectors that Connect's API makes.
    """

    method: str
    path: bytes
    query: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes
    rights: int
    airflow: int
    connect: bool = False


class _Route(NamedTuple):
    """A route: its path, its methods, and the names of its query."""

    path: str
    methods: tuple[str, ...]
    query: tuple[str, ...]


@cache
def _known() -> tuple[_Route, ...]:
    return tuple(_routes_of(make_app()))


def _routes_of(app: FastAPI, prefix: str = "") -> Iterator[_Route]:
    for route in app.routes:
        if isinstance(route, APIRoute):
            query = tuple(one.alias for one in get_flat_dependant(route.dependant).query_params)
            yield _Route(prefix + route.path, tuple(sorted(route.methods)), query)
        elif isinstance(route, Mount) and isinstance(route.app, FastAPI):
            yield from _routes_of(route.app, prefix + route.path)


class _Whole:
    """The app below Airflow's, with pipelines and transactions, made once for each process."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="sluice-fuzz-")
        self.folder = Path(self._folder.name)
        self.pipelines = self.folder / "pipelines"
        self.pipelines.mkdir()
        rows = next(one for one in PIPELINES if "jdbc" in one.get("source", {}))
        for name, said in {**_FILES, "numbers": {**rows, "name": "numbers"}}.items():
            (self.pipelines / f"{name}.yaml").write_text(yaml.safe_dump(said))
        self._of_people = self.files()
        self.answer = 200
        airflow = FastAPI()
        self.page = make_app()
        airflow.mount(PREFIX, self.page)
        airflow.add_api_route("/api/v2/{path:path}", self._airflow, methods=["GET", "PATCH", "POST"])
        for_a_user(self.page)
        self.client = TestClient(airflow, raise_server_exceptions=False, follow_redirects=False)
        self._with_transactions()

    async def _airflow(self, request: Request) -> Response:
        if self.answer == 418:  # what is no JSON
            return Response(b"\xff<html>", 404, media_type="text/html")
        said = {"detail": f"{request.method} of {request.url.path}: {request.headers.get('authorization')}"}
        return JSONResponse(said, self.answer)

    def _with_transactions(self) -> None:
        api = next(route.app for route in self.page.routes if isinstance(route, Mount) and route.path == "/api/v1")
        (pipeline,) = load_pipelines(self.folder / "pipelines" / "orders.yaml")
        follower = api.state.page._catalogue.follower(control_topic(pipeline))
        history = TableHistory(pipeline.table_id)
        history.extend(enumerate(_messages(pipeline.table_id)))
        follower._tables = {pipeline.table_id: history}
        shown = [(0, {"type": "START-COMMIT", "writer": {"options": {"hoodie.x.password": PASSWORD}}})]
        follower.messages = lambda _: (shown, 0)

    def files(self) -> dict[Path, bytes]:
        """All files of the folder, but the lock."""
        found = (path for path in self.folder.rglob("*") if path.is_file() and path.suffix != ".lock")
        return {path: path.read_bytes() for path in found}

    def made(self) -> dict[Path, bytes]:
        """The files that were made of connectors, which are taken away.

        Raises:
            ViolationError: a person's file was changed, or is gone.
        """
        found = self.files()
        if {path: found.pop(path, b"") for path in self._of_people} != self._of_people:
            raise ViolationError("a file that a person has written was changed")
        for path in found:
            path.unlink()
        return found

    def ask(self, asked: Asked) -> Any:
        """The answer to a request."""
        self.answer = asked.airflow
        run = SimpleNamespace(run_id="run", state="failed" if asked.rights % 2 else "running", note=None, started=None)
        task = RangeTask(0, "failed", "host", "orders[0] [0, 10)", f"Failed: password={PASSWORD}")
        facts = Facts(known=True, runs=[run], goes_on=True, tasks=(task,), tasks_of="run", host="host")
        with pytest.MonkeyPatch.context() as patch:
            without_airflow(self.folder, patch, _rights(asked.rights))
            for module in (found, reads, changes, writes):
                patch.setattr(module, "facts_of", lambda _, ids: dict.fromkeys(ids, facts))
            if asked.connect:
                patch.setenv(writes.FOLDER_VARIABLE, str(self.pipelines))
            return self.client.request(
                asked.method,
                f"http://h{PREFIX}{asked.path.decode('ascii')}?{asked.query.decode('ascii')}",
                headers=[*asked.headers],
                content=asked.body,
            )


_whole = cache(_Whole)


def _messages(table: str) -> Iterator[Any]:
    hostile = f"it failed: password={PASSWORD}; https://u:{PASSWORD}@h/x <script>"

    def of(instant: str) -> dict[str, Any]:
        envelope = {"table": table, "transaction": instant, "epoch": 1, "dag_id": "orders", "run_id": "run"}
        return {**envelope, "sender": "s", "time": TIME}

    for at, instant in enumerate((_COMMITTED, _ABORTED, _OPEN)):
        yield StartCommit(
            **of(instant),
            read_position=at * 4,
            writer=WRITER,
            ranges=((planned(0, at * 10, at * 10 + 10),),),
            reason=hostile,
            valid_through=TIME,
            remarks=("a remark",),
        )
        if instant == _OPEN:
            return
        yield status(instant).model_copy(update={"table": table, "error": hostile if instant == _ABORTED else None})
        if instant == _ABORTED:
            yield AbortCommit(**of(instant), reason=hostile, lease_offset=-1)
            continue
        yield EndCommit(**of(instant), reported=(0,), missing=())
        yield AckCommit(
            **of(instant), offsets=(planned(0),), valid_through=TIME, records_read=10, records_written=10,
            records_quarantined=0, records_skipped=0,
        )  # fmt: skip


def _rights(mask: int) -> Any:
    """All rights, none, or some of them."""
    return lambda method, entity, dag: bool(mask >> (sum(f"{method} {entity} {bool(dag)}".encode()) % 8) & 1)


def _routes(asked: Asked) -> None:
    answer = _whole().ask(asked)
    whole = answer.content + b"".join(name + value for name, value in answer.headers.raw)
    if answer.status_code >= 500 and answer.status_code != 503:
        raise ViolationError(f"the server fails with {answer.status_code}: {answer.text[:500]}")
    if PASSWORD.encode() in whole:
        raise ViolationError(f"the answer holds a secret: {answer.text[:500]}")
    if len(answer.content) > _LARGEST:
        raise ViolationError(f"the answer has {len(answer.content)} bytes")
    if answer.content and answer.headers.get("content-type", "").startswith("application/json"):
        json.loads(answer.content, parse_constant=_no_number)


def _writes(asked: Asked) -> None:
    _routes(asked)
    for path, content in _whole().made().items():
        if path.parent != _whole().pipelines or path.suffix != ".yaml":
            raise ViolationError(f"a file was left that is no pipeline file: {path.name}")
        if PASSWORD.encode() in content:
            raise ViolationError("the file of a connector holds a secret")
        with tempfile.TemporaryDirectory() as scratch:
            copy = Path(scratch, path.name)
            copy.write_bytes(content)
            (pipeline,) = load_pipelines(copy)
        if pipeline.name != path.stem:
            raise ViolationError(f"the file {path.name} has another pipeline: {pipeline.name}")


def _no_number(name: str) -> None:
    raise ViolationError(f"the answer has {name}, which is no JSON")


def _escaped(text: str, safe: str = "") -> str:
    return quote(text.encode(errors="surrogatepass"), safe=safe)


_EXPECTED = {
    "key": st.just("orders"),
    "dag_id": st.just("orders"),
    "run_id": st.just("run"),
    "instant": st.sampled_from([_OPEN, _ABORTED, _COMMITTED]),
    "before": st.sampled_from([_OPEN, _ABORTED, _COMMITTED]),
    "limit": st.sampled_from(["1", "500"]),
    "task": st.just("0"),
    "plugin": st.just("hudi"),
    "version": st.just("1"),
    "name": st.just("icon.svg"),
    "expand": st.sampled_from(["status", "info"]),
    "includeTasks": st.just("true"),
    "onlyFailed": st.just("true"),
}
"""What reaches beyond the first check of a part."""


@st.composite
def _value(draw: st.DrawFn, name: str) -> str:
    return draw(_EXPECTED.get(name, _part) if draw(st.integers(0, 5)) else _part)


_part = st.sampled_from(_NAMED) | st.sampled_from(_NAMED).flatmap(edited) | texts


@st.composite
def _requests(draw: st.DrawFn) -> Asked:
    """A request for one of the routes, or for what looks like one; half of its parts are what the route expects."""
    route = draw(st.sampled_from(_known()))
    path = route.path
    while "{" in path:
        before, _, rest = path.partition("{")
        name, _, rest = rest.partition("}")
        path = before + _escaped(draw(_value(name)))[:_LONGEST] + rest
    if draw(st.integers(0, 9)) == 9:
        path = "/" + _escaped(draw(edited(path)), safe="/%.;").lstrip("/")
    named = [(name, draw(_value(name))) for name in route.query if draw(st.integers(0, 4)) < 4]
    named += draw(st.just([]) | st.lists(st.tuples(st.sampled_from(_QUERY) | texts, _part), max_size=3))
    query = "&".join(f"{_escaped(name)[:_LONGEST]}={_escaped(value)[:_LONGEST]}" for name, value in named)
    method = draw(st.sampled_from([*route.methods] * 30 + [*_METHODS]))
    headers = [("Authorization", f"Bearer {PASSWORD}")] if draw(st.booleans()) else []
    headers += draw(st.lists(st.tuples(st.sampled_from(_HEADERS), texts), max_size=2))
    if draw(st.booleans()):
        headers.append(("Content-Type", "application/json"))
    return Asked(
        method,
        path[: 4 * _LONGEST].encode("ascii"),
        query.encode("ascii"),
        tuple((name.encode(), _sendable(value)) for name, value in headers if name != "Transfer-Encoding"),
        draw(st.just(b"") | documents(_BODIES, as_json)),
        draw(st.sampled_from([255, 255, 255, 0]) | st.integers(0, 255)),
        draw(st.sampled_from([200, 200, 400, 401, 404, 409, 418, 422])),
    )


def _sendable(text: str) -> bytes:
    """A header's value as a server lets it through."""
    return bytes(one for one in text.encode(errors="surrogatepass")[:8000] if one >= 32 and one != 127).strip()


_BODIES = ({"is_paused": True}, {"dag_run_id": "run"}, {"offsets": [{"partition": {}, "offset": {}}]}, *CONNECTORS)


@st.composite
def _checks(draw: st.DrawFn) -> Asked:
    """A configuration to check, with a secret at a name that says so."""
    config = draw(changed(CONNECTORS, _SECRETS))
    if isinstance(config, dict):
        config = {name: value for name, value in config.items() if PASSWORD not in str(value)}
        config["connection.password"] = PASSWORD
    given = config.get("connector.class") if isinstance(config, dict) else None
    plugin = given if isinstance(given, str) and draw(st.booleans()) else draw(_part)
    path = f"/connect/connector-plugins/{_escaped(plugin)[:2000]}/config/validate"
    return Asked("PUT", path.encode("ascii"), b"", ((b"Content-Type", b"application/json"),), as_json(config), 255, 200)


_WHOLE = {
    "connector.class": "io.confluent.connect.jdbc.JdbcSinkConnector",
    "topics": "orders",
    "connection.url": "jdbc:postgresql://db/shop",
    "value.converter": "io.confluent.connect.avro.AvroConverter",
    "value.converter.schema.registry.url": "http://registry:8081",
}
"""A configuration of which a pipeline can be made."""


@st.composite
def _connectors(draw: st.DrawFn) -> Asked:
    """A connector that is made, changed or deleted, with a secret at a name that says so or without one."""
    config = draw(st.just(_WHOLE) | changed((_WHOLE,), _SECRETS) | changed(CONNECTORS, _SECRETS))
    if isinstance(config, dict):
        kept = {name: value for name, value in config.items() if PASSWORD not in str(value)}
        config = {**kept, **({"connection.password": PASSWORD} if draw(st.integers(0, 3)) == 0 else {})}
    name = draw(st.sampled_from(["new", "orders", "broken"]) | _part)
    method, of_one = draw(st.sampled_from([("POST", ""), ("PUT", "/config"), ("PATCH", "/config"), ("DELETE", "")]))
    path = "/connect/connectors" if method == "POST" else f"/connect/connectors/{_escaped(name)[:2000]}{of_one}"
    body = {"name": name, "config": config} if method == "POST" else config
    if method == "POST" and draw(st.booleans()):
        body["initial_state"] = draw(st.sampled_from(["RUNNING", "PAUSED", "STOPPED", "GONE"]))
    headers = ((b"Content-Type", b"application/json"), (b"Authorization", b"Bearer mine"))
    return Asked(method, path.encode("ascii"), b"", headers, as_json(body), 255, 200, connect=True)


ROUTES: tuple[Subject, ...] = (
    Subject("routes", st.deferred(_requests), _routes, seconds=4, share=4),
    Subject("connect_validate", st.deferred(_checks), _routes, seconds=6, share=2),
    Subject("connect_writes", st.deferred(_connectors), _writes, seconds=6, share=2),
)
"""The page's routes."""
