"""The statements of a commit, and the statements that create tables. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sluice.databases.dialect import Dialect
from sluice.identifiers import sql_quoted
from sluice.sinks.jdbc.options.names import (
    DELETED,
    FIRST_LOG,
    INSTANTS,
    LAST_LOG,
    LATEST,
    LOG,
    NUMBER,
    OFFSET,
    ORDERED,
    POSITIONS,
    RANK,
)

_UNIONED = 100  # SQLite allows at most 500


@dataclass(frozen=True)
class Target:
    """A table with its names for statements.

    Attributes:
        dialect: the database's dialect.
        schema: its schema; empty if there is none.
        name: its name.
        columns: the rows' columns, in the database's spelling.
        key: the key's columns; empty for appends.
        ordering: the columns that order a key's versions.
        number: the table's number among the tables of a commit, each of which needs a separate temporary table.
    """

    dialect: Dialect
    schema: str
    name: str
    columns: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    ordering: tuple[str, ...] = ()
    number: int = 0

    @property
    def sql(self) -> str:
        """The table's name as SQL."""
        return self.dialect.table(self.schema, self.name)

    @property
    def latest(self) -> str:
        """The temporary table with the last version of each key."""
        return self.dialect.temporary_table(self.schema, f"{LATEST}_{self.number}" if self.number else LATEST)

    @property
    def ordered(self) -> str:
        """The temporary table with all versions in order."""
        return self.dialect.temporary_table(self.schema, ORDERED)

    def own(self, name: str) -> str:
        """The name as SQL of one of the sink's tables, in the table's schema."""
        return self.dialect.table(self.schema, name)


def listed(names: Sequence[str], prefix: str = "") -> str:
    """Column names as SQL."""
    return ", ".join(f"{prefix}{sql_quoted(name)}" for name in names)


def bookkeeping(target: Target, long_text: str | None = None) -> Iterator[tuple[str, str]]:
    """Names of the bookkeeping tables, and the statements that create them.

    Args:
        target: a table of their schema.
        long_text: the type for texts of any length; None for the dialect's.
    """
    dialect = target.dialect
    long_text, options = long_text or dialect.long_text, dialect.table_options
    creates, number = dialect.creates, dialect.whole_number
    yield (
        POSITIONS,
        f"{creates} {target.own(POSITIONS)} "
        f"(sink_table VARCHAR(200) NOT NULL PRIMARY KEY, instant VARCHAR(17), metadata {long_text}){options}",
    )
    yield (
        INSTANTS,
        f"{creates} {target.own(INSTANTS)} "
        "(sink_table VARCHAR(200) NOT NULL, instant VARCHAR(17) NOT NULL, state VARCHAR(9) NOT NULL, "
        f"rests_on VARCHAR(17), completed VARCHAR(17), rows_written {number}, rows_deleted {number}, "
        f"metadata {long_text}, PRIMARY KEY (sink_table, instant)){options}",
    )


def create(target: Target, columns: Sequence[tuple[str, str, bool]], key: Sequence[str]) -> str:
    """A statement that creates the table.

    Args:
        target: the table.
        columns: the name, type and nullability of each column.
        key: the columns of its primary key.
    """
    parts = [f"{sql_quoted(name)} {kind}{'' if nullable else ' NOT NULL'}" for name, kind, nullable in columns]
    if key:
        parts.append(f"PRIMARY KEY ({listed(key)})")
    return f"CREATE TABLE {target.sql} ({', '.join(parts)}){target.dialect.table_options}"


def add_column(target: Target, name: str, kind: str) -> str:
    """A statement that adds a nullable column."""
    return f"ALTER TABLE {target.sql} ADD COLUMN {sql_quoted(name)} {kind}"


def staging(target: Target, name: str) -> str:
    """A statement that creates a staging table, whose columns have the table's types."""
    places = {LOG: 300, OFFSET: None, DELETED: None}
    return target.dialect.staging(target.own(name), target.sql, listed(target.columns), places)


def append(target: Target, name: str) -> str:
    """A statement that inserts a staging table's rows into the table."""
    return append_as(target, name, [target.dialect.quoted(column) for column in target.columns])


def append_as(target: Target, name: str, values: Sequence[str]) -> str:
    """As `append`, with SQL for the value of each of the table's columns."""
    columns = ", ".join(map(target.dialect.quoted, target.columns))
    return f"INSERT INTO {target.sql} ({columns}) SELECT {', '.join(values)} FROM {target.own(name)}"


def append_once(target: Target, name: str) -> str:
    """As `append`, if Spark has run a task twice: it inserts one row per record."""
    columns = listed(target.columns)
    ranked = f"row_number() OVER (PARTITION BY {sql_quoted(LOG)}, {sql_quoted(OFFSET)} ORDER BY {sql_quoted(OFFSET)})"
    rows = f"SELECT {columns}, {ranked} AS {sql_quoted(RANK)} FROM {target.own(name)}"
    return f"INSERT INTO {target.sql} ({columns}) SELECT {columns} FROM ({rows}) r WHERE {sql_quoted(RANK)} = 1"


def latest(target: Target, names: Sequence[str]) -> str:
    """A statement that creates a table with the last version of each key, by ordering columns, then by offset."""
    return _latest(target, _union(target, names))


def ordered(target: Target, names: Sequence[str]) -> str:
    """A statement that creates a table with all versions, numbered in the order in which they apply."""
    order = listed((*target.ordering, OFFSET, LOG), "u.")
    begin = target.dialect.temporary.format(target.ordered)
    numbered = f"row_number() OVER (ORDER BY {order}) AS {sql_quoted(NUMBER)}"
    return f"{begin} SELECT u.*, {numbered} FROM ({_union(target, names)}) u"


