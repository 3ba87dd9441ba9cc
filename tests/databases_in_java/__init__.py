"""H2 and Derby as servers, for tests of sources by any JDBC driver: fetched when a test asks for them, and kept."""

from .servers import DerbyServer, H2Server, JavaServer, class_paths, ensure_databases

__all__ = ["DerbyServer", "H2Server", "JavaServer", "class_paths", "ensure_databases"]
