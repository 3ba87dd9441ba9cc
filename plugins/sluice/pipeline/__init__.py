"""The pipeline: one YAML file, or the same as Python objects, validated before anything runs."""

from sluice.pipeline.load import load_pipeline
from sluice.pipeline.model import (
    Alerts,
    Catalog,
    CatalogSync,
    Clustering,
    Compaction,
    Control,
    Glue,
    HiveMetastore,
    Hudi,
    Kafka,
    Notifier,
    Pipeline,
    Sink,
    Source,
    TableServices,
    Write,
)

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
    "Kafka",
    "Notifier",
    "Pipeline",
    "Sink",
    "Source",
    "TableServices",
    "Write",
    "load_pipeline",
]
