"""Connect's converters of keys and values, mapped to a pipeline file's. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from sluice.connect.draft import HIDDEN, Draft, Of, RefusedError, address, is_provided
from sluice.identifiers import is_record_name
from sluice.records.settings import NUMBERS, ONE_VALUE
from sluice.redact import redact_text

Part = Literal["key", "value"]

CONVERTERS: Final[Mapping[str, str]] = {
    "org.apache.kafka.connect.json.JsonConverter": "json",
    "io.confluent.connect.avro.AvroConverter": "avro",
    "io.confluent.connect.protobuf.ProtobufConverter": "protobuf",
    "io.confluent.connect.json.JsonSchemaConverter": "json_schema",
    "org.apache.kafka.connect.storage.StringConverter": "string",
    "org.apache.kafka.connect.converters.ByteArrayConverter": "bytes",
    "io.confluent.connect.replicator.util.ByteArrayConverter": "bytes",
    **{f"org.apache.kafka.connect.converters.{name.capitalize()}Converter": name for name in NUMBERS},
}
"""The converters whose format can be read here."""
_REGISTRY = "schema.registry.url"
_DEFAULTS = "replace.null.with.default"
_WRITING = "it is for writing records, and a sink reads them"
# The verdicts on converters' settings, by the key's rest after `value.converter.`.
_HARMLESS: Final[Mapping[str, str]] = {
    "schemas.cache.size": "schemas are pinned in START-COMMIT",
    "schemas.cache.config": "schemas are pinned in START-COMMIT",
    "max.schemas.per.subject": "schemas are pinned in START-COMMIT",
    "decimal.format": "a decimal is read in either form, by what the record has",
    "auto.register.schemas": _WRITING,
    "use.latest.version": _WRITING,
    "latest.compatibility.strict": _WRITING,
    "normalize.schemas": _WRITING,
    "id.compatibility.strict": _WRITING,
    "connect.meta.data": "names and notes of Connect's schemas don't reach a row",
    "enhanced.avro.schema.support": "names of enumerations are texts in either case",
    "enhanced.protobuf.schema.support": "names of enumerations are texts in either case",
    "scrub.invalid.names": "columns are found by the schema's own names",
    "converter.type": "each converter has its own section",
    "encoding": "texts are read as UTF-8",
}
_FINE: Final[Mapping[str, tuple[str, ...]]] = {
    "encoding": ("utf-8", "utf8"),
    "use.latest.version": ("false", "true"),
    "scrub.invalid.names": ("false",),
}
_OF_SOURCE: Final[Mapping[str, str]] = {
    **_HARMLESS,
    "schemas.cache.size": "a schema is pinned for each interval",
    "schemas.cache.config": "a schema is pinned for each interval",
    "max.schemas.per.subject": "a schema is pinned for each interval",
    "decimal.format": "this encoder has no such setting, in Connect neither",
    "auto.register.schemas": "this encoder has no schema in a registry",
    "use.latest.version": "this value asks for the behaviour here",
    "latest.compatibility.strict": "START refuses a schema that doesn't take the columns",
    "id.compatibility.strict": "START refuses a schema that doesn't take the columns",
    "normalize.schemas": "this value asks for the behaviour here",
    "connect.meta.data": "this value asks for the behaviour here",
    "enhanced.avro.schema.support": "a table's columns have no enumerations of Connect's",
    "enhanced.protobuf.schema.support": "a table's columns have no enumerations of Connect's",
    "scrub.invalid.names": "this value asks for the behaviour here",
    "replace.null.with.default": "a table's columns have no defaults in Connect's schemas",
    "encoding": "texts are written as UTF-8",
}
"""The same where records are written."""
_FINE_OF_SOURCE: Final[Mapping[str, tuple[str, ...]]] = {
    **_FINE,
    "use.latest.version": ("false",),
    "normalize.schemas": ("false",),
    "connect.meta.data": ("false",),
}
_WRITES_OTHERWISE: Final[Mapping[str, tuple[str, str]]] = {
    "avro": (
        "times are timestamp-micros where Connect has timestamp-millis, decimals are of fixed size",
        "see what readers of the topic do with times, decimals and the record's name, or write a new topic",
    ),
    "json_schema": (
        "times are texts in ISO 8601 where Connect has numbers, decimals are numbers",
        "see what readers of the topic do with times and decimals, or write a new topic",
    ),
    "json_with_schema": (
        "the payload is Connect's; of the schema, every column is optional, whole numbers are int32 or int64, a Decimal"
        " has its precision among its parameters, and a struct in a struct has no name",
        "see whether a reader asks for that",
    ),
}
"""How records differ from those of Connect's converter, and what to do, by encoder."""
_LOGIN = ("basic.auth.user.info", "schema.registry.basic.auth.user.info")
_BEARER = "bearer.auth."


