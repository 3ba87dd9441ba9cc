"""Protobuf messages: of a registry by schema id and message, or of a given descriptor set."""

from __future__ import annotations

from base64 import b64decode
from typing import Any, Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from sluice.records.plan import WriterSchema
from sluice.rows.converters import ConverterContext
from sluice.rows.converters.by_schema import HEADER, BySchema, Variant, starts_with
from sluice.rows.files import on_every_machine
from sluice.schemas.registry.protobuf import MARKER, message_prefixes, top_level_name

_OPTIONS: Final = {"mode": "PERMISSIVE"}


class Converter(BySchema):
    """Spark's own decoder, with descriptors that preserve more data: see `registry/protobuf.py`."""

    language = "Protobuf"

    def variants(self, schema: WriterSchema, given: ConverterContext) -> list[Variant]:
        """After the schema's id the message's indexes in its file; the first message's have two encodings."""
        whole = super().variants(schema, given)
        if not given.registered:
            return whole
        return [Variant(v.schema, v.prefix + place) for v in whole for place in message_prefixes(schema.indexes)]

    def decode(self, payload: Column, schema: WriterSchema, given: ConverterContext) -> Column:
        """The message's fields, and the marker."""
        return self._from_protobuf(payload, schema, given)

    def is_record(self, decoded: Column, schema: WriterSchema) -> Column:  # noqa: ARG002
        """Whether the marker is there."""
        return decoded.getField(MARKER).isNotNull()

    def missing(self, given: ConverterContext, schema: WriterSchema, path: tuple[str, ...]) -> Column | None:
        """The newest schema's value of a field missing in a message: its zero, empty, or null."""
        name = self._message_at(schema, given, path[:-1])
        if name is None:
            return None
        holder = schema.model_copy(update={"message": name})
        return self._from_protobuf(F.lit(bytearray()), holder, given).getField(path[-1])

    @staticmethod
    def _message_at(schema: WriterSchema, given: ConverterContext, path: tuple[str, ...]) -> str | None:
        """The full name of the message in which a path ends; None where it leads elsewhere."""
        jvm: Any = given.spark._jvm
        file = jvm.scala.Option.apply(on_every_machine(given.spark, b64decode(schema.text), "desc"))
        found = jvm.org.apache.spark.sql.protobuf.utils.ProtobufUtils.buildDescriptor(
            top_level_name(str(schema.message)), file
        )
        for step in path:
            if step == "[]":  # a repeated field's type is its elements'
                continue
            field = found.findFieldByName("value" if step == "{}" else step)
            if field is None or str(field.getJavaType().toString()) != "MESSAGE":
                return None
            found = field.getMessageType()
        return str(found.getFullName()) if path else schema.message

    def other_reason(self, data: Column, schema: WriterSchema, given: ConverterContext, words: str) -> Column:
        """A message of another type."""
        ours = [starts_with(data, variant.prefix) for variant in self.variants(schema, given)]
        named = ours[0] if len(ours) == 1 else ours[0] | ours[1]
        other = f"the {given.name} is another message of schema {schema.id} than {schema.message}: it starts with "
        place = F.hex(F.substring(data, HEADER + 1, 4))
        return F.when(named | F.lit(schema.incompatible is not None), words).otherwise(F.concat(F.lit(other), place))

    @staticmethod
    def _from_protobuf(payload: Column, schema: WriterSchema, given: ConverterContext) -> Column:
        jvm: Any = given.spark._jvm
        path = on_every_machine(given.spark, b64decode(schema.text), "desc")
        functions = jvm.org.apache.spark.sql.protobuf.functions
        return Column(functions.from_protobuf(payload._jc, top_level_name(str(schema.message)), path, _OPTIONS))
