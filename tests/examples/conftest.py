"""The example's package, installed for a test, and a pipeline of its source and its sink."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from sluice.connectors import registry
from sluice.jvm.gateway import HudiJvm, lean_jvm
from sluice.pipeline import Pipeline, load_pipeline

from .package import install


@pytest.fixture(autouse=True)
def installed(tmp_path, monkeypatch):
    install(tmp_path / "site")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    registry.forget()
    yield
    registry.forget()


@pytest.fixture(scope="module")
def jvm() -> Iterator[HudiJvm]:
    with lean_jvm() as running:
        yield running


@pytest.fixture
def files(tmp_path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    for name in ("a.log", "b.log"):
        (folder / name).touch()
    return folder


@pytest.fixture
def pipeline(tmp_path, files) -> Pipeline:
    file = tmp_path / "visits.yaml"
    file.write_text(
        yaml.safe_dump(
            {
                "name": "visits",
                "source": {
                    "lines": {
                        "folder": str(files),
                        "topics": ["a.log", "b.log"],
                        "max_records": 5,
                        "value": {"converter": "string", "as": "line"},
                    }
                },
                "sink": {"json_lines": {"path": str(tmp_path / "table"), "schema": "line STRING"}},
                "control": {"connection": "kafka_default"},
                "write": {"ranges": 2},
            }
        )
    )
    return load_pipeline(file)
