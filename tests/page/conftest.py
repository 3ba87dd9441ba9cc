"""A real API server of Airflow with the page in it, a real broker whose control topics tell a story, and a browser."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from sluice.databases.kinds import KINDS
from sluice.jvm.gateway import lean_jvm
from sluice.jvm.schema import struct_of_ddl, table_schema
from sluice.local.airflow import AirflowEnvironment
from sluice.local.broker import LocalBroker
from sluice.local.home import SluiceHome
from sluice.local.process import Daemon, free_port
from sluice.local.venv import command
from sluice.page import models
from sluice.protocol.messages import TableSpec
from sluice.sinks.files.options import Files
from sluice.sinks.files.renames import RenamedTable
from sluice.sinks.files.storage import LocalStorage
from sluice.sinks.hudi.opening import open_table
from sluice.sinks.jdbc.statements import Target, bookkeeping
from sluice_lines.sink import JsonLinesTable, write_file

from ..examples.package import install
from .story import Story, create_topic, fill, flights, send

PROJECT = Path(__file__).parents[2]
PASSWORD = "hunter2-of-the-broker"
PIPELINE = """
name: {name}
description: Departures from New York, every record one row.
schedule: 1 hour
source: {{kafka: {{topics: {topic}}}}}
sink: {{hudi: {{path: {path}, schema: "id BIGINT"}}}}
control: {{topic: {control}}}
"""
WORKERS = {"flights": "write: {workers: default}\n", "secret": "write: {workers: hidden}\n"}
OF_A_USER = """
name: visits
source: {{lines: {{folder: {folder}, topics: a.log, value: {{converter: string, as: line}}}}}}
sink: {{json_lines: {{path: {path}, schema: line STRING}}}}
control: {{connection: kafka_default, topic: control-visits}}
"""
OF_FILES = """
name: exported
source: {{kafka: {{topics: flights}}}}
sink: {{files: {{path: {path}, schema: "id BIGINT"}}}}
control: {{topic: control-sinks}}
"""
OF_A_DATABASE = """
name: orders
source: {{kafka: {{topics: flights}}}}
sink: {{jdbc: {{connection: warehouse, table: orders, schema: "id BIGINT"}}}}
control: {{topic: control-sinks}}
"""
OF_TABLES = """
name: changed
source: {{jdbc: {{connection: shop, tables: public.orders, mode: timestamp, timestamp_column: changed}}}}
sink: {{kafka: {{connection: kafka_default, topic: changed_orders, staging: {staging}}}}}
control: {{connection: kafka_default, topic: control-sinks}}
"""
ANSWERS: dict[str, type[BaseModel]] = {
    "pipelines": models.Pipelines,
    "health": models.Healths,
    "pipeline": models.WholePipeline,
    "transactions": models.Transactions,
    "offsets": models.Offsets,
    "transaction": models.WholeTransaction,
    "messages": models.Messages,
    "workers": models.Workers,
    "dag": models.OfDag,
    "run": models.OfRun,
}
MANY = 10_000
CHANGED = 1_767_225_600_250_001  # microseconds: 2026-01-01 00:00:00.250001
REGIONS = ("kafka_east", "kafka_west")  # both have the topic
# Airflow's database with the DAGs in it, by two of its commands. Most of what each takes is to import Airflow: once.
_DATABASE = """
import sys
from airflow.__main__ import main
for command in (["db", "migrate"], ["dags", "reserialize"]):
    sys.argv = ["airflow", *command]
    main()
