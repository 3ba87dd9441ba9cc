"""The participants' staged records: encoded, in Parquet files, in the order of sending."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import ConfigDict, TypeAdapter

from sluice.errors import IntervalError
from sluice.kafka.transactional import Record
from sluice.protocol.committable import Committable
from sluice.sinks.files.storage import LocalStorage, Storage
from sluice.sinks.kafka.options.names import STAGED, staging_folder
from sluice.sinks.kafka.options.takes import LARGEST
from sluice.sinks.kafka.staging import checksum

_BATCH: Final = 2000


@dataclass(frozen=True)
class _Payload:
    """What `committable` puts there; name, size and checksum of each file, without the checksum in earlier builds."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(strict=True)

    files: tuple[tuple[str, int, str] | tuple[str, int], ...] = ()
    way: str = ""
    smallest: int = LARGEST


_PAYLOAD: Final = TypeAdapter(_Payload)


def committable(
    folder: str,
    files: Mapping[str, tuple[int, str]],
    records: int,
    tombstones: int,
    way: str = "",
    smallest: int = LARGEST,
) -> Committable:
    """An attempt's result, for the commit.

    Args:
        folder: the folder of its files, below the staging path.
        files: the files' names with their sizes in bytes and checksums, in the order of their records.
        records: the number of records with a value.
        tombstones: the number of records without a value.
        way: the way in which they were written (`sluice.sinks.kafka.options.names.way_of_writing`).
        smallest: the smallest max.message.bytes of the records' topics.
    """
    payload = {"files": [[name, *found] for name, found in files.items()], "way": way, "smallest": smallest}
    size = sum(found for found, _ in files.values())
    return Committable(rows=records, deletes=tombstones, bytes=size, path=folder, payload=payload)


class Staged:
    """The staged records of one interval, read in sequence.

    Args:
        storage: the staging path.
        instant: the interval.
        committables: the participants' results.
        log: the log's topic, to which no record may go.
        begins: a callback, called with each topic before its first record.

    Attributes:
        topics: the number of records read, by topic.
        bytes: the size of their keys and values.
        oldest: the earliest timestamp of each topic's records, in milliseconds, without records that get the time of
            sending.
    """

    def __init__(
        self,
        storage: Storage,
        instant: str,
        committables: Sequence[Committable],
        log: str,
        begins: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._storage, self._instant, self._log, self._begins = storage, instant, log, begins
        self._staged = [(one, one.read_payload(_PAYLOAD)) for one in committables]
        self.topics: Counter[str] = Counter()
        self.bytes = 0
        self.oldest: dict[str, int] = {}
        for one, payload in self._staged:
            parts = one.path.split("/")
            names = [file[0] for file in payload.files]
            below = parts[0] == staging_folder(instant) and len(parts) > 1
            if not below or any(part in ("", ".", "..") for path in (one.path, *names) for part in path.split("/")):
                raise self._wrong("A WRITE-STATUS names files that are none of this interval", path=one.path)

    @property
    def way(self) -> str | None:
        """The way in which all were written; empty if unknown or not unique, None if there are no committables."""
        ways = {payload.way for _, payload in self._staged}
        return next(iter(ways), None) if len(ways) < 2 else ""

    @property
    def smallest(self) -> int:
        """The smallest max.message.bytes of the records' topics."""
        return min((payload.smallest for _, payload in self._staged), default=LARGEST)

    def records(self) -> Iterator[Record]:
        """All records.

        Raises:
            IntervalError: files differ from the participants' reports.
        """
        for one, payload in self._staged:
            found = 0
            for name, size, *more in payload.files:
                for batch in self._file(f"{one.path}/{name}", size, more[0] if more else None):
                    found += batch.num_rows
                    yield from self._batch(batch)
            # A null in the value's column also makes a record without a value, so only the sum can be compared.
            if found != one.rows + one.deletes:
                words = "Staged files have another number of records than their WRITE-STATUS"
                raise self._wrong(words, path=one.path, found=found, said=one.rows + one.deletes)

    def _file(self, path: str, size: int, said: str | None) -> Iterator[pa.RecordBatch]:
        try:
            there = self._storage.size(path)
            if there != size or (said is not None and checksum(self._storage, path) != said):
                raise self._wrong("A staged file is not as it was written", path=path, bytes=there, said=size)
            source = self._storage.on_disk(path) if isinstance(self._storage, LocalStorage) else None
            with pq.ParquetFile(source or BytesIO(self._storage.read(path))) as file:
                yield from file.iter_batches(_BATCH, columns=list(STAGED))
        except FileNotFoundError as error:
            raise self._wrong("A staged file is gone", path=path) from error

    def _batch(self, batch: pa.RecordBatch) -> Iterator[Record]:
        """A batch's records, made column by column as far as possible: this is most of the cost of sending."""
        topics, keys, values, headers, partitions, times = map(_values, batch.columns)
        counted = Counter(topics)
        if self._log in counted:
            raise self._wrong("A record would go to the sink's own log", topic=self._log)
        for topic in counted.keys() - self.topics.keys():
            self._begins(topic)
        self.topics.update(counted)
        self.bytes += sum(pc.sum(pc.binary_length(batch.column(name))).as_py() or 0 for name in ("key", "value"))
        self._note_times(batch)
        pairs = [[(one["key"], one["value"]) for one in given] if given else () for given in headers]
        return map(_made, zip(topics, keys, values, pairs, partitions, times, strict=True))

    def _note_times(self, batch: pa.RecordBatch) -> None:
        if batch.column("timestamp").null_count == len(batch):
            return
        dated = pa.table({"topic": batch.column("topic"), "time": batch.column("timestamp")})
        for one in dated.group_by("topic").aggregate([("time", "min")]).to_pylist():
            if one["time_min"] is not None:
                self.oldest[one["topic"]] = min(one["time_min"], self.oldest.get(one["topic"], one["time_min"]))

    def _wrong(self, what: str, **where: Any) -> IntervalError:
        return IntervalError(
            f"{what}.",
            next_step="nothing was committed; the next interval reads the same offsets. If it comes back, find who "
            "else uses the staging folder or writes to the control topic.",
            instant=self._instant,
            **where,
        )


def _values(column: pa.Array) -> list[Any]:
    """A column's values, with shortcuts for a column of nulls, and for a column with a single string."""
    if column.null_count == len(column):
        return [None] * len(column)
    if pa.types.is_string(column.type) and len(found := column.unique()) == 1:
        return list(found.to_pylist() * len(column))
    return list(column.to_pylist())


_made: Final = partial(tuple.__new__, Record)
"""Makes a record from its values without running Python code."""
