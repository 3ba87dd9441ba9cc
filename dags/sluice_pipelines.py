"""One Airflow DAG for each pipeline file of `pipelines/` and of the folders in SLUICE_PIPELINE_FOLDERS.

Nothing is computed here but the reading of the files: no broker is asked, and no JVM starts. A file that is wrong is
left out, so that the others go on; what is wrong with it shows as the import error of `sluice_pipeline_errors.py`. It
can't be an import error of this file: Airflow takes all DAGs of a file with an import error off the schedule.
"""

from __future__ import annotations

from pathlib import Path

from airflow.sdk import get_parsing_context

from sluice.airflow.dagbag import build_dags

build_dags(Path(__file__).with_name("pipelines"), only=get_parsing_context().dag_id)