@dataclass(frozen=True)
class _Settings:
    """The settings of one converter, and their owner: the connector, or the worker where the connector names none."""

    part: Part
    of: Of
    given: Mapping[str, str]

    @property
    def prefix(self) -> str:
        return f"{self.part}.converter"

    def names(self) -> list[str]:
        return [key.removeprefix(f"{self.prefix}.") for key in self.given if key.startswith(f"{self.prefix}.")]

    def get(self, name: str) -> str:
        return self.given.get(f"{self.prefix}.{name}", "").strip()


def read_values(draft: Draft, one_column: str = "value") -> None:
    """Say how values are read.

    Args:
        draft: the pipeline.
        one_column: the column's name for values that are one text or bytes.

    Raises:
        RefusedError: the converter isn't available here, or isn't known.
    """
    _converter(draft, "value", one_column)


def read_keys(draft: Draft, one_column: str = "key") -> None:
    """Say how keys are read, if the pipeline needs them; else their converter has no meaning.

    Raises:
        RefusedError: they are needed, and can't be read.
    """
    if draft.key_wanted:
        _converter(draft, "key", draft.key_hoisted or one_column)
        return
    for of, given in (("connector", draft.given.config), ("worker", draft.worker)):
        for key in given:
            if key == "key.converter" or key.startswith("key.converter."):
                draft.say(key, "harmless", "nothing of the record's key becomes a column", of=of)  # type: ignore[arg-type]


def write_records(draft: Draft) -> None:
    """Map how a source's values, and its keys if any, are written.

    Raises:
        RefusedError: the converter isn't available here, or isn't known.
    """
    _encoder(draft, "value")
    if draft.value_of("sink.key_fields"):
        _encoder(draft, "key")
        return
    if "key" in draft.record_names:
        draft.harmless(draft.record_names["key"][0], "records have no key, as they have none there")
    for of, given in (("connector", draft.given.config), ("worker", draft.worker)):
        for key in given:
            if key == "key.converter" or key.startswith("key.converter."):
                draft.say(key, "harmless", "records have no key, as they have none there", of=of)  # type: ignore[arg-type]


