"""How the schemas of records and the table's columns come together when an interval is planned. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from sluice.errors import ActionRequiredError
from sluice.records.changes import as_envelope, columns_with_changes, envelope_around, envelope_of
from sluice.records.columns import incoming
from sluice.records.comments import comments_of, described, undescribed
from sluice.records.plan import ClusterSchemas, Format, RecordPlan, WriterSchema
from sluice.records.settings import REST, Changes, Converter, Transform
from sluice.records.structs import (
    ONE_VALUE,
    Conflict,
    Type,
    field,
    in_words,
    is_struct,
    merge,
    names,
    stored,
    struct,
    without,
)


def pinned_format(
    converter: Converter, schemas: Sequence[WriterSchema], base: Type | None, registry: str | None = None
) -> Format:
    """A key's or value's format over all of its schemas.

    Args:
        converter: the converter of the pipeline file.
        schemas: the writer schemas, newest first.
        registry: the address of the registry that knows their ids, None where there is none.
        base: the type of the table's rows, None where there is none; it decides which schemas are compatible.
    """
    union = base
    judged = []
    for schema in schemas:
        union, verdict = (
            (schema.struct, None) if union is None else _joined(union, schema.struct, of_rows=base is not None)
        )
        judged.append(schema.model_copy(update={"incompatible": verdict}))
    for schema in reversed(judged):  # the newest schema has the last word
        if schema.incompatible is None:
            union = described(union, comments_of(schema.struct))
    return Format(
        converter=converter.converter,
        options=converter.options,
        struct=union,
        schemas=tuple(judged),
        message=converter.message,
        registry=registry,
        as_=converter.as_,
    )


def pinned_by_cluster(converter: Converter, registries: Sequence[ClusterSchemas], base: Type | None) -> Format:
    """A key's or value's format over the schemas of several registries, each with the ids of some clusters.

    Args:
        converter: the converter of the pipeline file.
        registries: the registries with their schemas; the first one's newest schema counts as the newest of all.
        base: as for `pinned_format`.
    """
    whole = pinned_format(converter, [schema for of in registries for schema in of.schemas], base)
    judged = iter(whole.schemas)
    by_cluster = [of.model_copy(update={"schemas": tuple(islice(judged, len(of.schemas)))}) for of in registries]
    return whole.model_copy(update={"schemas": (), "by_cluster": tuple(by_cluster)})


def part_of_table(columns: Type, converter: Converter, schemas: Sequence[WriterSchema]) -> Type | None:
    """A converter's type as given by the table's columns: the columns that it makes, by any of its schemas."""
    if converter.as_ is not None:
        return next((f["type"] for f in columns["fields"] if f["name"] == converter.as_), None)
    known = {name.lower() for schema in schemas for name in names(schema.struct)}
    made = [f for f in columns["fields"] if str(f["name"]).lower() in known]
    return struct(made) if made else None


def twice(plan: RecordPlan) -> list[str]:
    """Names of columns that both the record's value and another part of it make; a key's fields give way to these."""
    if plan.value.struct is None:
        return []
    value = [plan.value.as_] if plan.value.as_ is not None else names(plan.value.struct)
    if _has_envelopes(plan.changes):
        value = names(envelope_of(plan.value.struct).row)
    others = list(plan.columns)
    if plan.changes is None and plan.key is not None and plan.key.as_ is not None:
        others.append(plan.key.as_)  # where records delete, it supplies fields that a value lacks
    taken = {name.lower() for name in value}
    return [name for name in others if name.lower() in taken]


def not_a_rest(given: Format) -> str | None:
    """The column named by the option `rest`, if it can't hold the fields that no other column has."""
    rest = given.options.get(REST)
    kinds = {str(f["name"]): f["type"] for f in given.struct["fields"]} if is_struct(given.struct) else {}
    if rest is None:
        return None
    kind = kinds.get(rest)
    text = isinstance(kind, Mapping) and (kind["type"], kind.get("keyType"), kind.get("valueType"))
    return None if text == ("map", "string", "string") else rest


def taken(made: Type, changes: Changes | None) -> list[str]:
    """Names of columns made of records or by steps, that `changes` adds itself."""
    return [name for name in names(made) if changes is not None and name.lower() in changes.columns]


def of_other_types(columns: Type, changes: Changes) -> list[Conflict]:
    """The columns of a pipeline file that `changes` adds with another type."""
    added = columns_with_changes(struct([]), changes.format, soft=changes.delete == "soft")
    types = {str(one["name"]): one["type"] for one in added["fields"]}
    return [
        Conflict(str(one["name"]), in_words(types[name]), in_words(one["type"]))
        for one in columns["fields"]
        if (name := str(one["name"]).lower()) in types and one["type"] != types[name]
    ]


