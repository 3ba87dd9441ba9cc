"""S3 for fsspec by Arrow's own client, with s3fs's options: s3fs asks for other libraries than the product."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar
from unittest.mock import patch
from urllib.parse import urlsplit

from fsspec.implementations.arrow import ArrowFSWrapper
from fsspec.registry import _registry
from pyarrow.fs import S3FileSystem


class ArrowS3(ArrowFSWrapper):
    """A bucket's objects, with the options that s3fs takes."""

    protocol: ClassVar = "s3"
    logins: ClassVar[list[str | None]] = []
    """The access keys that were used, None where a process's own was."""

    def __init__(
        self,
        key: str | None = None,
        secret: str | None = None,
        token: str | None = None,
        client_kwargs: Mapping[str, str] | None = None,
        **_: Any,
    ) -> None:
        there = client_kwargs or {}
        address = urlsplit(there.get("endpoint_url", ""))
        self.logins.append(key)
        super().__init__(
            S3FileSystem(
                access_key=key, secret_key=secret, session_token=token, region=there.get("region_name"),
                endpoint_override=address.netloc or None, scheme=address.scheme or "https", connect_timeout=5,
            )
        )  # fmt: skip


@contextmanager
def read_by_arrow() -> Iterator[type[ArrowS3]]:
    """What reads `s3://` in this block."""
    with patch.dict(_registry, {"s3": ArrowS3}):
        ArrowS3.logins.clear()
        yield ArrowS3
