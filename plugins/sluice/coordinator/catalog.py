"""Registers the table in the catalogs that a pipeline names: after a commit, and never as a part of it."""

from __future__ import annotations

from sluice.connectors.sink import catalogs_of
from sluice.coordinator.parts import sink_of
from sluice.jvm.gateway import Jvm
from sluice.pipeline.model import Pipeline


def sync(pipeline: Pipeline, jvm: Jvm | None = None) -> list[str]:
    """Update the table in each catalog, and return the catalogs' names.

    Raises:
        RetryableError: a catalog refused; the table's commits are safe, and the next call catches up.
        ActionRequiredError: a catalog's jars or permission are missing.
    """
    return catalogs_of(sink_of(pipeline, jvm)).sync_catalogs()
