"""What a pipeline file says about records: converters, changes, transforms, and what becomes of bad ones."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, ByteSize, Field, model_validator

from sluice.sections import OneOrMore, Options, Section, TablePath

CONVERTERS = ("json", "avro", "protobuf", "json_schema", "string", "bytes", "csv")
"""The converters that come with Sluice. Any other is a class of the user's own, as `module:Class`."""
_NEED_A_SCHEMA = ("avro", "protobuf", "json_schema")
_ONE_VALUE = {"string": "STRING", "bytes": "BINARY"}
Part = Literal["topic", "partition", "offset", "timestamp", "timestamp_type", "headers", "key"]
"""A part of a Kafka record beside its value, as a column. `key` is the bytes as they are; `timestamp` a TIMESTAMP."""


def _known_or_own(name: str) -> str:
    if name not in CONVERTERS and ":" not in name:
        raise ValueError(f"there is {', '.join(CONVERTERS)}, or a class of your own as `module:Class`")
    return name


class Converter(Section):
    """How the bytes of a record's key or value are read."""

    converter: Annotated[str, AfterValidator(_known_or_own)] = "json"
    """json, avro, protobuf, json_schema, string, bytes, csv, or a class of your own as `module:Class`."""
    registry: str | None = None
    """Id of the Airflow connection of type http to a schema registry; the bytes are in Confluent's wire format then."""
    subject: str | None = None
    """The registry's subject; `<topic>-key` or `<topic>-value` by default."""
    schema_: Annotated[str | None, Field(alias="schema")] = None
    """The fields as Spark DDL, where they aren't the table's columns."""
    schema_file: Path | None = None
    """A file with the schema, relative to the pipeline file: .avsc for avro, a descriptor set for protobuf."""
    message: str | None = None
    """The full name of the Protobuf message."""
    as_: Annotated[str | None, Field(alias="as")] = None
    """The name of the one column that it becomes. Without it, a struct's fields become columns."""
    options: Options = Field(default_factory=dict)
    """Options of the converter, such as CSV's `sep`."""

    @property
    def has_schema(self) -> bool:
        """Whether the fields are known without the table's columns."""
        return bool(self.registry or self.schema_ or self.schema_file) or self.converter in _ONE_VALUE

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        given = [n for n, v in (("registry", self.registry), ("schema_file", self.schema_file)) if v is not None]
        if self.schema_ is not None and (given or self.converter in (*_NEED_A_SCHEMA, *_ONE_VALUE)):
            named = given[0] if given else f"converter {self.converter}"
            raise ValueError(f"`schema` says the fields, and so does {named}: leave one of them out")
        if self.message is not None and self.converter != "protobuf":
            raise ValueError("`message` is for converter protobuf")
        if self.converter in _NEED_A_SCHEMA and len(given) != 1:
            raise ValueError(f"converter {self.converter} needs a `registry` or a `schema_file`, and not both")
        if self.registry is not None and self.converter not in _NEED_A_SCHEMA:
            raise ValueError(f"a `registry` is for {', '.join(_NEED_A_SCHEMA)}, not for {self.converter}")
        if self.subject is not None and self.registry is None:
            raise ValueError("`subject` is a name in a `registry`: name its connection")
        if self.converter in _ONE_VALUE and self.as_ is None:
            raise ValueError(f"converter {self.converter} makes one column: name it by `as`")
        return self


class Flatten(Section):
    """Nested fields become columns."""

    separator: str = "_"
    """Stands between a struct's name and its field's."""
    columns: OneOrMore = ()
    """The structs to flatten; all of them if none is named."""


class Mask(Section):
    """Values are made unreadable."""

    columns: Annotated[OneOrMore, Field(min_length=1)]
    """Whose values."""
    with_: Annotated[Literal["hash", "null", "text"], Field(alias="with")] = "hash"
    """hash: SHA-256 in hex, so that equal values stay equal. null. text: every value is `text`."""
    text: str = "***"
    """What stands there instead, with `with: text`."""


