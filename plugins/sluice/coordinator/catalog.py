"""Registers a table in the pipeline's catalogs: after a commit, and never as part of it."""

from __future__ import annotations

from sluice.connectors.sink import catalogs_of
from sluice.coordinator.parts import sink_of
from sluice.jvm.gateway import Jvm
from sluice.pipeline.model import Pipeline


def sync(pipeline: Pipeline, jvm: Jvm | None = None) -> list[str]:
    """Tell each catalog of the table, and return their names.

    Raises:
        RetryableError: a catalog did not accept it; the table's commits are unaffected, and the next call catches up.
        ActionRequiredError: a catalog's jars or permission are missing.
    """
    return catalogs_of(sink_of(pipeline, jvm)).sync_catalogs()
