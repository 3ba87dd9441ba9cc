"""The settings of the quarantine: a Hudi table beside the pipeline's."""

from __future__ import annotations

from sluice.protocol.messages import TableSpec
from sluice.protocol.quarantine import PARTITION_FIELD, SCHEMA, quarantine_path
from sluice.records.settings import Errors
from sluice.sinks.hudi.options import TABLE_TYPES

_KEPT_OPTIONS = ("hoodie.write.table.version",)


def quarantine_writer(table: TableSpec, errors: Errors, avro: str) -> TableSpec:
    """The settings for writing a table's bad records.

    Args:
        table: the settings for the table's rows.
        errors: the pipeline's `errors` section.
        avro: `SCHEMA` as Hudi's Avro.
    """
    return TableSpec(
        path=quarantine_path(table.path, errors),
        name=f"{table.name}_quarantine",
        table_type=TABLE_TYPES["append"],
        operation="append",
        record_key=(),
        partition_fields=(PARTITION_FIELD,),
        ordering_fields=(),
        schema_ddl=SCHEMA,
        schema_avro=avro,
        options={name: table.options[name] for name in _KEPT_OPTIONS if name in table.options},
    )
