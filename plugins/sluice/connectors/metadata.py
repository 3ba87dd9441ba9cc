"""The metadata service, which maps a logical stream to clusters and topics. Flink's `KafkaMetadataService`."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from importlib.metadata import entry_points
from typing import Any, Protocol

from sluice.connectors.options import StreamsSettings
from sluice.connectors.registry import load
from sluice.errors import ActionRequiredError, SluiceError
from sluice.protocol.mapping import Offsets, Stream, StreamMapping, mapping_of, require_streams
from sluice.redact import redact_text

GROUP = "sluice.metadata_services"
BUILT_IN: Mapping[str, str] = {
    "file": "sluice.sources.kafka.metadata:FileService",
    "airflow_variable": "sluice.airflow.metadata:VariableService",
}
"""Services that come with Sluice, as in pyproject.toml: a checkout works without being installed."""
_METHODS = ("all_streams", "describe_streams", "is_cluster_active")


class MetadataService(Protocol):
    """Returns the clusters and topics of streams. START calls it once for an interval, in the coordinator's process.

    Raises (all methods):
        RetryableError: it doesn't answer; the source's `metadata_failures` says how long its last answer serves.
        ActionRequiredError: it says something that can't be read.
    """

    def all_streams(self) -> Mapping[str, Stream]:
        """Every stream by its id, for a pipeline that names a pattern."""
        ...

    def describe_streams(self, stream_ids: Collection[str]) -> Mapping[str, Stream]:
        """These streams by their ids. Unknown ones are omitted, and the run is refused."""
        ...

    def is_cluster_active(self, cluster: str) -> bool:
        """Whether a cluster of a mapping may be read: False while it is being taken down, or is down."""
        ...


class MakesMetadataService(Protocol):
    """The type of an entry point of the group `sluice.metadata_services`, or of `module:Class`."""

    def __call__(self, **options: Any) -> MetadataService:
        """The service, with the keys of the section `metadata` other than `service`."""
        ...


def metadata_service(name: str, options: Mapping[str, Any]) -> MetadataService:
    """The service of a pipeline's section `metadata`.

    Args:
        name: a built-in service, an entry point, or `module:Class`.
        options: the section's further keys.

    Raises:
        ActionRequiredError: there is none of that name, it doesn't accept the options, or it is no service.
    """
    reference = BUILT_IN.get(name) or next((p.value for p in entry_points(group=GROUP, name=name)), name)
    try:
        made_by: MakesMetadataService = load(reference)
        service = made_by(**options)
        missing = [method for method in _METHODS if not callable(getattr(service, method, None))]
        if missing:
            raise TypeError(f"it has no {', '.join(missing)}")
    except SluiceError:
        raise
    except Exception as error:  # a third-party package may fail in any way
        known = sorted({*BUILT_IN, *(point.name for point in entry_points(group=GROUP))})
        raise ActionRequiredError(
            f"The metadata service {name} can't be made.",
            next_step=f"name one of {', '.join(known)}, or module:Class of a package that is installed here, with the "
            "options that it takes.",
            reason=f"{type(error).__name__}: {redact_text(str(error))}",
        ) from error
    return service


def mapping_by(
    service: MetadataService, settings: StreamsSettings, *, connection: str, starting: Offsets, table: str
) -> StreamMapping:
    """Where a pipeline's streams are, as a metadata service says it now.

    Args:
        service: the metadata service.
        settings: which streams.
        connection: the pipeline's connection, for clusters that name none.
        starting: the pipeline's starting offsets.
        table: the table's name, for errors.

    Raises:
        RetryableError: the service doesn't answer.
        ActionRequiredError: it doesn't know a stream, or contradicts itself.
    """
    pattern = settings.pattern
    if pattern is not None:
        found = {name: stream for name, stream in service.all_streams().items() if re.fullmatch(pattern, name)}
    else:
        found = dict(service.describe_streams(settings.streams))
        require_streams(settings.streams, found, table)
    return mapping_of(found, connection=connection, starting=starting, table=table)
