"""For the tests of connectors: what a sink has to keep, and a control log in memory. Needs pytest."""

from sluice.testing.log import MemoryLog, MemoryLogs
from sluice.testing.sinks import SinkConformance

__all__ = ["MemoryLog", "MemoryLogs", "SinkConformance"]
