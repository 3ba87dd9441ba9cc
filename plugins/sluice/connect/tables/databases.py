"""Sinks of relational databases: Confluent's JDBC sink, Aiven's fork of it, Debezium's.

https://docs.confluent.io/kafka-connectors/jdbc/current/sink-connector/sink_config_options.html,
https://debezium.io/documentation/reference/stable/connectors/jdbc.html
"""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from sluice.connect.draft import HIDDEN, AirflowConnection, Draft, RefusedError
from sluice.connect.rules import (
    Ignored,
    Maps,
    Secret,
    Table,
    Unsupported,
    duration,
    names,
    number_up_to,
    one_of,
    retries,
    true_or_false,
)
from sluice.databases.kinds import KINDS
from sluice.identifiers import quoted
from sluice.redact import redact
from sluice.sinks.jdbc.options.names import table_name

_URL = "connection.url"
_RETRIES = Ignored("a task whose database doesn't answer fails and is tried again, `retries` times")
_BATCH = Maps("sink.batch_size", number_up_to(100_000, "set batch_size"))
_BY_CONNECTION = Unsupported(
    "the driver's properties are set in the Airflow connection",
    "put it into `properties` of the connection's extra field",
)

CONFLUENT: Final[Table] = {
    "connection.password": Secret("database", "jdbc", "password"),
    "connection.attempts": _RETRIES,
    "connection.backoff.ms": _RETRIES,
    "connection.oracle.*": Ignored("it is for another database"),
    "connection.*": _BY_CONNECTION,
    "dialect.name": Ignored("the connection's URL says which database it is"),
    "insert.mode": Maps("sink.insert_mode", one_of("insert", "upsert", "update")),
    "batch.size": _BATCH,
    "table.types": Unsupported("rows go to a table", "write to the table itself", ("table",)),
    "db.timezone": Maps("sink.db_timezone"),
    "date.timezone": Unsupported("a DATE has no time zone here", "", ("db_timezone", "utc")),
    "auto.create": Maps("sink.auto_create", true_or_false),
    "auto.evolve": Maps("sink.auto_evolve", true_or_false),
    "quote.sql.identifiers": Unsupported(
        "names are always quoted; a column is found in whatever case the database has it", "", ("always",)
    ),
    "max.retries": Maps("retries", retries, "of a task"),
    "retry.backoff.ms": Maps("retry_delay", duration, "it doubles from one to the next"),
    "trim.sensitive.log": Ignored("no value of a record goes to a log"),
    "mssql.use.merge.holdlock": Ignored("it is for another database"),
    "replace.null.with.default": Unsupported(
        "a null stays null", "use `coalesce` in a `set` of `transforms`", ("false",)
    ),
    "timestamp.precision.mode": Ignored("microseconds stay"),
}
AIVEN: Final[Table] = {
    **CONFLUENT,
    "sql.quote.identifiers": CONFLUENT["quote.sql.identifiers"],
    "table.name.normalize": Unsupported("a table is named as the file says", "name the table in the file", ("false",)),
    "topics.to.tables.mapping": Unsupported("a pipeline's table is named in its file", "name the table in the file"),
}
DEBEZIUM: Final[Table] = {
    "connection.password": Secret("database", "jdbc", "password"),
    "connection.provider": Ignored("each write job has its own connection"),
    "connection.pool.*": Ignored("each write job has its own connection"),
    "connection.restart.on.errors": _RETRIES,
    "connection.*": _BY_CONNECTION,
    "hibernate.*": _BY_CONNECTION,
    "flush.max.retries": Maps("retries", retries, "of a task"),
    "flush.retry.delay.ms": Maps("retry_delay", duration, "it doubles from one to the next"),
    "insert.mode": Maps("sink.insert_mode", one_of("insert", "upsert", "update")),
    "batch.size": _BATCH,
    "use.reduction.buffer": Ignored("the last version of a key alone goes to the table"),
    "truncate.enabled": Unsupported("the database's table isn't truncated", "", ("false",)),
    "quote.identifiers": Unsupported(
        "names are always quoted; a column is found in whatever case the database has it", "", ("true",)
    ),
    "use.time.zone": Maps("sink.db_timezone"),
    "database.time_zone": Maps("sink.db_timezone"),
    "field.exclude.list": Unsupported("a field is left out of `schema`", "leave it out of the sink's `schema`"),
    "column.naming.strategy": Unsupported("a column is named as its field", "use `rename` in `transforms`"),
    "table.naming.strategy": Unsupported("a table is named as it is", "name the table in the file"),
    "collection.naming.strategy": Unsupported("a table is named as it is", "name the table in the file"),
    "dialect.*": Ignored("it is for types that records don't have here"),
}


