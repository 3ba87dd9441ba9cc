"""Confluent's JDBC source, and Aiven's fork of it: a pipeline from each table into a topic.

https://docs.confluent.io/kafka-connectors/jdbc/current/source-connector/source_config_options.html
"""

from __future__ import annotations

import re
from typing import Final

from sluice.connect.draft import Draft, RefusedError
from sluice.connect.rules import (
    Ignored,
    Maps,
    Secret,
    Table,
    Unsupported,
    duration,
    one_of,
    retries,
    true_or_false,
    whole_number,
)
from sluice.connect.tables.databases import database
from sluice.untrusted import whole

TABLES: Final = ("table.whitelist", "tables")
"""Keys that name tables, Confluent's and Aiven's."""
_POLL: Final = "poll.interval.ms"
_OFTEN: Final = 60_000
_ATTEMPTS = Ignored("a task whose database doesn't answer fails and is tried again, `retries` times")
_BY_PATTERN = Unsupported("tables are named here, since each has its own topic", "name them in table.whitelist")

KEYS: Final[Table] = {
    "connection.password": Secret("database", "jdbc", "password"),
    "connection.attempts": _ATTEMPTS,
    "connection.backoff.ms": _ATTEMPTS,
    "connection.*": Unsupported(
        "the driver's properties are set in the Airflow connection",
        "put it into `properties` of the connection's extra field",
    ),
    "dialect.name": Ignored("the connection's URL says which database it is"),
    "numeric.mapping": Maps(
        "source.numeric_mapping", one_of("none", "precision_only", "best_fit", "best_fit_eager_double")
    ),
    "numeric.precision.mapping": Unsupported("numbers keep their types", "set numeric.mapping", ("false",)),
    "validate.non.null": Maps("source.validate_non_null", true_or_false),
    "db.timezone": Maps("source.db_timezone"),
    "batch.max.rows": Ignored("a write job reads `fetch_size` rows at a time, and an interval has max_records at most"),
    "table.poll.interval.ms": Ignored("each interval looks"),
    "table.blacklist": _BY_PATTERN,
    "table.include.list": _BY_PATTERN,
    "table.exclude.list": _BY_PATTERN,
    "table.types": Ignored("the tables are named"),
    "catalog.pattern": Unsupported("a table is of the database of its connection", "name it with its schema"),
    "schema.pattern": Unsupported("a table is named with its schema", "write schema.table in table.whitelist"),
    "quote.sql.identifiers": Unsupported("names are always quoted", "", ("always",)),
    "query.suffix": Unsupported("the window is put around the query", "write it into the query"),
    "query.retry.attempts": _ATTEMPTS,
    "transaction.isolation.mode": Ignored("a window has nothing in it that an open transaction could still change"),
    "timestamp.granularity": Unsupported("times are TIMESTAMP, to the microsecond", "", ("connect_logical",)),
    "timestamp.initial": Unsupported(
        "positions are microseconds since 1970, by table", "write starting_offsets (docs/jdbc-source.md)", ("0",)
    ),
    "timestamp.column.mapping": Unsupported("a pipeline reads one table", "name the columns in timestamp.column.name"),
    "incrementing.column.mapping": Unsupported(
        "a pipeline reads one table", "name the column in incrementing.column.name"
    ),
    "max.retries": Maps("retries", retries, "of a task"),
    "retry.backoff.ms": Maps("retry_delay", duration, "it doubles from one to the next"),
    "tasks.max": Ignored("each table has a pipeline, and they run side by side"),
    "tasks.max.enforce": Ignored("each table has a pipeline, and they run side by side"),
    "exactly.once.support": Ignored("each row version lands once, with the position in the same transaction"),
    "transaction.boundary": Ignored("an interval is one transaction"),
    "transaction.boundary.interval.ms": Ignored("an interval is one transaction"),
    "offsets.storage.topic": Ignored("positions are in the log of the topic"),
    "topic.creation.default.replication.factor": Maps("sink.topic_settings.replication_factor", whole_number),
    "topic.creation.default.partitions": Maps("sink.topic_settings.partitions", whole_number),
    "topic.creation.*": Unsupported("a topic is created with the settings of `topic_settings`", "write them there"),
    "producer.override.*": Unsupported(
        "how records are sent, the Airflow connection and `producer` of the sink say", "write it there"
    ),
    "admin.override.*": Ignored("the Airflow connection of the cluster has the settings of all clients"),
    "header.converter": Ignored("rows have no headers"),
    "header.converter.*": Ignored("rows have no headers"),
    "errors.tolerance": Unsupported("a row that can't be encoded stops its interval", "", ("none",)),
    "errors.retry.timeout": _ATTEMPTS,
    "errors.retry.delay.max.ms": _ATTEMPTS,
    "errors.log.*": Ignored("what stops an interval is named in the task's log and note"),
    "config.action.reload": Ignored("a pipeline file is read anew by each run"),
    "*.converter.plugin.version": Ignored("converters are those of this release"),
    "connector.plugin.version": Ignored("connectors are those of this release"),
    "confluent.*": Ignored("no license is needed"),
}


