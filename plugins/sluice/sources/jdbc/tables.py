"""The tables of a database as a pipeline reads them: each with the column that bounds its windows, and its columns."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from sluice.connectors.connections import connection
from sluice.connectors.options import SourceOptions
from sluice.databases.connection import address_of, asked, engine_of
from sluice.databases.engine import Ask, Bound, Column, Engine, NotExactError, Relation
from sluice.databases.settings import require_known
from sluice.errors import ActionRequiredError, SluiceError
from sluice.sources.jdbc.options import JdbcTables

_WAIT = 60  # seconds for a query of START's
TABLES = "tables"
"""The option of a value's format that says how tables are read."""
SERVER = "server"
"""The option that says which server START has looked at; missing where any server will do, or of an older START."""

DURABLE = "durable"
"""The option that says what that server had on its disk by then."""
CONTINUED = "continued"
"""The option that says which server START has compared with that of the last START."""


@dataclass(frozen=True)
class Windowed:
    """A relation with the column that bounds its windows.

    Attributes:
        relation: the table, view or query.
        expression: that column, as SQL; empty in mode bulk.
        bound: what it holds.
        grain: the microseconds that its times are rounded to.
        column: the column itself; the first of several.
        split: the number of a row's split, as SQL; empty where there is one split.
        columns: all of several.
    """

    relation: Relation
    expression: str = ""
    bound: Bound = "number"
    grain: int = 1
    column: Column | None = None
    split: str = ""
    columns: tuple[Column, ...] = ()


def section_of(options: SourceOptions) -> JdbcTables:
    """The section of a source of tables."""
    if not isinstance(options, JdbcTables):
        raise TypeError(f"{type(options).__name__} is no section of tables")
    return options


@contextmanager
def looking(options: JdbcTables) -> Iterator[tuple[Ask, Engine]]:
    """A connection to the database for as long as the block; errors say which."""
    address = address_of(connection(options.connection))
    engine = engine_of(address)
    try:
        if options.has_horizon:
            engine.require_horizon()
            require_known(address, exact=True)
        if options.deletes:
            engine.require_snapshots()
        with asked(address, wait=_WAIT, who="the interval") as ask:
            yield ask, engine
    except SluiceError as error:
        if isinstance(error, NotExactError) and not options.by_time:
            error.of_numbers()
        error.locate(connection=options.connection)
        raise


def relation_of(ask: Ask, engine: Engine, options: JdbcTables, topic: str) -> Relation:
    """A topic's table, view or query."""
    if options.query is not None:
        return engine.of_query(ask, topic, options.query)
    return engine.relation(ask, topic)


def log_id(options: JdbcTables, relation: Relation) -> str:
    """What a position of the relation belongs to: the same table, by the same column."""
    by = "" if options.mode == "bulk" else ",".join(options.timestamp_column) or options.incrementing_column
    splits = [options.splits, options.split_column.lower()] if options.splits > 1 else []
    text = json.dumps([relation.id, "time" if options.by_time else options.mode, by.lower(), options.query, *splits])
    return hashlib.sha256(text.encode()).hexdigest()[:22]


def windowed_of(ask: Ask, engine: Engine, options: JdbcTables, topic: str) -> Windowed:
    """A topic with the column that bounds its windows.

    Raises:
        ActionRequiredError: there is no such table or column, or it can't bound windows.
    """
    relation = relation_of(ask, engine, options, topic)
    if options.mode == "bulk":
        return Windowed(relation)
    columns = [relation.column(name) for name in options.timestamp_column] if options.by_time else []
    if not options.by_time:
        columns = [_numbers(relation, options)]
    bounds = {engine.bound_of(column) for column in columns}
    bound = next(iter(bounds))
    wanted = ("instant", "local", "text") if options.by_time else ("number",)
    if len(bounds) != 1 or bound not in wanted:
        raise ActionRequiredError(
            f"Windows can't be bounded by {', '.join(f'{c.name} ({c.type})' for c in columns)}.",
            next_step="name a column of "
            + ("times, and several only of one type." if options.by_time else "whole numbers."),
            source=topic,
        )
    assert bound is not None
    if options.validate_non_null and all(column.nullable for column in columns):
        raise ActionRequiredError(
            f"Column {columns[-1].name} may be null, and a row in which it is would never be read.",
            next_step="make it NOT NULL; or set the source's `validate_non_null` to false, if no row lacks it.",
            source=topic,
        )
    names = ", ".join(column.sql for column in columns)
    expression = names if len(columns) == 1 else f"coalesce({names})"
    if topic in options.starting_ids:
        relation = _not_read_before(engine, options, relation, expression, bound)
    grain = max(engine.grain(column) for column in columns) if options.by_time else 1
    return Windowed(relation, expression, bound, grain, columns[0], _split(engine, relation, options), tuple(columns))


def _not_read_before(
    engine: Engine, options: JdbcTables, relation: Relation, expression: str, bound: Bound
) -> Relation:
    """The relation without the rows of its first time that another loader has read."""
    (start,) = options.positions_of(relation.topic)
    first = engine.literal(start, bound, options.db_timezone)
    number = _numbers(relation, options).sql
    rest = f"{expression} <> {first} OR {number} > {options.starting_ids[relation.topic]}"
    return replace(relation, sql=f"(SELECT * FROM {relation.sql} WHERE {rest}) sluice_rest")


def _numbers(relation: Relation, options: JdbcTables) -> Column:
    if options.incrementing_column:
        return relation.column(options.incrementing_column)
    numbered = [column for column in relation.columns if column.numbered]
    if len(numbered) == 1:
        return numbered[0]
    raise ActionRequiredError(
        "The database numbers no column of the table, or several.",
        next_step="name one in the source's `incrementing_column`.",
        source=relation.topic,
    )


def _split(engine: Engine, relation: Relation, options: JdbcTables) -> str:
    """The number of a row's split, as SQL."""
    if options.splits == 1:
        return ""
    keys = [column for column in relation.columns if column.in_key]
    column = relation.column(options.split_column) if options.split_column else keys[0] if len(keys) == 1 else None
    if column is None or engine.bound_of(column) != "number" or column.nullable:
        raise ActionRequiredError(
            "Windows can't be divided: "
            + (f"{column.name} ({column.type}) isn't" if column else "no column is the whole primary key, or")
            + " a column of whole numbers that is never null.",
            next_step="name one in the source's `split_column`, or leave `splits` out.",
            source=relation.topic,
        )
    return engine.split_of(column.sql, options.splits)


def position_of(engine: Engine, options: JdbcTables, windowed: Windowed) -> str:
    """A row's offset, as SQL."""
    if windowed.bound == "number":
        return windowed.expression
    return engine.microseconds(windowed.expression, windowed.bound, options.db_timezone)