"""
FIRST_OF_MANY = "20260101000000000"  # long enough ago that its partitions are kept no more


@dataclass
class Site:
    """What runs, and what was sent."""

    url: str
    passwords: dict[str, str]
    broker: LocalBroker
    story: Story
    on_timeline: list[str]
    visits: Story
    sinks: dict[str, Story]
    log: Path
    database: Path
    connectors: Path
    environment: dict[str, str]
    stop: Callable[[], None]
    _opener: Any = field(default_factory=lambda: urllib.request.build_opener(_NoRedirect))
    _tokens: dict[str, str] = field(default_factory=dict)

    def get(self, path: str, user: str | None = "admin") -> tuple[int, Any]:
        """Status and answer of a request, which is logged in unless `user` is None."""
        request = urllib.request.Request(f"{self.url}{path}", headers=self.bearer(user))
        try:
            with self._opener.open(request, timeout=60) as response:
                status, body = response.status, response.read()
        except urllib.error.HTTPError as error:
            status, body = error.code, error.read()
        return status, _json(body)

    def data(self, route: str, user: str = "admin", **parameters: Any) -> dict[str, Any]:
        """JSON of one of the page's routes."""
        status, body = self.get(f"/sluice/api/v1/{route}?{urllib.parse.urlencode(parameters)}", user)
        assert status == 200, body
        unknown = list(_unknown(ANSWERS[route].model_validate(body)))
        assert not unknown, f"sluice/page/models.py doesn't know {unknown}"
        return dict(body)

    def token(self, user: str) -> str:
        """Somebody's token, which lasts for a day; asked for once."""
        if user not in self._tokens:
            log_in = {"username": user, "password": self.passwords[user]}
            self._tokens[user] = str(self.post("/auth/token", log_in)["access_token"])
        return self._tokens[user]

    def post(self, path: str, body: dict[str, Any], token: str | None = None, method: str = "POST") -> dict[str, Any]:
        headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
        request = urllib.request.Request(f"{self.url}{path}", json.dumps(body).encode(), headers, method=method)
        with self._opener.open(request, timeout=60) as response:
            return dict(json.load(response))

    def ask(self, method: str, path: str, user: str | None = "admin", body: Any = None) -> tuple[int, Any, Any]:
        """Status, answer and headers of a request of any method."""
        headers = {"Content-Type": "application/json", **self.bearer(user)}
        data = body if isinstance(body, bytes) else json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(f"{self.url}{path}", data, headers, method=method)
        try:
            with self._opener.open(request, timeout=60) as response:
                status, answer, said = response.status, response.read(), response.headers
        except urllib.error.HTTPError as error:
            status, answer, said = error.code, error.read(), error.headers
        return status, _json(answer), said

    def bearer(self, user: str | None) -> dict[str, str]:
        """The header by which somebody is logged in."""
        return {"Authorization": f"Bearer {self.token(user)}"} if user else {}

    def add_run(self, dag_id: str, run_id: str, state: str) -> None:
        """A run of a DAG in a state that a scheduler would have brought it to."""
        self.post(f"/api/v2/dags/{dag_id}/dagRuns", {"dag_run_id": run_id, "logical_date": None}, self.token("admin"))
        self.write("update dag_run set state = ?, start_date = run_after where run_id = ?", state, run_id)

    def write(self, statement: str, *values: Any) -> list[Any]:
        """Write to Airflow's database what a scheduler or a worker would; rows, where it reads some."""
        with closing(sqlite3.connect(self.database)) as connection, connection:
            return connection.execute(statement, values).fetchall()

    def until(self, what: str, check: Callable[[], bool]) -> None:
        """Ask again until it is so."""

        end = time.monotonic() + 600
        while not check():
            assert time.monotonic() < end, f"not within ten minutes: {what}"
            time.sleep(0.2)


def _unknown(answer: Any) -> Iterator[str]:
    """The fields of an answer that its model doesn't have."""
    if isinstance(answer, BaseModel):
        yield from (f"{type(answer).__name__}.{name}" for name in answer.model_extra or ())
        answer = dict(answer)
    if isinstance(answer, dict):
        answer = list(answer.values())
    if isinstance(answer, list):
        for one in answer:
            yield from _unknown(one)


def _json(answer: bytes) -> Any:
    """JSON; what isn't any, as text; None where there is nothing."""
    try:
        return json.loads(answer) if answer else None
    except ValueError:
        return answer.decode()


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


