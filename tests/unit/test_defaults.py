"""What a message, a note or a mapping leaves out: an earlier release didn't write it, or it is what most have."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

from pydantic import BaseModel

from sluice import protocol
from sluice.records.plan import RecordPlan

SAYS_SOMETHING = {
    "version": 1,
    "kind": ("continue", "checked"),
    "status": "active",
    "starting": "earliest",
    "mirror": "none",
    "offset_syncs_location": "source",
    "source": "kafka",
    "sink": "hudi",
    "isolation_level": "read_committed",
    "on_missing_range": "abort",
    "records": RecordPlan(),
    "parts": 1,
    "at_most": 1,
    "takes_over": -1,
    "lease_offset": -1,
    "high_watermark": -1,
    "rests_on_offsets": True,
    "moves_positions": "adjoining",
    "keeps_newer": "where covered",
}


def _defaults() -> Iterator[tuple[str, str, Any]]:
    for module in pkgutil.iter_modules(protocol.__path__):
        found = importlib.import_module(f"{protocol.__name__}.{module.name}")
        for name, one in vars(found).items():
            if not isinstance(one, type) or one.__module__ != found.__name__:
                continue
            if issubclass(one, BaseModel):
                given = {field: info for field, info in one.model_fields.items() if not info.is_required()}
                yield from ((name, field, info.get_default(call_default_factory=True)) for field, info in given.items())
            elif is_dataclass(one):
                yield from ((name, field.name, field.default) for field in fields(one) if field.default is not MISSING)
            else:
                yield from ((name, field, value) for field, value in getattr(one, "_field_defaults", {}).items())


def test_what_is_left_out_is_nothing_but_where_it_says_something():
    found = list(_defaults())
    for model, field, default in found:
        if default and field != "type":
            expected = SAYS_SOMETHING[field]
            assert default in expected if isinstance(expected, tuple) else default == expected, (model, field)
    assert len(found) > 200
    assert {field for _, field, default in found if default} - {"type"} == set(SAYS_SOMETHING)
