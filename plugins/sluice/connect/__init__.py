"""Kafka Connect's configurations as pipeline files: tables map each key, and every key is reported."""

from sluice.connect.build import OWN, Imported, ImportOptions, imported
from sluice.connect.checked import checked
from sluice.connect.configs import ConnectorConfig, configs_of, properties_of
from sluice.connect.draft import Finding
from sluice.connect.text import text_of

__all__ = [
    "OWN",
    "ConnectorConfig",
    "Finding",
    "ImportOptions",
    "Imported",
    "checked",
    "configs_of",
    "imported",
    "properties_of",
    "text_of",
]
