"""The databases that are known, one folder each, as sources, as sinks, and as a process without a JVM sees them."""
