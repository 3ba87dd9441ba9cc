"""Shows wrong pipeline files as an import error in Airflow, with file, line, key and remedy. It defines no DAG.

Airflow 3.3 keeps one import error for each Python file of the DAGs folder, and stops scheduling all DAGs of that
file. So the DAGs are built in `sluice_pipelines.py`, which leaves wrong files out, and the mistakes are raised here,
where there is no DAG to stop. (An importer for YAML files could be registered, but the DAG processor looks for `.py`
and `.zip` files only, and clears errors that are kept under any other name.)
"""

from __future__ import annotations

from pathlib import Path

from sluice.airflow.dagbag import raise_errors

raise_errors(Path(__file__).with_name("pipelines"))
