"""A folder's files as logs: what a coordinator asks of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sluice.connectors.options import SourceOptions
from sluice.errors import ActionRequiredError
from sluice.protocol.offsets import Checkpoint, TopicPartition
from sluice.protocol.redriven import Places
from sluice.protocol.state import ClusterState, PartitionBounds
from sluice_lines.options import Lines


def source_of(options: SourceOptions, settings: Any) -> LinesSource:
    """The source that a pipeline's section names; it needs no connection."""
    assert isinstance(options, Lines)
    return LinesSource(options.folder)


class LinesSource:
    """Offsets are numbers of lines, from 0. A line that doesn't end yet isn't there yet."""

    def __init__(self, folder: str) -> None:
        self.name = folder  # which offsets are qualified by, so participants find the files by it
        self._folder = local(folder)

    def cluster_ids(self) -> dict[str, str | None]:
        """A folder has no id; each file has one."""
        return {self.name: None}

    def topics_like(self, pattern: str, but_not: Collection[str | None] = ()) -> tuple[str, ...]:
        """A pipeline of ours names its files."""
        raise ActionRequiredError("Files are named, not matched.", next_step="name them in the source's `topics`.")

    def state(
        self,
        topics: Sequence[str],
        window_end: datetime | None,
        window_start: datetime | None = None,
        *,
        max_future: timedelta | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> ClusterState:
        """How many lines each file has now, and which file it is. Lines have no times, so no window bounds them."""
        now = datetime.now(UTC)
        bounds = []
        for topic in topics:
            lines = len(complete_lines(self._file(topic)))
            bounds.append(PartitionBounds(TopicPartition(self.name, topic, 0), 0, lines, lines, now, lines))
        ids = {(self.name, topic): number for topic, number in self.topic_ids(topics).items()}
        return ClusterState(bounds, self.cluster_ids(), ids)

    def topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        """A file that is made again under its name has another number: its offsets mean other lines."""
        return {topic: str(self._file(topic).stat().st_ino) for topic in topics}

    def truncated_since(self, read: Mapping[TopicPartition, tuple[int, int]]) -> dict[TopicPartition, int]:
        """Lines aren't taken away; a file that is shorter than the part that was read is refused when it is planned."""
        return {}

    def sent_again(self, topic: str, table: str) -> Places:
        """Nothing is set aside, so nothing is sent again."""
        return Places()

    def copy_to_group(self, group: str, next_offsets: Mapping[TopicPartition, int]) -> None:
        """There is no consumer group: files have no lag monitor."""

    def _file(self, topic: str) -> Path:
        file = self._folder / topic
        if not file.is_file():
            raise ActionRequiredError(
                "A file that is to be read doesn't exist.", next_step="correct the source's `topics`.", file=file
            )
        return file


def local(uri: str) -> Path:
    """A path of this machine's, as a pipeline file's path comes out: `file:///…`."""
    return Path(uri.removeprefix("file://"))


def complete_lines(file: Path) -> list[str]:
    """The lines of a file that end."""
    return [line.decode() for line in file.read_bytes().split(b"\n")[:-1]]