class Route(Section):
    """Takes the records of one table out of a topic that holds those of several; `routes` makes these steps."""

    by: str
    """A column, or an expression, whose value says which table a record belongs to."""
    is_: Annotated[str, Field(alias="is")]
    """Its value for this table."""
    others: tuple[str, ...] = ()
    """Its values for the other tables."""
    otherwise: Literal["fail", "take", "ignore"] = "ignore"
    """A record with any other value: a bad record, one of this table, or one that is left out."""


class Transform(Section):
    """One step that shapes rows; exactly one key. Expressions are Spark SQL."""

    filter: str | None = None
    """Rows for which this isn't true are left out, and counted."""
    select: Annotated[tuple[str, ...] | None, Field(min_length=1)] = None
    """The columns from here on: names or expressions `a + 1 AS b`."""
    set_: Annotated[dict[str, str] | None, Field(alias="set")] = None
    """Computed columns, by name; one that is there is replaced."""
    rename: dict[str, str] | None = None
    """New names by old ones."""
    cast: dict[str, str] | None = None
    """New types by column. A value that doesn't fit makes its record a bad one."""
    drop: OneOrMore | None = None
    """Columns that are left out."""
    flatten: Flatten | None = None
    mask: Mask | None = None
    route: Route | None = None
    python: Annotated[str | None, Field(pattern=r"^[\w.]+:\w+$")] = None
    """A function of yours as `module:function`: DataFrame in, DataFrame out, at most one row for each row."""

    @property
    def kind(self) -> str:
        """Which of the keys it has."""
        return next(name for name in type(self).model_fields if getattr(self, name) is not None)

    @model_validator(mode="after")
    def _one_key(self) -> Self:
        if len([name for name in type(self).model_fields if getattr(self, name) is not None]) != 1:
            raise ValueError("a step has exactly one key, such as `filter:` or `rename:`; write several steps")
        return self


class Changes(Section):
    """Records that change or delete rows, for upsert tables."""

    format: Literal["debezium", "tombstones"]
    """debezium: change events of MySQL or PostgreSQL. tombstones: a record without a value deletes its key's row."""
    delete: Literal["hard", "soft"] = "hard"
    """hard: the row goes. soft: it stays, with true in its column `_deleted`."""
    truncate: Literal["fail", "ignore", "apply"] = "fail"
    """What a truncate event does: stop the interval, nothing, or delete the rows that were there."""
    unavailable_value: Annotated[str, Field(min_length=1)] = "__debezium_unavailable_value"
    """The connector's `unavailable.value.placeholder`: it stands for a value that the database didn't log."""


class Errors(Section):
    """What becomes of records that can't be loaded."""

    tolerance: Literal["none", "all"] = "none"
    """none: the first one stops the interval. all: they are set aside in the quarantine, and counted."""
    max_records: Annotated[int, Field(ge=0)] | None = None
    """The most bad records of one interval; more stop it."""
    max_rate: Annotated[float, Field(ge=0, lt=1)] | None = None
    """The largest part of an interval's records that may be bad, such as 0.01; more stop it."""
    max_record_bytes: ByteSize | None = None
    """A record with a larger key or value, such as `10 MiB`, is a bad one, and isn't decoded."""
    quarantine: TablePath | None = None
    """Base path of the Hudi table that holds them; the table's own with `_quarantine` after it by default."""
    dead_letter_topic: str | None = None
    """A topic of the source's cluster to which they are also sent, once the interval is committed."""

    @model_validator(mode="after")
    def _limits_need_tolerance(self) -> Self:
        for name in ("max_records", "max_rate", "quarantine", "dead_letter_topic"):
            if self.tolerance == "none" and getattr(self, name) is not None:
                raise ValueError(f"`{name}` is for `tolerance: all`; with none the first bad record stops the interval")
        return self
