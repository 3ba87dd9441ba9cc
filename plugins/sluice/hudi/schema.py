"""A table's schema as Spark's DDL and as Avro, converted by Spark's and Hudi's own classes."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError

from sluice.errors import ActionRequiredError
from sluice.hudi.jvm import HudiJvm


@dataclass(frozen=True)
class TableSchema:
    """The columns as Spark DDL, with NOT NULL where the pipeline says so, and as Hudi's Avro schema, all nullable."""

    ddl: str
    avro: str
    columns: dict[str, str]


def read_schema(jvm: HudiJvm, name: str, *, ddl: str | None, avsc: Path | None) -> TableSchema:
    """Convert what the pipeline file gives.

    Raises:
        ActionRequiredError: it can't be read.
    """
    hudi, types = jvm.jvm.org.apache.hudi, jvm.jvm.org.apache.spark.sql.types
    conversions = hudi.HoodieSchemaConversionUtils
    try:
        if avsc is not None:
            given = hudi.common.schema.HoodieSchema.parse(avsc.read_text())
            struct = conversions.convertHoodieSchemaToStructType(given)
        else:
            struct = types.StructType.fromDDL(ddl)
        nullable = struct.asNullable()
        record = re.sub(r"\W", "_", name)
        avro = conversions.convertStructTypeToHoodieSchema(nullable, record, f"hoodie.{record}").toString()
    except OSError as error:
        raise ActionRequiredError(
            "The schema file can't be read.",
            next_step="correct sink.hudi.schema_file.",
            file=avsc,
            reason=error.strerror,
        ) from error
    except Py4JJavaError as error:
        raise ActionRequiredError(
            "The table's schema can't be understood.",
            next_step="correct sink.hudi.schema (Spark DDL, such as `id BIGINT, name STRING`) or the .avsc file.",
            table=name,
            file=avsc,
            reason=str(error.java_exception.getMessage()).strip().splitlines()[0],
        ) from error
    return TableSchema(str(struct.toDDL()), str(avro), columns_of(struct))


def columns_of(struct: Any) -> dict[str, str]:
    """Column names and Spark types of a StructType."""
    return {field["name"]: json.dumps(field["type"]) for field in json.loads(struct.asNullable().json())["fields"]}
