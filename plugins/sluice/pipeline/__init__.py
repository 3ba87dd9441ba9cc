"""The pipeline: one YAML file, or the same as Python objects, validated before anything runs."""

from typing import TYPE_CHECKING, Any

from sluice.pipeline.alerts import Alerts, Notifier
from sluice.pipeline.catalog import Catalog, CatalogSync, Glue, HiveMetastore
from sluice.pipeline.connector_sections import Sink, Source
from sluice.pipeline.load import load_pipeline, load_pipelines
from sluice.pipeline.model import Control, Pipeline, Write
from sluice.pipeline.routes import Routes
from sluice.pipeline.services import Clustering, Compaction, TableServices
from sluice.sinks.hudi.options import Hudi
from sluice.sources.kafka.options import Kafka

if TYPE_CHECKING:
    from sluice.sinks.jdbc.options import Jdbc

__all__ = [
    "Alerts",
    "Catalog",
    "CatalogSync",
    "Clustering",
    "Compaction",
    "Control",
    "Glue",
    "HiveMetastore",
    "Hudi",
    "Jdbc",
    "Kafka",
    "Notifier",
    "Pipeline",
    "Routes",
    "Sink",
    "Source",
    "TableServices",
    "Write",
    "load_pipeline",
    "load_pipelines",
]


def __getattr__(name: str) -> Any:
    """`Jdbc`, imported on first access: the import takes a tenth of a second, which each step would pay."""
    if name == "Jdbc":
        from sluice.sinks.jdbc.options import Jdbc

        return Jdbc
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
