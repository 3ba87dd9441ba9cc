"""Columns as JSON text: see `sluice.records.json_text`, which says how."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from sluice.records.json_text import OPTIONS


def as_json(value: Column) -> Column:
    """A struct, array or map as JSON text, null for null."""
    return F.to_json(value, dict(OPTIONS))
