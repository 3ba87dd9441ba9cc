"""Whether bytes are text."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F


def is_utf8(data: Column) -> Column:
    """Whether BINARY data is UTF-8: what isn't comes back from being decoded as other bytes."""
    return F.encode(F.decode(data, "UTF-8"), "UTF-8") == data