@pytest.hookimpl(trylast=True)  # after the fixtures of the test's own file
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Ends server and broker with the last of their tests: they would take processors from others."""
    running = getattr(item, "funcargs", {}).get("site")
    if running is not None and not (nextitem and "site" in getattr(nextitem, "fixturenames", ())):
        running.stop()
        running.broker.kill()  # nobody needs its data any more, and an orderly end takes half a minute


@pytest.fixture(scope="session")
def page_broker(home: SluiceHome, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    """One of its own, since it is stopped and started again."""
    with LocalBroker(home, tmp_path_factory.mktemp("page-broker")) as running:
        yield running


@pytest.fixture(scope="session")
def site(home: SluiceHome, page_broker: LocalBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    yield from run_site(home, page_broker, tmp_path_factory.mktemp("page"))


def run_site(home: SluiceHome, broker: LocalBroker, base: Path) -> Iterator[Site]:
    """Send the story, and start an API server that shows it."""
    lake, dags = f"file://{base / 'lake'}", base / "dags"
    _write_dags(dags, lake)
    now = datetime.now(UTC)
    story = flights(f"{lake}/flights", "flights", now)
    on_timeline = _commit(f"{lake}/flights", [m.transaction for m in story.messages if m.type == "ACK-COMMIT"][-3:])
    bootstrap = broker.bootstrap
    create_topic(bootstrap, "flights", 2)
    fill(bootstrap, "flights", {0: story.standing[0] + 137, 1: story.standing[1]})
    secret = Story(f"{lake}/secret", "secret", "flights", now)
    secret.committed()
    by_hand = Story(f"{lake}/by_hand", "sluice", "flights", now, 1, clusters=REGIONS)
    by_hand.committed()
    by_python = Story(f"{lake}/by_python", "by_python", "flights", now)
    by_python.committed()
    for topic in ("control-one", "control-many", "hudi-control-topic"):
        create_topic(bootstrap, topic)
    send(bootstrap, "control-one", [*story.messages, *secret.messages, *by_hand.messages])
    send(bootstrap, "hudi-control-topic", by_python.messages)
    visits = _of_a_user(base, dags, now)
    create_topic(bootstrap, "control-visits")
    send(bootstrap, "control-visits", visits.messages)
    sinks = {
        "exported": _of_files(base, dags, now),
        "orders": _of_a_database(base, dags, now),
        "changed": _of_tables(base, dags, now),
    }
    create_topic(bootstrap, "control-sinks")
    send(bootstrap, "control-sinks", [message for story in sinks.values() for message in story.messages])
    many = Story(f"{lake}/many", "many", "flights", datetime(2026, 1, 1, tzinfo=UTC))
    for _ in range(MANY):
        many.committed()
        many.pause(30)
    send(bootstrap, "control-many", many.messages)
    environment = _environment(home, bootstrap, base, dags)
    daemon = Daemon("api-server", base, base / "api-server.log")
    try:
        subprocess.run([sys.executable, "-c", _DATABASE], env=environment.variables(), check=True, timeout=600)
        daemon.start(command("airflow", "api-server"), environment.variables(), base)
        passwords = json.loads(environment.credentials().passwords_file.read_text())
        database = environment.airflow_home / "airflow.db"
        site = Site(
            environment.url,
            passwords,
            broker,
            story,
            on_timeline,
            visits,
            sinks,
            daemon.log,
            database,
            base / "connectors",
            environment.variables(),
            daemon.stop,
        )
        site.until("the API server answers", lambda: answers(site))
        site.passwords = json.loads(environment.credentials().passwords_file.read_text())
        _add_runs(site)
        yield site
    finally:
        daemon.stop()


def _write_dags(dags: Path, lake: str) -> None:
    (dags / "pipelines").mkdir(parents=True)
    (dags.parent / "connectors").mkdir()
    shutil.copytree(PROJECT / "dags" / "workers", dags / "workers")
    for module in ("sluice_pipelines.py", "sluice_pipeline_errors.py", "sluice_workers.py"):
        shutil.copy(PROJECT / "dags" / module, dags)
    for name, control in {"flights": "control-one", "secret": "control-one", "many": "control-many"}.items():
        text = PIPELINE.format(name=name, topic="flights", path=f"{lake}/{name}", control=control)
        (dags / "pipelines" / f"{name}.yaml").write_text(text + WORKERS.get(name, ""))
    (dags / "pipelines" / "wrong.yaml").write_text("name: wrong\nsoruce: {}\n")
    (dags / "by_python.py").write_text(
        "from sluice.airflow.dag import build_dag\n"
        "from sluice.pipeline import Hudi, Kafka, Pipeline, Sink, Source\n"
        "build_dag(Pipeline(name='by_python', source=Source(kafka=Kafka(topics='flights')),"
        f" sink=Sink(hudi=Hudi(path='{lake}/by_python', schema='id BIGINT'))))\n"
    )


def _of_a_user(base: Path, dags: Path, now: datetime) -> Story:
    """A pipeline with connectors of a user's, which are installed beside Airflow; one of its commits is gone."""
    install(base / "site")
    table = f"file://{base / 'lake' / 'visits'}"
    folder = base / "in"
    folder.mkdir()
    (folder / "a.log").touch()
    (dags / "pipelines" / "visits.yaml").write_text(OF_A_USER.format(folder=folder, path=table))
    ends = {"source": "lines", "sink": "json_lines"}
    story = Story(table, "visits", "a.log", now - timedelta(minutes=2), 1, (f"file://{folder}",), ends)
    instants = []
    for _ in range(3):
        instants.append(story.committed())
        story.pause(10)
    written = JsonLinesTable(story.messages[0].writer, timedelta(minutes=1))
    of_another = str(int(instants[-1]) + 1)
    for instant in (*instants[1:], of_another):
        written.open(instant)
        written.commit(instant, [write_file(table, instant, "a", ['{"line": "one"}'])], {})
    return story


