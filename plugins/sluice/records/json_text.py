"""How values are written as JSON, for each sink, key and bad record: microseconds, nulls, times in UTC. Pure.

Spark's own defaults cut a time to milliseconds, leave fields out that are null, and take the session's time zone.
`tools/layers.py` refuses Spark's `to_json` anywhere else.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

TIMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS][XXX]",
        "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS]",
        "timeZone": "UTC",
    }
)
"""Options by which Spark writes times as ISO 8601 has them, for JSON and CSV."""
OPTIONS: Final[Mapping[str, str]] = MappingProxyType({**TIMES, "ignoreNullFields": "false"})
_SQL_OPTIONS: Final = ", ".join(f"""'{name}', "{value}\"""" for name, value in OPTIONS.items())


def json_sql(value: str) -> str:
    """A struct, array or map as JSON text, null for null.

    Args:
        value: Spark SQL of the value.

    Returns:
        Spark SQL of the text.
    """
    return f"to_json({value}, map({_SQL_OPTIONS}))"
