"""A real MirrorMaker 2 for the tests: fetched when the first test asks for it, and kept in SLUICE_HOME."""

from .maker import MirrorMaker, ensure_mirror

__all__ = ["MirrorMaker", "ensure_mirror"]
