"""A real HDFS for the tests: fetched when the first test asks for it, and kept in SLUICE_HOME."""

from .cluster import LocalHdfs, ensure_hdfs

__all__ = ["LocalHdfs", "ensure_hdfs"]
