"""Connect's single message transforms as steps of a pipeline file, where these mean the same. Pure.

A transform without a counterpart is reported with the reason. Each transform is a function of the table `TRANSFORMS`;
it reports its own settings, and any other setting is reported as without effect.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from sluice.connect import topic_transforms
from sluice.connect.draft import Draft, RefusedError
from sluice.connect.steps import BY_HAND, PatternNotRunError, Transform
from sluice.identifiers import quoted
from sluice.records.transforms import text

_KAFKA = "org.apache.kafka.connect.transforms."
_DEBEZIUM = "io.debezium.transforms."
_CASTS: Final = {
    "int8": "TINYINT",
    "int16": "SMALLINT",
    "int32": "INT",
    "int64": "BIGINT",
    "float32": "FLOAT",
    "float64": "DOUBLE",
    "boolean": "BOOLEAN",
    "string": "STRING",
}
_UNIX: Final = {
    "seconds": ("timestamp_seconds({})", "unix_seconds({})"),
    "milliseconds": ("timestamp_millis({})", "unix_millis({})"),
    "microseconds": ("timestamp_micros({})", "unix_micros({})"),
}
# Letters with the same meaning in SimpleDateFormat and in Spark, and the separators between them.
_SAME_PATTERN = re.compile(r"(?:yyyy|MM|dd|HH|mm|ss|SSS|'[^']*'|[^A-Za-z'])+")
_TOPIC, _HEADERS = "connect_topic", "connect_headers"
_OF_KEY = "the columns are those of the record's key, which a transform of its value doesn't change"


def transforms(draft: Draft) -> None:
    """Make steps of a connector's transforms, in their order, and name all of their keys."""
    aliases = draft.list("transforms")
    draft.keyed_by_value = any(draft.get(f"transforms.{alias}.type").endswith(".ValueToKey") for alias in aliases)
    table = TRANSFORMS if draft.source == "kafka" else {**TRANSFORMS, **topic_transforms.TRANSFORMS}
    if draft.has("transforms"):
        draft.honoured("transforms", "each by itself, below")
    for alias in aliases:
        name = draft.get(f"transforms.{alias}.type")
        outer, _, inner = name.partition("$")
        one = Transform(draft, alias, outer.rpartition(".")[2], inner == "Key")
        known = table.get(outer)
        predicate = draft.get(f"transforms.{alias}.predicate")
        if not name:
            one.not_here("it has no type")
        elif known is None:
            one.not_here(f"there is no step here that does what {name} does")
        elif predicate and known is not _filter:
            one.not_here(
                "it is for some records only", "write its step with IF(…) or CASE in a `set` (docs/shaping.md)"
            )
        elif one.on_key and not draft.key_wanted and known not in (_harmless, _router) and draft.source == "kafka":
            for key in [key for key in draft.given.config if key.startswith(f"transforms.{alias}.")]:
                draft.harmless(key, "nothing of the record's key becomes a column")
        else:
            known(one)
        for key in draft.given.config:
            if key.startswith(f"transforms.{alias}.") and key not in draft.said_later:
                draft.harmless(key, "with the settings of its transform it changes nothing here")
    _rest(draft, aliases)


def _rest(draft: Draft, aliases: tuple[str, ...]) -> None:
    used = {draft.get(f"transforms.{alias}.predicate") for alias in aliases}
    if draft.has("predicates"):
        draft.honoured("predicates", "each with the transform that names it")
    for key in draft.given.config:
        if key.startswith("predicates."):
            if key.split(".")[1] in used:
                draft.lost(key, "it belongs to a transform that isn't honoured", "see there")
            else:
                draft.harmless(key, "no transform names it")
        elif key.startswith("transforms.") and key not in draft.said_later:
            draft.harmless(key, "`transforms` doesn't name it")


def _value_only(one: Transform) -> bool:
    if one.on_key:
        one.not_here("of a key's fields, only columns can be changed")
    return not one.on_key


