"""The commands and files of docs/tutorial.md as they are written there; `sluice interval run` replaces Airflow."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ..processes import kept_jvms
from .harness import environment

PAGE = (Path(__file__).parents[2] / "docs" / "tutorial.md").read_text()
FILE = "dags/pipelines/orders.yaml"


def _blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


@pytest.fixture
def folder(tmp_path):
    """A folder as `make up` leaves it, as far as the page uses it."""
    for name in ("dags/pipelines", ".sluice/airflow", ".venv/bin"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / ".sluice" / "airflow" / "keys.json").write_text(json.dumps({"control_secret": "tutorial" * 4}))
    for command, arguments in (("python", ""), ("sluice", "-m sluice.cli ")):
        script = tmp_path / ".venv" / "bin" / command
        script.write_text(f'#!/bin/sh\nexec {sys.executable} {arguments}"$@"\n')
        script.chmod(0o755)
    return tmp_path


@pytest.fixture
def variables(bootstrap):
    """The environment of the page's commands, which keep the JVMs of steps for each other as `make up` does."""
    with kept_jvms() as kept:
        yield environment(bootstrap, **kept)


@pytest.mark.kafka
@pytest.mark.spark
def test_the_tutorial(folder, bootstrap, variables):
    publish, look, spoil = (block.replace("localhost:9092", bootstrap) for block in _blocks("sh"))
    pipeline, errors = _blocks("yaml")
    settings, commands = look.split(".venv/bin/sluice offsets", 1)
    interval = f"{settings}.venv/bin/sluice interval run {FILE} --master 'local[2]'\n"
    file = folder / FILE

    def run(script: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["bash", "-c", script], cwd=folder, env=variables, capture_output=True, text=True)

    def works(script: str) -> str:
        done = run(script)
        assert done.returncode == 0, done.stderr
        return " ".join(done.stdout.split())

    works(publish)
    validate = f".venv/bin/sluice validate {FILE}"
    assert validate in PAGE
    file.write_text(pipeline.replace("topics:", "topic:"))
    assert "orders.yaml:5: source.kafka.topic: there is no such key; did you mean `topics`?" in run(validate).stderr
    file.write_text(pipeline)
    works(validate)

    assert "1000 rows" in works(interval)
    assert "same, row for row: 1,000 rows" in works(f"{settings}.venv/bin/sluice offsets{commands}")

    works(spoil)
    stopped = run(interval)
    assert stopped.returncode == 1
    assert "topic=orders, partition=1" in stopped.stderr

    file.write_text(pipeline + errors)
    works(interval)
    listed = f".venv/bin/sluice quarantine list {FILE}"
    assert listed in PAGE
    assert "1 records in" in works(settings + listed)
