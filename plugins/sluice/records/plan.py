"""What START-COMMIT pins about records, so that every range of the interval reads and shapes them in the same way."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_serializer, field_validator

from sluice.packed import pack, unpack
from sluice.records.settings import Changes, Errors, Part, Transform

_READABLE = 50_000  # characters of schemas that stand in START-COMMIT as they are
_PACKED = "xz"


class _Pinned(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class WriterSchema(_Pinned):
    """A schema with which records were written.

    Attributes:
        id: its id in the registry; None where there is no registry.
        text: the schema itself: Avro or JSON Schema as JSON, Protobuf's descriptor set in base64; empty where the
            struct says all.
        struct: Spark's type of a record decoded with it, as Spark's JSON.
        parsed: the type that Spark's parser makes of it first, where that is another one: Connect's logical types in
            JSON, Protobuf's unsigned numbers.
        message: the Protobuf message's full name.
        indexes: where that message stands in its file.
        versions: the subjects and versions under which the registry has it.
        incompatible: why its records can't become rows of this table; None where they can.
    """

    id: int | None = None
    text: str = ""
    struct: Any = None
    parsed: Any = None
    message: str | None = None
    indexes: tuple[int, ...] = ()
    versions: tuple[tuple[str, int], ...] = ()
    incompatible: str | None = None


class Format(_Pinned):
    """How keys or values are decoded.

    Attributes:
        converter: its name, or the user's `module:Class`.
        struct: the type that every record is brought to, as Spark's JSON: the union of the schemas' structs.
        schemas: the writer schemas known when the interval was planned, newest first. Fields that a record's own schema
            doesn't have are the newest one's defaults, or null.
        registry: the registry that knows their ids, as its address; None where the bytes are not in its wire format.
        as_: the one column that it becomes; None where its fields become columns.
    """

    converter: str = "json"
    options: dict[str, str] = Field(default_factory=dict)
    struct: Any = None
    schemas: tuple[WriterSchema, ...] = ()
    message: str | None = None
    registry: str | None = None
    as_: str | None = None

    @field_serializer("schemas", when_used="json")
    def _pack(self, schemas: tuple[WriterSchema, ...]) -> Any:
        """Many versions of a large schema would pass the broker's message limit; packed, they take a hundredth."""
        plain = [schema.model_dump(mode="json", exclude_none=True) for schema in schemas]
        text = json.dumps(plain)
        return plain if len(text) <= _READABLE else {_PACKED: b64encode(pack(text.encode())).decode()}

    @field_validator("schemas", mode="before")
    @classmethod
    def _unpack(cls, schemas: Any) -> Any:
        """Raises ValueError where it isn't packed as it says, or would unpack to more than a message may hold."""
        return json.loads(unpack(b64decode(schemas[_PACKED]))) if isinstance(schemas, dict) else schemas


class RecordPlan(_Pinned):
    """From a Kafka record to a row. The default is what intervals before this release did: JSON of the table's columns.

    Attributes:
        value: how values are decoded; its struct is None where it is the table's columns.
        key: how keys are decoded, None where nobody asks for them.
        columns: further columns by the part of the record that they hold.
        eras: by topic, how many logs of it the table has read before this one, where any: offsets order the records of
            one log only.
    """

    value: Format = Format()
    key: Format | None = None
    columns: dict[str, Part] = Field(default_factory=dict)
    changes: Changes | None = None
    transforms: tuple[Transform, ...] = ()
    errors: Errors = Errors()
    eras: dict[str, int] = Field(default_factory=dict)