def confluent(draft: Draft) -> None:
    """Confluent's: the database, the table and its key."""
    database(draft, "connection.user")
    _table(draft, "table.name.format", lambda topic: topic)
    _key(draft, "pk.mode", "pk.fields")
    _deletes(draft)
    _whitelist(draft)


def aiven(draft: Draft) -> None:
    """Aiven's, which takes the same keys."""
    confluent(draft)


def debezium(draft: Draft) -> None:
    """Debezium's, which takes change events as they are."""
    if draft.get("insert.mode", "insert").lower() != "upsert" or not draft.flag("delete.enabled"):
        raise RefusedError(
            "Change events are loaded here by an upsert whose table can delete rows.",
            "set insert.mode to upsert and delete.enabled to true, if that is what the table shall have.",
            "delete.enabled",
        )
    database(draft, "connection.username")
    key = "collection.name.format" if draft.has("collection.name.format") else "table.name.format"
    _table(draft, key, lambda topic: topic.replace(".", "_"))
    _key(draft, "primary.key.mode", "primary.key.fields")
    draft.honoured("delete.enabled", draft.put("sink.delete_enabled", True))
    if not draft.unwraps:
        draft.put("changes", {"format": "debezium"})
    evolves = draft.get("schema.evolution", "none").lower() == "basic"
    for path in ("sink.auto_create", "sink.auto_evolve") if evolves else ():
        draft.put(path, True)
    draft.honoured(
        "schema.evolution", "auto_create and auto_evolve" if evolves else "the table is there, and stays as it is"
    )
    _whitelist(draft, "field.include.list")


def database(draft: Draft, user: str, place: str = "sink.connection") -> None:
    """The Airflow connection to the database.

    Args:
        draft: the pipeline.
        user: the key of the login.
        place: the path of the connection's id in the file.

    Raises:
        RefusedError: the database isn't known, or its URL can't be read.
    """
    connection = draft.connection("database", "jdbc")
    draft.put(place, connection.id)
    if draft.has(user):
        connection.fields["login"] = HIDDEN if draft.is_provided(user) else draft.get(user)
        draft.honoured(user, f"login of the Airflow connection {connection.id}")
    if draft.is_provided(_URL):
        connection.fields["host"] = HIDDEN
        draft.honoured(_URL, f"host of the Airflow connection {connection.id}", "put the URL in there")
        return
    url = draft.get(_URL)
    kind = re.match(r"jdbc:(\w+):", url)
    if kind is None or kind[1] not in KINDS:
        raise RefusedError(
            f"The database {kind[1]} isn't known here." if kind else "The URL names no database.",
            f"there are {', '.join(sorted(KINDS))}. A pipeline that reads another one by its JDBC driver has to be "
            "written by hand (docs/jdbc-source.md); as a sink none was tried.",
            _URL,
        )
    try:
        _address(connection, kind[1], url)
    except ValueError:  # its message may quote the URL
        raise RefusedError("The URL can't be read.", "correct it.", _URL) from None
    relative = connection.type == "sqlite" and not connection.fields["host"].startswith("/")
    step = "give the file's absolute path: each process opens it from its own folder" if relative else ""
    draft.honoured(_URL, f"the Airflow connection {connection.id}, of type {connection.type}", step)


def _address(connection: AirflowConnection, kind: str, url: str) -> None:
    """The connection's fields from a URL, without its secrets."""
    if kind == "sqlite":
        connection.type = "sqlite"
        connection.fields["host"] = url.removeprefix("jdbc:sqlite:").removeprefix("file:").partition("?")[0]
        return
    parts = urlsplit(url.removeprefix("jdbc:"))
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    if parts.username or "user" in given:
        connection.fields["login"] = unquote(given.pop("user", "")) or HIDDEN
    if parts.password or "password" in given:
        given.pop("password", None)
        connection.fields["password"] = HIDDEN
    hosts = parts.netloc.rpartition("@")[2]
    if kind == "postgresql" and "," not in hosts and parts.hostname:
        connection.type = "postgres"
        connection.fields |= {"host": parts.hostname, "port": str(parts.port or 5432), "schema": parts.path.lstrip("/")}
    else:
        connection.fields["host"] = f"jdbc:{kind}://{hosts}{parts.path}"
    if given:
        connection.extra["properties"] = {
            name: HIDDEN if redact({name: value}) != {name: value} else value for name, value in given.items()
        }


