"""Avro schemas as Spark's structs, by Avro's and Spark's own classes in the coordinator's JVM."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from py4j.protocol import Py4JJavaError

from sluice.records.comments import comments_of_avro, described

STABLE_UNIONS = True
"""A union's branches are named by their types (`member_int`), so that they keep their names when branches are added."""


class AvroSchemaError(ValueError):
    """A schema that can't be used; the message says why."""


def avro_type(jvm: Any, text: str, references: Sequence[str] = ()) -> tuple[str, Any]:
    """The schema with everything in it that it refers to, and Spark's type of its values, as Spark's JSON.

    The type has the fields' docs as comments; the schema has none, since records are decoded without.

    Args:
        jvm: Py4J's view of a JVM with Avro and spark-avro.
        text: the schema.
        references: schemas of the names that it uses, each after the schemas that it uses itself.

    Raises:
        AvroSchemaError: it is no Avro schema, or a column can't hold it.
    """
    parser = jvm.org.apache.avro.Schema.Parser()
    try:
        for reference in references:
            parser.parse(reference)
        schema = parser.parse(text)
        kind = jvm.org.apache.spark.sql.avro.SchemaConverters.toSqlType(schema, STABLE_UNIONS).dataType()
        whole = json.loads(str(schema.toString()))
        struct = described(json.loads(str(kind.json())), comments_of_avro(whole))
        return json.dumps(_without_docs(whole), separators=(",", ":")), struct
    except Py4JJavaError as error:
        message = str(error.java_exception.getMessage() or error.java_exception.getClass().getSimpleName())
        raise AvroSchemaError(" ".join(message.split())[:1000]) from None


def _without_docs(schema: Any) -> Any:
    """The schema without its documentation for people, which START-COMMIT need not carry."""
    if isinstance(schema, list):
        return [_without_docs(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    return {k: v if k == "default" else _without_docs(v) for k, v in schema.items() if k != "doc"}
