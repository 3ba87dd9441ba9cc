"""One Airflow DAG for each file of `workers/`, which keeps workers of the group that the file is named after.

A file that is wrong is left out; what is wrong with it shows as the import error of `sluice_worker_errors.py`.
"""

from __future__ import annotations

from pathlib import Path

from sluice.airflow.workers_dag import build_workers_dags

HERE = Path(__file__).parent
build_workers_dags(HERE / "workers", HERE / "pipelines")
