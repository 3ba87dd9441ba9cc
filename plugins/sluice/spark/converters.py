"""Where converters of users import from; `sluice.rows.converters` is the same."""

from __future__ import annotations

from sluice.rows.converters import Converted, ConverterContext

Given = ConverterContext
"""The name of earlier releases."""

__all__ = ["Converted", "ConverterContext", "Given"]
