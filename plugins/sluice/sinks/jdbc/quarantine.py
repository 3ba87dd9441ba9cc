"""Bad records of a pipeline that writes to a database: a table beside the pipeline's, committed in the same way."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

from sluice.connectors.connections import connection
from sluice.databases.client import Ask
from sluice.databases.connection import address_of, asked
from sluice.errors import ActionRequiredError, RetryableError
from sluice.identifiers import sql_quoted
from sluice.jvm.schema import struct_of_ddl
from sluice.protocol.identity import LogId
from sluice.protocol.messages import TableSpec
from sluice.protocol.quarantine import INSTANT, SCHEMA, Quarantined, quarantine_path
from sluice.records.settings import Errors
from sluice.sinks.jdbc.options import Jdbc
from sluice.sinks.jdbc.options.names import LONGEST, instant_of_staging, schema_and_name
from sluice.sinks.jdbc.options.pinned import PinnedJdbc
from sluice.sinks.jdbc.statements import Target
from sluice.sinks.jdbc.table import JdbcTable

_ID = "jdbc://"
_DDL = f"{SCHEMA}, {INSTANT} STRING"
_PAGE = 500  # records read at a time
_ORDER = ("range_number", "attempt", "kafka_topic", "kafka_partition", "kafka_offset")
_SHORT = (*_ORDER, "kafka_timestamp", "reason", "stage", "run_id", "kafka_topic_id", "kafka_cluster_id", INSTANT)
_BYTES = ("kafka_key", "kafka_value")


class QuarantineTable(JdbcTable):
    """The table of bad records, in which the commit itself opens instants."""

    def open(self, instant: str) -> None:
        """See `sluice.connectors.sink.Table`. An instant left by a process that died before its commit is opened again.

        Raises:
            RetryableError: another process has committed it meanwhile.
        """
        state = self.state_of(instant)
        if state == "completed":
            raise RetryableError(
                "Another process has committed these bad records meanwhile.",
                next_step="the step is retried, and finds them.",
                table=self.writer.path,
                instant=instant,
            )
        if state == "pending":
            self.forbid_commit(instant)
        super().open(instant)

    def create(self) -> None:
        """Create the table if it doesn't exist.

        Raises:
            ActionRequiredError: another table has its name.
        """
        self.prepare_bookkeeping()
        fields = struct_of_ddl(self.jvm, self.writer.schema_ddl)["fields"]
        self.fit(fields, "errors.quarantine", create=True, evolve=True)


def quarantine_writer(table: TableSpec, errors: Errors) -> TableSpec:
    """The settings for writing a table's bad records.

    Args:
        table: the settings for the table's rows.
        errors: the pipeline's `errors` section.

    Raises:
        ActionRequiredError: errors.quarantine isn't a table on the same connection, or its name is too long.
    """
    path = quarantine_path(table.path, errors)
    there = PinnedJdbc.of(table).connection
    name = path.removeprefix(f"{_ID}{there}/")
    try:
        section = Jdbc.model_validate({"connection": there, "table": name, "schema": _DDL})
    except ValidationError:
        section = None
    if section is None or section.table_id != path:
        raise ActionRequiredError(
            "Bad records can't be set aside in a table of that name.",
            next_step=f"name one in errors.quarantine as {_ID}{there}/<table>, of {LONGEST} bytes at most; by "
            "default it is the table's name followed by `_quarantine`.",
            quarantine=path,
        )
    return section.writer(name, None, maintained=False, schema_ddl=_DDL)


def bad_records(ask: Ask, target: Target, paths: Sequence[str], *, whole: bool = True) -> Iterator[Quarantined]:
    """Committed bad records, a page at a time, in the same order each time.

    Args:
        ask: a function that runs queries.
        target: the table of bad records.
        paths: instants, or names of staging tables, which contain an instant.
        whole: whether to read key, value and headers, too.
    """
    dialect = target.dialect
    values = {name: sql_quoted(name) for name in _SHORT}
    values["kafka_timestamp"] = dialect.time_text.format(sql_quoted("kafka_timestamp"))
    if whole:
        values |= {name: dialect.hexadecimal.format(sql_quoted(name)) for name in _BYTES}
        values["kafka_headers"] = sql_quoted("kafka_headers")
    # A row as a single JSON text with bytes as hexadecimal digits, since each value may be a call of the JVM.
    row = ", ".join(f"'{name}', {value}" for name, value in values.items())
    order = ", ".join(map(sql_quoted, _ORDER))
    sql = (
        f"SELECT {dialect.json_object.format(row)} FROM {target.sql} WHERE {sql_quoted(INSTANT)} = ? "
        f"ORDER BY {order} LIMIT {_PAGE} OFFSET "
    )
    for instant in dict.fromkeys(instant_of_staging(path) or path for path in paths):
        first = 0
        while rows := ask(f"{sql}{first}", instant):
            yield from (_record(json.loads(str(text))) for (text,) in rows)
            first += len(rows)


def _record(row: Mapping[str, Any]) -> Quarantined:
    time = row["kafka_timestamp"]
    headers = row.get("kafka_headers") or []
    if isinstance(headers, str):  # in databases whose JSON type is text
        headers = json.loads(headers)
    key, value = (bytes.fromhex(row[name]) if row.get(name) is not None else None for name in _BYTES)
    return Quarantined(
        instant=row[INSTANT],
        topic=row["kafka_topic"],
        partition=row["kafka_partition"],
        offset=row["kafka_offset"],
        reason=row["reason"],
        stage=row["stage"],
        range_number=row["range_number"],
        run_id=row["run_id"],
        log=LogId(row["kafka_cluster_id"], row["kafka_topic_id"]),
        timestamp=datetime.fromisoformat(time).replace(tzinfo=UTC) if time else None,
        key=key,
        value=value,
        headers=tuple((h["key"], base64.b64decode(h["value"]) if h.get("value") else _empty(h)) for h in headers),
    )


def _empty(header: Mapping[str, Any]) -> bytes | None:
    return b"" if header.get("value") is not None else None


class QuarantineRows:
    """Reads the bad records of a pipeline without a JVM; see `sluice.connectors.views.QuarantineReader`.

    Args:
        path: the table's id, `jdbc://<connection>/<table>`.
    """

    def __init__(self, path: str) -> None:
        self.path = path

    def committed(self, instants: Iterable[str] = ()) -> dict[str, list[str]]:
        """The instants with bad records; the only path of each is the instant itself."""
        wanted = frozenset(instants)
        with self._asked() as (ask, target):
            if not ask(target.dialect.table_query, target.schema, target.name):
                return {}
            found = ask(f"SELECT DISTINCT {sql_quoted(INSTANT)} FROM {target.sql} ORDER BY {sql_quoted(INSTANT)}")
        return {str(i): [str(i)] for (i,) in found if not wanted or i in wanted}

    def records(self, paths: Sequence[str], *, whole: bool = True) -> Iterator[Quarantined]:
        """The records of instants, in order."""
        with self._asked() as (ask, target):
            yield from bad_records(ask, target, paths, whole=whole)

    @contextmanager
    def _asked(self) -> Iterator[tuple[Ask, Target]]:
        connection_id, _, table = self.path.removeprefix(_ID).partition("/")
        address = address_of(connection(connection_id))
        schema, name = schema_and_name(table)
        with asked(address) as ask:
            if address.dialect.schema_query is not None and not schema:
                schema = str(ask(address.dialect.schema_query)[0][0] or "")
            yield ask, Target(address.dialect, schema, name)
