"""The sections for records: converters, changes, transforms, and the handling of bad records."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, ByteSize, Field, model_validator

from sluice.records.changes import DELETED, POSITION
from sluice.sections import OneOrMore, Options, Section, TablePath

NUMBERS = {"short": "short", "integer": "integer", "long": "long", "float": "float", "double": "double"}
"""Converters of one number, and the type of its column, as Spark's JSON names it."""
ONE_VALUE = {"string": "string", "bytes": "binary", **NUMBERS}
"""Converters that make one column, and its type."""
CONVERTERS = ("json", "avro", "protobuf", "json_schema", "string", "bytes", "csv", *NUMBERS)
"""The built-in converters. Any other converter is a user's class, as `module:Class`."""
_NEED_A_SCHEMA = ("avro", "protobuf", "json_schema")
REST = "rest"
"""The option of converter json that names the column of all fields that no other column has."""
Part = Literal["cluster", "topic", "partition", "offset", "timestamp", "timestamp_type", "headers", "key", "value"]
"""A part of a Kafka record that can fill a column. `key` and `value` hold the raw bytes; `timestamp` is a TIMESTAMP;
`cluster` is the cluster's name in the mapping of `streams`."""


def _known_or_own(name: str) -> str:
    if name not in CONVERTERS and ":" not in name:
        raise ValueError(f"there is {', '.join(CONVERTERS)}, or a class of your own as `module:Class`")
    return name


class Converter(Section):
    """How the bytes of a record's key or value are decoded."""

    converter: Annotated[str, AfterValidator(_known_or_own)] = "json"
    """json, avro, protobuf, json_schema, string, bytes, csv, a number (short, integer, long, float, double), or a class
    of your own as `module:Class`."""
    registry: str | None = None
    """Id of the Airflow connection of type http to a schema registry. Requires Confluent's wire format."""
    subject: str | None = None
    """The subject in the registry. Default: `<topic>-key` or `<topic>-value`."""
    schema_: Annotated[str | None, Field(alias="schema")] = None
    """The record's fields as Spark DDL, if they differ from the table's columns."""
    schema_file: Path | None = None
    """A file with the schema, relative to the pipeline file: .avsc for avro, a descriptor set for protobuf."""
    message: str | None = None
    """The full name of the Protobuf message."""
    as_: Annotated[str | None, Field(alias="as")] = None
    """The name of the single column that holds the result. Without it, each field becomes a column."""
    options: Options = Field(default_factory=dict)
    """Options of the converter, such as CSV's `sep`."""

    @property
    def has_schema(self) -> bool:
        """Whether the fields are known without the table's columns."""
        return bool(self.registry or self.schema_ or self.schema_file) or self.converter in ONE_VALUE

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        given = [n for n, v in (("registry", self.registry), ("schema_file", self.schema_file)) if v is not None]
        if self.schema_ is not None and (given or self.converter in (*_NEED_A_SCHEMA, *ONE_VALUE)):
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
        if REST in self.options and (self.converter != "json" or "schemas.enable" in self.options):
            raise ValueError(f"the option `{REST}` is for converter json, for objects without an envelope")
        if self.converter in ONE_VALUE and self.as_ is None:
            raise ValueError(f"converter {self.converter} makes one column: name it by `as`")
        return self


class Flatten(Section):
    """Turn nested fields into columns."""

    separator: str = "_"
    """The text between a struct's name and its field's name."""
    columns: OneOrMore = ()
    """The structs to flatten. Default: all."""


class Mask(Section):
    """Replace values so that they can't be read."""

    columns: Annotated[OneOrMore, Field(min_length=1)]
    """The columns to mask."""
    with_: Annotated[Literal["hash", "null", "text"], Field(alias="with")] = "hash"
    """hash: SHA-256 in hex, so equal values stay equal. null: NULL. text: the value of `text`."""
    text: str = "***"
    """The replacement for every value, with `with: text`."""


class Route(Section):
    """Select one table's records from a topic with records of several tables. `routes` generates these steps."""

    by: str
    """A column or Spark SQL expression whose value determines the record's table."""
    is_: Annotated[str, Field(alias="is")]
    """The value for this table."""
    others: tuple[str, ...] = ()
    """The values for the other tables."""
    otherwise: Literal["fail", "take", "ignore"] = "ignore"
    """What to do with any other value: fail makes a bad record, take loads it into this table, ignore skips it."""


class Transform(Section):
    """One transform step, with exactly one key. Expressions are Spark SQL."""

    filter: str | None = None
    """Keep the rows for which this expression is true; the others are skipped and counted."""
    select: Annotated[tuple[str, ...] | None, Field(min_length=1)] = None
    """The columns to keep: names, or expressions such as `a + 1 AS b`."""
    set_: Annotated[dict[str, str] | None, Field(alias="set")] = None
    """Computed columns, as {name: expression}. An existing column is replaced."""
    rename: dict[str, str] | None = None
    """Columns to rename, as {old name: new name}."""
    cast: dict[str, str] | None = None
    """Columns to cast, as {column: type}. A record whose value doesn't fit is a bad record."""
    drop: OneOrMore | None = None
    """Columns to remove."""
    flatten: Flatten | None = None
    mask: Mask | None = None
    route: Route | None = None
    python: Annotated[str | None, Field(pattern=r"^[\w.]+:\w+$")] = None
    """Your function, as `module:function`. It takes and returns a DataFrame, with at most one row per input row."""

    @property
    def kind(self) -> str:
        """The name of the step's key."""
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
    """hard: remove the row. soft: keep the row and set its column `_deleted` to true."""
    truncate: Literal["fail", "ignore", "apply"] = "fail"
    """What to do at a truncate event. fail: stop the interval. ignore: skip it. apply: delete the earlier rows."""
    unavailable_value: Annotated[str, Field(min_length=1)] = "__debezium_unavailable_value"
    """The connector's `unavailable.value.placeholder`: it marks a value that the database didn't log."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns that `changes` adds to the table, which neither records nor steps may have."""
        return (POSITION, DELETED) if self.delete == "soft" else (POSITION,)


class Errors(Section):
    """How to handle records that can't be loaded."""

    tolerance: Literal["none", "all"] = "none"
    """none: the first bad record stops the interval. all: bad records go to the quarantine and are counted."""
    max_records: Annotated[int, Field(ge=0)] | None = None
    """The maximum number of bad records per interval. More stop the interval."""
    max_rate: Annotated[float, Field(ge=0, lt=1)] | None = None
    """The maximum fraction of bad records per interval, such as 0.01. More stop the interval."""
    max_record_bytes: ByteSize | None = None
    """The maximum size of a key or value, such as `10 MiB`. A larger record is bad and isn't decoded."""
    quarantine: TablePath | None = None
    """The path of what holds bad records, jdbc://<connection>/<table> or kafka://<connection>/<log>. Default: the
    table's, with `_quarantine` appended."""
    dead_letter_topic: str | None = None
    """A topic that also receives bad records, after the interval is committed: on the cluster that they are from."""
    dead_letter_connection: str | None = None
    """Id of the Airflow connection of type kafka to the cluster of that topic, if it is another one."""

    @model_validator(mode="after")
    def _limits_need_tolerance(self) -> Self:
        for name in ("max_records", "max_rate", "quarantine", "dead_letter_topic"):
            if self.tolerance == "none" and getattr(self, name) is not None:
                raise ValueError(f"`{name}` is for `tolerance: all`; with none the first bad record stops the interval")
        if self.dead_letter_connection is not None and self.dead_letter_topic is None:
            raise ValueError("`dead_letter_connection` says where the `dead_letter_topic` is: name the topic, too")
        return self
