"""Connectors as you may write them: lines of files in, JSON lines out."""
