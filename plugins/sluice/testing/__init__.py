"""For the tests of connectors: what sources and sinks have to keep, and a control log in memory. Needs pytest."""

from sluice.testing.log import MemoryLog, MemoryLogs
from sluice.testing.sinks import SinkConformance
from sluice.testing.sources import Record, SourceConformance
from sluice.testing.upserts import UpsertConformance, Version

__all__ = ["MemoryLog", "MemoryLogs", "Record", "SinkConformance", "SourceConformance", "UpsertConformance", "Version"]
