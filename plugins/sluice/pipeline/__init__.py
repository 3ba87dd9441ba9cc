"""The pipeline: one YAML file, or the same as Python objects, validated before anything runs."""

from sluice.pipeline.load import load_pipeline
from sluice.pipeline.model import (
    Alerts,
    Control,
    Hudi,
    Kafka,
    Notifier,
    Pipeline,
    Sink,
    Source,
    Write,
)

__all__ = [
    "Alerts",
    "Control",
    "Hudi",
    "Kafka",
    "Notifier",
    "Pipeline",
    "Sink",
    "Source",
    "Write",
    "load_pipeline",
]
