"""The check of transforms by `sluice validate`: Spark's analyzer, without Kafka, table or registry."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from itertools import chain
from typing import TYPE_CHECKING

from sluice.pipeline import Pipeline
from sluice.records.columns import incoming
from sluice.records.fits import unassignable
from sluice.records.pinning import fields_of_table, misfit
from sluice.records.plan import Format, RecordPlan
from sluice.records.structs import stored

if TYPE_CHECKING:
    from sluice.jvm.gateway import HudiJvm


class TransformCheck:
    """Checks the transforms of pipeline files, all in one JVM, which starts when there is something for it to do."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._jvm: HudiJvm | None = None

    def __enter__(self) -> TransformCheck:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def check(self, pipelines: Sequence[Pipeline]) -> bool:
        """Check the pipelines of a file whose records' fields are given in the file; whether that was all transforms.

        Raises:
            ActionRequiredError: a step is wrong, or makes a column that the table has with another type.
        """
        each = ((pipeline, *(one for _, one in pipeline.further_tables)) for pipeline in pipelines)
        whole = True
        for pipeline in chain.from_iterable(each):
            if not pipeline.transforms:
                continue
            if _fields_are_given(pipeline):
                self._check(pipeline)
            else:
                whole = False
        return whole

    def _check(self, pipeline: Pipeline) -> None:
        from sluice.jvm.catalyst import shaped
        from sluice.jvm.gateway import lean_jvm
        from sluice.jvm.schema import struct_of_avsc, struct_of_ddl

        if self._jvm is None:
            self._jvm = self._stack.enter_context(lean_jvm())
        jvm, source, sink = self._jvm, pipeline.source, pipeline.sink.options
        table = struct_of_avsc(jvm, sink.schema_file) if sink.schema_file else struct_of_ddl(jvm, sink.schema_ or "")
        plan = RecordPlan(columns=source.options.columns)
        if source.options.value.schema_ is not None:
            fields = struct_of_ddl(jvm, source.options.value.schema_, f"{source.place}.value.schema")
        else:
            fields = fields_of_table(table, plan, pipeline.transforms)
        plan = plan.model_copy(update={"value": Format(struct=fields, as_=source.options.value.as_)})
        made = shaped(jvm.jvm, incoming(plan), pipeline.transforms).columns
        conflicts = unassignable(stored(table), made) if made is not None else ()
        if conflicts:
            raise misfit(conflicts, sink.table_id)


def _fields_are_given(pipeline: Pipeline) -> bool:
    """Whether a record's fields are given in the file: neither a registry's, nor a change event's, nor a key's."""
    source = pipeline.source.options
    given = source.value.schema_ is not None or not source.value.has_schema
    return given and source.key is None and pipeline.changes is None
