"""One pipeline, and the steps of its intervals and table services."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import structlog
import yaml
from typer.testing import CliRunner, Result

from sluice.cli import app
from sluice.coordinator import Coordinator, Outcome, Run, Started
from sluice.coordinator.services import Planned, Services
from sluice.coordinator.verification import verify
from sluice.failpoints import VARIABLE
from sluice.kafka.config import Connections
from sluice.logs import log
from sluice.participant.launch.submit import application_arguments, service_arguments, submit_command
from sluice.pipeline import Pipeline, load_pipeline
from sluice.protocol.messages import StartCommit, encode
from sluice.protocol.request import Request
from sluice.protocol.services import PLANNED, Service

from .drivers import MEMORY, Drivers, Job, Zombie
from .processes import MASTER, PATIENCE, Pause, Step, environment, finish, kafka_settings, other_clock
from .readers import DDL, SharedJvm, Table


def invoke(*arguments: str) -> Result:
    """A command of `sluice` in the test's own process."""
    result = CliRunner().invoke(app, list(arguments))
    structlog.reset_defaults()  # the command logs to what was its own output
    vars(log).pop("bind", None)
    return result


class Flow(Table):
    """One pipeline with topic, control topic and table of its own."""

    def __init__(
        self, folder: Path, bootstrap: str, jvm: SharedJvm, drivers: Drivers, topic: str, **settings: Any
    ) -> None:
        super().__init__(bootstrap, topic, folder / "lake" / topic, jvm, drivers)
        self.folder = folder
        self.file = folder / f"{topic}.yaml"
        self._settings: dict[str, Any] = {
            "name": topic,
            "source": {"kafka": {"topics": topic}},
            "sink": {"hudi": {"path": str(self.path), "schema": DDL, "partition_fields": "p"}},
            "write": {"driver_memory": MEMORY},
            "control": {"topic": self.control_topic},
        }
        if settings.get("sink__hudi__operation") == "upsert":
            # `produce` sends each key to a partition of the test's choosing, always the same one.
            self._settings["sink"]["hudi"]["key_placement"] = "trusted"
        self.secrets: dict[str, str] = {}  # what the write jobs' Kafka connection has beside its address
        self.secret_environment: dict[str, str] = {}  # what else they find there
        self.connections: Connections | None = None  # of streams' clusters
        self._runs = 0
        self._jobs = 0
        self.set(**settings)

    # The pipeline ------------------------------------------------------------------------------------------------

    def set(self, **settings: Any) -> Flow:
        """Settings by their path in the file, with `__` between the keys: `control__commit_timeout="1 second"`."""
        for name, value in settings.items():
            *parents, key = name.split("__")
            section = self._settings
            for parent in parents:
                section = section.setdefault(parent, {})
            if value is None:
                section.pop(key, None)
            else:
                section[key] = value
        self.file.write_text(yaml.safe_dump(self._settings))
        return self

    @property
    def pipeline(self) -> Pipeline:
        return load_pipeline(self.file)

    @property
    def table(self) -> str:
        """The table as the messages name it."""
        return self.pipeline.table_id

    def coordinator(self, is_running: Callable[[str, str], bool] = lambda _dag_id, _run_id: False) -> Coordinator:
        own = kafka_settings(self.bootstrap, self.connection)
        return Coordinator(self.pipeline, own, None, self.jvm, is_running, connections=self.connections)

    # The steps of an interval --------------------------------------------------------------------------------------

    def run(self, **request: Any) -> Run:
        """A DAG run that no other interval has: `run(kind="replay", instant="…")`, or one that reads on."""
        self._runs += 1
        return Run("tests", f"run-{self._runs}", Request(**request))

    def start(self, run: Run | None = None) -> Started:
        started = self.coordinator().start(run or self.run())
        assert isinstance(started, Started), started
        return started

    def write(self, started: Started, number: int = 0, failpoint: str = "") -> Job:
        """Start the write job of one range in a warm driver."""
        return self._job("write", application_arguments(self.pipeline, started, number), failpoint)

    def _job(self, kind: str, arguments: list[str], failpoint: str) -> Job:
        driver = self.drivers.idle()
        self._jobs += 1
        log = self.folder / f"{kind}-{self._jobs}.log"
        known = kafka_settings(self.bootstrap, self.connection)
        with_secrets = {**known.librdkafka, **self.secrets}
        kafka = replace(known, librdkafka=with_secrets, java_options=self.pipeline.write.kafka_options)
        settings = {**kafka.to_environment("source"), **kafka.to_environment("control")}
        driver.send(kind, arguments, {**settings, **self.secret_environment, VARIABLE: failpoint}, str(log))
        return Job(log, driver.group, driver.receive, driver.answered, driver.mark_killed)

    def write_alone(self, started: Started, number: int = 0, failpoint: str = "") -> Job:
        """Start it by the product's own command line, in a process of its own."""
        self._jobs += 1
        log = self.folder / f"write-{self._jobs}.log"
        command = submit_command(self.pipeline, started, number, MASTER)
        with log.open("wb") as out:
            process = subprocess.Popen(
                command, env=environment(self.bootstrap, **{VARIABLE: failpoint}), cwd=self.folder, stdout=out,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        return Job(log, process.pid, lambda: process.wait(PATIENCE), lambda: process.poll() is not None)

    def zombie(self, started: Started, number: int = 0) -> Zombie:
        """Start the write job of a range as a zombie, which stands still before it writes."""
        return Zombie(lambda failpoint: self.write(started, number, failpoint), self.folder)

    def write_all(self, started: Started) -> None:
        for number in range(len(started.ranges)):
            self.write(started, number).succeed()

    def commit(self, started: Started) -> Outcome:
        return self.coordinator().commit(started.control_offset)

    def frozen_commit(self, started: Started, point: str) -> tuple[Pause, subprocess.Popen[str]]:
        """A commit in a process of its own that stands still at a failpoint, and what releases it."""
        pause = Pause(point, self.folder)
        process = self.spawn("commit", "--control-offset", str(started.control_offset), failpoint=pause.failpoint)
        pause.wait(process)
        return pause, process

    def abort(self, run: Run) -> Outcome:
        return self.coordinator().abort(run)

    def interval(self, **request: Any) -> Outcome:
        """One whole interval that nothing disturbs."""
        started = self.start(self.run(**request))
        self.write_all(started)
        return self.commit(started)

    def interval_is_empty(self) -> None:
        """The schedule finds nothing more to read."""
        outcome = self.coordinator().start(self.run())
        assert isinstance(outcome, Outcome), outcome
        assert outcome.state == "empty"

    def decoded(self) -> tuple[dict[int, dict[str, Any]], dict[int, str]]:
        """What an interval's write job would make of its records, by offset: rows, and why the others can't be rows."""
        run = self.run()
        started = self.start(run)
        message = next(m for m in reversed(self.messages()) if isinstance(m, StartCommit))
        settings = asdict(kafka_settings(self.bootstrap))
        rows, bad = self.drivers.idle().ask("decode", encode(message).decode(), settings)
        assert started.instant == message.transaction
        self.abort(run)
        own = [{k: v for k, v in row.items() if not k.startswith("_kafka_")} for row in rows]
        return {row["_kafka_offset"]: mine for row, mine in zip(rows, own, strict=True)}, bad

    # Table services -------------------------------------------------------------------------------------------------

    def services(self) -> Services:
        return Services(self.pipeline, kafka_settings(self.bootstrap), None, self.jvm)

    def plan(self, service: Service) -> Planned:
        """Plan a compaction or clustering, which now holds the table."""
        planned = self.services().plan(self.run(), service)
        assert isinstance(planned, Planned), planned
        return planned

    def carry_out(self, planned: Planned, failpoint: str = "") -> Job:
        """Start its Spark job in a warm driver."""
        return self._job("service", service_arguments(self.pipeline, planned.control_offset), failpoint)

    def serve(self, service: Service) -> None:
        """One whole table service that nothing disturbs."""
        if service in PLANNED:
            self.carry_out(self.plan(service)).succeed()
        else:
            self.services().run(self.run(), service)

    def spawn_service(self, service: Service, failpoint: str = "", clock: str = "") -> subprocess.Popen[str]:
        """A table service in a process of its own."""
        return self._spawn("service", service, str(self.file), failpoint=failpoint, clock=clock)

    def spawn(self, *arguments: str, failpoint: str = "", clock: str = "") -> subprocess.Popen[str]:
        """A coordinator step in a process of its own: `spawn("start", "--run-id", "r1")`."""
        return self._spawn("interval", arguments[0], str(self.file), *arguments[1:], failpoint=failpoint, clock=clock)

    def _spawn(self, *arguments: str, failpoint: str, clock: str = "") -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "sluice.cli", *arguments]
        more = {VARIABLE: failpoint, **self.secret_environment, **(other_clock(clock, self.folder) if clock else {})}
        return subprocess.Popen(
            command, env=environment(self.bootstrap, **more), cwd=self.folder, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip

    def step(self, *arguments: str, failpoint: str = "", clock: str = "") -> Step:
        """A coordinator step in a process of its own, to its end."""
        return finish(self.spawn(*arguments, failpoint=failpoint, clock=clock))

    def verify(self, *arguments: str) -> Result:
        """`sluice verify` in the test's own process, with its Spark job in a warm driver."""

        def submitted(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
            job = self._job("verify", command[-2:], "")  # the application's own arguments, without how it is submitted
            status = job.wait()
            return subprocess.CompletedProcess(command, -signal.SIGKILL if status is None else status, job.text(), "")

        with pytest.MonkeyPatch.context() as patch:
            own = kafka_settings(self.bootstrap, self.connection).to_environment("source")
            for variable, value in {**own, **self.secret_environment}.items():
                patch.setenv(variable, value)
            patch.setattr(verify, "subprocess", SimpleNamespace(run=submitted))
            return invoke("verify", str(self.file), *arguments)