def _of_files(base: Path, dags: Path, now: datetime) -> Story:
    """A pipeline that writes files; of its two commits one is in the table's log."""
    (dags / "pipelines" / "exported.yaml").write_text(OF_FILES.format(path=base / "lake" / "exported"))
    story = _two_commits(f"file://{base / 'lake' / 'exported'}", "exported", now, "files")
    folder = base / "lake" / "exported"
    writer = Files(path=str(folder), schema_="id BIGINT").writer("exported", None, maintained=False)
    table = RenamedTable(LocalStorage(folder), writer, timedelta(minutes=1), "this")
    table.prepare()
    instant = story.messages[0].transaction
    table.last_checkpoint()
    table.open(instant)
    table.commit(instant, [], {})
    table.publish(instant)
    return story


def _of_a_database(base: Path, dags: Path, now: datetime) -> Story:
    """The same for a table of SQLite's."""
    (dags / "pipelines" / "orders.yaml").write_text(OF_A_DATABASE.format())
    story = _two_commits("jdbc://warehouse/orders", "orders", now, "jdbc")
    instant = story.messages[0].transaction
    with closing(sqlite3.connect(base / "warehouse.db")) as connection, connection:
        for _, statement in bookkeeping(Target(KINDS["sqlite"].dialect, "", "orders")):
            connection.execute(statement)
        row = ("orders", instant, "completed", instant)
        columns = "(sink_table, instant, state, completed)"
        connection.execute(f"INSERT INTO _sluice_instants {columns} VALUES (?, ?, ?, ?)", row)
    return story


def _of_tables(base: Path, dags: Path, now: datetime) -> Story:
    """A pipeline that loads a database's table into a topic, whose positions are times."""
    (dags / "pipelines" / "changed.yaml").write_text(OF_TABLES.format(staging=base / "staging"))
    ends = {"source": "jdbc", "sink": "kafka"}
    began = now - timedelta(minutes=2)
    story = Story("kafka://kafka_default/_sluice.changed_orders", "changed", "public.orders", began, 1, ("shop",), ends)
    story.standing[0] = CHANGED - 90_000_000
    story.committed(records=90_000_000)
    return story


def _two_commits(table: str, name: str, now: datetime, sink: str) -> Story:
    story = Story(table, name, "flights", now - timedelta(minutes=2), 1, ends={"sink": sink})
    for _ in range(2):
        story.committed()
        story.pause(10)
    return story


def _commit(table: str, instants: list[str]) -> list[str]:
    """Real commits of a real table, one of them another writer's."""
    with lean_jvm() as jvm:
        schema = table_schema(jvm, "flights", struct_of_ddl(jvm, "id BIGINT"))
        writer = TableSpec(
            path=table, name="flights", table_type="COPY_ON_WRITE", operation="append", record_key=(),
            partition_fields=(), ordering_fields=(), schema_ddl=schema.ddl, schema_avro=schema.avro, options={},
        )  # fmt: skip
        opened = open_table(jvm, writer)
        later = str(int(instants[-1]) + 1)
        for instant in (*instants, later):
            opened.open(instant)
            opened.commit(instant, [], {})
    return [*instants, later]


