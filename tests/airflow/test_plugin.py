"""What a process of Airflow imports with the plugin: the page's app takes most of a second, and only one serves it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

_LOAD = """
import importlib, sys
for module in sys.argv[1].split(","):
    importlib.import_module(module)
from sluice_plugin import SluicePlugin
print(len(SluicePlugin.fastapi_apps), "sluice.page.app" in sys.modules)
"""
_FORKS_TASKS = (
    "airflow.jobs.scheduler_job_runner,airflow.executors.local_executor,airflow.sdk.execution_time.task_runner"
)
_PARSES = "airflow.dag_processing.manager,airflow.dag_processing.processor"
_WAITS = "airflow.jobs.triggerer_job_runner"
_SERVES = "airflow.api_fastapi.main"


@pytest.mark.parametrize(
    ("modules", "has_the_app"),
    [
        pytest.param(_FORKS_TASKS, False, id="scheduler and the tasks that it forks"),
        pytest.param(_PARSES, False, id="DAG processor", marks=pytest.mark.thorough),
        pytest.param(_WAITS, False, id="triggerer", marks=pytest.mark.thorough),
        pytest.param(_SERVES, True, id="API server"),
    ],
)
def test_the_pages_app_is_in_the_api_server_alone(modules, has_the_app, tmp_path):
    environment = {**os.environ, "_AIRFLOW_PROCESS_CONTEXT": "server", "AIRFLOW_HOME": str(tmp_path)}
    environment |= {"AIRFLOW__CORE__PLUGINS_FOLDER": str(tmp_path), "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": "sqlite://"}
    done = subprocess.run(
        [sys.executable, "-c", _LOAD, modules], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-2:] == (["1", "True"] if has_the_app else ["0", "False"])
