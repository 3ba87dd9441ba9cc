"""A participant's part of the commit: the result of a write, invisible until it is committed. Pure.

The audit uses the counts, the sweep of stray files the path, and only the sink that made it the payload.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar

from pydantic import PlainSerializer, PlainValidator, TypeAdapter, ValidationError

from sluice.errors import IntervalError
from sluice.untrusted import first_mistake

# Version 1 of the protocol has these names, from Hudi's write stats, on the wire. They stay, so that releases can read
# each other's messages.
_ROWS, _DELETES, _ERRORS, _BYTES = "numWrites", "numDeletes", "totalWriteErrors", "totalWriteBytes"
COUNTS = frozenset({_ROWS, _DELETES, _ERRORS, _BYTES})
_PATH, _PARTITION, _PAYLOAD, _TABLE = "path", "partitionPath", "payload", "table"
_Form = TypeVar("_Form")


@dataclass(frozen=True, slots=True)
class Committable:
    """One result of a writer, such as one file.

    Attributes:
        rows: rows written.
        deletes: rows deleted.
        errors: rows that couldn't be written; the commit is refused if there are any.
        bytes: its size.
        path: the file, relative to the table; empty if it isn't a file.
        partition: its table partition; empty for the table itself.
        payload: the sink's own data for the commit, as JSON.
        inline: whether the payload itself has all of the above, under the wire's names, as Hudi's write stats do. The
            form is theirs alone: readers refuse one with other fields (`sluice.protocol.confine.Confinement`).
        table: which of an interval's further tables it is of, by its name; empty for the first, or only one.
    """

    rows: int = 0
    deletes: int = 0
    errors: int = 0
    bytes: int = 0
    path: str = ""
    partition: str = ""
    payload: Mapping[str, Any] = field(default_factory=dict)
    inline: bool = False
    table: str = ""

    @classmethod
    def of_wire(cls, sent: Any) -> Committable:
        """Parse the wire form: the payload under its own key, or everything in one object, as Hudi's write stats are.

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
            table="" if payload is None else str(sent.get(_TABLE) or ""),
        )

    def whole(self) -> dict[str, Any]:
        """The payload, for a sink whose payloads are inline.

        Raises:
            IntervalError: it isn't inline: the payload could name other files than readers of the control topic have
                checked, and other counts than were audited.
        """
        if not self.inline:
            raise IntervalError(
                "A WRITE-STATUS names its files outside of its payload, which no write job of this table does.",
                next_step="find who else writes to the control topic; the next interval reads the same offsets.",
                path=self.path,
            )
        return dict(self.payload)

    def read_payload(self, form: TypeAdapter[_Form]) -> _Form:
        """The payload in the form in which the sink's participants write it.

        Args:
            form: a strict form of JSON.

        Raises:
            IntervalError: it has another form. Any process with write access to the control topic could have sent that.
        """
        try:
            return form.validate_json(json.dumps(dict(self.payload)))
        except ValidationError as error:
            raise IntervalError(
                "A WRITE-STATUS doesn't say what was written in the form that this table's write jobs use.",
                next_step="nothing was committed; the next interval reads the same offsets. If the release didn't "
                "change meanwhile, find out which other program writes to the control topic.",
                path=self.path,
                reason=first_mistake(error, "the payload")[:300],
            ) from None

    def as_wire(self) -> dict[str, Any]:
        """The wire form."""
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
            **({_TABLE: self.table} if self.table else {}),
        }


def _count(sent: Mapping[str, Any], name: str) -> int:
    value = sent.get(name)
    try:
        return 0 if value is None else int(value)
    except (TypeError, ValueError, OverflowError) as error:  # JSON's 1e999 is infinite
        raise ValueError(f"{name} is no number") from error


TravellingCommittable = Annotated[
    Committable,
    PlainValidator(Committable.of_wire),
    PlainSerializer(Committable.as_wire, return_type=dict[str, Any]),
]
"""A committable as a field of a message."""
