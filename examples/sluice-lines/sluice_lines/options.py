"""The sections `source.lines` and `sink.json_lines` of a pipeline file. They import nothing but Sluice's pure parts."""

from __future__ import annotations

from typing import ClassVar

from sluice.connectors.capabilities import SinkCapabilities, SourceCapabilities
from sluice.connectors.options import SinkOptions, SourceOptions
from sluice.protocol.messages import TableSpec
from sluice.records.settings import Changes
from sluice.sections import TablePath


class Lines(SourceOptions):
    """Files of a folder to which lines are only ever added; each is a topic of one partition, a line is a record."""

    connector: ClassVar[str] = "sluice_lines.source:source_of"
    reader: ClassVar[str] = "sluice_lines.reader:LinesReader"

    folder: TablePath
    """Where the files are; their names are the `topics`."""

    @property
    def capabilities(self) -> SourceCapabilities:
        """Lines stay what they are, in their order. No line has a time or a key."""
        return SourceCapabilities(replayable=True, ordered=True)


class JsonLines(SinkOptions):
    """A folder of files of JSON lines, of which a manifest for each interval says which count."""

    connector: ClassVar[str] = "sluice_lines.sink:JsonLinesSink"
    row_writer: ClassVar[str] = "sluice_lines.writer:JsonLinesWriter"
    commit_log: ClassVar[str] = "sluice_lines.commits:JsonLinesCommits"

    path: TablePath
    """The folder."""

    @property
    def capabilities(self) -> SinkCapabilities:
        """The manifest has rows and checkpoint in one file, so they appear together."""
        return SinkCapabilities(atomic_with_checkpoint=True)

    @property
    def table_id(self) -> str:
        """The folder."""
        return self.path

    def writer(
        self, name: str, changes: Changes | None, *, maintained: bool, schema_ddl: str = "", schema_avro: str = ""
    ) -> TableSpec:
        """How an interval's rows are written: there is nothing to choose."""
        return TableSpec(
            path=self.path,
            name=name,
            table_type="json lines",
            operation="append",
            record_key=(),
            partition_fields=(),
            ordering_fields=(),
            schema_ddl=schema_ddl or self.schema_ or "",
            schema_avro=schema_avro,
            options={},
        )
