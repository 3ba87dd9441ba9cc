"""The columns of a database's tables, and how a write job reads them: what START pins."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from sluice.connectors.options import SourceOptions
from sluice.connectors.source import RowSchema
from sluice.errors import ActionRequiredError
from sluice.identifiers import quoted
from sluice.sources.jdbc.noted import of_option, require_continued, require_nothing_missing
from sluice.sources.jdbc.tables import CONTINUED, TABLES, looking, position_of, section_of, windowed_of
from sluice.untrusted import json_of


def row_schema(options: SourceOptions, topics: Sequence[str], last: Mapping[str, str] | None = None) -> RowSchema:
    """The columns of all tables that are read, and how each is; see `sluice.connectors.source.TellsRows`.

    Raises:
        ActionRequiredError: two tables have a column of different types; or rows below a position may be new.
    """
    section = section_of(options)
    notes = of_option(last or {})
    before = json_of((last or {}).get(TABLES, "{}"))
    tables: dict[str, Any] = {}
    types: dict[str, tuple[str, str]] = {}
    names: dict[str, str] = {}
    with looking(section) as (ask, engine):
        found = [windowed_of(ask, engine, section, topic) for topic in topics]
        server = require_nothing_missing(ask, engine, section, found, last or {}) if section.has_horizon else {}
        for topic, windowed in zip(topics, found, strict=True):
            if topic in notes and section.has_horizon:
                require_continued(ask, engine, section, windowed, notes[topic])
            columns = []
            read_before = {name: sql for name, sql, *_ in before.get(topic, {}).get("columns", ())}
            for column in windowed.relation.columns:
                reading = engine.reading(column, section.numeric_mapping, section.db_timezone)
                other = types.setdefault(column.name.lower(), (reading.ddl, topic))
                if other[0] != reading.ddl:
                    raise ActionRequiredError(
                        f"Column {column.name} is {reading.ddl} in {topic} and {other[0]} in {other[1]}.",
                        next_step="load such tables by separate pipelines.",
                        source=topic,
                    )
                names.setdefault(column.name.lower(), column.name)
                kept = reading.earlier and read_before.get(column.name) == reading.earlier
                sql = reading.earlier if kept else reading.sql
                columns.append([column.name, sql, reading.fetched, reading.value, reading.problem])
            key = sorted((c for c in windowed.relation.columns if c.in_key), key=lambda c: c.in_key)
            tables[topic] = {
                "from": windowed.relation.sql,
                "at": windowed.expression,
                "bound": windowed.bound,
                "split": windowed.split,
                "offset": position_of(engine, section, windowed) if windowed.expression else "",
                "position": engine.position(windowed.bound, section.db_timezone),
                "columns": columns,
                "key": [column.name for column in key],
            }
    ddl = ", ".join(f"{quoted(names[name])} {kind}" for name, (kind, _) in types.items())
    return RowSchema(
        ddl,
        {
            TABLES: json.dumps(tables),
            "connection": section.connection,
            "zone": section.db_timezone,
            "overlap": str(section.overlap // timedelta(microseconds=1)),
            "fetch_size": str(section.fetch_size),
            "time": str(section.by_time),
            **({CONTINUED: json.dumps(server)} if server else {}),
        },
    )