def _encoder(draft: Draft, part: Part) -> None:
    own = f"{part}.converter" in draft.given.config
    settings = _Settings(part, "connector" if own else "worker", draft.given.config if own else draft.worker)
    _others(draft, settings.prefix, own)
    kind = CONVERTERS.get(settings.given.get(settings.prefix, "").strip())
    alone = part == "key" and bool(draft.key_extracted)
    if kind is None or kind in ("bytes", *NUMBERS) or (kind == "string" and not alone):
        raise RefusedError(
            f"Nothing here writes {part}s of rows as this converter does, or none is named.",
            "JSON, Avro, Protobuf and JSON Schema are there; the worker's file may name one: give it by --worker.",
            settings.prefix if settings.prefix in draft.given.config else "",
        )
    section: dict[str, Any] = {"encoder": kind}
    if alone and kind == "json" and settings.get("schemas.enable").lower() == "false":
        section["encoder"] = "string"
        draft.say(f"{settings.prefix}.schemas.enable", "honoured", "no envelope", of=settings.of)
        said = "numbers are as in JSON, texts have no quotes, times are texts, and a null is no key"
        step = "check that readers of texts and times accept them"
        draft.say(settings.prefix, "differs", f"encoder string: {said}", step, settings.of)
    elif alone and kind != "string":
        said, step = "the key is a record of this one field", "see whether readers take it so, or use StringConverter"
        draft.say(settings.prefix, "differs", f"encoder {kind}: {said}", step, settings.of)
    elif alone:
        said = f"encoder {kind}; a time is written as 2026-01-31 12:00:00 where Connect has Java's text of it"
        draft.say(settings.prefix, "honoured", said, of=settings.of)
    _encoding(draft, part, kind or "", settings, section)
    _record_name(draft, part, section)
    said = draft.put(f"sink.{part}", section)
    if part == "key" and not alone and len(draft.value_of("sink.key_fields")) == 1:
        said += "; where the key's one column is null, the record has no key"
    if section["encoder"] in _WRITES_OTHERWISE:
        otherwise, step = _WRITES_OTHERWISE[section["encoder"]]
        draft.say(settings.prefix, "differs", f"{said}; {otherwise}", step, settings.of)
    draft.say(settings.prefix, "honoured", said, of=settings.of)
    for rest in settings.names():
        _other(draft, settings, rest, kind or "")


def _encoding(draft: Draft, part: Part, kind: str, settings: _Settings, section: dict[str, Any]) -> None:
    """The envelope of JSON, or the registry of the other encoders."""
    if kind == "json" and section["encoder"] != "string":
        whole = (settings.get("schemas.enable") or "true").lower() == "true"
        section["encoder"] = "json_with_schema" if whole else "json_without_schema"
        draft.say(f"{settings.prefix}.schemas.enable", "honoured", f"encoder {section['encoder']}", of=settings.of)
        given = settings.get("decimal.format").lower() or "base64"
        if given == "numeric":
            section["decimal_format"] = given
        if given in ("base64", "numeric"):
            draft.say(f"{settings.prefix}.decimal.format", "honoured", f"decimal_format: {given}", of=settings.of)
    elif section["encoder"] != "string":
        _registry(draft, settings, section)
        strategy = f"{part}.subject.name.strategy" if f"{part}.subject.name.strategy" in settings.names() else ""
        for rest in ("auto.register.schemas", *filter(None, [strategy])):
            value = settings.get(rest)
            if rest == "auto.register.schemas" and value.lower() in ("true", "false"):
                section["auto_register"] = value.lower() == "true"
                draft.say(f"{settings.prefix}.{rest}", "honoured", f"auto_register: {value.lower()}", of=settings.of)
            elif value.endswith((".RecordNameStrategy", ".TopicRecordNameStrategy")):
                section["subject_name_strategy"] = "topic_record" if "TopicRecord" in value else "record"
                said = f"subject_name_strategy: {section['subject_name_strategy']}"
                draft.say(f"{settings.prefix}.{rest}", "honoured", said, of=settings.of)


def _record_name(draft: Draft, part: Part, section: dict[str, Any]) -> None:
    """The name that a transform has given the schema, where the encoder writes one."""
    key, name = draft.record_names.get(part, ("", ""))
    if section["encoder"] == "json_with_schema" and part == "value" and not key:
        table = draft.name_of_rows
        if is_record_name(table):  # as Connect's JDBC source calls the schema of a table's rows
            section["record_name"] = table
        return
    if not key:
        return
    if "registry" in section or (section["encoder"] == "json_with_schema" and is_record_name(name)):
        section["record_name"] = name
        draft.honoured(key, f"{'.'.join(draft.place(f'sink.{part}.record_name'))}: {name}")
    elif section["encoder"] in ("json_without_schema", "string"):
        draft.harmless(key, "without an envelope, records have no schema")
    else:
        draft.lost(key, "the encoder writes no such name", "see whether a reader asks for it")