def _replace_field(one: Transform) -> None:
    if not _value_only(one):
        return
    include, exclude = one.list("include", "whitelist"), one.list("exclude", "blacklist")
    renames = dict(pair.split(":", 1) for pair in one.list("renames") if ":" in pair)
    missing = "; a field that no record has is an error here"
    key = one.of_key
    dropped = list(one.fields_of_value(exclude))
    if dropped:
        one.done(one.step(drop=dropped) + missing, "exclude", "blacklist")
    elif exclude:
        one.done("the column is there by the record's key", "exclude", "blacklist")
    if include:
        one.fields_of_value(name for name in key if name not in include)
        kept = [name for name in include if name not in (*exclude, *key)]
        one.done(one.step(select=[quoted(name) for name in (*key, *kept)]) + missing, "include", "whitelist")
    if renames:
        copied = {name: quoted(old) for old, name in renames.items() if old not in one.fields_of_value(renames)}
        renamed = {old: name for old, name in renames.items() if name not in copied}
        steps = [one.step(set_=copied)] if copied else []
        steps += [one.step(rename=renamed)] if renamed else []
        one.done(" and ".join(steps) + missing, "renames")


def _cast(one: Transform) -> None:
    spec = dict(pair.rsplit(":", 1) for pair in one.list("spec") if ":" in pair)
    unknown = [kind for kind in spec.values() if kind.lower() not in _CASTS]
    if not spec or unknown:
        one.not_here(
            "it casts a whole value" if not spec else f"there is no type {unknown[0]}",
            "give the column its type in the sink's `schema`",
        )
    elif _value_only(one):
        made = {name: _CASTS[spec[name].lower()] for name in one.fields_of_value(spec)}
        if not made:
            one.done(_OF_KEY, "spec")
            return
        one.done(
            f"{one.step(cast=made)}; a value that doesn't fit makes its record a bad one, and is never another number",
            "spec",
        )


def _flatten(one: Transform) -> None:
    if not _value_only(one):
        return
    delimiter = one.get("delimiter", ".")
    fits = re.fullmatch(r"\w+", delimiter) is not None
    said = one.step(flatten={"separator": delimiter} if fits else {})
    if not fits:
        said += f" with _ between the names, since a column's name has no {delimiter}"
    one.done(said, "delimiter", differs=not fits)


def _mask(one: Transform) -> None:
    if not _value_only(one):
        return
    given = one.list("fields")
    columns = list(one.fields_of_value(given))
    replacement = one.draft.given.config.get(one.key("replacement"), "")
    if not given:
        one.not_here("it names no fields")
    elif not columns:
        one.done(_OF_KEY, "fields", "replacement")
    elif replacement:
        said = one.step(mask={"columns": columns, "with": "text", "text": one.get("replacement")})
        one.done(f"{said}; a column of numbers needs a `cast` behind it", "fields", "replacement")
    else:
        one.done(
            f"{one.step(mask={'columns': columns, 'with': 'null'})}: null in place of 0 or an empty text",
            "fields",
            differs=True,
        )
        one.draft.honoured(one.key("replacement"), "it is empty")


def _insert_field(one: Transform) -> None:
    if not _value_only(one):
        return
    columns = dict(one.draft.value_of("source.columns") or {})
    for part in ("topic", "partition", "offset", "timestamp"):
        name = one.get(f"{part}.field").rstrip("?!")
        if name and one.fields_of_value([name]):
            columns[name] = part
            one.draft.put("source.columns", columns)
            note = ", a TIMESTAMP" if part == "timestamp" else ""
            one.done(f"{'.'.join(one.draft.place('source.columns'))}: {{{name}: {part}}}{note}", f"{part}.field")
            _keep_column(one.draft, name)
    name = one.get("static.field").rstrip("?!")
    if name and one.fields_of_value([name]):
        one.done(one.step(set_={name: text(one.get("static.value"))}), "static.field", "static.value")


def _keep_column(draft: Draft, name: str) -> None:
    """A part of the record is a column from the beginning: an earlier choice of columns has to keep it."""
    for step in draft.steps_of_rows:
        if "select" in step and quoted(name) not in step["select"]:
            step["select"].append(quoted(name))


