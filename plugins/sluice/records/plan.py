"""What START-COMMIT pins about records, so that every range of the interval reads and shapes them in the same way."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeVar

from pydantic import (
    BeforeValidator,
    Field,
    PlainSerializer,
    SerializerFunctionWrapHandler,
    model_serializer,
)

from sluice.packed import pack, unpack
from sluice.records.settings import Changes, Errors, Part, Transform
from sluice.untrusted import Untrusted, json_of

_READABLE = 50_000  # characters of schemas that are put into START-COMMIT unpacked
_PACKED = "xz"


class WriterSchema(Untrusted):
    """A schema with which records were written.

    Attributes:
        id: its id in the registry; None where there is no registry.
        text: the schema itself: Avro or JSON Schema as JSON, Protobuf's descriptor set in base64; empty where the
            struct is enough.
        struct: Spark's type of a record decoded with it, as Spark's JSON.
        parsed: the type that Spark's parser produces first, if that is another one: for Connect's logical types in
            JSON, Protobuf's unsigned numbers.
        message: the Protobuf message's full name.
        indexes: that message's indexes in its file.
        versions: the subjects and versions under which the registry has it.
        digest: of the registry's answer, by which the next interval detects changes; None if pinned by an earlier
            release.
        incompatible: why its records can't become rows of this table; None where they can.
    """

    id: int | None = None
    text: str = ""
    struct: Any = None
    parsed: Any = None
    message: str | None = None
    indexes: tuple[int, ...] = ()
    versions: tuple[tuple[str, int], ...] = ()
    digest: str | None = None
    incompatible: str | None = None


class ClusterSchemas(Untrusted):
    """The schemas of one registry, by which the records of some clusters are decoded, and no others.

    Attributes:
        clusters: the clusters' names in the interval's ranges.
        connection: id of the Airflow connection to the registry.
        registry: the registry's address. Registries of several environments may have one; the connection says which.
        schemas: the writer schemas known when the interval was planned, newest first.
    """

    clusters: tuple[str, ...]
    connection: str
    registry: str
    schemas: tuple[WriterSchema, ...] = ()


def _packed(models: Sequence[Untrusted]) -> Any:
    """Many versions of a large schema would pass the broker's message limit; packed, they take a hundredth."""
    plain = [model.model_dump(mode="json", exclude_none=True) for model in models]
    text = json.dumps(plain)
    return plain if len(text) <= _READABLE else {_PACKED: b64encode(pack(text.encode())).decode()}


def _unpacked(said: Any) -> Any:
    """Raises ValueError where it isn't packed as it says, or would unpack to more than a message may hold."""
    return json_of(unpack(b64decode(said[_PACKED]))) if isinstance(said, dict) else said


_Model = TypeVar("_Model", bound=Untrusted)
_PackedWhereLarge = Annotated[
    tuple[_Model, ...], BeforeValidator(_unpacked), PlainSerializer(_packed, when_used="json")
]


class Format(Untrusted):
    """How keys or values are decoded.

    Attributes:
        converter: its name, or the user's `module:Class`.
        struct: the type that every record is brought to, as Spark's JSON: the union of the schemas' structs.
        schemas: the writer schemas known when the interval was planned, newest first. Fields that a record's own schema
            doesn't have are the newest one's defaults, or null.
        registry: the registry that knows their ids, as its address; None where the bytes are not in its wire format.
        by_cluster: in place of `schemas` and `registry`, where clusters have several registries: an id means a schema
            in one of them alone.
        as_: the one column that it becomes; None where its fields become columns.
    """

    converter: str = "json"
    options: dict[str, str] = Field(default_factory=dict)
    struct: Any = None
    schemas: _PackedWhereLarge[WriterSchema] = ()
    message: str | None = None
    registry: str | None = None
    by_cluster: _PackedWhereLarge[ClusterSchemas] = ()
    as_: str | None = None

    @model_serializer(mode="wrap")
    def _without_what_is_not_said(self, plain: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Where all clusters have the pipeline's registry, it is written as before there were others."""
        said: dict[str, Any] = plain(self)
        return said if self.by_cluster else {name: value for name, value in said.items() if name != "by_cluster"}

    @property
    def registered(self) -> bool:
        """Whether the bytes are in a registry's wire format."""
        return self.registry is not None or bool(self.by_cluster)

    def under_names(self, now: Mapping[str, str]) -> Format:
        """The same, for records with the clusters' names of another time.

        Args:
            now: by the clusters' names in those records the names that they have here.
        """
        renamed = tuple(
            of.model_copy(update={"clusters": tuple(then for then, here in now.items() if here in of.clusters)})
            for of in self.by_cluster
        )
        return self.model_copy(update={"by_cluster": renamed})


class RecordPlan(Untrusted):
    """From a Kafka record to a row. The default is the behaviour of earlier releases: JSON of the table's columns.

    Attributes:
        value: how values are decoded; its struct is None where it is the table's columns.
        key: how keys are decoded, None if they aren't used.
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

    def reading(self, options: Mapping[str, str]) -> RecordPlan:
        """The same, with more options of its values."""
        if not options:
            return self
        value = self.value.model_copy(update={"options": {**self.value.options, **options}})
        return self.model_copy(update={"value": value})

    def under_names(self, now: Mapping[str, str]) -> RecordPlan:
        """The same, for records with the clusters' names of another time; see `Format`."""
        key = self.key.under_names(now) if self.key is not None else None
        return self.model_copy(update={"value": self.value.under_names(now), "key": key})
