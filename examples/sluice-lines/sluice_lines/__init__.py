"""Connectors of one's own: lines of files in, JSON lines out."""
