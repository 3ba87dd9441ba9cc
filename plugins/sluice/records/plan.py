"""What START-COMMIT pins about records, so that every range of the interval reads and shapes them in the same way."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from sluice.records.settings import Changes, Errors, Part, Transform


class _Pinned(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class WriterSchema(_Pinned):
    """A schema with which records were written.

    Attributes:
        id: its id in the registry; None where there is no registry.
        text: the schema itself: Avro or JSON Schema as JSON, Protobuf's descriptor set in base64; empty where the
            struct says all.
        struct: Spark's type of a record decoded with it, as Spark's JSON.
        incompatible: why its records can't become rows of this table; None where they can.
    """

    id: int | None = None
    text: str = ""
    struct: Any = None
    incompatible: str | None = None


class Format(_Pinned):
    """How keys or values are decoded.

    Attributes:
        converter: its name, or the user's `module:Class`.
        struct: the type that every record is brought to, as Spark's JSON: the union of the schemas' structs.
        defaults: values of fields that a record's own schema doesn't have, by field; null where none stands here.
        schemas: the writer schemas known when the interval was planned, newest first.
        as_: the one column that it becomes; None where its fields become columns.
    """

    converter: str = "json"
    options: dict[str, str] = Field(default_factory=dict)
    struct: Any = None
    defaults: dict[str, Any] = Field(default_factory=dict)
    schemas: tuple[WriterSchema, ...] = ()
    message: str | None = None
    registered: bool = False
    as_: str | None = None


class RecordPlan(_Pinned):
    """From a Kafka record to a row. The default is what intervals before this release did: JSON of the table's columns.

    Attributes:
        value: how values are decoded; its struct is None where it is the table's columns.
        key: how keys are decoded, None where nobody asks for them.
        columns: further columns by the part of the record that they hold.
    """

    value: Format = Format()
    key: Format | None = None
    columns: dict[str, Part] = Field(default_factory=dict)
    changes: Changes | None = None
    transforms: tuple[Transform, ...] = ()
    errors: Errors = Errors()
