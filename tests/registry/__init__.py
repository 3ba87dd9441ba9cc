"""A real schema registry for the tests: fetched when the first test asks for it, and kept in SLUICE_HOME."""

from .server import LocalRegistry, ensure_registry

__all__ = ["LocalRegistry", "ensure_registry"]
