"""Connect's transforms of a source, whose records go to a topic: headers and names of schemas reach readers. Pure.

Transforms with the same meaning in both directions are in `transforms`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from sluice.connect.draft import Draft
from sluice.connect.steps import PatternNotRunError, Transform
from sluice.identifiers import quoted
from sluice.records.transforms import text

_KAFKA = "org.apache.kafka.connect.transforms."
_BY_HAND = "add it to `headers` of the sink by hand (docs/kafka-sink.md)"
# Connect guesses a header's type by its text. It leaves these as they are, and its default converter writes them so.
_PLAIN_TEXT = re.compile(r"(?!(?:true|false|null)$)[A-Za-z][A-Za-z0-9 _.-]*", re.IGNORECASE)
_SIMPLE = "org.apache.kafka.connect.storage.SimpleHeaderConverter"


def topic_of(draft: Draft) -> str:
    """The topic of the records as far as it is known yet: the connector's, or a router's result."""
    return draft.destination or draft.default_topic


def _insert_header(one: Transform) -> None:
    name, value = one.get("header"), one.get("value.literal")
    if not name or not _PLAIN_TEXT.fullmatch(value) or not _converts_simply(one.draft):
        one.not_here("Connect guesses the type of the header's value, and its converter writes that", _BY_HAND)
        return
    column = _header_column(one.draft, name)
    one.done(
        f"{one.step(set_={column: text(value)})}; {_put_header(one.draft, name, column)}", "header", "value.literal"
    )


def _header_from(one: Transform) -> None:
    fields, headers = one.list("fields"), one.list("headers")
    if one.on_key or len(fields) != len(headers) or not _converts_simply(one.draft):
        one.not_here("a header has the text of a column of the row here", _BY_HAND)
        return
    moved = one.get("operation") == "move"
    if moved:
        one.fields_of_value(fields)  # the key's fields stay in the key, and a header's column isn't in the value
    said = ""
    for field, header in zip(fields, headers, strict=True):
        column = _header_column(one.draft, header)
        one.step(set_={column: quoted(field)})
        said = _put_header(one.draft, header, column)
    if moved:
        one.step(drop=list(fields))
    one.done(f"{said}: texts of the columns; times and decimals may be written otherwise", "fields", "headers",
             "operation", differs=True)  # fmt: skip


def _converts_simply(draft: Draft) -> bool:
    return draft.get("header.converter", draft.worker.get("header.converter", "") or _SIMPLE) == _SIMPLE


def _header_column(draft: Draft, header: str) -> str:
    """A column of the header alone, which no other has."""
    number = len(draft.value_of("sink.headers") or {})
    return f"connect_header_{number}_{re.sub(r'[^A-Za-z0-9_]', '_', header)}"


def _put_header(draft: Draft, header: str, column: str) -> str:
    return draft.put("sink.headers", {**(draft.value_of("sink.headers") or {}), header: column})


def _drop_headers(one: Transform) -> None:
    named, dropped = one.draft.value_of("sink.headers") or {}, one.list("headers")
    if any(name in dropped for name in named):
        one.draft.put("sink.headers", {name: column for name, column in named.items() if name not in dropped})
        one.step(drop=[column for name, column in named.items() if name in dropped])
    one.done("rows have no headers except from earlier transforms", "headers")


def _schema_name(one: Transform) -> None:
    """The encoder, which is read later, writes the name: `converters.write_records` reports it."""
    if one.get("schema.name"):
        one.draft.record_names["key" if one.on_key else "value"] = (one.key("schema.name"), one.get("schema.name"))
    one.draft.lost(
        one.key("schema.version"), "schemas have no version of Connect's", "see whether a reader asks for it"
    )
    one.done("of the schema's metadata, its name", *(() if one.get("schema.name") else ("schema.name",)))


def _insert_field(one: Transform) -> None:
    """Connect knows only the topic of a source's record: partition, offset and time are set when it is sent."""
    wanted = [part for part in ("partition", "offset", "timestamp") if one.get(f"{part}.field")]
    if one.on_key or wanted:
        one.not_here("a record has no offset, partition or time before it is sent, in Connect neither")
        return
    made = {}
    topic, static = one.get("topic.field").rstrip("?!"), one.get("static.field").rstrip("?!")
    if topic:
        made[topic] = text(topic_of(one.draft))
    if static:
        made[static] = text(one.get("static.value"))
    if one.fields_of_value(made):
        one.done(one.step(set_=made), "topic.field", "static.field", "static.value")


def _filter(one: Transform) -> None:
    one.not_here("what a predicate says of a record, no `filter` can say: it sees columns only",
                 "write a `filter` over columns, or a `query` with a WHERE")  # fmt: skip


def _regex_router(one: Transform) -> None:
    draft = one.draft
    try:
        routed = one.routed(topic_of(draft))
    except PatternNotRunError:
        one.not_routed()
        return
    if routed is None:
        one.not_here("Python doesn't read the pattern as Java does", "name the topic in the file")
        return
    draft.destination = routed
    one.done(f"the topic's name: {draft.destination}", "regex", "replacement")


def _timestamp_router(one: Transform) -> None:
    one.not_here("a record's topic is named in the file, for all times", "name the topic in the file")


TRANSFORMS: Final[Mapping[str, Callable[[Transform], None]]] = {
    f"{_KAFKA}InsertHeader": _insert_header,
    f"{_KAFKA}HeaderFrom": _header_from,
    f"{_KAFKA}DropHeaders": _drop_headers,
    f"{_KAFKA}SetSchemaMetadata": _schema_name,
    f"{_KAFKA}InsertField": _insert_field,
    f"{_KAFKA}Filter": _filter,
    f"{_KAFKA}RegexRouter": _regex_router,
    f"{_KAFKA}TimestampRouter": _timestamp_router,
}
"""The mapping of each transform class with another meaning for a source."""