def latest_of(target: Target, first: int, last: int) -> str:
    """As `latest`, for the versions in a range of numbers, both included."""
    return _latest(target, f"SELECT * FROM {target.ordered} WHERE {sql_quoted(NUMBER)} BETWEEN {first} AND {last}")


def _latest(target: Target, rows: str) -> str:
    versions = ", ".join(f"s.{sql_quoted(name)} DESC" for name in (*target.ordering, OFFSET))
    key = f"PARTITION BY {listed(target.key, 's.')}"
    ranked = (
        f"SELECT s.*, row_number() OVER ({key} ORDER BY {versions}, s.{sql_quoted(LOG)}) AS {sql_quoted(RANK)}, "
        f"min(s.{sql_quoted(LOG)}) OVER ({key}) AS {sql_quoted(FIRST_LOG)}, "
        f"max(s.{sql_quoted(LOG)}) OVER ({key}) AS {sql_quoted(LAST_LOG)} FROM ({rows}) s"
    )
    begin = target.dialect.temporary.format(target.latest)
    return f"{begin} SELECT * FROM ({ranked}) r WHERE {sql_quoted(RANK)} = 1"


def _union(target: Target, names: Sequence[str]) -> str:
    columns = listed((*target.columns, LOG, OFFSET, DELETED))
    parts = [f"SELECT {columns} FROM {target.own(name)}" for name in names]
    while len(parts) > 1:
        groups = [parts[i : i + _UNIONED] for i in range(0, len(parts), _UNIONED)]
        unions = [" UNION ALL ".join(group) for group in groups]
        if len(unions) == 1:
            return unions[0]
        parts = [f"SELECT {columns} FROM ({union}) u{i}" for i, union in enumerate(unions)]
    return parts[0]


def scattered(target: Target) -> str:
    """A query for a key whose versions are in several partitions: two of these, and the place of one version."""
    return (
        f"SELECT {listed((FIRST_LOG, LAST_LOG, LOG, OFFSET))} FROM {target.latest} "
        f"WHERE {sql_quoted(FIRST_LOG)} <> {sql_quoted(LAST_LOG)} LIMIT 1"
    )


def delete(target: Target) -> str:
    """A statement that deletes the rows of keys whose last version is a delete."""
    deleted = f"s.{sql_quoted(DELETED)} = 1"
    if target.dialect.joins:  # by the table's name: MariaDB resolves an alias in the connection's schema only
        table = target.sql
        condition = f"{_same(target, table)} AND {deleted}{_not_older(target, table)}"
        return f"DELETE {table} FROM {table} JOIN {target.latest} s ON {condition}"
    return (
        f"DELETE FROM {target.sql} AS t WHERE EXISTS (SELECT 1 FROM {target.latest} s "
        f"WHERE {_same(target)} AND {deleted}{_not_older(target)})"
    )


def delete_absent(target: Target, snapshot: str) -> str:
    """A statement that deletes the rows whose keys are missing from a temporary table with a whole snapshot."""
    if target.dialect.joins:
        table, first = target.sql, sql_quoted(target.key[0])
        joined = f"{table} LEFT JOIN {snapshot} s ON {_same(target, table)}"
        return f"DELETE {table} FROM {joined} WHERE s.{first} IS NULL"
    return f"DELETE FROM {target.sql} AS t WHERE NOT EXISTS (SELECT 1 FROM {snapshot} s WHERE {_same(target)})"


def update(target: Target) -> str | None:
    """A statement that updates the rows of existing keys; None if the table has no columns besides the key."""
    others = [name for name in target.columns if name not in target.key]
    if not others:
        return None
    condition = f"{_same(target)} AND s.{sql_quoted(DELETED)} = 0{_not_older(target)}"
    if target.dialect.joins:
        values = ", ".join(f"t.{sql_quoted(name)} = s.{sql_quoted(name)}" for name in others)
        return f"UPDATE {target.sql} AS t JOIN {target.latest} s ON {condition} SET {values}"
    values = ", ".join(f"{sql_quoted(name)} = s.{sql_quoted(name)}" for name in others)
    return f"UPDATE {target.sql} AS t SET {values} FROM {target.latest} s WHERE {condition}"


def insert_new(target: Target) -> str:
    """A statement that inserts the rows of new keys."""
    columns = listed(target.columns)
    return (
        f"INSERT INTO {target.sql} ({columns}) SELECT {listed(target.columns, 's.')} FROM {target.latest} s "
        f"WHERE s.{sql_quoted(DELETED)} = 0 AND NOT EXISTS (SELECT 1 FROM {target.sql} t WHERE {_same(target)})"
    )


def drop_temporary(target: Target, table: str) -> str:
    """A statement that drops a temporary table, and doesn't commit the transaction."""
    return f"{target.dialect.drop_temporary} {table}"


def _same(target: Target, table: str = "t") -> str:
    return " AND ".join(f"{table}.{sql_quoted(name)} = s.{sql_quoted(name)}" for name in target.key)


def _not_older(target: Target, table: str = "t") -> str:
    """A condition that a version isn't older than the row; a row with a null in an ordering column counts as older."""
    if not target.ordering:
        return ""
    unknown = " OR ".join(f"{table}.{sql_quoted(name)} IS NULL" for name in target.ordering)
    theirs, ours = (listed(target.ordering, prefix) for prefix in (f"{table}.", "s."))
    return f" AND ({unknown} OR ({theirs}) <= ({ours}))"
