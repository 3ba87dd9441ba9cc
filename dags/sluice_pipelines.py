"""One Airflow DAG for each pipeline file of `pipelines/` and of the folders in SLUICE_PIPELINE_FOLDERS.

This file only reads the pipeline files: it contacts no broker, and starts no JVM. A wrong file is left out, so that the
others keep running; its mistakes show as the import error of `sluice_pipeline_errors.py`. They can't be an import error
of this file: Airflow takes all DAGs of a file with an import error off the schedule.
"""

from __future__ import annotations

from pathlib import Path

from airflow.sdk import get_parsing_context

from sluice.airflow.dagbag import build_dags

build_dags(Path(__file__).with_name("pipelines"), only=get_parsing_context().dag_id)
