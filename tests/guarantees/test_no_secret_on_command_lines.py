"""Secrets of the Spark connection reach every process that Sluice starts, and show on the command line of none."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from sluice.local.process import free_port
from sluice.private import PrivateSettings
from sluice.protocol.claims import Verdict

from .harness import MASTER, Flow, wait_for
from .harness.processes import environment
from .harness.workers import WorkerProcess, waited

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

PRIVATE = PrivateSettings(
    {"spark.hadoop.fs.s3a.bucket.lake.secret.key": "s3cr3t-of-s3", "spark.authenticate.secret": "s3cr3t-of-spark"},
    {"hoodie.x.api.key": "s3cr3t-of-hudi"},
)
SECRETS = [*PRIVATE.conf.values(), *PRIVATE.hudi.values()]
JVM = "org.apache.spark.deploy.SparkSubmit"


@contextmanager
def command_lines(pid: int) -> Iterator[set[str]]:
    """What the command lines of a process and of all that it starts say, from now until the block ends."""
    seen: set[str] = set()
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.02):
            with suppress(psutil.Error):  # one has ended meanwhile
                own = psutil.Process(pid)
                for process in (own, *own.children(recursive=True)):
                    with suppress(psutil.Error):
                        seen.add(" ".join(process.cmdline()))

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield seen
    finally:
        over.set()
        watching.join()


def shown_by(lines: set[str]) -> list[str]:
    return [secret for secret in SECRETS for line in lines if secret in line]


def test_a_worker_has_them_and_its_jvm_does_not_show_them(make_flow: Callable[..., Flow], monkeypatch) -> None:
    for name, value in PRIVATE.to_environment().items():
        monkeypatch.setenv(name, value)
    port = free_port()
    conf = {"spark.ui.enabled": True, "spark.ui.port": port}
    flow = make_flow(write__workers="quiet", write__conf=conf)
    worker = WorkerProcess("quiet", "quiet", flow, "--trust-control-topic")
    try:
        with command_lines(worker.process.pid) as lines:
            wait_for(worker.is_there, "the worker")
            settings = _settings(port)
            flow.produce(10)
            started = flow.start()
            assert set(waited(flow, started).values()) == {Verdict.WRITTEN}
            flow.commit(started)
    finally:
        assert worker.end() == 0, worker.log.read_text()
    flow.check()
    assert any(JVM in line for line in lines)
    assert settings.keys() >= PRIVATE.conf.keys(), "the worker's Spark lacks them"
    assert shown_by(lines) == []
    assert [secret for secret in SECRETS if secret in worker.log.read_text() or secret in str(settings)] == []


def _settings(port: int) -> dict[str, str]:
    """What a driver's page says of its settings."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def get(path: str) -> object:
        with opener.open(f"http://127.0.0.1:{port}/api/v1/applications{path}", timeout=30) as response:
            return json.loads(response.read())

    (application,) = get("")  # type: ignore[misc]
    return dict(get(f"/{application['id']}/environment")["sparkProperties"])  # type: ignore[index]


@pytest.mark.thorough  # `test_kafka_security.py` looks at a write job
def test_nor_do_a_whole_interval_a_service_and_verify(make_flow: Callable[..., Flow], tmp_path: Path) -> None:
    flow = make_flow(
        sink__hudi__operation="upsert",
        sink__hudi__record_key="id",
        table_services={"compaction": {"after_delta_commits": 1}},
    )
    commands = [
        ["interval", "run", str(flow.file), "--master", MASTER],
        ["interval", "run", str(flow.file), "--master", MASTER],
        ["service", "compaction", str(flow.file), "--master", MASTER],
        ["verify", str(flow.file), "--master", MASTER],
    ]
    for command in commands:
        flow.produce(10)
        with (tmp_path / "log").open("w+") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "sluice.cli", *command],
                env=environment(flow.bootstrap, **PRIVATE.to_environment()), cwd=flow.folder, stdout=out,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
            with command_lines(process.pid) as lines:
                status = process.wait(600)
            assert status == 0, (tmp_path / "log").read_text()
        assert any(JVM in line for line in lines), command
        assert shown_by(lines) == [], command
        assert [secret for secret in SECRETS if secret in (tmp_path / "log").read_text()] == []
