"""Paths of tables as locations: two spellings of one place are found to be one. Pure."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

_SAME_STORE: Final[Mapping[str, str]] = MappingProxyType({"s3": "s3a", "s3n": "s3a", "abfs": "abfss", "wasb": "wasbs"})
_STORES: Final = ("file", "hdfs", "viewfs", "s3a", "gs", "abfss", "wasbs", "oss", "cos", "obs")
_HDFS_PORT: Final = ":8020"  # the name node's, where a URI has none


def location(path: str) -> str:
    """A path of a file system or bucket in one spelling.

    Hadoop reads `s3a://lake/a//b/./c/` as `s3a://lake/a/b/c`, and hosts and schemes in any case. Symbolic links, mount
    points of `viewfs` and the default file system aren't followed: that takes the file system.

    Args:
        path: a URI. Another kind of name, such as `jdbc://warehouse/orders`, is returned as it is.
    """
    scheme, separator, rest = path.partition("://")
    store = _SAME_STORE.get(scheme.lower(), scheme.lower())
    if not separator or store not in _STORES:
        return path
    host, _, below = rest.partition("/")
    host = host.lower()
    if store == "hdfs":
        host = host.removesuffix(_HDFS_PORT)
    if store == "file" and host == "localhost":
        host = ""
    return f"{store}://{host}{posixpath.normpath('/' + below.lstrip('/')).rstrip('/')}"
