"""A wrong pipeline file is an import error that says what to do, and stops no other pipeline."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def folder(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A DAGs folder with the project's two modules, and a folder of pipelines that the environment names."""
    dags = tmp_path / "dags"
    (dags / "pipelines").mkdir(parents=True)
    for module in ("sluice_pipelines.py", "sluice_pipeline_errors.py"):
        shutil.copy(project / "dags" / module, dags)
    (tmp_path / "more").mkdir()
    monkeypatch.setenv("SLUICE_PIPELINE_FOLDERS", str(tmp_path / "more"))
    return tmp_path


def read(folder: Path) -> Any:
    """What the DAG processor reads: each file in turn, with its import errors by path within the bundle."""
    from airflow.dag_processing.dagbag import DagBag

    return DagBag(folder / "dags", bundle_path=folder / "dags", bundle_name="dags-folder")


def test_all_right(folder: Path, pipeline_text: Callable[..., str]) -> None:
    (folder / "dags" / "pipelines" / "a.yaml").write_text(pipeline_text("a"))
    (folder / "more" / "b.yml").write_text(pipeline_text("b"))
    bag = read(folder)
    assert bag.import_errors == {}
    assert set(bag.dags) == {"a", "b"}
    assert {dag.relative_fileloc for dag in bag.dags.values()} == {"sluice_pipelines.py"}


def test_a_wrong_file_is_named_with_line_key_and_remedy(folder: Path, pipeline_text: Callable[..., str]) -> None:
    (folder / "more" / "good.yaml").write_text(pipeline_text("good"))
    (folder / "more" / "typo.yaml").write_text(pipeline_text("typo").replace("retry_delay", "retry_dely"))
    bag = read(folder)
    assert set(bag.dags) == {"good"}
    # Not under sluice_pipelines.py: Airflow would take the good one off the schedule.
    assert list(bag.import_errors) == ["sluice_pipeline_errors.py"]
    error = bag.import_errors["sluice_pipeline_errors.py"]
    for part in (
        "typo.yaml:6",
        "retry_dely",
        "did you mean `retry_delay`?",
        "Next step:",
        str(folder / "more" / "typo.yaml"),
    ):
        assert part in error


def test_all_wrong_files_are_named_at_once(folder: Path, pipeline_text: Callable[..., str]) -> None:
    (folder / "more" / "good.yaml").write_text(pipeline_text("good"))
    (folder / "more" / "cron.yaml").write_text(pipeline_text("cron") + "schedule: now and then\n")
    (folder / "more" / "yaml.yaml").write_text("name: [")
    bag = read(folder)
    assert set(bag.dags) == {"good"}
    error = bag.import_errors["sluice_pipeline_errors.py"]
    assert "2 pipeline files are wrong" in error
    assert "cron.yaml, line=7, key=schedule" in error
    assert "yaml.yaml, line=" in error


def test_two_pipelines_of_one_name_are_neither(folder: Path, pipeline_text: Callable[..., str]) -> None:
    (folder / "more" / "orders.yaml").write_text(pipeline_text("orders"))
    (folder / "dags" / "pipelines" / "copy.yaml").write_text(pipeline_text("orders"))
    (folder / "more" / "good.yaml").write_text(pipeline_text("good"))
    bag = read(folder)
    assert set(bag.dags) == {"good"}
    error = bag.import_errors["sluice_pipeline_errors.py"]
    assert "2 pipeline files have the name orders" in error
    assert f"{folder / 'more' / 'orders.yaml'}:2" in error
    assert f"{folder / 'dags' / 'pipelines' / 'copy.yaml'}:2" in error


def test_a_folder_that_is_not_there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLUICE_PIPELINE_FOLDERS", "/no/such/folder")
    assert "/no/such/folder" in read(folder).import_errors["sluice_pipeline_errors.py"]


def test_a_connector_that_fails_stops_no_other_pipeline(
    folder: Path, pipeline_text: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is somebody else's code, and may fail in any way while a file is read."""
    from importlib.metadata import EntryPoint

    from sluice.connectors import registry

    (folder / "users_own.py").write_text(
        "from sluice.connectors.options import SinkOptions\n"
        "class Sink(SinkOptions):\n"
        "    path: str\n"
        "    @property\n"
        "    def capabilities(self):\n"
        "        raise RuntimeError('no licence')\n"
        "    @property\n"
        "    def table_id(self):\n"
        "        return self.path\n"
        "    def writer(self, name, changes, **_):\n"
        "        raise RuntimeError('no licence')\n"
    )
    monkeypatch.syspath_prepend(folder)
    points = {"own": "users_own:Sink", "gone": "no_such_module:Sink"}

    def installed(group: str, name: str | None = None) -> list[EntryPoint]:
        sinks = points.items() if group == "sluice.sinks" else ()
        return [EntryPoint(n, reference, group) for n, reference in sinks if name in (None, n)]

    monkeypatch.setattr(registry, "entry_points", installed)
    registry.forget()
    (folder / "more" / "good.yaml").write_text(pipeline_text("good"))
    for name in points:
        (folder / "more" / f"{name}.yaml").write_text(pipeline_text(name).replace("hudi:", f"{name}:"))
    bag = read(folder)
    registry.forget()
    assert set(bag.dags) == {"good"}
    error = bag.import_errors["sluice_pipeline_errors.py"]
    assert "2 pipeline files are wrong" in error
    assert "entry_point=sluice.sinks: gone = no_such_module:Sink" in error
    assert "no licence" in error


def test_a_task_that_runs_reads_its_own_file_only(folder: Path, pipeline_text: Callable[..., str]) -> None:
    from sluice.airflow.dagbag import build_dags

    (folder / "more" / "a.yaml").write_text(pipeline_text("a_name"))
    (folder / "more" / "b.yaml").write_text("name: [")
    (dag,) = build_dags(folder / "dags" / "pipelines", only="a_name")
    assert dag.dag_id == "a_name"


ROUTES = """
routes:
  by: v
  tables:
    eu: {sink: {hudi: {path: /lake/eu}}}
    us: {sink: {hudi: {path: /lake/us}}}
"""


def test_a_file_with_routes_is_a_dag_for_each_table(folder: Path, pipeline_text: Callable[..., str]) -> None:
    from sluice.airflow.dagbag import build_dags

    text = pipeline_text("shop").replace("topics:", "value: {schema: 'id BIGINT, v STRING'}, topics:")
    (folder / "more" / "shop.yaml").write_text(text + ROUTES)
    bag = read(folder)
    assert bag.import_errors == {}
    assert set(bag.dags) == {"shop.eu", "shop.us"}
    assert [d.dag_id for d in build_dags(folder / "dags" / "pipelines", only="shop.us")] == ["shop.us"]
