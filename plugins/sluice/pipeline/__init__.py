"""The pipeline: one YAML file, or the same as Python objects, validated before anything runs."""

from sluice.pipeline.alerts import Alerts, Notifier
from sluice.pipeline.catalog import Catalog, CatalogSync, Glue, HiveMetastore
from sluice.pipeline.ends import Sink, Source
from sluice.pipeline.load import load_pipeline, load_pipelines
from sluice.pipeline.model import Control, Pipeline, Write
from sluice.pipeline.routes import Routes
from sluice.pipeline.services import Clustering, Compaction, TableServices
from sluice.sinks.hudi.options import Hudi
from sluice.sinks.jdbc.options import Jdbc
from sluice.sources.kafka.options import Kafka

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