def still_known(last: Format | None, converter: Converter, connection: str, registry: str) -> tuple[WriterSchema, ...]:
    """The schemas that an interval pinned, as far as the next one would make the same of the registry's answers.

    Args:
        last: the interval's pinned plan; None if unknown.
        converter: the converter of the pipeline file.
        connection: id of the Airflow connection to the registry.
        registry: the registry's address.
    """
    if last is None or (last.converter, last.message) != (converter.converter, converter.message):
        return ()
    for of in last.by_cluster:
        if (of.connection, of.registry) == (connection, registry):
            return of.schemas
    return last.schemas if (last.registry, converter.registry) == (registry, connection) else ()


def _joined(union: Type, new: Type, *, of_rows: bool) -> tuple[Type, str | None]:
    if is_struct(union) and is_struct(new):
        merged = merge(union, new, of_rows=of_rows)
        joined = merged.struct
    else:  # one value is merged as the one field of a struct, so that there is one rule
        merged = merge(*(struct([field(ONE_VALUE, kind)]) for kind in (union, new)), of_rows=of_rows)
        joined = merged.struct["fields"][0]["type"]
    return (union, "; ".join(map(str, merged.conflicts))) if merged.conflicts else (joined, None)


def fields_of_table(columns: Type, plan: RecordPlan, transforms: Sequence[Transform]) -> Type:
    """The fields of a value without a schema: the table's columns except columns from elsewhere."""
    elsewhere = set(plan.columns)
    if plan.changes is not None:
        elsewhere.update(plan.changes.columns)
    for step in transforms:
        elsewhere |= set(step.set_ or {})
    if plan.key is not None and plan.changes is None:
        elsewhere |= {plan.key.as_} if plan.key.as_ else set(names(plan.key.struct))
    fields = without(columns, elsewhere)
    return envelope_around(fields) if _has_envelopes(plan.changes) else fields


def fields_of_key(columns: Type, changes: Changes | None, record_key: Sequence[str], partitions: Sequence[str]) -> Type:
    """The fields of a key without a schema: the record key, and further columns that a tombstone needs."""
    wanted = {*record_key, *(partitions if changes is not None and changes.format == "tombstones" else ())}
    return struct(f for f in columns["fields"] if f["name"] in wanted)


def value_schemas(schemas: Sequence[WriterSchema], changes: Changes | None) -> tuple[WriterSchema, ...]:
    """The schemas of values; a person may have written only the row's fields."""
    if not _has_envelopes(changes):
        return tuple(schemas)
    return tuple(s if s.text else s.model_copy(update={"struct": as_envelope(s.struct)}) for s in schemas)


def rows_in_values(rows: Type | None, changes: Changes | None) -> Type | None:
    """The type of the values behind the table's rows; None where there are none."""
    if rows is None or changes is None:
        return rows
    fields = without(rows, changes.columns)
    return envelope_around(fields) if _has_envelopes(changes) else fields


def _has_envelopes(changes: Changes | None) -> bool:
    return changes is not None and changes.format == "debezium"


@dataclass(frozen=True)
class Rows:
    """The rows of an interval: their type, or why they don't fit the table.

    A comment is the pipeline's or the records'; a column, or a field inside of one, that has none there keeps the
    table's.
    """

    columns: Type
    conflicts: tuple[Conflict, ...] = ()
    left_out: tuple[str, ...] = ()


def rows_of(table: Type | None, given: Type | None, plan: RecordPlan) -> Rows:
    """The columns of the rows that an interval writes.

    Args:
        table: the columns of the table's last commit, None before the first.
        given: the columns of the pipeline file, None where the records' schemas define them.
        plan: how records are read.
    """
    wanted = stored(given if given is not None else incoming(plan))
    if plan.changes is not None:
        wanted = columns_with_changes(wanted, plan.changes.format, soft=plan.changes.delete == "soft")
    if table is None:
        return Rows(wanted)
    merged = merge(table, wanted, of_rows=True)
    asked = {str(f["name"]).lower(): f for f in wanted["fields"]}
    # A table's columns are all nullable in Hudi; whether a record may leave one out is the pipeline's to say.
    columns = struct(
        {**f, "nullable": asked.get(str(f["name"]).lower(), {"nullable": True})["nullable"]}
        for f in described(merged.struct, comments_of(wanted))["fields"]
    )
    left_out = [n for n in names(table) if n.lower() not in asked] if given is not None else []
    return Rows(columns, merged.conflicts, tuple(left_out))


def read_without_comments(plan: RecordPlan) -> RecordPlan:
    """The same, with types that have no comments: nothing that reads records knows of them."""
    bare = {
        part: given.model_copy(update={"struct": undescribed(given.struct)})
        for part, given in (("value", plan.value), ("key", plan.key))
        if given is not None
    }
    return plan.model_copy(update=bare)


def misfit(conflicts: Sequence[Conflict], table: str) -> ActionRequiredError:
    """The error of rows whose columns aren't of the table's types."""
    return ActionRequiredError(
        "Columns of the records don't fit the table's.",
        next_step="bring them to the table's types by a `cast` in `transforms`, which reports values that don't fit, "
        "or give the table's columns other types in the sink's `schema`.",
        table=table,
        columns=[f"{c.field}: {c.new} in the records, {c.known} in the table" for c in conflicts],
    )
