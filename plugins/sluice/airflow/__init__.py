"""Airflow's side: a pipeline as a DAG, each of whose runs is one transaction interval.

Thin on purpose: the logic of an interval is in `sluice.coordinator` and `sluice.participant`, which don't know Airflow.
"""

from __future__ import annotations

from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version

from sluice.errors import ActionRequiredError

_OLDEST = (3, 2)


def require_airflow(release: str) -> None:
    """Refuse a release of Airflow that lacks what this package imports, as pip does unless dependencies are left out.

    Raises:
        ActionRequiredError: the release is older than 3.2.
    """
    if tuple(map(int, release.split(".")[:2])) < _OLDEST:
        raise ActionRequiredError(
            f"Sluice needs Airflow {'.'.join(map(str, _OLDEST))} or newer, and this is Airflow {release}.",
            next_step="upgrade Airflow; docs/production.md lists the releases that are tested.",
        )


with suppress(PackageNotFoundError):  # the rules and texts of alerts need no Airflow
    require_airflow(version("apache-airflow-core"))
