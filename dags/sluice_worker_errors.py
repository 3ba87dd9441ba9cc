"""Shows a wrong file of `workers/` as an import error in Airflow, with file, line, key and remedy.

It defines no DAG: Airflow stops all DAGs of a file with an import error.
"""

from __future__ import annotations

from pathlib import Path

from sluice.airflow.workers_dag import raise_worker_errors

HERE = Path(__file__).parent
raise_worker_errors(HERE / "workers", HERE / "pipelines")
