"""Pins how an interval's records become rows: converters with their schemas, and the table's columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from sluice.connectors.registry import load
from sluice.connectors.sink import Pinned
from sluice.connectors.source import RowSchema
from sluice.errors import ActionRequiredError, SluiceError
from sluice.jvm.catalyst import shaped
from sluice.jvm.gateway import HudiJvm
from sluice.jvm.schema import struct_of_avsc, struct_of_ddl, table_schema
from sluice.logs import log
from sluice.pipeline.model import Pipeline
from sluice.protocol.mapping import ClusterTopics, topics_of
from sluice.protocol.messages import TableSpec
from sluice.records.changes import NotAnEnvelopeError, envelope_of, keys_missing_in_tombstones
from sluice.records.columns import incoming
from sluice.records.fits import unassignable, unholdable
from sluice.records.pinning import (
    fields_of_key,
    fields_of_table,
    misfit,
    not_a_rest,
    of_other_types,
    part_of_table,
    pinned_by_cluster,
    pinned_format,
    read_without_comments,
    rows_in_values,
    rows_of,
    still_known,
    taken,
    twice,
    value_schemas,
)
from sluice.records.plan import ClusterSchemas, Format, RecordPlan, WriterSchema
from sluice.records.settings import Converter
from sluice.records.structs import Type, field, in_words, is_struct, names, struct
from sluice.schemas.registry.config import NoSubjectsError, Registries, RegistrySettings, refuse_one_for_several
from sluice.schemas.writer_schemas import writer_schemas


class PinnedTable(Protocol):
    """A table's settings and the type of its rows, None before the first commit."""

    writer: TableSpec
    columns: Type | None

    @property
    def jvm(self) -> HudiJvm:
        """The JVM of the open table."""
        ...


@dataclass(frozen=True)
class _Asked:
    """A registry to query for a converter's schemas.

    Attributes:
        connection: id of the Airflow connection.
        settings: its client's.
        topics: the topics of its schemas.
        clusters: the clusters of these topics; empty for all, where none has its own registry.
    """

    connection: str
    settings: RegistrySettings
    topics: tuple[str, ...]
    clusters: tuple[str, ...] = ()


