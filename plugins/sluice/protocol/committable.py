"""What a participant hands to the commit: the outcome of a write that nobody sees until it is committed. Pure.

The audit reads the counts, the sweeping up of strays the place, and the payload only the sink that made it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import PlainSerializer, PlainValidator

from sluice.errors import IntervalError

# Version 1 of the protocol has these names of Hudi's write stats on the wire, and keeps them: messages of earlier
# releases are read, and earlier releases read ours.
_ROWS, _DELETES, _ERRORS, _BYTES = "numWrites", "numDeletes", "totalWriteErrors", "totalWriteBytes"
_PATH, _PARTITION, _PAYLOAD = "path", "partitionPath", "payload"


@dataclass(frozen=True, slots=True)
class Committable:
    """What one writer has left behind for the commit, such as one file.

    Attributes:
        rows: rows written.
        deletes: rows taken away.
        errors: rows that couldn't be written; the commit is refused unless there are none.
        bytes: how large it is.
        path: the file, relative to the table; empty where it is none.
        partition: the table partition in which it lies; empty for the table itself.
        payload: what the sink needs to commit it, as JSON.
        inline: whether the payload says all of the above itself, under the names that travel, as Hudi's write stats do.
    """

    rows: int = 0
    deletes: int = 0
    errors: int = 0
    bytes: int = 0
    path: str = ""
    partition: str = ""
    payload: Mapping[str, Any] = field(default_factory=dict)
    inline: bool = False

    @classmethod
    def of_wire(cls, sent: Any) -> Committable:
        """From what travels: the sink's payload under its own key, or all in one as Hudi's write stats are.

        Raises:
            ValueError: it isn't one.
        """
        if isinstance(sent, Committable):
            return sent
        if not isinstance(sent, Mapping):
            raise ValueError("a committable is an object")
        payload = sent.get(_PAYLOAD)
        if payload is not None and not isinstance(payload, Mapping):
            raise ValueError("a committable's payload is an object")
        return cls(
            rows=_count(sent, _ROWS),
            deletes=_count(sent, _DELETES),
            errors=_count(sent, _ERRORS),
            bytes=_count(sent, _BYTES),
            path=str(sent.get(_PATH) or ""),
            partition=str(sent.get(_PARTITION) or ""),
            payload=sent if payload is None else payload,
            inline=payload is None,
        )

    def whole(self) -> dict[str, Any]:
        """The payload, of a sink whose payloads say all of the above themselves.

        Raises:
            IntervalError: this one says it beside the payload, which could then name other files than those that
                readers of the control topic have looked at, and other counts than those that were audited.
        """
        if not self.inline:
            raise IntervalError(
                "A WRITE-STATUS names its files beside what is to be committed, which no write job of this table does.",
                next_step="find who else writes to the control topic; the next interval reads the same offsets.",
                path=self.path,
            )
        return dict(self.payload)

    def as_wire(self) -> dict[str, Any]:
        """As it travels."""
        if self.inline:
            return self.whole()
        return {
            _ROWS: self.rows,
            _DELETES: self.deletes,
            _ERRORS: self.errors,
            _BYTES: self.bytes,
            _PATH: self.path,
            _PARTITION: self.partition,
            _PAYLOAD: dict(self.payload),
        }


def _count(sent: Mapping[str, Any], name: str) -> int:
    value = sent.get(name)
    try:
        return 0 if value is None else int(value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} is no number") from error


TravellingCommittable = Annotated[
    Committable,
    PlainValidator(Committable.of_wire),
    PlainSerializer(Committable.as_wire, return_type=dict[str, Any]),
]
"""A committable as a field of a message."""