def _converter(draft: Draft, part: Part, one_column: str) -> None:
    own = f"{part}.converter" in draft.given.config
    settings = _Settings(part, "connector" if own else "worker", draft.given.config if own else draft.worker)
    _others(draft, settings.prefix, own)
    name = settings.given.get(settings.prefix, "").strip()
    if not name:
        raise RefusedError(
            f"It says nothing of how {part}s are read.",
            "the worker's file says it: name it by --worker.",
            settings.prefix,
        )
    kind = CONVERTERS.get(name)
    if kind is None:
        raise RefusedError(
            f"There is no converter here that reads {part}s as {name} does.",
            "a converter of your own can (docs/converters.md); Confluent's wire format, JSON, texts and bytes are"
            " there.",
            settings.prefix,
        )
    section: dict[str, Any] = {"converter": kind}
    if kind in ONE_VALUE:
        section["as"] = one_column
    said = draft.put(f"source.{part}", section)
    draft.say(settings.prefix, "honoured", said, of=settings.of)
    if kind == "json":
        _envelope(draft, settings, section)
    elif kind not in ONE_VALUE:
        _registry(draft, settings, section)
    for rest in settings.names():
        _other(draft, settings, rest, kind)


def _others(draft: Draft, prefix: str, own: bool) -> None:
    """Report the settings of the unused converter: the worker's, or the connector's without a class."""
    for key in draft.worker if own else ():
        if key == prefix or key.startswith(f"{prefix}."):
            draft.say(key, "harmless", "the connector names its own converter", of="worker")
    for key in () if own else draft.given.config:
        if key.startswith(f"{prefix}."):
            draft.say(key, "harmless", f"Connect reads it beside {prefix} alone, and takes the worker's converter")


def _envelope(draft: Draft, settings: _Settings, section: dict[str, Any]) -> None:
    """Connect expects its envelope unless `schemas.enable` is false."""
    key = f"{settings.prefix}.schemas.enable"
    if (settings.get("schemas.enable") or "true").lower() == "true":
        section["options"] = {"schemas.enable": True}
        of: Of = settings.of if key in settings.given else "default"
        draft.say(key, "honoured", f"{_place(draft, settings)}.options: {{schemas.enable: true}}", of=of)
        key = f"{settings.prefix}.{_DEFAULTS}"
        of = settings.of if key in settings.given else "default"
        if (settings.get(_DEFAULTS) or "true").lower() == "true":
            section["options"][_DEFAULTS] = True
            said = f"{_place(draft, settings)}.options: {{{_DEFAULTS}: true}}, except inside of lists and maps"
            draft.say(key, "honoured", said, of=of)
        else:
            draft.say(key, "honoured", "a null is a null", of=of)
    else:
        draft.say(f"{settings.prefix}.{_DEFAULTS}", "harmless", "without an envelope there are no defaults",
                  of=settings.of)  # fmt: skip
        draft.say(key, "honoured", "JSON objects without an envelope", of=settings.of)