class RecordPinner:
    """Pins one pipeline's records.

    Args:
        pipeline: the records' pipeline.
        clusters: the topics read from each cluster.
        registries: the schema registries' settings, by their connections' ids.
    """

    def __init__(self, pipeline: Pipeline, clusters: Sequence[ClusterTopics], registries: Registries) -> None:
        self._pipeline = pipeline
        self._topics = topics_of(clusters)
        self._registries = registries
        self._clusters = clusters
        self._table_id = pipeline.table_id
        self._source, self._sink = pipeline.source.place, pipeline.sink.place

    def pin(self, table: PinnedTable, last: RecordPlan | None) -> Pinned:
        """How the next interval's records are read, and how its rows are written.

        To be asked after the log ends were read: a producer registers a schema before it sends a record with it, so the
        registry then knows the schemas of all records below those ends.

        Args:
            table: the table, whose last commit has its columns.
            last: the settings pinned by the table's last START, None if no longer known.

        Raises:
            ActionRequiredError: a schema can't be read, or the rows don't fit the table.
            RetryableError: the registry doesn't answer.
        """
        given = self._given(table.jvm)
        plan = self._plan(table, given, last or RecordPlan())
        self._require_own_columns(given, incoming(plan))
        rows = rows_of(table.columns, given, plan)
        plan = read_without_comments(plan)
        if rows.conflicts or rows.left_out:
            raise ActionRequiredError(
                "The pipeline's schema doesn't fit the table's.",
                next_step="name every column of the table with a type that holds the table's, and inside of structs, "
                "arrays and maps with the table's own; columns and fields may be added.",
                table=self._table_id,
                missing_in_pipeline=list(rows.left_out) or None,
                changed=[
                    f"{c.field}: {c.known} in the table, {c.new} in the pipeline{c.because}" for c in rows.conflicts
                ]
                or None,
            )
        self._require_columns(rows.columns)
        self._require_holdable(rows.columns)
        made: Type | None = incoming(plan)
        if plan.transforms:
            made = shaped(table.jvm.jvm, made, plan.transforms).columns
        if made is not None:
            self._require_own_columns(None, made)
            self._require_fit(rows.columns, made)
        schema = table_schema(table.jvm, self._pipeline.table_name, rows.columns)
        writer = table.writer.model_copy(update={"schema_ddl": schema.ddl, "schema_avro": schema.avro})
        return Pinned(plan, writer)

    def _given(self, jvm: HudiJvm) -> Type | None:
        sink = self._pipeline.sink.options
        if sink.schema_file is not None:
            return struct_of_avsc(jvm, sink.schema_file)
        return struct_of_ddl(jvm, sink.schema_) if sink.schema_ is not None else None

    def _plan(self, table: PinnedTable, given: Type | None, last: RecordPlan) -> RecordPlan:
        source = self._pipeline.source.options
        changes = self._pipeline.changes
        base = table.columns if given is None else None
        key = None
        if source.key is not None:
            key = self._format(table.jvm, source.key, f"{self._source}.key", last.key, base)
            if key.struct is None and given is not None:
                fields = fields_of_key(given, changes, table.writer.record_key, table.writer.partition_fields)
                key = key.model_copy(update={"struct": fields})
            if key.struct is None or (changes is not None and is_struct(key.struct) and not names(key.struct)):
                raise ActionRequiredError(
                    "Nothing says which fields a key has.",
                    next_step=f"give {self._source}.key a `schema` (Spark DDL), or name the table's columns in "
                    f"{self._sink}.schema.",
                    table=self._table_id,
                )
        plan = RecordPlan(
            key=key,
            columns=source.columns,
            changes=changes,
            transforms=self._pipeline.transforms,
            errors=self._pipeline.errors,
        )
        value = self._format(
            table.jvm, source.value, f"{self._source}.value", last.value, rows_in_values(base, changes)
        )
        if value.struct is None and given is not None:
            value = value.model_copy(update={"struct": fields_of_table(given, plan, plan.transforms)})
        plan = plan.model_copy(update={"value": value})
        for part, given_as in (("value", plan.value), ("key", plan.key)):
            if given_as is not None and (rest := not_a_rest(given_as)) is not None:
                raise ActionRequiredError(
                    f"The column {rest} can't hold the fields that no other column has.",
                    next_step=f"name it in the columns as `{rest} MAP<STRING, STRING>`, or leave the option `rest` of "
                    f"{self._source}.{part} out.",
                    table=self._table_id,
                )
        self._require_changes(plan)
        made_twice = twice(plan)
        if made_twice:
            raise ActionRequiredError(
                f"Two parts of a record make the same column: {', '.join(made_twice)}.",
                next_step=f"give one of them another name: {self._source}.columns, or `as` of the key or value.",
                table=self._table_id,
            )
        return plan

    def _require_changes(self, plan: RecordPlan) -> None:
        """Check that the records' formats allow to read changes.

        Raises:
            ActionRequiredError: values are no envelopes, or keys don't identify a row.
        """
        sink = self._pipeline.sink.options
        if plan.changes is None:
            return
        if plan.changes.format == "debezium":
            try:
                envelope_of(plan.value.struct)
            except NotAnEnvelopeError as error:
                raise ActionRequiredError(
                    "The topic's values are no Debezium events.",
                    next_step="correct `changes.format`, or have the connector send whole events, without its "
                    "ExtractNewRecordState transformation.",
                    table=self._table_id,
                    reason=str(error),
                ) from error
        elif plan.key is not None:
            key = plan.key.struct if plan.key.as_ is None else struct([field(plan.key.as_, plan.key.struct)])
            missing = keys_missing_in_tombstones(key, sink.record_key, sink.partition_fields)
            if missing:
                raise ActionRequiredError(
                    "A tombstone has nothing but its key, and the key doesn't say where the row is: it lacks "
                    f"{', '.join(missing)}.",
                    next_step=f"give {self._source}.key all columns of record_key and partition_fields, and partition "
                    "the table only by columns of the key.",
                    table=self._table_id,
                    key=", ".join(names(key)),
                )

    def _format(self, jvm: HudiJvm, converter: Converter, key: str, last: Format | None, base: Type | None) -> Format:
        if self._pipeline.source.capabilities.rows and key.rpartition(".")[2] == "value":
            return self._rows(jvm, converter, key, last, base)
        asked = self._asked(converter.registry) if converter.registry is not None else []
        found = (
            self._registered(jvm, converter, key, last, asked)
            if asked
            else [writer_schemas(jvm, converter, key, (), (), None)]
        )
        if key.rpartition(".")[2] == "value":
            found = [value_schemas(schemas, self._pipeline.changes) for schemas in found]
        schemas = [schema for of in found for schema in of]
        self._require_name(converter, key, schemas)
        part = part_of_table(base, converter, schemas) if base is not None else None
        if not asked or not asked[0].clusters:
            return pinned_format(converter, schemas, part, asked[0].settings.url if asked else None)
        by_cluster = [
            ClusterSchemas(clusters=one.clusters, connection=one.connection, registry=one.settings.url, schemas=of)
            for one, of in zip(asked, found, strict=True)
        ]
        return pinned_by_cluster(converter, by_cluster, part)

    def _rows(self, jvm: HudiJvm, converter: Converter, key: str, last: Format | None, base: Type | None) -> Format:
        """The format of values that are rows, with the source's present columns."""
        options = self._pipeline.source.options
        told: RowSchema = load(options.row_schema)(options, self._topics, last.options if last is not None else {})
        schema = WriterSchema(struct=struct_of_ddl(jvm, told.ddl, key))
        part = part_of_table(base, converter, [schema]) if base is not None else None
        found = pinned_format(converter, [schema], part)
        for judged in found.schemas:
            if judged.incompatible is not None:
                raise ActionRequiredError(
                    f"Columns of the source have other types than the table's: {judged.incompatible}.",
                    next_step="nothing was read. Load into a new table, or `cast` in `transforms` to the table's types "
                    f"and name these in {self._sink}.schema.",
                    table=self._table_id,
                )
        return found.model_copy(update={"schemas": (), "options": dict(told.reading)})

    def _asked(self, own: str) -> list[_Asked]:
        """The registries that know the ids in records, first the pipeline file's (`own`)."""
        of: dict[str, list[ClusterTopics]] = {}
        for cluster in self._clusters:
            of.setdefault(cluster.registry or own, []).append(cluster)
        if of.keys() <= {own}:
            return [_Asked(own, self._registries(own), self._topics)]
        asked = []
        for connection in sorted(of, key=lambda name: (name != own, name)):
            clusters = tuple(one.cluster for one in of[connection])
            with _of_clusters(clusters):
                settings = self._registries(connection)
            topics = tuple(dict.fromkeys(topic for one in of[connection] for topic in one.topics))
            asked.append(_Asked(connection, settings, topics, clusters))
        refuse_one_for_several([one.settings for one in asked])
        return asked

    def _registered(
        self, jvm: HudiJvm, converter: Converter, key: str, last: Format | None, asked: Sequence[_Asked]
    ) -> list[tuple[WriterSchema, ...]]:
        """Each registry's schemas. A registry without any is skipped, like a missing subject among others."""
        found: list[tuple[WriterSchema, ...]] = []
        none_yet: list[NoSubjectsError] = []
        for one in asked:
            subjects = [converter.subject or f"{topic}-{key.rpartition('.')[2]}" for topic in one.topics]
            known = still_known(last, converter, one.connection, one.settings.url)
            try:
                with _of_clusters(one.clusters):
                    subjects = list(dict.fromkeys(subjects))
                    found.append(writer_schemas(jvm, converter, key, subjects, known, one.settings))
            except NoSubjectsError as error:
                none_yet.append(error)
                found.append(())
        if len(none_yet) == len(asked):
            raise none_yet[0]
        for one_without in none_yet:
            log.warning("a schema registry has no schema yet of the records of its clusters", **one_without.where)
        return found

    def _require_name(self, converter: Converter, key: str, schemas: Sequence[WriterSchema]) -> None:
        """A value that is no struct is one column, which needs a name."""
        single = next((in_words(s.struct) for s in schemas if not is_struct(s.struct)), None)
        if single is not None and converter.as_ is None:
            raise ActionRequiredError(
                f"The schema describes one value ({single}), not a record with fields.",
                next_step=f"name the column that it becomes in {key}.as.",
                table=self._table_id,
            )

    def _require_fit(self, columns: Type, made: Type) -> None:
        """Check that the records' columns fit the table's, and include the columns that every row needs."""
        misfits = unassignable(columns, made)
        if misfits:
            raise misfit(misfits, self._table_id)
        sink = self._pipeline.sink.options
        needed = [*sink.record_key, *sink.partition_fields, *sink.ordering_field]
        needed += [f["name"] for f in columns["fields"] if not f["nullable"]]
        changes = self._pipeline.changes
        there = {name.lower() for name in (*names(made), *(changes.columns if changes is not None else ()))}
        missing = [name for name in dict.fromkeys(needed) if name.lower() not in there]
        if missing:
            raise ActionRequiredError(
                f"Neither a field of the records nor a step makes what every row must have: {', '.join(missing)}.",
                next_step=f"make it by `set` in `transforms`, name it in {self._source}.value.schema, or let it be "
                "null.",
                table=self._table_id,
                made=names(made),
            )

    def _require_own_columns(self, given: Type | None, made: Type) -> None:
        """Check that the columns which `changes` adds are neither made otherwise nor given other types."""
        changes = self._pipeline.changes
        if changes is None:
            return
        names_taken = taken(made, changes)
        if names_taken:
            raise ActionRequiredError(
                f"`changes` adds columns that the records or a step make, too: {', '.join(names_taken)}.",
                next_step="leave the field out of the records, such as by the connector's column.exclude.list, or give "
                "the step's column another name. The column _deleted is added with `delete: soft` alone.",
                table=self._table_id,
            )
        others = of_other_types(given, changes) if given is not None else []
        if others:
            raise ActionRequiredError(
                f"Columns that `changes` adds have other types in {self._sink}.schema.",
                next_step="leave them out there, or give them these types.",
                table=self._table_id,
                columns=[f"{one.field}: {one.known}, not {one.new}" for one in others],
            )

    def _require_holdable(self, columns: Type) -> None:
        wrong = unholdable(columns)
        if wrong:
            raise ActionRequiredError(
                f"A table can't hold some of the columns: {'; '.join(wrong)}.",
                next_step=f"give them other names or types in {self._sink}.schema; a record's own fields may have any "
                f"name in {self._source}.value.schema, and `transforms` make columns of them.",
                table=self._table_id,
            )

    def _require_columns(self, columns: Type) -> None:
        sink = self._pipeline.sink.options
        text = [f["name"] for f in columns["fields"] if f["name"] in sink.ordering_field and f["type"] == "string"]
        if text:
            # Its readers keep a reference to a row's text, in memory that the next row is read into.
            raise ActionRequiredError(
                f"{self._sink}.ordering_field names a STRING, which Hudi 1.2 doesn't compare reliably, and a "
                f"database by its own rules: {', '.join(text)}.",
                next_step=f"order by a number, DATE or TIMESTAMP: give the column that type in {self._sink}.schema, or "
                "`cast` it in `transforms`. A table that is ordered by text already has to be loaded anew.",
                table=self._table_id,
            )
        known = set(names(columns))
        for key in ("record_key", "partition_fields", "ordering_field"):
            missing = [name for name in getattr(sink, key) if name not in known]
            if missing:
                raise ActionRequiredError(
                    f"{self._sink}.{key} names a column that the table doesn't have: {', '.join(missing)}.",
                    next_step=f"name some of {', '.join(sorted(known))}.",
                    table=self._table_id,
                )


@contextmanager
def _of_clusters(clusters: Sequence[str]) -> Iterator[None]:
    """Errors say whose registry it is, where clusters have several."""
    try:
        yield
    except SluiceError as error:
        if clusters:
            error.locate(clusters=", ".join(clusters))
        raise
