"""The schemas with which records were written, as far as they are known when an interval is planned."""

from __future__ import annotations

from collections.abc import Sequence

from sluice.errors import ActionRequiredError
from sluice.hudi.jvm import HudiJvm
from sluice.hudi.schema import struct_of_ddl
from sluice.records.plan import WriterSchema
from sluice.records.settings import Converter

_ONE_VALUE = {"string": "string", "bytes": "binary"}


def writer_schemas(
    jvm: HudiJvm, converter: Converter, key: str, subjects: Sequence[str], known: Sequence[WriterSchema]
) -> tuple[WriterSchema, ...]:
    """The schemas of a key's or value's converter, newest first; none where the table's columns are the fields.

    Args:
        jvm: the coordinator's JVM.
        converter: what the pipeline file says.
        key: where it says so, for errors: `source.kafka.value`.
        subjects: the registry's subjects, one for each topic.
        known: those that the table's last START pinned; the registry isn't asked for them again.

    Raises:
        ActionRequiredError: a schema can't be read, or the registry knows no such subject.
        RetryableError: the registry doesn't answer.
    """
    if converter.schema_ is not None:
        return (WriterSchema(struct=struct_of_ddl(jvm, converter.schema_, f"{key}.schema")),)
    if converter.converter in _ONE_VALUE:
        return (WriterSchema(struct=_ONE_VALUE[converter.converter]),)
    if not converter.has_schema:
        return ()
    raise ActionRequiredError(
        f"Converter {converter.converter} isn't there yet.",
        next_step=f"choose another one in {key}.",
        subjects=subjects,
        known=len(known),
    )