def _table(draft: Draft, key: str, form: Any) -> None:
    """One table: a connector whose name of it has ${topic} is a pipeline for each of its topics."""
    template = draft.get(key, "${topic}")
    topics = draft.list("topics")
    mapping = dict(pair.split(":", 1) for pair in draft.list("topics.to.tables.mapping") if ":" in pair)
    if "${topic}" in template or mapping:
        if not topics:
            raise RefusedError(
                "Each topic matching the pattern has its own table, and a pipeline has one.",
                "name the topics in `topics`: a pipeline is made for each.",
                key if draft.has(key) else "topics.regex",
            )
        topic = draft.destination or topics[0]
        template = mapping.get(topics[0]) or template.replace("${topic}", form(topic))
        if draft.flag("table.name.normalize") and topics[0] not in mapping:
            template = re.sub(r"[^A-Za-z0-9_]", "_", template)
            draft.honoured("table.name.normalize", f"the table is called {template}")
    try:
        template = table_name(template)
    except ValueError as error:
        raise RefusedError(
            f"The table would be called {template}: {error}.",
            f"name an existing table in {key}, or create one of another name.",
            key if draft.has(key) else "",
        ) from None
    said = draft.put("sink.table", template)
    draft.honoured(key, said)
    draft.honoured("topics.to.tables.mapping", said)
    if not draft.has(key):
        draft.say(key, "honoured", said, of="default")


def _key(draft: Draft, mode_key: str, fields_key: str) -> None:
    mode = draft.get(mode_key, "none").lower()
    fields = draft.list(fields_key)
    if mode not in ("none", "kafka", "record_key", "record_value"):
        raise RefusedError(f"There is no key from {mode} here.", "take it from the record's key or value.", mode_key)
    if mode == "record_key" and draft.key_from_value:
        mode, fields = "record_value", fields or draft.key_from_value
        if set(fields) - set(draft.key_from_value):
            raise RefusedError(
                "The key's column has another name than the field of the value that it is from.",
                "call it by the field's name.",
                fields_key,
            )
        draft.key_wanted = False
    if mode in ("record_key", "record_value") and not fields:
        raise RefusedError(
            f"All fields of the record's {mode.removeprefix('record_')} are the table's key, and nothing here says"
            " which they are.",
            f"name them in {fields_key}.",
            mode_key,
        )
    draft.honoured(mode_key, draft.put("sink.pk_mode", mode))
    if fields and mode != "none":
        draft.honoured(fields_key, draft.put("sink.pk_fields", list(fields)))
        if mode == "record_key" and not draft.key_hoisted:
            draft.key_hoisted = fields[0]
    draft.harmless(fields_key, "there is no key")


def wants_key(draft: Draft) -> bool:
    """Whether the table's key is from the records' keys."""
    return "record_key" in (draft.get("pk.mode").lower(), draft.get("primary.key.mode").lower())


def _deletes(draft: Draft) -> None:
    if not draft.flag("delete.enabled"):
        draft.honoured("delete.enabled", "a record without a value is a bad one, as it is there")
        return
    mode = draft.get("insert.mode", "insert").lower()
    if mode != "upsert" or (draft.value_of("sink.pk_mode") != "record_key" and not draft.unwraps):
        fate = "is set aside" if draft.get("errors.tolerance").lower() == "all" else "stops its interval"
        draft.lost(
            "delete.enabled",
            "rows are deleted by an upsert alone, by the fields of the record's key",
            f"a record without a value {fate}: set insert.mode to upsert, and pk.mode to record_key",
        )
        return
    said = draft.put("sink.delete_enabled", True)
    if not draft.unwraps:
        said += f"; {draft.put('changes', {'format': 'tombstones'})}"
    draft.honoured("delete.enabled", said)


def _whitelist(draft: Draft, key: str = "fields.whitelist") -> None:
    wanted = [name.rpartition(":")[2] for name in names(draft.get(key))] if draft.has(key) else []
    if not wanted:
        draft.harmless(key, "all fields")
        return
    fields = [*(draft.value_of("sink.pk_fields") or ()), *(draft.value_of("source.columns") or {})]
    kept = list(dict.fromkeys([*fields, *wanted]))
    if draft.value_of("sink.pk_mode") == "kafka":
        kept = wanted
    draft.steps_of_rows.append({"select": [quoted(name) for name in kept]})
    draft.honoured(key, f"transforms[{len(draft.steps_of_rows)}]: select")
