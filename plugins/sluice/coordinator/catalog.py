"""The catalogs that a pipeline names are told of its table, in a lean JVM: after a commit, and never part of it."""

from __future__ import annotations

from functools import partial

from sluice.jvm.gateway import lean_jvm
from sluice.pipeline.model import Pipeline
from sluice.sinks.hudi.catalog_sync import sync_catalogs
from sluice.sinks.hudi.sink import Jvm, hadoop_settings


def sync(pipeline: Pipeline, jvm: Jvm | None = None) -> list[str]:
    """Tell each catalog of the table, and return their names.

    Raises:
        RetryableError: a catalog did not take it; the table's commits stand, and the next call makes up for it.
        ActionRequiredError: a catalog's jars or permission are missing.
    """
    with (jvm or partial(lean_jvm, hadoop_settings(pipeline)))() as running:
        return sync_catalogs(running, pipeline)
