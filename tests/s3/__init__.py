"""A server that speaks S3's language, for tests: fetched when the first test asks for it, and kept in SLUICE_HOME."""

from .server import LocalS3, class_paths, ensure_extras, ensure_glue, ensure_s3

__all__ = ["LocalS3", "class_paths", "ensure_extras", "ensure_glue", "ensure_s3"]
