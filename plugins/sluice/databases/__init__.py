"""Databases as a process sees them that has no JVM, for sources, sinks and the page."""
