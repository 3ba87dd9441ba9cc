"""The section `sink.hudi`: the table that is written."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from sluice.sections import PRIVATE_HUDI, OneOrMore, Options, Section, TablePath, refuse_secrets, require_hoodie_names


class Hudi(Section):
    """What is written: one Hudi table."""

    path: TablePath
    """The table's base path; `${SLUICE_NAME}` and `${SLUICE_NAME:-default}` are replaced."""
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
    key_placement: Literal["checked", "trusted", "hashed"] = "checked"
    """How an upsert finds a key's rows. checked: by the Kafka partition, and every record's key must be where Kafka's
    or librdkafka's own partitioner puts it. trusted: by the Kafka partition, unchecked. hashed: by the key itself, so
    that keys may move and topics may grow; needs `buckets`, and one range."""
    buckets: Annotated[int, Field(gt=0, le=10_000)] | None = None
    """With key_placement hashed: the file groups of a table partition. A table keeps the number for life."""
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
        if (self.key_placement == "hashed") != (self.buckets is not None):
            raise ValueError("key_placement hashed and `buckets`, the number of file groups, go together")
        if self.operation == "append" and self.key_placement == "hashed":
            raise ValueError("key_placement is for operation upsert; an append looks for no key")
        require_hoodie_names(self.options)
        refuse_secrets(self.options, PRIVATE_HUDI)
        return self
