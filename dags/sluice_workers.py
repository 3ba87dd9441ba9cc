"""One Airflow DAG for each file of `workers/`, which keeps the workers of the group named like the file.

A wrong file is left out; its mistakes show as the import error of `sluice_worker_errors.py`.
"""

from __future__ import annotations

from pathlib import Path

from sluice.airflow.workers_dag import build_workers_dags

HERE = Path(__file__).parent
build_workers_dags(HERE / "workers", HERE / "pipelines")
