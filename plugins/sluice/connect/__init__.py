"""Kafka Connect's configurations as pipeline files: what each key comes to is in tables, and no key goes unnamed."""

from sluice.connect.build import Given, Imported, imported
from sluice.connect.checked import checked
from sluice.connect.configs import ConnectorConfig, configs_of, properties_of
from sluice.connect.draft import Finding
from sluice.connect.text import text_of

__all__ = [
    "ConnectorConfig",
    "Finding",
    "Given",
    "Imported",
    "checked",
    "configs_of",
    "imported",
    "properties_of",
    "text_of",
]