def _environment(home: SluiceHome, bootstrap: str, base: Path, dags: Path) -> AirflowEnvironment:
    login = {"sasl.username": "svc", "sasl.password": PASSWORD, "sasl.mechanisms": "PLAIN"}
    kafka = {"bootstrap.servers": bootstrap, "security.protocol": "PLAINTEXT", **login}
    auth = {
        "AUTH_MANAGER": "guarded.GuardedAuthManager",
        "SIMPLE_AUTH_MANAGER_USERS": "admin:admin,editor:user,guest:viewer,runner:viewer",
    }
    return AirflowEnvironment(
        home,
        bootstrap,
        folder=base / "airflow",
        port=free_port(),
        dags_folder=dags,
        paused=False,
        extra={
            "AIRFLOW_CONN_KAFKA_DEFAULT": json.dumps({"conn_type": "kafka", "extra": kafka}),
            "AIRFLOW_CONN_WAREHOUSE": json.dumps({"conn_type": "sqlite", "host": str(base / "warehouse.db")}),
            "SLUICE_CONNECT_FOLDER": str(base / "connectors"),
            "SLUICE_PIPELINE_FOLDERS": str(base / "connectors"),
            "PYTHONPATH": f"{PROJECT / 'plugins'}:{Path(__file__).parent}:{base / 'site'}",
            **{f"AIRFLOW__CORE__{name}": value for name, value in auth.items()},
        },
    )


def answers(site: Site) -> bool:
    """Whether its API server does."""
    try:
        return site.get("/api/v2/monitor/health", None)[0] == 200
    except OSError:
        return False


def _add_runs(site: Site) -> None:
    """Runs of the DAG as Airflow knows them: the latest two transactions', and one with an empty window.

    No scheduler runs that would end them, so their states are written where it would write them.
    """
    runs = [m.run_id for m in site.story.messages if m.type == "START-COMMIT"][-2:]
    for run_id, state in ((runs[0], "success"), ("empty-window", "success"), (runs[1], "running")):
        site.add_run("flights", run_id, state)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Debian's Chromium; nothing is downloaded."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("no browser: install Debian's package chromium, or any Chromium that is on PATH")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def logged_in(site: Site, browser: Any) -> Callable[[str], Any]:
    """The cookies of somebody who has logged in by Airflow's own form, which is loaded once for each."""
    states: dict[str, Any] = {}

    def state(user: str) -> Any:
        if user not in states:
            context = browser.new_context()
            context.set_default_timeout(300_000)
            log_in(context.new_page(), site, user)
            states[user] = context.storage_state()
            context.close()
        return states[user]

    return state


@pytest.fixture
def open_page(site: Site, browser: Any, logged_in: Callable[[str], Any]) -> Iterator[Callable[..., Any]]:
    """Opens a page in a window of its own, as somebody who has logged in: `open_page("/sluice/", user="guest")`."""
    opened, errors = [], []

    def open_at(path: str, *, user: str = "admin", width: int = 1280, scheme: str = "light") -> Any:
        size = {"width": width, "height": 900}
        context = browser.new_context(viewport=size, color_scheme=scheme, locale="en-GB", storage_state=logged_in(user))
        context.set_default_timeout(300_000)  # milliseconds; against hangs alone
        opened.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on(
            "console", lambda m: errors.append(m.text) if m.type == "error" and "/sluice/" in str(m.location) else None
        )
        page.goto(f"{site.url}{path}")
        return page

    yield open_at
    for context in opened:
        context.close()
    assert not errors, errors


def log_in(page: Any, site: Site, user: str) -> None:
    """By Airflow's form."""
    page.goto(f"{site.url}/auth/login")
    page.fill("input[name=username]", user)
    page.fill("input[name=password]", site.passwords[user])
    page.click("button[type=submit]")
    page.wait_for_url(lambda url: "/auth/" not in url)