def _filter(one: Transform) -> None:
    predicate = one.get("predicate")
    kind = one.draft.get(f"predicates.{predicate}.type").rpartition(".")[2]
    condition = ""
    if kind == "TopicNameMatches":
        _column(one.draft, _TOPIC, "topic")
        pattern = one.draft.get(f"predicates.{predicate}.pattern")
        condition, setting = f"coalesce({_TOPIC} RLIKE {text(f'^(?:{pattern})$')}, false)", "pattern"
    elif kind == "HasHeaderKey":
        _column(one.draft, _HEADERS, "headers")
        name = one.draft.get(f"predicates.{predicate}.name")
        condition, setting = f"coalesce(exists({_HEADERS}, h -> h.key = {text(name)}), false)", "name"
    if not condition:
        one.not_here(
            f"what {kind or 'no predicate'} says of a record, no `filter` can say: it sees columns only",
            "write a `filter` over columns; a record without a value is a deletion (`changes`) or a bad record here",
        )
        return
    left_out = one.get("negate", "false").lower() != "true"
    said = f"{one.step(filter=f'NOT {condition}' if left_out else condition)}; rows that it leaves out are counted"
    one.done(said, "predicate", "negate")
    for key in (f"predicates.{predicate}.type", f"predicates.{predicate}.{setting}"):
        one.draft.honoured(key, said)


def _column(draft: Draft, name: str, part: str) -> None:
    draft.put("source.columns", {**(draft.value_of("source.columns") or {}), name: part})
    _keep_column(draft, name)


def _timestamp(one: Transform) -> None:
    if not _value_only(one):
        return
    if one.get("field") and not one.fields_of_value([one.get("field")]):
        one.done(_OF_KEY, "field", "target.type", "format", "unix.precision")
        return
    field, target = one.get("field"), one.get("target.type")
    pattern, precision = one.get("format"), one.get("unix.precision", "milliseconds")
    column, unix = quoted(field), _UNIX.get(precision)
    expression = ""
    if field and target == "Timestamp" and not pattern and unix:
        expression = unix[0].format(column)
    elif field and target == "unix" and not pattern and unix:
        expression = unix[1].format(column)
    elif field and target == "string" and _SAME_PATTERN.fullmatch(pattern):
        expression = f"date_format({column}, {text(pattern)})"
    if not expression:
        one.not_here(
            "a time is converted here from a number to a TIMESTAMP, from that to a number, and to a text by plain "
            "patterns; of texts, Java's reading is more lenient than any here",
            "give the column the type TIMESTAMP in the sink's `schema`: JSON's texts in ISO 8601 are read as such",
        )
        return
    one.done(f"{one.step(set_={field: expression})}: {expression}", "field", "target.type", "format", "unix.precision")


def _extract(one: Transform) -> None:
    field = one.get("field")
    draft = one.draft
    if one.on_key and draft.source != "kafka":
        draft.key_extracted = field
        one.done("the key is this column alone", "field")
        return
    if one.on_key:
        columns = draft.list("pk.fields") or draft.list("primary.key.fields") or (field,)
        if field in (draft.key_from_value or columns) and field in columns:
            one.done("the key's field is a column by its name", "field")
        else:
            one.not_here("a key's column is called as its field here", "call the table's column so, or `rename` it")
        return
    one.fields_of_value(one.of_key)
    draft.name_of_rows = ""  # the schema is the field's own
    said = one.step(select=[*map(quoted, one.of_key), f"{quoted(field)}.*"])
    one.done(f"{said}; where {field} is null, the row has nulls", "field", differs=True)


def _hoist(one: Transform) -> None:
    field = one.get("field")
    draft = one.draft
    if one.on_key:
        draft.key_hoisted = field
        one.done(f"{'.'.join(draft.place('source.key.as'))}: {field}", "field")
        return
    section = draft.value_of("source.value")
    if not draft.steps_of_rows and section and "as" in section:
        section["as"] = field
        one.done(f"{'.'.join(draft.place('source.value.as'))}: {field}", "field")
    elif one.of_key or draft.value_of("source.columns"):
        one.not_here("the row has columns of the record's key and place, which don't belong into the struct")
    else:
        draft.name_of_rows = ""  # the schema is a new one, without a name
        one.done(one.step(select=[f"struct(*) AS {quoted(field)}"]), "field")


def _value_to_key(one: Transform) -> None:
    one.draft.key_from_value = one.list("fields")
    one.done("the key's columns are the row's", "fields")


