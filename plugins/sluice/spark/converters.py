"""Where converters of users import from; `sluice.rows.converters` is the same."""

from __future__ import annotations

from sluice.rows.converters import Converted, Given

__all__ = ["Converted", "Given"]