def _registry(draft: Draft, settings: _Settings, section: dict[str, Any]) -> None:
    urls = [url.strip() for url in settings.get(_REGISTRY).split(",") if url.strip()]
    if not urls:
        raise RefusedError(
            f"{settings.prefix} needs {settings.prefix}.{_REGISTRY}, which isn't there.",
            "add it; where it is the worker's, name the worker's file by --worker.",
            settings.prefix,
        )
    key = f"{settings.prefix}.{_REGISTRY}"
    url = address("" if is_provided(urls[0]) else urls[0], key)
    port = f":{url.port}" if url.port else ""
    place = f"{url.scheme}://{url.hostname or ''}{port}{url.path.rstrip('/')}" if url.netloc else HIDDEN
    kind = "registry"
    known = draft.connections.get(kind)
    if known is not None and known.fields.get("host") != place:
        kind = f"registry of {settings.part}s"
        draft.ids[kind] = f"{draft.ids['registry']}_{settings.part}"
    connection = draft.connection(kind, "http")
    connection.fields["host"] = redact_text(place)
    section["registry"] = connection.id
    if "@" in url.netloc:
        connection.fields |= {"login": HIDDEN, "password": HIDDEN}
    draft.say(
        f"{settings.prefix}.{_REGISTRY}",
        "honoured" if len(urls) == 1 else "differs",
        f"host of the Airflow connection {connection.id}" + ("" if len(urls) == 1 else ", the first of them alone"),
        of=settings.of,
    )
    for rest in settings.names():
        key = f"{settings.prefix}.{rest}"
        plain = rest.removeprefix("schema.registry.")
        if rest in _LOGIN:
            connection.fields |= {"login": HIDDEN, "password": HIDDEN}
            said = f"login and password of the Airflow connection {connection.id}"
            draft.say(key, "honoured", said, "put them in there", settings.of)
        elif plain == "basic.auth.credentials.source":
            _credentials(draft, settings, key, settings.given[key].strip().upper())
        elif plain.startswith(_BEARER):
            connection.extra[plain] = HIDDEN
            draft.say(
                key,
                "honoured",
                f"{plain} in the extra field of the Airflow connection {connection.id}",
                "put it in there",
                settings.of,
            )
        elif plain.startswith("ssl."):
            draft.say(
                key,
                "not honoured",
                "Java's key stores aren't read by the client of the schema registry",
                f"put PEM files into the connection {connection.id}: ssl.ca.location, ssl.certificate.location,"
                " ssl.key.location",
                settings.of,
            )


def _credentials(draft: Draft, settings: _Settings, key: str, source: str) -> None:
    if source in ("USER_INFO", "URL"):
        draft.say(key, "honoured", "the connection's login and password", of=settings.of)
    else:
        draft.say(
            key,
            "not honoured",
            "the registry's log-in isn't Kafka's here",
            "give the registry's connection a login and a password",
            settings.of,
        )


def _other(draft: Draft, settings: _Settings, rest: str, kind: str) -> None:
    """A converter's remaining settings."""
    key = f"{settings.prefix}.{rest}"
    value = settings.get(rest).lower()
    plain = rest.removeprefix("schema.registry.")
    writes = draft.source != "kafka"
    harmless, fine = (_OF_SOURCE, _FINE_OF_SOURCE) if writes else (_HARMLESS, _FINE)
    if rest in harmless and value in (fine.get(rest) or (value,)):
        draft.say(key, "harmless", harmless[rest], of=settings.of)
    elif rest.endswith("subject.name.strategy"):
        if value.endswith(".topicnamestrategy"):
            draft.say(key, "honoured", "the subject is <topic>-value or <topic>-key", of=settings.of)
        else:
            draft.say(
                key,
                "not honoured",
                "subjects are <topic>-value and <topic>-key",
                f"name the one subject in {_place(draft, settings)}.subject",
                settings.of,
            )
    elif rest == "replace.null.with.default":
        if value == "false":
            draft.say(key, "honoured", "a null is a null", of=settings.of)
        else:
            draft.say(
                key,
                "differs",
                "a null that a record has stays null; only a missing field takes its default",
                of=settings.of,
            )
    elif kind in ("json", *ONE_VALUE) and (
        rest == _REGISTRY or rest == "schemas.enable" or plain.startswith(("basic.", _BEARER, "ssl."))
    ):
        draft.say(key, "harmless", f"the converter {kind} asks no registry, and has no such setting", of=settings.of)
    else:
        draft.say(
            key,
            "not honoured",
            "this setting of a converter is unknown here",
            "find out what it does before you switch",
            settings.of,
        )


def _place(draft: Draft, settings: _Settings) -> str:
    return ".".join(draft.place(f"source.{settings.part}"))
