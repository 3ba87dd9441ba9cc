"""The Kafka sink's settings as START-COMMIT pins them. Pure."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator

from sluice.protocol.pinned import Flag, JsonList, JsonObject, Number, PinnedSettings
from sluice.sinks.kafka.options.takes import Group, as_option, from_option

ENCODERS: Final = (
    "json",
    "json_with_schema",
    "json_without_schema",
    "avro",
    "protobuf",
    "json_schema",
    "string",
    "bytes",
)
"""The built-in encoders. Any other encoder is a user's class, as `module:Class`."""


def _known_or_own(name: str) -> str:
    if name not in ENCODERS and re.fullmatch(r"[\w.]+:\w+", name) is None:
        raise ValueError(f"there is {', '.join(ENCODERS)}, or a class of your own as `module:Class`")
    return name


Encoding = Annotated[str, AfterValidator(_known_or_own)]
Part = Literal["key", "value"]
"""Of a record: what an encoder makes."""
_OF_RECORD: Final = "record"
_OF_SENDING: Final = "wallclock"


class PinnedTopic(PinnedSettings):
    """How an interval's rows are written as records.

    Attributes:
        topic: the target topic, or a template for one.
        staging: the folder of encoded records.
        key_fields, value_fields: the columns of key and value.
        key_encoder: empty if records have no key.
        headers: each header's column.
        headers_from: the column of the source records' headers; empty if these aren't passed through.
        timestamp: `record`, `wallclock`, or a column.
        partitioner: `same` if records keep their partition.
        without: the columns of the rows that records don't have.
        takes: the limits of topics; None in a START-COMMIT of a release that had none.
        key_schema, value_schema: what a registry said of the encoder's schema; of Connect's JSON, name and decimals; of
            a user's encoder, its options.
        shortened: of the topic of bad records: a record that is too large for it is shortened.
    """

    topic: str
    staging: str
    key_fields: JsonList
    value_fields: JsonList
    key_encoder: Encoding | Literal[""]
    value_encoder: Encoding
    headers: JsonObject
    headers_from: str
    timestamp: str
    partitioner: str
    compression: str = "none"
    compression_level: Number | None = None
    without: JsonList
    takes: str | None = None
    key_schema: JsonObject | None = None
    value_schema: JsonObject | None = None
    shortened: Flag = False

    @property
    def groups(self) -> tuple[Group, ...]:
        """The topics' limits; the last group is for all topics that no other group names."""
        return from_option(self.takes if self.takes is not None else as_option({}))

    @property
    def needs_record_time(self) -> bool:
        """Whether the source record's timestamp is needed."""
        return self.timestamp == _OF_RECORD

    @property
    def timestamp_column(self) -> str:
        """The column of the timestamp; empty if it is the source record's, or the time of sending."""
        return "" if self.timestamp in (_OF_RECORD, _OF_SENDING) else self.timestamp

    def encoder(self, part: Part) -> str:
        """The encoder of keys or values."""
        return self.key_encoder if part == "key" else self.value_encoder

    def schema_of(self, part: Part) -> dict[str, Any]:
        """What is pinned of the encoder of keys or values; empty where it needs nothing."""
        return (self.key_schema if part == "key" else self.value_schema) or {}
