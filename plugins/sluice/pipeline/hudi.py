"""The section `sink.hudi`: the table that is written."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from sluice.sections import OneOrMore, Options, Section, TablePath, require_hoodie_names


class Hudi(Section):
    """What is written: one Hudi table."""

    path: TablePath
    """The table's base path; `${VARIABLE}` and `${VARIABLE:-default}` are replaced."""
    table: str | None = None
    """The table's name; the pipeline's by default."""
    operation: Literal["append", "upsert"] = "append"
    """append: copy on write, every record is a row. upsert: merge on read, the last version of a key is the row."""
    record_key: OneOrMore = ()
    """The record key's columns; needed for upsert."""
    partition_fields: OneOrMore = ()
    """The columns by whose values the table is partitioned."""
    ordering_field: OneOrMore = ()
    """The columns by which the larger version of a key wins; without it the one that came last."""
    schema_: Annotated[str | None, Field(alias="schema")] = None
    """The columns as Spark DDL: `id BIGINT NOT NULL, name STRING`; needed unless the records have a schema of their own
    and become rows as they are."""
    schema_file: Path | None = None
    """Or a file with an Avro schema (.avsc), relative to the pipeline file."""
    options: Options = Field(default_factory=dict)
    """Any `hoodie.*` option."""

    @model_validator(mode="after")
    def _consistent(self) -> Hudi:
        if self.schema_ is not None and self.schema_file is not None:
            raise ValueError("give the columns either as `schema` (Spark DDL) or as `schema_file` (.avsc)")
        if self.operation == "upsert" and not self.record_key:
            raise ValueError("operation upsert needs `record_key`: the columns that tell one row from another")
        require_hoodie_names(self.options)
        return self