def source(draft: Draft) -> None:
    """The database, the table or query, its mode, and the topic."""
    database(draft, "connection.user", "source.connection")
    _what(draft)
    _mode(draft)
    _schedule(draft)
    said = draft.put("sink.topic", draft.destination or topic(draft))
    draft.honoured("topic.prefix", said)
    if draft.key_from_value:
        draft.put("sink.key_fields", [draft.key_extracted] if draft.key_extracted else list(draft.key_from_value))
    if not draft.folder:
        draft.steps.append(
            "name a folder that write jobs and Airflow's workers share: `--path`, or `staging` of the sink in the file"
        )
    if draft.folder:  # else it is missing: a folder that any account could make first is no place for a table's rows
        draft.put("sink.staging", draft.folder)
    draft.put("sink.topic_settings", {"create": True})
    # Connect's records have the time at which they are sent; by the rows' own times, retention would delete old rows.
    draft.put("sink.timestamp", "wallclock")


def topic(draft: Draft) -> str:
    """The topic that Connect writes to, before any router."""
    return draft.get("topic.prefix") + table_name(draft)


def table_name(draft: Draft) -> str:
    """The name that Connect gives the schema of rows: the table's; empty for a query's."""
    tables = next((draft.list(key) for key in TABLES if draft.has(key)), ())
    return "" if draft.get("query") or not tables else tables[0].rpartition(".")[2]


def _what(draft: Draft) -> None:
    """The table, or the query."""
    prefix, query = draft.get("topic.prefix"), draft.get("query").rstrip().rstrip(";").rstrip()
    if query:
        if not prefix:
            raise RefusedError("Rows of a query go to a topic that topic.prefix names.", "name it.", "query")
        draft.put("source.query_name", re.sub(r"\W", "_", prefix.rstrip(".-_")) or "query")
        said = draft.put("source.query", query)
        if draft.get("mode").lower() == "incrementing":
            raise RefusedError(
                "Rows of a query can't be found by a growing number alone: a number that is given early and committed"
                " late would be passed over, and whether one is can be asked of a table alone.",
                "load the table by its number, or the query by mode timestamp.",
                "mode",
            )
        if draft.get("mode").lower() != "bulk":
            said += f"; {draft.put('source.consistency', 'delay')}, as Connect: a row that commits late is lost"
            # Connect asks this of tables alone: rows of a query whose time is null aren't found, there neither.
            nulls = draft.put("source.validate_non_null", False)
            draft.honoured("validate.non.null", f"{nulls}: it is asked of tables alone")
        draft.honoured("query", said)
        for key in TABLES:
            draft.harmless(key, "the query is read in the place of tables")
        return
    key = next((key for key in TABLES if draft.has(key)), TABLES[0])
    tables = draft.list(key)
    if not tables:
        raise RefusedError("Each table has its own topic, and none is named.", "name them in table.whitelist.")
    draft.honoured(key, draft.put("source.tables", tables[0]))


def _mode(draft: Draft) -> None:
    mode = draft.get("mode").lower()
    if mode not in ("bulk", "incrementing", "timestamp", "timestamp+incrementing"):
        raise RefusedError("It says nothing of how new rows are found.", "set mode.", "mode")
    draft.honoured("mode", draft.put("source.mode", mode))
    times, number = "timestamp.column.name", "incrementing.column.name"
    if "timestamp" in mode and not draft.has(times):
        raise RefusedError("It names no column of times.", f"set {times}.", "mode")
    if "timestamp" in mode:
        columns = draft.list(times)
        draft.honoured(times, draft.put("source.timestamp_column", columns[0] if len(columns) == 1 else list(columns)))
        draft.honoured(number, "a window has all rows of a time; no number is needed to distinguish them")
    elif mode == "incrementing":
        if draft.has(number):
            draft.honoured(number, draft.put("source.incrementing_column", draft.get(number)))
        draft.honoured(number, "the column that the database numbers")
    for key in (times, number):
        draft.harmless(key, f"mode {mode} asks no such column")
    delay = draft.get("timestamp.delay.interval.ms", "0")
    late = "timestamp.delay.interval.ms"
    if whole(delay) and "timestamp" in mode:
        draft.honoured(
            late,
            f"{draft.put('source.timestamp_delay', duration(delay))}; a window ends before open transactions anyway",
        )
    draft.harmless(late, "a window ends before what an open transaction can still write")


def _schedule(draft: Draft) -> None:
    given = draft.get(_POLL, "5000")
    if (whole(given) or 0) >= _OFTEN:
        draft.data["schedule"] = duration(given)
        draft.honoured(_POLL, f"schedule: {draft.data['schedule']}")
    draft.differs(_POLL, "schedule: 1 minute", "an interval is a DAG run, which takes some seconds: see what you need")