def _router(one: Transform) -> None:
    """A topic's new name is the table's name, if one topic goes into one table; folders are named by topics."""
    draft = one.draft
    topics = draft.list("topics")
    renamed: str | None = None
    if one.kind == "RegexRouter" and draft.sink == "jdbc":
        try:
            renamed = one.routed(draft.destination or (topics[0] if len(topics) == 1 else ""))
        except PatternNotRunError:
            one.not_routed()
            return
    if renamed:
        draft.destination = renamed
        one.done(f"the topic's name in the table's: {renamed}", "regex", "replacement")
    else:
        one.not_here(
            "a record's topic keeps its name here: folders are called by it, and tables are named in the file",
            "name the table, or the path, as its readers know it; several tables of one topic are `routes`",
        )


def _unwrap(one: Transform) -> None:
    """Debezium's envelope is known here, and the meaning of its deletes depends on the sink's capabilities."""
    draft = one.draft
    if draft.steps_of_rows:
        one.not_here("transforms before it work on the envelope, and steps here on the row in it")
        return
    if draft.sink != "jdbc" or draft.get("insert.mode").lower() != "upsert":
        raise RefusedError(
            "Debezium's events are loaded as changes here, by an upsert; this sink only adds rows.",
            "load them into an upsert table (docs/change-data.md), or have the connector that sends them unwrap them.",
            one.key("type"),
        )
    if not draft.flag("delete.enabled"):
        raise RefusedError(
            "Debezium's events are loaded as changes here, deletes among them, and the table isn't to delete rows.",
            "set delete.enabled to true and pk.mode to record_key; to mark rows in the place of deleting them, write"
            " `changes.delete: soft` into the file afterwards.",
            one.key("type"),
        )
    draft.unwraps = True
    draft.put("changes", {"format": "debezium"})
    one.done("changes: {format: debezium}, ordered by the position in the source's log")
    mode = one.get("delete.tombstone.handling.mode") or one.get("delete.handling.mode")
    for name in ("drop.tombstones", "delete.handling.mode", "delete.tombstone.handling.mode"):
        if mode in ("", "none", "tombstone", "delete-to-tombstone"):
            draft.honoured(one.key(name), "a delete deletes its row, and the tombstone behind it does nothing more")
        else:
            draft.differs(
                one.key(name), "a delete deletes its row", "`changes.delete: soft` marks rows, in the column `_deleted`"
            )
    for name in ("add.fields", "add.headers", "add.fields.prefix", "route.by.field", "drop.fields.header.name"):
        draft.lost(one.key(name), "of the envelope, rows have the position in the source alone", BY_HAND)


def _harmless(one: Transform) -> None:
    for key in one.draft.given.config:
        if key.startswith(f"transforms.{one.alias}."):
            one.draft.harmless(key, "headers and names of schemas don't reach a row")


def _header_from(one: Transform) -> None:
    if one.get("operation") == "copy":
        _harmless(one)
    elif _value_only(one):
        one.done(
            f"{one.step(drop=list(one.list('fields')))}; headers don't reach a row", "fields", "headers", "operation"
        )


TRANSFORMS: Final[Mapping[str, Callable[[Transform], None]]] = {
    f"{_KAFKA}ReplaceField": _replace_field,
    f"{_KAFKA}Cast": _cast,
    f"{_KAFKA}Flatten": _flatten,
    f"{_KAFKA}MaskField": _mask,
    f"{_KAFKA}InsertField": _insert_field,
    f"{_KAFKA}Filter": _filter,
    f"{_KAFKA}TimestampConverter": _timestamp,
    f"{_KAFKA}ExtractField": _extract,
    f"{_KAFKA}HoistField": _hoist,
    f"{_KAFKA}ValueToKey": _value_to_key,
    f"{_KAFKA}RegexRouter": _router,
    f"{_KAFKA}TimestampRouter": _router,
    f"{_KAFKA}SetSchemaMetadata": _harmless,
    f"{_KAFKA}DropHeaders": _harmless,
    f"{_KAFKA}InsertHeader": _harmless,
    f"{_KAFKA}HeaderFrom": _header_from,
    f"{_DEBEZIUM}ExtractNewRecordState": _unwrap,
    f"{_DEBEZIUM}UnwrapFromEnvelope": _unwrap,
}
"""The mapping of each transform class."""
