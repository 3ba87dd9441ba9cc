"""The file sink's settings as START-COMMIT pins them. Pure."""

from __future__ import annotations

from dataclasses import fields

from sluice.protocol.pinned import Flag, Lines, Number, PinnedSettings
from sluice.sinks.files.options.names import Format, Layout
from sluice.sinks.files.options.partitioning import Extractor, Partitioner, Partitioning


class PinnedFiles(PinnedSettings):
    """How an interval's files are written.

    Attributes:
        max_rows_per_file: how many offsets a file covers at most; 0 for any number.
        fields, duration, extractor: see `Partitioning`, as for those with its names.
        apart: of bad records: each part of an attempt has its own folder.
    """

    format: Format
    codec: str
    layout: Layout
    topics_dir: str
    locale: str
    max_rows_per_file: Number
    partitioner: Partitioner
    fields: Lines
    path_format: str
    duration: Number
    timezone: str
    extractor: Extractor
    timestamp_field: str
    apart: Flag = False

    @property
    def partitioning(self) -> Partitioning:
        """How rows are split into folders."""
        return Partitioning(**{one.name: getattr(self, one.name) for one in fields(Partitioning)})
