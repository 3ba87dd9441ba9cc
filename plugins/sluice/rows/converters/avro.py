"""Avro, each record with the schema that it was written with: from a registry by id, or one given schema."""

from __future__ import annotations

import json
from typing import Any, Final

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro

from sluice.records.plan import WriterSchema
from sluice.records.structs import is_struct
from sluice.rows.converters import ConverterContext
from sluice.rows.converters.by_schema import WRAPPED, BySchema

_MARKER: Final = "_sluice_read"
_OPTIONS: Final = {
    "mode": "PERMISSIVE",
    "enableStableIdentifiersForUnionType": "true",
    "datetimeRebaseMode": "CORRECTED",  # days before 1582, and times before 1900, as Avro has them
}


class Converter(BySchema):
    """Spark's own decoder, which turns a record that it can't read into a row of nulls.

    A field that can't be null distinguishes such a row from a record. If there is none, Spark reads one field more than
    was written: Avro's schema resolution fills in its default, true, if the record could be read.
    """

    language = "Avro"

    def __init__(self) -> None:
        self._parsed: dict[str, Any] = {}  # the newest schema of each registry, by its text

    def decode(self, payload: Column, schema: WriterSchema, given: ConverterContext) -> Column:  # noqa: ARG002
        """The schema's fields, and the marker if one is needed."""
        written = _record(json.loads(schema.text))
        if _never_null(schema) is not None:
            return from_avro(payload, json.dumps(written), _OPTIONS)
        marker = {"name": _MARKER, "type": "boolean", "default": True}
        wanted = {**written, "fields": [*written["fields"], marker]}
        return from_avro(payload, json.dumps(written), {**_OPTIONS, "avroSchema": json.dumps(wanted)})

    def is_record(self, decoded: Column, schema: WriterSchema) -> Column:
        """Whether a field is there that can't be null."""
        return decoded.getField(_never_null(schema) or _MARKER).isNotNull()

    def missing(self, given: ConverterContext, schema: WriterSchema, path: tuple[str, ...]) -> Column | None:
        """The field's default, read by Avro out of a record without fields; Spark computes it once."""
        jvm: Any = given.spark._jvm
        if schema.text not in self._parsed:
            self._parsed[schema.text] = jvm.org.apache.avro.Schema.Parser().parse(schema.text)
        found = _holder(self._parsed[schema.text], path[:-1])
        field = found.getField(path[-1]) if found is not None else None
        if field is None or not field.hasDefaultValue() or _is_null(jvm, field):
            return None
        avro = jvm.org.apache.avro.Schema
        fields = jvm.java.util.ArrayList()
        fields.add(avro.Field(field, field.schema()))
        reader = avro.createRecord("defaults", None, "sluice", False, fields).toString()
        empty = json.dumps({"type": "record", "name": "sluice.defaults", "fields": []})
        made = from_avro(F.lit(bytearray()), empty, {**_OPTIONS, "avroSchema": str(reader)})
        return made.getField(path[-1])


def _never_null(schema: WriterSchema) -> str | None:
    """A field that is null only where nothing was read; the first number there is, as it is the cheapest to look at."""
    if not is_struct(schema.struct):
        return None
    always = [f for f in schema.struct["fields"] if not f["nullable"]]
    plain = [f for f in always if f["type"] in ("long", "integer", "boolean", "double", "float")]
    return next((str(f["name"]) for f in (*plain, *always)), None)


def _record(schema: Any) -> Any:
    """A schema other than a record, as a record's only field: Avro encodes both in the same bytes."""
    if isinstance(schema, dict) and schema["type"] == "record":
        return schema
    return {"type": "record", "name": "sluice_value", "fields": [{"name": WRAPPED, "type": schema}]}


def _holder(schema: Any, path: tuple[str, ...]) -> Any:
    """The record (Java's Schema) in which a path ends; None where it leads elsewhere."""
    found = schema
    for step in (*path, ""):
        found = _not_null(found)
        if found is None or not step:
            break
        kind = str(found.getType().getName())
        if kind == "record":
            field = found.getField(step)
            found = field.schema() if field is not None else None
        elif kind == "array":
            found = found.getElementType()
        else:
            found = found.getValueType() if kind == "map" else None
        if found is None:
            break
    return found if found is not None and str(found.getType().getName()) == "record" else None


def _is_null(jvm: Any, field: Any) -> bool:
    """Whether a field's default is null."""
    return bool(jvm.org.apache.avro.JsonProperties.NULL_VALUE.equals(field.defaultVal()))


def _not_null(schema: Any) -> Any:
    """A union of null and one type as that type."""
    if str(schema.getType().getName()) != "union":
        return schema
    branches = [b for b in schema.getTypes() if str(b.getType().getName()) != "null"]
    return branches[0] if len(branches) == 1 else None
