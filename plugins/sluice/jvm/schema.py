"""A table's schema as Spark's type, its DDL and Avro, converted by Spark's and Hudi's own classes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError

from sluice.errors import ActionRequiredError
from sluice.jvm.gateway import HudiJvm
from sluice.records.comments import comments_of, comments_of_avro, described, documented, undescribed
from sluice.records.plain import plain_avro, plain_ddl, plain_struct
from sluice.records.structs import Type, without

_META_COLUMN = "_hoodie_"


@dataclass(frozen=True)
class TableSchema:
    """The columns as Spark DDL, with NOT NULL where the pipeline says so, and as Hudi's Avro schema, all nullable.

    Comments are in the Avro schema alone: a sink that can't hold them sees no change where only a comment has changed,
    and Spark writes a backslash of a comment into DDL that it can't read back.
    """

    ddl: str
    avro: str


@contextmanager
def _understood(what: str, next_step: str, **where: Any) -> Iterator[None]:
    try:
        yield
    except Py4JJavaError as error:
        reason = str(error.java_exception.getMessage()).strip().splitlines()[0]
        raise ActionRequiredError(
            f"{what} can't be understood.", next_step=next_step, **where, reason=reason
        ) from error


def struct_of_ddl(jvm: HudiJvm, ddl: str, key: str = "the sink's `schema`") -> Type:
    """Spark's type of DDL in a pipeline file, under `key`.

    Raises:
        ActionRequiredError: it isn't DDL.
    """
    plain = plain_struct(ddl)
    if plain is not None:
        return plain
    with _understood("A schema", f"correct {key}: Spark DDL, such as `id BIGINT, name STRING`.", ddl=ddl[:500]):
        return json.loads(jvm.jvm.org.apache.spark.sql.types.StructType.fromDDL(ddl).json())


def struct_of_avsc(jvm: HudiJvm, file: Path, key: str = "the sink's `schema_file`") -> Type:
    """Spark's type of a table's columns in an .avsc file.

    Raises:
        ActionRequiredError: it can't be read.
    """
    try:
        text = file.read_text()
    except OSError as error:
        raise ActionRequiredError(
            "The schema file can't be read.", next_step=f"correct {key}.", file=file, reason=error.strerror
        ) from error
    with _understood("The schema file", f"correct {key}, an Avro record.", file=file):
        return struct_of_hoodie(jvm, jvm.jvm.org.apache.hudi.common.schema.HoodieSchema.parse(text))


def struct_of_hoodie(jvm: HudiJvm, schema: Any) -> Type:
    """Spark's type of one of Hudi's schemas, without its meta columns.

    Its comments come from the schema itself: Hudi keeps types by schemas that it compares without docs, so a JVM that
    has seen other docs would have these (Hudi 1.2.0).
    """
    struct = jvm.jvm.org.apache.hudi.HoodieSchemaConversionUtils.convertHoodieSchemaToStructType(schema)
    comments = comments_of_avro(json.loads(str(schema.toString())))
    found = described(undescribed(json.loads(struct.json())), comments)
    return without(found, [f["name"] for f in found["fields"] if f["name"].startswith(_META_COLUMN)])


def table_schema(jvm: HudiJvm, name: str, struct: Type) -> TableSchema:
    """What START-COMMIT pins of a table's columns.

    Raises:
        ActionRequiredError: Hudi can't hold one of the types.
    """
    comments = comments_of(struct)
    made = _table_schema(jvm, name, undescribed(struct))
    if not comments:
        return made
    documents = documented(json.loads(made.avro), comments)
    return TableSchema(made.ddl, json.dumps(documents, separators=(",", ":")))


def _table_schema(jvm: HudiJvm, name: str, struct: Type) -> TableSchema:
    record = re.sub(r"\W", "_", name)
    ddl, avro = plain_ddl(struct), plain_avro(struct, record)
    if ddl is not None and avro is not None:
        return TableSchema(ddl, avro)
    with _understood("The table's schema", "give its columns other types in the sink's `schema`.", table=name):
        spark = jvm.jvm.org.apache.spark.sql.types.DataType.fromJson(json.dumps(struct))
        conversions = jvm.jvm.org.apache.hudi.HoodieSchemaConversionUtils
        made = conversions.convertStructTypeToHoodieSchema(spark.asNullable(), record, f"hoodie.{record}").toString()
        return TableSchema(str(spark.toDDL()), str(made))
