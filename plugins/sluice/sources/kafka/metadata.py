"""Metadata services whose answer is written down: a YAML file, wherever fsspec reads it, such as S3, HDFS or HTTP."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import fsspec
from pydantic import TypeAdapter, ValidationError

from sluice.errors import ActionRequiredError, RetryableError
from sluice.protocol.mapping import Stream
from sluice.redact import redact_text
from sluice.yaml_text import Bounds, YamlTextError, composed, constructed

_FORM = TypeAdapter(dict[str, Stream])
_NAMES = TypeAdapter(tuple[str, ...])
_BOUNDS = Bounds(characters=16 * 1024 * 1024, values=1_000_000)


class WrittenMapping:
    """A metadata service with a static answer, written by hand.

    Its form is `{streams: {orders: {clusters: {east: {topics: [orders], connection: kafka_east}}}}}`, with `inactive`
    beside `streams` for clusters that are not to be read just now; or that of Flink's `YamlFileMetadataService`.

    Args:
        where: its location, for errors, such as `{"file": "/etc/streams.yaml"}`.
    """

    def __init__(self, where: Mapping[str, str]) -> None:
        self._where = where
        self._inactive: Collection[str] | None = None

    def text(self) -> str:
        """The present text, as YAML or JSON.

        Raises:
            RetryableError: it can't be read just now.
            ActionRequiredError: there is nothing.
        """
        raise NotImplementedError

    def all_streams(self) -> Mapping[str, Stream]:
        """Every stream that is written down."""
        said = self._parsed()
        found, self._inactive = self._streams(said)
        return found

    def describe_streams(self, stream_ids: Collection[str]) -> Mapping[str, Stream]:
        """The written mapping of these streams."""
        return {name: stream for name, stream in self.all_streams().items() if name in stream_ids}

    def is_cluster_active(self, cluster: str) -> bool:
        """Whether it wasn't among `inactive` when it was last read for streams: that is one answer."""
        if self._inactive is None:
            self.all_streams()
        return cluster not in (self._inactive or ())

    def _streams(self, said: Any) -> tuple[dict[str, Stream], tuple[str, ...]]:
        """The streams, and the clusters that are inactive."""
        try:
            if isinstance(said, list):
                return _FORM.validate_python(_of_flink(said)), ()
            return _FORM.validate_python(said["streams"]), _NAMES.validate_python(said.get("inactive") or ())
        except (ValidationError, KeyError, TypeError) as error:
            raise ActionRequiredError(
                f"The streams' metadata can't be read: {_first_line(error)}",
                next_step="correct it: {streams: {<stream>: {clusters: {<cluster>: {topics: [<topic>]}}}}}, and, where "
                "clusters don't take part, inactive: [<cluster>].",
                **self._where,
            ) from error

    def _parsed(self) -> Any:
        try:
            return constructed(composed(self.text(), _BOUNDS))
        except YamlTextError as error:
            raise ActionRequiredError(
                "The streams' metadata is not YAML.",
                next_step="correct it; nothing was begun.",
                reason=_first_line(error),
                **self._where,
            ) from error


class FileService(WrittenMapping):
    """Reads a YAML file at each call.

    Args:
        path: a path, or a URL such as `s3://bucket/streams.yaml` or `https://host/streams.yaml`.
        options: fsspec's `storage_options` for that URL, none of which may be a secret.
    """

    def __init__(self, path: str, options: Mapping[str, Any] | None = None) -> None:
        super().__init__({"file": redact_text(path)})
        self._path = path
        self._options = dict(options or {})

    def text(self) -> str:
        """See `WrittenMapping`."""
        try:
            with fsspec.open(self._path, "rt", **self._options) as file:
                return str(file.read())
        except Exception as error:  # each of fsspec's file systems has its own errors
            raise RetryableError(
                "The file of the streams can't be read just now.",
                next_step="look whether it is there, and may be read from here; the step is retried.",
                reason=f"{type(error).__name__}: {redact_text(str(error))}",
                **self._where,
            ) from error


def _of_flink(said: list[Any]) -> dict[str, Any]:
    """Flink's form, a list: `streamId` and `clusterMetadataList` of `clusterId`, `bootstrapServers` and `topics`."""
    return {
        stream["streamId"]: {
            "clusters": {
                cluster["clusterId"]: {
                    "topics": cluster["topics"],
                    "bootstrap_servers": cluster.get("bootstrapServers"),
                }
                for cluster in stream["clusterMetadataList"]
            }
        }
        for stream in said
    }


def _first_line(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return f"{type(error).__name__}: {error}".splitlines()[0]
