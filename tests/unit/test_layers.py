"""Who may import whom: the rules of tools/layers.py hold, and they refuse what they are there to refuse."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "layers.py"


@pytest.fixture(scope="module")
def layers() -> ModuleType:
    spec = importlib.util.spec_from_file_location("layers", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_code_keeps_to_them_and_the_picture_is_of_it(layers, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [str(TOOL)])
    assert layers.main() == 0, capsys.readouterr().err


@pytest.mark.parametrize(
    ("own", "imported"),
    [
        ("protocol", "kafka"),
        ("coordinator", "sinks"),
        ("participant", "sources"),
        ("page", "cli"),
        ("page", "sinks"),
        ("protocol", "pyspark"),
    ],
)
def test_what_goes_up_aside_or_out_is_refused(layers, own, imported):
    assert layers.wrong(own, imported)


@pytest.mark.parametrize(
    ("own", "imported"), [("coordinator", "control"), ("sinks", "sinks"), ("kafka", "confluent_kafka")]
)
def test_what_goes_down_is_not(layers, own, imported):
    assert not layers.wrong(own, imported)


@pytest.mark.parametrize(
    ("module", "room"),
    [
        ("sources.kafka.options", "options"),
        ("sources.kafka.cluster", "sources"),
        ("airflow.alerts.words", "alerts"),
        ("airflow.alerting", "airflow"),
        ("errors", "base"),
        ("no.room", None),
    ],
)
def test_a_module_is_in_the_room_of_its_innermost_folder(layers, module, room):
    assert layers.room_of(module) == room


def test_a_folder_imports_for_the_rooms_inside_of_it_too(layers, tmp_path, monkeypatch):
    (tmp_path / "airflow" / "alerts").mkdir(parents=True)
    (tmp_path / "airflow" / "__init__.py").write_text("import airflow\n")
    monkeypatch.setattr(layers, "PACKAGE", tmp_path)
    assert {(own, to) for _, _, own, to in layers.used()} == {("airflow", "airflow"), ("alerts", "airflow")}
    assert layers.wrong("alerts", "airflow")


def test_the_package_is_seen_at_a_glance(layers):
    assert sum((folder / "__init__.py").exists() for folder in layers.PACKAGE.iterdir()) <= 20


@pytest.mark.parametrize(
    ("file", "text", "found"),
    [
        ("coordinator/start.py", "a\nif pipeline.sink.hudi.path:", [(2, "sink.hudi")]),
        ("sinks/hudi/table.py", "pipeline.sink.hudi.path == COPY_ON_WRITE", []),
        ("sources/kafka/cluster.py", "from sluice.sources.kafka import x  # source.kafka", []),
        ("page/service.py", "from sluice.sources.kafka import x", []),
        ("protocol/audit.py", "MERGE_ON_READ", [(1, "MERGE_ON_READ")]),
        ("protocol/confine.py", 'stat.get("prevBaseFile")', [(1, "prevBaseFile")]),
    ],
)
def test_a_connector_is_named_nowhere_but_in_its_own_folder(layers, file, text, found):
    assert list(layers.strange_words(file, text)) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("x = F.to_json(value)", True),
        ('f"to_json({value})"', True),
        ("functions.to_json(value, options)", True),
        ("record.to_json()", False),
        ("def to_json(self) -> bytes:", False),
        ("as_json(value)", False),
    ],
)
def test_spark_s_json_is_made_in_one_place(layers, text, found):
    assert bool(list(layers.second_places("sinks/jdbc/fits.py", text))) is found
    assert not list(layers.second_places("rows/json_text.py", text))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('F.from_json("v", kind)', True),
        ("try_to_timestamp({column})", True),
        ("F.timestamp_millis(value)", True),
        ("to_utc_timestamp(value, zone)", False),
        ("of_text(column, kind)", False),
    ],
)
def test_texts_and_numbers_become_times_in_one_place(layers, text, found):
    assert bool(list(layers.second_places("rows/changes.py", text))) is found
