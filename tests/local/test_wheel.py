"""The wheel is whole: installed in another environment, away from this folder, it runs intervals through Airflow."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from sluice.local.airflow import LocalAirflow
from sluice.local.airflow_api import AirflowApi
from sluice.local.home import SluiceHome

PROJECT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
PIPELINE = """
name: orders
source: {kafka: {topics: orders}}
sink: {hudi: {path: LAKE/orders, schema: "id BIGINT, amount DOUBLE"}}
write: {workers: default}
"""
WHAT_AIRFLOW_FINDS = """
import json
from airflow import plugins_manager
from airflow.providers_manager import ProvidersManager
import sluice
hook = ProvidersManager().hooks["mariadb"]
print(json.dumps({
    "package": sluice.__file__,
    "plugins": sorted(p.name for p in plugins_manager._get_plugins()[0]),
    "hook": hook.hook_class_name,
    "provider": ProvidersManager().providers["sluice"].version,
}))
"""


@dataclass(frozen=True)
class Installed:
    """An environment with the wheel in it, and the variables of its processes."""

    bin: Path
    variables: dict[str, str]
    cwd: Path

    def run(self, *command: str, timeout: float = 900) -> str:
        done = subprocess.run(
            [str(self.bin / command[0]), *command[1:]],
            env=self.variables, cwd=self.cwd, capture_output=True, text=True, timeout=timeout, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the sdist of this folder."""
    dist = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", str(dist)], cwd=PROJECT, check=True)
    return dist


@pytest.fixture(scope="module")
def installed(built: Path, home: SluiceHome, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel in an environment that shares the other packages with this one, and nothing of this folder."""
    environment, cwd = tmp_path_factory.mktemp("environment"), tmp_path_factory.mktemp("empty")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    (packages,) = environment.glob("lib/python*/site-packages")
    (ours,) = BIN.parent.glob("lib/python*/site-packages")
    (packages / "others.pth").write_text(f"{ours}\n")  # the .pth files there, one of which leads here, don't count
    for script in BIN.iterdir():
        _share(script, environment / "bin" / script.name)
    (wheel,) = built.glob("*.whl")
    subprocess.run(
        [BIN / "uv", "pip", "install", "--quiet", "--offline", "--no-deps", "--python", environment, wheel], check=True
    )
    own = SluiceHome(tmp_path_factory.mktemp("home")).create()
    own.jars.symlink_to(home.jars.resolve())
    own.archive.rmdir()
    own.archive.symlink_to(home.archive.resolve())
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("AIRFLOW", "SLUICE_")) and name != "PYTHONPATH"
    }
    variables = {**inherited, "SLUICE_HOME": str(own.root), "HOME": str(cwd)}
    return Installed(environment / "bin", variables, cwd)


def _share(script: Path, target: Path) -> None:
    """A script of this environment for the other one: with that one's Python, if it is Python's."""
    if target.exists() or not script.is_file() or script.name.startswith(("python", "sluice")):
        return
    text = script.read_bytes()
    if text.startswith(f"#!{BIN}/python".encode()):
        target.write_bytes(f"#!{target.parent}/python\n".encode() + text.partition(b"\n")[2])
        target.chmod(0o755)
    else:
        target.symlink_to(script)


def test_airflow_finds_plugin_and_provider_of_the_wheel(installed):
    found = json.loads(installed.run("python", "-c", WHAT_AIRFLOW_FINDS).splitlines()[-1])
    assert Path(found["package"]).is_relative_to(installed.bin.parent)
    assert found["hook"] == "sluice.airflow.hooks.MariaDbHook"
    assert found["provider"] == "0.1.0"
    assert "sluice" in found["plugins"]


def test_a_wheel_of_the_sdist_is_the_same(built, tmp_path):
    (sdist,), (wheel,) = built.glob("*.tar.gz"), built.glob("*.whl")
    shutil.unpack_archive(sdist, tmp_path)
    (source,) = tmp_path.iterdir()
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "again")],
        cwd=source, check=True,
    )  # fmt: skip
    (again,) = (tmp_path / "again").glob("*.whl")
    assert again.read_bytes() == wheel.read_bytes()


def test_the_wheel_has_what_the_checkout_has(built):
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        there = {name for name in archive.namelist() if ".dist-info/" not in name}
    ours = {**_files("plugins", ""), **_files("dags", "sluice/local/dags/")}
    assert there == set(ours)


def _files(folder: str, inside: str) -> dict[str, Path]:
    """The files of a folder of ours by their names in the wheel."""
    root = PROJECT / folder
    found = [path for path in root.rglob("*") if path.is_file() and not path.name.startswith(".")]
    return {f"{inside}{path.relative_to(root)}": path for path in found if path.suffix != ".pyc"}


def test_init_makes_a_dags_folder_ready_and_leaves_the_users_files(installed, tmp_path):
    (tmp_path / "pipelines").mkdir()
    text = PIPELINE.replace("LAKE", str(tmp_path / "lake"))
    (tmp_path / "pipelines" / "orders.yaml").write_text(text)
    (tmp_path / "sluice_pipelines.py").write_text("of an earlier release")
    installed.run("sluice", "init", str(tmp_path))
    for module in (PROJECT / "dags").glob("sluice_*.py"):
        assert (tmp_path / module.name).read_bytes() == module.read_bytes()
    assert (tmp_path / "pipelines" / "orders.yaml").read_text() == text
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {"pipelines", "workers"}
    assert "ok" in installed.run("sluice", "validate", str(tmp_path / "pipelines" / "orders.yaml"))


@pytest.fixture
def up(installed: Installed) -> Iterator[LocalAirflow]:
    """Kafka and Airflow, started by the wheel's command in a home that has no DAGs."""
    lake = Path(installed.variables["SLUICE_HOME"]) / "lake"
    pipelines = installed.cwd / "pipelines"
    pipelines.mkdir()
    (pipelines / "orders.yaml").write_text(PIPELINE.replace("LAKE", str(lake)))
    installed.variables["SLUICE_PIPELINE_FOLDERS"] = str(pipelines)
    try:
        said = installed.run("sluice", "local", "up")
        bootstrap = next(line.split()[-1] for line in said.splitlines() if line.startswith("Kafka"))
        yield LocalAirflow.of_home(SluiceHome(lake.parent), bootstrap)
    finally:
        installed.run("sluice", "local", "down")


@pytest.mark.thorough
@pytest.mark.airflow
@pytest.mark.kafka
@pytest.mark.spark
def test_an_interval_runs_through_airflow_and_a_worker(up, installed):
    from hudi import HudiTableBuilder

    bootstrap = up.environment.bootstrap
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("orders", 1)])["orders"].result(60)
    producer = Producer({"bootstrap.servers": bootstrap})
    for i in range(100):
        producer.produce("orders", json.dumps({"id": i, "amount": i / 4}).encode())
    assert producer.flush(60) == 0

    api = AirflowApi(up.environment)
    api.await_dag("flights")  # of the DAGs folder that the wheel brought
    api.await_dag("orders")
    api.unpause("orders")
    run = api.await_end("orders", api.trigger("orders", {}), timeout=900)
    assert (run.state, "100" in run.note) == ("success", True), run.note
    table = HudiTableBuilder.from_base_uri(str(up.environment.home.lake / "orders")).build()
    assert sorted(v for batch in table.read() for v in batch.column("id").to_pylist()) == list(range(100))
