"""The demo's last part: an interval that fails, its alert caught, the record passed over, and an interval replayed."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml
from confluent_kafka import Producer
from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.text import Text

from sluice import runtime
from sluice.coordinator import Coordinator, Outcome, Run
from sluice.kafka.config import KafkaSettings
from sluice.local.airflow_api import AirflowApi, DagRun
from sluice.local.demo.topics import bounds, ensure_topic
from sluice.local.errors import LocalRuntimeError
from sluice.local.home import SluiceHome
from sluice.pipeline import load_pipeline
from sluice.protocol.request import Request

NAME = "deliveries"
_PATIENCE = 180.0  # seconds for one DAG run or message on a busy laptop
_RECORDS = 20
_PIPELINE = """\
# Written by the demo, which breaks it on purpose: one of its records can't be loaded.
name: {name}
description: The demo's failing feed. Its alerts go to the demo itself.
paused: false
retries: 0
source: {{kafka: {{topics: {name}}}}}
sink: {{hudi: {{path: "${{SLUICE_LAKE}}/{name}", schema: "parcel BIGINT NOT NULL, weight DOUBLE"}}}}
alerts:
  on_failure:
    - notifier: sluice.airflow.webhook.WebhookNotifier
      arguments: {{url: "{url}"}}
"""


def pipelines_folder(home: SluiceHome) -> Path:
    """The folder of the demo's own pipeline files, which the local Airflow reads beside the project's."""
    return home.root / "demo" / "pipelines"  # LocalAirflow makes it


@dataclass(frozen=True)
class Trouble:
    """Causes a failure, and recovers from it.

    Args:
        out: the console.
        home: the runtime folder.
        settings: the broker.
        api: the running Airflow's.
    """

    out: Console
    home: SluiceHome
    settings: KafkaSettings
    api: AirflowApi

    def fail_and_recover(self) -> None:
        """Send a record that can't be loaded, show the failed run and its alert, pass over it, and continue.

        Raises:
            LocalRuntimeError: one of these steps didn't happen.
        """
        ensure_topic(self.settings, NAME)
        with _alerts(pipelines_folder(self.home) / f"{NAME}.yaml") as caught:
            self.api.await_dag(NAME)
            before = bounds(self.settings, NAME)[0][1]
            self._send(before)
            bad = before + _RECORDS
            failed = self._run("One record is not JSON: its interval fails", "failed")
            self.out.print(f"DAG run  [red]failed[/]: {escape(failed.note)}")
            self._show(self._next(caught, "failure"), "red")
            why = "the demo broke it on purpose"
            self.out.print(f"Passed   {NAME}[0] {bad}, reason: {why}. {self._pass_over(bad, why)}", markup=False)
            for _ in range(2):  # up to the record, and from behind it
                good = self._run("The next intervals go round it", "success")
                self.out.print(f"DAG run  [green]success[/]: {escape(good.note)}")
            self._show(self._next(caught, "recovery"), "green")

    def replay(self, pipeline: str, instant: str) -> None:
        """Replay an interval from the trigger form, as a person would.

        Raises:
            LocalRuntimeError: it did not succeed.
        """
        form = {"mode": "replay", "instant": instant, "reason": "the demo shows a replay"}
        run = self._run(f"Replaying {pipeline}, instant {instant}", "success", pipeline, **form)
        self.out.print(f"Replayed [green]success[/]: {escape(run.note)}")

    def _send(self, before: int) -> None:
        producer = Producer(self.settings.client())
        for number in range(2 * _RECORDS):
            if number == _RECORDS:
                producer.produce(NAME, b'{"parcel": 17, "weight": "a lot', partition=0)
            row = {"parcel": before + number, "weight": number / 4}
            producer.produce(NAME, json.dumps(row).encode(), partition=0)
        if producer.flush(30):
            raise LocalRuntimeError("The broker doesn't take records.", next_step=f"run `{runtime.command('status')}`.")

    def _run(self, doing: str, state: str, dag_id: str = NAME, **form: Any) -> DagRun:
        with self.out.status(doing):
            run = self.api.await_end(dag_id, self.api.trigger(dag_id, form), _PATIENCE)
        if run.state != state:
            raise LocalRuntimeError(
                f"The run {run.run_id} of {dag_id} ended as {run.state}, not {state}.",
                next_step="read its log in Airflow.",
                detail=run.note,
            )
        return run

    def _pass_over(self, offset: int, reason: str) -> str:
        """What `sluice offsets --pass-over` does."""
        pipeline = load_pipeline(pipelines_folder(self.home) / f"{NAME}.yaml")
        coordinator = Coordinator(pipeline, self.settings)
        offsets = {NAME: {0: (offset, offset + 1)}}
        run = Run(
            "sluice",
            f"demo-{datetime.now(UTC):%Y%m%dT%H%M%S}",
            Request(kind="correction", offsets=offsets, reason=reason),
        )
        with self.out.status("Passing over the record"):
            started = coordinator.start(run)
            return (
                started.summary if isinstance(started, Outcome) else coordinator.commit(started.control_offset).summary
            )

    def _next(self, caught: queue.Queue[dict[str, Any]], kind: str) -> dict[str, Any]:
        try:
            while (message := caught.get(timeout=_PATIENCE)).get("kind") != kind:
                continue
        except queue.Empty:
            raise LocalRuntimeError(
                f"The run's alert ({kind}) did not come.", next_step=f"read the log of the task `alert` of {NAME}."
            ) from None
        return message

    def _show(self, message: dict[str, Any], colour: str) -> None:
        title = f"[bold]Alert caught:[/] {message['kind']}"
        self.out.print(
            Panel(Text(str(message.get("text", message))), title=title, title_align="left", border_style=colour)
        )


@contextmanager
def _alerts(file: Path) -> Iterator[queue.Queue[dict[str, Any]]]:
    """A server that receives posted alerts, at the address in the pipeline file."""
    caught: queue.Queue[dict[str, Any]] = queue.Queue()

    class Catch(BaseHTTPRequestHandler):
        def do_POST(self) -> None:  # the base class looks for this name
            caught.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Requests are shown as alerts, not as a log."""

    server = _server(_port(file), Catch)
    file.write_text(_PIPELINE.format(name=NAME, url=f"http://127.0.0.1:{server.server_port}/alerts"))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield caught
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _port(file: Path) -> int:
    """The port of the last demo, so that Airflow need not read the file anew; 0 is any."""
    if not file.exists():
        return 0
    url = str(yaml.safe_load(file.read_text())["alerts"]["on_failure"][0]["arguments"]["url"])
    return int(url.rpartition(":")[2].partition("/")[0])


def _server(port: int, handler: type[BaseHTTPRequestHandler]) -> ThreadingHTTPServer:
    try:
        return ThreadingHTTPServer(("127.0.0.1", port), handler)
    except OSError:
        return ThreadingHTTPServer(("127.0.0.1", 0), handler)
